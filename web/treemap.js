// The picture that a survey page opens with: where the bytes, the files, the small files and the overhead are, as nested
// rectangles that lead further down, coloured by age, owner or kind. The survey keeps the directories that hold most of
// each; what is not among them is in one rectangle of its own, so that areas add up.
"use strict";

const Treemap = (() => {
  const { el, num, known, count, size, share, table } = Format;
  const { Figure } = Figures;
  const DAY = 86400;

  const MEASURES = {
    bytes: { title: "Bytes", field: "size_bytes", text: size, of: "the bytes", are: "are" },
    files: { title: "Files", field: "files", text: count, of: "the files", are: "are" },
    small: { title: "Small files", field: "small_files", text: count, of: "the small files", are: "are" },
    overhead: { title: "Overhead", field: "overhead_bytes", text: size, of: "the overhead", are: "is" },
  };
  const FIELDS = ["files", "small_files", "size_bytes", "small_size_bytes", "allocated_bytes", "overhead_bytes", "directories", "day_bytes"];
  const AGES = [[30, "less than a month", "a1"], [182, "1 to 6 months", "a2"], [365, "6 to 12 months", "a3"], [730, "1 to 2 years", "a4"],
    [1826, "2 to 5 years", "a5"], [16384, "more than 5 years", "a6"], [Infinity, "reset by packaging (before 1982)", "a0"]];
  const KIND_TINTS = ["c1", "c5", "c3", "c4", "c2", "c6", "k7", "k0"];
  const OWNER_TINTS = ["c1", "c2", "c3", "c4", "c5", "c6"];

  // ---------------------------------------------------------------- the tree

  const figures = (record) => ({ ...Object.fromEntries(FIELDS.map((field) => [field, num(record?.[field])])),
    uids: record?.uids ?? null, kinds: (record?.kind_bytes ?? []).map(num) });

  function less(whole, parts) {
    const rest = { ...Object.fromEntries(FIELDS.map((field) => [field, Math.max(0, parts.reduce((left, each) => left - each[field], whole[field]))])) };
    rest.kinds = whole.kinds.map((bytes, at) => Math.max(0, parts.reduce((left, each) => left - (each.kinds[at] ?? 0), bytes)));
    // Where all have one owner, so has the rest.
    rest.uids = whole.uids && whole.uids[0] === whole.uids[1] ? whole.uids : null;
    return rest;
  }

  /** Directories with their children; a chain of directories that hold nothing but the next one is one. */
  function build(shown) {
    const nodes = (shown.survey.tree?.nodes ?? []).map((record, at) => ({
      at, parent: record.parent, depth: num(record.depth), sums: figures(record.subtree), own: figures(record.own), children: [],
      name: record.name ?? `Directory ${at + 1}`, named: typeof record.name === "string",
    }));
    const roots = [];
    for (const node of nodes) (known(node.parent) && nodes[node.parent] ? nodes[node.parent].children : roots).push(node);
    if (!roots.length) return null;
    const joined = (above, name) => (above.endsWith("/") ? above + name : `${above}/${name}`);
    for (const node of nodes) {
      const above = known(node.parent) ? nodes[node.parent] : null;
      node.path = above ? joined(above.path, node.name) : node.name;
    }
    const fold = (node) => {
      const [only] = node.children;
      if (node.children.length === 1 && node.own.files === 0 && only.sums.files === node.sums.files) {
        return fold({ ...only, name: joined(node.name, only.name), parent: node.parent });
      }
      return Object.assign(node, { children: node.children.map(fold) });
    };
    const tops = roots.map(fold);
    const top = tops.length === 1 ? tops[0] : {
      at: -1, name: "All roots", path: "All roots", named: false, children: tops, own: figures({}), depth: 0, sums: tops.map((each) => each.sums).reduce((all, each) => ({
        ...Object.fromEntries(FIELDS.map((field) => [field, all[field] + each[field]])),
        kinds: KIND_TINTS.map((_, at) => (all.kinds[at] ?? 0) + (each.kinds[at] ?? 0)),
        uids: all.uids && each.uids ? [Math.min(all.uids[0], each.uids[0]), Math.max(all.uids[1], each.uids[1])] : null,
      })),
    };
    const byPlace = new Map();
    const enter = (node, above) => {
      node.above = above;
      byPlace.set(node.at, node);
      node.children.forEach((child) => enter(child, node));
    };
    enter(top, null);
    return { top, find: (at) => byPlace.get(at) ?? top };
  }

  /** The parts of a directory: its children, its own files, and what is not shown. */
  function parts(node) {
    const list = node.children.map((child) => ({ node: child, label: child.name, named: child.named, sums: child.sums }));
    if (!list.length) return [];
    list.push({ label: "files here", sums: node.own, here: true });
    const rest = less(node.sums, list.map((part) => part.sums));
    list.push({ label: rest.directories > 0 ? `${count(rest.directories)} other ${rest.directories === 1 ? "directory" : "directories"}` : "others", short: "others", sums: rest });
    return list;
  }

  // ---------------------------------------------------------------- colours

  function hues(shown, tree) {
    const reference = Date.parse(shown.survey.ages_relative_to ?? shown.survey.taken_at ?? "") / 1000 / DAY;
    const kinds = shown.survey.tree.kinds ?? [];
    const owners = (shown.survey.where?.owners?.rows ?? []).filter((row) => known(row.uid));
    const leading = [...owners].sort((a, b) => num(b.size_bytes) - num(a.size_bytes)).slice(0, OWNER_TINTS.length);
    const ownerName = (uid) => owners.find((row) => num(row.uid) === uid)?.name ?? `uid ${uid}`;
    const age = (sums) => (sums.size_bytes > 0 && Number.isFinite(reference) ? Math.max(0, reference - sums.day_bytes / sums.size_bytes) : null);
    const ageClass = (sums) => {
      const days = age(sums);
      return days === null ? null : AGES.find(([below]) => days < below);
    };
    const kindOf = (sums) => {
      const most = Math.max(0, ...sums.kinds);
      return most > 0 ? sums.kinds.indexOf(most) : -1;
    };
    const one = (sums) => sums.uids && sums.uids[0] === sums.uids[1];
    const anyOwner = one(tree.top.sums) || tree.top.sums.uids;
    return [
      Number.isFinite(reference) && {
        key: "age", title: "Age", tint: (sums) => ageClass(sums)?.[2] ?? "k0",
        legend: AGES.map(([, label, tint]) => ({ label, tint })),
        words: (sums) => ["modified", age(sums) === null ? Format.MISSING : ageClass(sums)[2] === "a0" ? "before 1982: reset by packaging" : `${Format.days(Math.round(age(sums)))} ago, mean by bytes`],
      },
      anyOwner && {
        key: "owner", title: "Owner",
        tint: (sums) => {
          const at = one(sums) ? leading.findIndex((row) => num(row.uid) === sums.uids[0]) : -1;
          return at >= 0 ? OWNER_TINTS[at] : one(sums) ? "k7" : "k0";
        },
        legend: [...leading.map((row, at) => ({ label: row.name ?? `uid ${row.uid}`, name: true, tint: OWNER_TINTS[at] })),
          owners.length > leading.length && { label: "another owner", tint: "k7" }, { label: "several owners", tint: "k0" }].filter(Boolean),
        words: (sums) => ["owner", one(sums) ? ownerName(sums.uids[0]) : "several"],
      },
      {
        key: "kind", title: "Kind", tint: (sums) => KIND_TINTS[kindOf(sums)] ?? "k0",
        legend: kinds.map((label, at) => ({ label, tint: KIND_TINTS[at] ?? "k0" })),
        words: (sums) => {
          const at = kindOf(sums);
          return ["most bytes", at < 0 ? Format.MISSING : `${kinds[at]} (${share(sums.kinds[at] / sums.size_bytes)})`];
        },
      },
    ].filter(Boolean);
  }

  // ---------------------------------------------------------------- the figure

  function tip(part, whole, measure, palette) {
    const { sums } = part;
    const of = (value, all) => (all > 0 ? ` (${share(value / all)})` : "");
    return {
      title: Format.shorten(part.path, 200), name: true,
      rows: [["size", size(sums.size_bytes)], ["files", count(sums.files)],
        ["small files", count(sums.small_files) + of(sums.small_files, sums.files)], ["overhead", size(sums.overhead_bytes)],
        ...palette.map((hue) => hue.words(sums)),
        [`share of ${measure.of}`, whole > 0 ? share(sums[measure.field] / whole) : Format.MISSING]].map(([label, value]) => ({ label, value })),
    };
  }

  function picture(shown) {
    const tree = build(shown);
    if (!tree || tree.top.sums.files === 0) return null;
    const palette = hues(shown, tree);
    const measures = Object.entries(MEASURES).filter(([, measure]) => tree.top.sums[measure.field] > 0);
    const hueOf = (state) => palette.find((hue) => hue.key === state.hue) ?? palette[0];
    const everything = [];
    const collect = (node) => (node.children.length ? parts(node) : [{ node, sums: node.sums }]).forEach((part) => (part.node?.children.length ? collect(part.node) : everything.push(part.sums)));
    collect(tree.top);
    /** The colours that occur, so that the legend has no others. */
    const tintsOf = (state) => new Set(everything.filter((sums) => sums[MEASURES[state.measure].field] > 0).map(hueOf(state).tint));
    const all = (state) => tree.top.sums[MEASURES[state.measure].field];

    /** What cannot be opened leads into the directory that it is drawn in, `within`. */
    const tile = (part, above, levels, state, color, within) => {
      const measure = MEASURES[state.measure];
      const path = part.node ? part.node.path : `${above.path}: ${part.label}`;
      const below = part.node && levels > 1 ? parts(part.node) : [];
      const tint = color(hueOf(state).tint(part.sums));
      return {
        name: part.short ?? part.label, value: part.sums[measure.field], at: part.node?.children.length ? part.node.at : within,
        tip: tip({ path, sums: part.sums }, all(state), measure, palette),
        itemStyle: { color: tint },
        children: below.map((each) => tile(each, part.node, levels - 1, state, color, part.node.at)).filter((each) => each.value > 0),
      };
    };

    return new Figure({
      name: "tree",
      title: "Where it is",
      heading: (state) => `Where ${MEASURES[state.measure].of} ${MEASURES[state.measure].are}`,
      note: "The area of a rectangle is its share. Choose one to look into it.",
      alt: "Map of the directories that hold most",
      state: { measure: measures[0][0], hue: palette[0].key, at: tree.top.at },
      controls: [{ key: "measure", label: "Area", options: measures.map(([key, measure]) => [key, measure.title]) },
        { key: "hue", label: "Colour", options: palette.map((hue) => [hue.key, `By ${hue.title.toLowerCase()}`]) }],
      legend: (color, state) => hueOf(state).legend.filter((entry) => tintsOf(state).has(entry.tint)).map((entry) => ({ label: entry.label, name: entry.name, color: color(entry.tint), block: true })),
      tiles(state, color, width) {
        const node = tree.find(state.at);
        const levels = width < 560 ? 2 : 3;
        const list = parts(node);
        return (list.length ? list : [{ node, label: node.name, sums: node.sums }])
          .map((part) => tile(part, node, levels, state, color, null)).filter((each) => each.value > 0);
      },
      open: (data, figure) => known(data?.at) && figure.set("at", data.at),
      trail(state) {
        const way = [];
        for (let node = tree.find(state.at); node; node = node.above) way.unshift(node);
        return way.map((node, index) => ({
          at: node.at, name: node.named, last: index === way.length - 1,
          text: index === 0 ? node.path : node.name,
        }));
      },
      table(state) {
        const node = tree.find(state.at);
        const list = parts(node);
        const whole = all(state);
        const { field, of } = MEASURES[state.measure];
        const rows = (list.length ? list : [{ node, label: node.name, named: node.named, sums: node.sums }]).filter((part) => part.sums.files > 0)
          .sort((a, b) => b.sums[field] - a.sums[field]);
        return {
          caption: `Parts of ${node.path}`,
          columns: [{ title: "Part", text: true }, { title: `Share of ${of}` }, { title: "Size" }, { title: "Files" }, { title: "Small files" }, { title: "Overhead" },
            ...palette.map((hue) => ({ title: hue.title, text: true }))],
          rows: rows.map(({ label, named, sums }) => [{ text: label, name: named }, { text: whole > 0 ? share(sums[field] / whole) : Format.MISSING, value: sums[field] },
            { text: size(sums.size_bytes), value: sums.size_bytes }, { text: count(sums.files), value: sums.files }, { text: count(sums.small_files), value: sums.small_files },
            { text: size(sums.overhead_bytes), value: sums.overhead_bytes }, ...palette.map((hue) => ({ text: hue.words(sums)[1], name: hue.key === "owner" }))]),
          sortable: true,
        };
      },
    });
  }

  /** Labels of rows of a list of directories, in which a chain of ancestors is one row: the last that holds nearly all. */
  function unchained(rows, field) {
    const inside = (path, above) => path !== above && path.startsWith(above.endsWith("/") ? above : `${above}/`);
    const holds = (row, path) => rows.some((other) => typeof other.path === "string" && inside(other.path, path) && num(other[field]) >= 0.9 * num(row[field]));
    return rows.filter((row) => typeof row.path !== "string" || !holds(row, row.path));
  }

  /** Directories whose bytes differ most between two surveys of the same tree, of those in both; chains are one. */
  function grown(before, after) {
    const [old, now] = [before, after].map((each) => (each.survey.anonymous ? null : build(each)));
    if (!old || !now || old.top.path !== now.top.path) return [];
    const earlier = new Map();
    const enter = (node, visit) => {
      visit(node);
      node.children.forEach((child) => enter(child, visit));
    };
    enter(old.top, (node) => earlier.set(node.path, node.sums));
    const found = [];
    enter(now.top, (node) => {
      const a = earlier.get(node.path);
      if (a && a.size_bytes !== node.sums.size_bytes) found.push({ path: node.path, a, b: node.sums, change: node.sums.size_bytes - a.size_bytes });
    });
    const inside = (path, above) => path.startsWith(above.endsWith("/") ? above : `${above}/`);
    const last = found.filter((row) => !found.some((other) => other !== row && inside(other.path, row.path) && Math.abs(other.change) >= 0.9 * Math.abs(row.change) && Math.sign(other.change) === Math.sign(row.change)));
    return last.sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, 12);
  }

  return { picture, unchained, grown };
})();
