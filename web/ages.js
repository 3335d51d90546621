// The section of the page about the ages of files: how much is of which age, as one bar for each time of a file, and the
// curves behind it. What packaging reset to 1970 or 1980 is apart from all ages.
"use strict";

const Ages = (() => {
  const { num, known, count, share, bucket, cells, table } = Format;
  const { Figure, line, bars } = Figures;
  const { places, holds, bucketAxis, part, sum, LINEAR_OR_LOG } = Sections.helpers;
  const TIMES = [["mtime", "Modified (mtime)", "c1"], ["ctime", "Changed (ctime)", "c3"], ["atime", "Accessed (atime)", "c4"]];
  const RAMP = ["a1", "a2", "a3", "a4", "a5", "a6"];
  const RESET = "reset by packaging (before 1982)";

  // ---------------------------------------------------------------- one bar for each time

  /** Colour number `at` of `of` along the ramp of ages; between two of its colours, their mean. */
  function tint(color, at, of) {
    const place = of > 1 ? (at * (RAMP.length - 1)) / (of - 1) : 0;
    const [low, high] = [Math.floor(place), Math.ceil(place)].map((index) => color(RAMP[index]).match(/[0-9a-f]{2}/gi)?.map((two) => parseInt(two, 16)));
    if (!low || !high || low.length < 3 || high.length < 3) return color(RAMP[Math.round(place)]);
    return `#${low.slice(0, 3).map((value, index) => Math.round(value + (high[index] - value) * (place % 1)).toString(16).padStart(2, "0")).join("")}`;
  }

  const { shortDays } = Format;
  const classOf = (breaks, at) => (breaks.length === 0 ? "of any age" : at === 0 ? `less than ${shortDays(breaks[0])}` : at === breaks.length ? `${shortDays(breaks.at(-1))} or more` : `${shortDays(breaks[at - 1])} to ${shortDays(breaks[at])}`);

  function shares({ breaks_days: breaks, times }) {
    const labels = [...Array.from({ length: breaks.length + 1 }, (_, at) => classOf(breaks.map(num), at)), RESET];
    const colorOf = (color, at) => (at > breaks.length ? color("a0") : tint(color, at, breaks.length + 1));
    const rows = times.flatMap(({ name, files, bytes }) => [["files", files], ["bytes", bytes]].filter(([, side]) => side).map(([what, side]) => ({
      label: `${TIMES.find(([key]) => key === name)?.[1] ?? name}: ${what}`, values: [...side.fractions, side.reset_fraction].map(num),
    })));
    const occurs = labels.map((_, at) => rows.some(({ values }) => values[at] > 0));
    return new Figure({
      name: "ages",
      title: "Ages of files and of their bytes",
      note: "In whole days at the time of the survey; each bar is all files, or all bytes. Access times depend on mount options: with relatime they lag by up to a day, with noatime they are not updated.",
      alt: "Bars of the shares of files and bytes by age",
      legend: (color) => labels.map((label, at) => ({ label, color: colorOf(color, at), block: true })).filter((_, at) => occurs[at]),
      rows: (_, color) => rows.map(({ label, values }) => ({
        label, value: 1, text: `${share(values[0])} ${labels[0]}`,
        parts: values.map((value, at) => ({ value, color: colorOf(color, at) })),
        tip: { title: label, rows: values.map((value, at) => ({ color: colorOf(color, at), block: true, label: labels[at], value: share(value) })).filter((_, at) => occurs[at]) },
      })),
      table: () => ({
        caption: "Ages: share of the files and of the bytes",
        columns: [{ title: "Time", text: true }, ...labels.map((title) => ({ title }))],
        rows: rows.map(({ label, values }) => [label, ...values.map((value) => cells.share(value))]),
      }),
    });
  }

  /** Half and nine tenths of what has an age, and how much has none. */
  function quantiles({ times }) {
    const side = (each) => [each?.half_days, each?.nine_tenths_days].map((days) => cells.shortDays(days));
    return table({
      caption: "Ages in days: half, or 90 %, are that old or younger, without what was reset by packaging",
      columns: [{ title: "Time", text: true }, { title: "Half of the files" }, { title: "90 % of the files" }, { title: "Half of the bytes" }, { title: "90 % of the bytes" }, { title: "Oldest" },
        { title: "Reset: of the files" }, { title: "of the bytes" }],
      rows: times.map(({ name, files, bytes }) => [TIMES.find(([key]) => key === name)?.[1] ?? name, ...side(files), ...side(bytes), cells.days((files ?? bytes)?.oldest_days),
        cells.share(files?.reset_fraction), cells.share(bytes?.reset_fraction)]),
    });
  }

  // ---------------------------------------------------------------- curves

  function curves(shown, { first_reset_days: firstReset }) {
    const stamps = TIMES
      .map(([key, label, tint]) => ({ key, label, tint, files: shown.dist(`${key}_age`), bytes: shown.dist(`${key}_age_bytes`) }))
      .filter((stamp) => stamp.files || stamp.bytes);
    if (!stamps.length) return null;
    // Days of a time before 1982: packaging writes 1970 and 1980 where it has no time. They are said, not drawn.
    // Buckets are powers of two: one is reset if its middle is.
    const isReset = (low) => known(firstReset) && num(low) * Math.SQRT2 >= num(firstReset);
    const reset = (entry) => isReset(entry.low);
    const everyEntry = (dist) => dist?.buckets ?? [];
    const entries = (dist) => everyEntry(dist).filter((entry) => !reset(entry));
    const resets = stamps.map((stamp) => ({ ...stamp, share: part(sum(everyEntry(stamp.files).filter(reset).map((entry) => entry.count)), stamp.files?.count) })).filter((stamp) => stamp.share > 0);
    const all = stamps.flatMap((stamp) => [entries(stamp.files), entries(stamp.bytes)]);
    /** Share that is as old as the lower edge of each bucket, or older. */
    const older = (dist) => {
      const kept = sum(entries(dist).map((entry) => entry.count));
      let left = kept;
      return entries(dist).map((entry) => {
        const point = [Math.max(-1, num(entry.low) === 0 ? -1 : Math.log2(num(entry.low))), part(left, kept)];
        left -= num(entry.count);
        return point;
      }).concat(entries(dist).length ? [[places(entries(dist).at(-1))[1], part(left, kept)]] : []);
    };
    /** The first view of an axis: without the ends that hold next to nothing. */
    const startWhereSomethingIs = (x, dists) => {
      const held = dists.flatMap((dist) => entries(dist).filter((entry) => part(entry.count, dist.count) >= 0.003)).flatMap(places);
      return held.length ? { ...x, start: [Math.min(...held), Math.max(Math.min(...held) + 2, ...held)] } : x;
    };
    const panels = [["Share of the files", "files"], ["Share of the bytes", "bytes"]].filter(([, key]) => stamps.some((stamp) => stamp[key]));
    const figure = new Figure({
      name: "age-curves",
      title: "Share that is that old or older",
      heading: (state) => (state.view === "older" ? "Share that is that old or older" : "Share per bucket of age"),
      note: "The axis is logarithmic: each step is twice as old." + (resets.length ? " What was reset by packaging is left out." : ""),
      alt: "Curves of the ages of files, by files and by bytes",
      state: { view: "older", axis: "log" },
      controls: [{ key: "view", label: "View", options: [["older", "That old or older"], ["bucket", "Per bucket"]] },
        { ...LINEAR_OR_LOG, when: (state) => state.view === "bucket" }],
      legend: (color) => stamps.map((stamp) => ({ key: stamp.key, label: stamp.label, color: color(stamp.tint) })),
      layout(state, color) {
        const list = stamps.filter((stamp) => !state.hidden.has(stamp.key));
        const x = startWhereSomethingIs(bucketAxis(all, "days", "Age"), list.flatMap((stamp) => [stamp.files, stamp.bytes].filter(Boolean)));
        if (state.view === "older") {
          return {
            x: { ...x, snap: true, full: [-1, x.full[1]], stops: [-1, ...Array.from({ length: Math.ceil(x.full[1]) + 1 }, (_, power) => power)] },
            panels: panels.map(([title, key]) => ({
              title, unit: "share", min: 0, max: 1, step: 0.25,
              series: list.filter((stamp) => stamp[key]).map((stamp) => line(older(stamp[key]), { color: color(stamp.tint) })),
            })),
            tip(place) {
              const edge = place < -0.5 ? -1 : Math.round(place);
              const value = (dist) => older(dist).find(([from]) => from === edge)?.[1] ?? 0;
              return {
                title: `${Format.days(edge < 0 ? 0 : 2 ** edge)} old or older`,
                columns: ["of files", "of bytes"],
                rows: list.map((stamp) => ({ color: color(stamp.tint), label: stamp.label, value: [share(value(stamp.files)), share(value(stamp.bytes))] })),
              };
            },
          };
        }
        return {
          x,
          panels: panels.map(([title, key]) => ({
            title, unit: "share", log: state.axis === "log",
            series: list.flatMap((stamp, slot) => (stamp[key] ? [bars(entries(stamp[key]).map((entry) => [...places(entry), part(entry.count, stamp[key].count)]),
              { color: color(stamp.tint), slot, slots: list.length })] : [])),
          })),
          tip(place) {
            const entry = all.flat().find((candidate) => holds(candidate, place));
            const value = (dist) => {
              const found = entries(dist).find((candidate) => holds(candidate, place));
              return share(found ? part(found.count, dist.count) : 0);
            };
            return entry && {
              title: bucket(entry.low, entry.high, "days"),
              columns: ["of files", "of bytes"],
              rows: list.map((stamp) => ({ color: color(stamp.tint), label: stamp.label, value: [value(stamp.files), value(stamp.bytes)] })),
            };
          },
        };
      },
      table() {
        const edges = new Map(stamps.flatMap((stamp) => [everyEntry(stamp.files), everyEntry(stamp.bytes)]).flat().map((entry) => [num(entry.low), entry]));
        const cell = (dist, low) => {
          const found = everyEntry(dist).find((entry) => num(entry.low) === low);
          return dist ? share(part(found?.count ?? 0, dist.count)) : Format.MISSING;
        };
        return {
          caption: "Ages: share of the files and of the bytes per bucket",
          columns: [{ title: "Age", text: true }, ...stamps.flatMap((stamp) => [{ title: `${stamp.label}, files` }, { title: `${stamp.label}, bytes` }])],
          rows: [...edges.keys()].sort((a, b) => a - b).map((low) => [`${bucket(low, edges.get(low).high, "days")}${isReset(low) ? ", reset by packaging" : ""}`,
            ...stamps.flatMap((stamp) => [cell(stamp.files, low), cell(stamp.bytes, low)])]),
        };
      },
    });
    return figure;
  }

  function section(shown) {
    const { ages } = shown.source;
    if (!ages?.times?.length) return null;
    const { files, bytes } = ages.times[0];
    const [half, halfOfBytes] = [files?.half_days, bytes?.half_days];
    const lead = [ages.times[0].name === "mtime" && known(half) && known(halfOfBytes) &&
      `Half of the files were modified within the last ${Format.days(half)}, and files with half of the bytes within the last ${Format.days(halfOfBytes)}.`,
    num(files?.reset_fraction) > 0 && `${share(files.reset_fraction)} of the files have a time from before 1982, as packaging writes it: they have no age here.`,
    num(shown.counts.future_times) > 0 && `${count(shown.counts.future_times)} timestamps were later than the survey and count as age 0.`];
    return { id: "ages", title: "File ages", short: "Ages", lead, parts: [shares(ages), quantiles(ages), curves(shown, ages)].filter(Boolean) };
  }

  return { section };
})();
