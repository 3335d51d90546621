// The page of histories: reads the data, builds header and sections.
"use strict";

Pages.add("history", (data) => {
  const { num, known, size, count, share, days } = Format;
  const trees = data.trees ?? [];

  if (!trees.some((tree) => tree.points?.length)) {
    Shell.showNothing(data.title || "History");
    return;
  }
  const [tree] = trees;
  const last = tree.points.at(-1);
  const full = tree.forecasts.filter((forecast) => known(forecast.days)).sort((a, b) => num(a.days) - num(b.days))[0];
  const alone = trees.length === 1;
  Shell.show({
    subject: "history",
    sections: [Histories.curves(data), Histories.growth(data), Histories.surveys(data)].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "History of surveys",
        title: data.title || "History",
        roots: alone ? tree.roots : [],
        facts: [["Surveys", count(trees.reduce((sum, each) => sum + each.points.length, 0))], ...(alone ? [["From", Format.time(tree.points[0].taken_at)], ["To", Format.time(last.taken_at)]] : [])],
        badges: trees.some((each) => each.forecasts.some((forecast) => known(forecast.days) && num(forecast.days) < 90)) ? [["warn", "Full within 90 days"]] : [],
      }),
      Shell.summary(data.words),
      alone && Shell.keys([
        ["Files", count(last.files), Histories.perDay(tree.files, "count")],
        ["Bytes", size(last.size_bytes), Histories.perDay(tree.size_bytes, "bytes")],
        ["In use", Histories.inUse(last) === null ? Format.MISSING : share(Histories.inUse(last)), "of what users may fill, as df has it"],
        ["Full in", full ? days(Math.round(num(full.days))) : Format.MISSING, full && `of ${full.of}, at this rate`],
      ]),
    ],
    footer: Shell.footer({
      method: [
        "Growth is the median of the slopes between all pairs of surveys (Theil and Sen), which one odd survey does not change. A forecast uses that of the last 30 days if these have at least three surveys, " +
          "and assumes that what is in use keeps growing so. Use and room are those of the whole file system, whoever writes to it. KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    }),
  });
});
