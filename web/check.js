// The page of a check of a store: the verdict, how many problems there are and what helps, and the problems.
"use strict";

Pages.add("check", (data) => {
  const { el, num, count, size, cells, table } = Format;
  const { Figure } = Figures;
  const { check } = data;
  /** Field of the count, what to call them, what to do, and how serious they are. */
  const REMEDIES = [
    ["lost", "Lost", "restore from a backup, or granulo store repair --drop-lost", "warn"],
    ["rebuildable", "Of devices", "return the device, or granulo store rebuild", "warn"],
    ["repairable", "Repairable", "granulo store repair", "c5"],
    ["of_index", "Of the index", "granulo store check --rebuild-index", "c5"],
    ["harmless", "Harmless", "affect no live object; granulo store repair removes them", "c1"],
  ];
  const WORDS = { repair: "repairable", rebuild: "device", return: "device", rebuild_index: "index", harmless: "harmless", lost: "lost" };

  if (!check?.schema) {
    Shell.showNothing(data.title || "Store check");
    return;
  }
  const problems = check.problems ?? [];
  const all = num(check.problem_count);
  const incomplete = check.completeness?.state === "incomplete";
  const seen = REMEDIES.filter(([field]) => num(check[field]) > 0);
  const picture = seen.length > 0 && new Figure({
    name: "problems",
    title: "Problems by what helps",
    alt: "Bar chart of the problems by what helps",
    rows: (_, color) => seen.map(([field, title, remedy, tint]) => ({
      label: `${title}: ${remedy}`, value: num(check[field]), text: count(check[field]), color: color(tint),
      tip: { title, rows: [{ label: "problems", value: count(check[field]) }, { label: "what helps", value: remedy }] },
    })),
  });
  const list = problems.length > 0 && {
    id: "problems", title: "Problems", short: "Problems",
    lead: [all > problems.length && `The first ${count(problems.length)} of ${count(all)}.`],
    parts: [el("div", { class: "block" }, table({
      caption: "Problems", sortable: true,
      columns: [{ title: "Severity", text: true }, { title: "Part", text: true }, { title: "Device", text: true }, { title: "File", text: true }, { title: "Object", text: true }, { title: "Cause", text: true }],
      rows: problems.map((problem) => [WORDS[problem.remedy] ?? problem.remedy, (problem.kind ?? "").replaceAll("_", " "), problem.device === null ? "" : String(problem.device),
        { text: problem.path, name: true }, { text: problem.object ?? "", name: true }, { text: problem.cause, name: true }]),
    }))],
  };
  const looked = {
    id: "looked", title: "What was looked at", short: "Looked at", lead: [],
    parts: [el("div", { class: "block" }, table({
      caption: "What was looked at", columns: [{ title: "What", text: true }, { title: "Number" }],
      rows: [["Keys", cells.count(check.keys)], ["Segments", cells.count(check.segments)], ["Tables of the index", cells.count(check.tables)],
        ...(check.deep ? [["Large files, every unit", cells.count(check.large_objects)], ["Bytes read and verified", cells.size(check.verified_bytes)]] : []),
        ...(num(check.quarantined_bytes) > 0 ? [["In quarantine, left by a crash", cells.size(check.quarantined_bytes)]] : [])],
    }))],
  };
  Shell.show({
    subject: "check",
    sections: [list, looked].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "Store check",
        title: data.title || "Store check",
        facts: [["Store", check.home], ["Machine", check.host], ["Checked", check.written_at ? Format.time(check.written_at) : null],
          ["Depth", check.deep ? "every byte" : "metadata"]].filter(([, value]) => value),
        badges: [...(all === 0 && check.complete && !incomplete ? [["good", "No problems"]] : []), ...(all > 0 ? [["warn", all === 1 ? "1 problem" : `${count(all)} problems`]] : []),
          ...(check.complete ? [] : [["warn", "Interrupted"]]), ...(incomplete ? [["warn", "Something may be missing"]] : []), ...(check.index_rebuilt ? [["", "Index rebuilt first"]] : [])],
      }),
      Shell.summary(data.words),
      Shell.keys([["Problems", count(all)], ["Keys", count(check.keys)], ["Segments", count(check.segments)],
        check.deep && ["Verified", size(check.verified_bytes), "read and compared with checksums"]]),
      picture,
    ],
    footer: Shell.footer({
      method: ["A check changes nothing. Without --deep it reads superblocks, index and the beginning of every file; with it, every record on every copy and every stripe unit.",
        "KiB, MiB and GiB are powers of 1,024."],
      again: "check", command: check.home ? `granulo store check ${Shell.shellWord(check.home)}${check.deep ? " --deep" : ""} --report check.html` : null,
      data,
    }),
  });
});
