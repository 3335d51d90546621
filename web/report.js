// The page of surveys: reads the data, builds header and sections, and follows the choice of source.
"use strict";

Pages.add("survey", (data) => {
  const { el, num, known, count, size, share, signed, cells } = Format;
  const { shellWord } = Shell;
  const all = (data.sources ?? []).map(Sections.view);
  /** Of two surveys of one tree, the later one is shown first. */
  let chosen = areOfOneTree() ? all.indexOf(byTime()[1]) : 0;

  // ---------------------------------------------------------------- header

  const METHODS = {
    walk: "walked the tree", "inode-scan": "scanned inode tables", merge: "merged from several surveys", fsstats: "read from an fsstats file", published: "published table", list: "read from a list of sizes",
  };

  /**
   * What is in use of a file system, as df has it: room that only root may use is neither free nor in use by anyone, so
   * that free is what users may write, and all is what is in use and free.
   */
  function room({ capacity_bytes, free_bytes, available_bytes }) {
    if (![capacity_bytes, available_bytes].every(known)) return null;
    const used = num(capacity_bytes) - num(known(free_bytes) ? free_bytes : available_bytes);
    const all = used + num(available_bytes);
    return { used, free: num(available_bytes), fraction: all > 0 ? used / all : 0 };
  }

  /** Kind, size and room of a file system. */
  function fileSystem(found) {
    const has = room(found);
    return [found.kind, ...(has ? [`${size(found.capacity_bytes)}, ${share(has.fraction)} in use, ${size(has.free)} free`] : [])].filter(Boolean).join(", ");
  }

  function header(shown) {
    const { survey } = shown;
    const machines = survey.machines ?? [];
    const hosts = machines.map(({ host }) => host).filter(Boolean);
    const systems = machines.flatMap((machine) => machine.file_systems ?? []);
    return Shell.head({
      kicker: "File size survey",
      title: data.title || "File size survey",
      roots: (data.title ?? "").startsWith(shown.roots.join(", ")) ? [] : shown.roots,
      facts: [
        ["Machine", hosts.join(", ")],
        ["File system", systems.length > 2 ? `${systems.length} of them` : systems.map(fileSystem).join("; ")],
        ["Method", survey.method ? METHODS[survey.method] ?? survey.method : null],
        ["Taken", survey.taken_at ? Format.time(survey.taken_at) : null],
        ["Duration", num(survey.elapsed_seconds) > 0 ? Format.duration(survey.elapsed_seconds) : null],
      ].filter(([, value]) => value),
      badges: [
        survey.complete === false && ["warn", "Partial: interrupted"],
        survey.anonymous && ["", "Anonymous"],
        survey.resolution === "buckets" && ["", "Interpolated from a table"],
      ].filter(Boolean),
    });
  }

  /** The machine and the file systems of a survey, as the kernel described them. */
  function machines(shown) {
    const list = shown.survey.machines ?? [];
    const parts = list.map(({ host, kernel, file_systems: systems }) => {
      const pairs = (found) => [
        ["Surveyed on it", (found.roots ?? []).join(", ")], ["Type", found.kind], ["Device", found.device], ["Mounted at", found.mount_point], ["Mount options", found.mount_options],
        ["Label", found.label], ["UUID", found.uuid],
        ["In use", room(found) && [`${size(room(found).used)}, ${share(room(found).fraction)}`, el("small", {}, `${size(room(found).free)} free, as df has it; capacity ${size(found.capacity_bytes)}`)]],
        ["Inodes in use", known(found.inodes) && num(found.inodes) > 0 ? `${count(num(found.inodes) - num(found.free_inodes))}, ${share(1 - num(found.free_inodes) / num(found.inodes))}` : null],
      ].filter(([, value]) => value);
      return el("div", { class: "block" }, el("h3", { class: "name" }, [host, kernel && `Linux ${kernel}`].filter(Boolean).join(", ") || "Machine"),
        (systems ?? []).map((found) => el("dl", { class: "facts" }, pairs(found).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "name" }, value))))));
    });
    return parts.length > 0 && { id: "machine", title: list.length > 1 ? "Machines and file systems" : "Machine and file system", short: "Machine", lead: [], parts };
  }

  function warnings(shown) {
    const errors = num(shown.counts.errors);
    const list = [
      shown.survey.complete === false && "The survey was interrupted: every figure covers only the part scanned so far.",
      errors > 0 && [`${count(errors)} ${errors === 1 ? "entry" : "entries"} could not be read and ${errors === 1 ? "is" : "are"} missing here. `,
        shown.survey.errors?.by_kind?.length ? el("a", { href: "#counted" }, "Show errors") : ""],
    ].filter(Boolean);
    return list.length > 0 && el("ul", { class: "warnings", role: "note" }, list.map((text) => el("li", {}, text)));
  }

  function keyFigures(shown) {
    const small = Sections.upTo(shown, shown.small);
    const dist = shown.dist("file_size");
    const { counts, totals } = shown;
    const empty = counts.empty_files;
    return Shell.keys([
      ["Files", count(counts.files), known(counts.directories) && num(counts.directories) > 0 ? `in ${count(counts.directories)} directories` : null],
      ["Bytes", size(totals.size_bytes), known(totals.allocated_bytes) && num(totals.allocated_bytes) > 0 ? `${size(totals.allocated_bytes)} allocated` : null],
      ["Median size", size(dist?.deciles?.[4]), known(dist?.mean) ? `mean ${size(dist.mean)}` : null],
      small && [`${size(shown.small)} or less`, share(small.files), `${share(small.bytes)} of bytes`],
      ...overheadKeys(shown),
      known(empty) && num(empty) > 0 && ["Empty files", count(empty), `${share(num(counts.files) > 0 ? num(empty) / num(counts.files) : 0)} of files`],
    ]);
  }

  /**
   * Overhead is what is allocated beyond the sizes, as a share of what is allocated; what sparse files lack is another
   * figure. Only the sums by owner, or by extension, tell the two apart, where they are of every file.
   */
  function overheadKeys(shown) {
    const { size_bytes, allocated_bytes, overhead_fraction } = shown.totals;
    const allocated = num(allocated_bytes);
    if (!(allocated > 0)) return [];
    const { owners, extensions } = shown.survey.where ?? {};
    const sum = (table, field) => [...(table?.rows ?? []), table?.rest].reduce((all, row) => all + num(row?.[field]), 0);
    const whole = [owners, extensions].find((table) => Math.abs(sum(table, "size_bytes") - num(size_bytes)) <= 1e-9 * num(size_bytes));
    if (!whole) return [["Overhead", share(overhead_fraction), num(overhead_fraction) < 0 ? "of allocated, with sparse files" : "of allocated"]];
    const beyond = sum(whole, "overhead_bytes");
    const sparse = beyond - (allocated - num(size_bytes));
    return [["Overhead", share(beyond / allocated), `of allocated: ${size(beyond)}`],
      sparse > 0.0005 * num(size_bytes) && ["Not allocated", size(sparse), "holes and compression"]];
  }

  /** Several sources: their key figures side by side. */
  function sideBySide() {
    return el("div", { class: "block" }, el("h2", { class: "small" }, "Sources"), Format.table({
      caption: "Sources side by side",
      columns: [{ title: "Source", text: true }, { title: "Files" }, { title: "Bytes" }, { title: "Median size" }, { title: "Mean size" }, { title: "Small files" }, { title: "Their bytes" }],
      rows: all.map((each) => {
        const small = Sections.upTo(each, each.small);
        const dist = each.dist("file_size");
        return [{ text: each.name, name: true }, cells.count(each.counts.files), cells.size(each.totals.size_bytes), cells.size(dist?.deciles?.[4]), cells.size(dist?.mean),
          cells.share(small?.files), cells.share(small?.bytes)];
      }),
    }));
  }

  /** Whether the sources are two surveys of one tree: the same roots, and no sign of another machine. */
  function areOfOneTree() {
    const [one, other] = all.map(({ survey, roots }) => ({ roots: roots.join("\0"), host: (survey.machines ?? []).map(({ host }) => host).join() }));
    return all.length === 2 && one.roots !== "" && one.roots === other.roots && (!one.host || !other.host || one.host === other.host);
  }

  function byTime() {
    return [...all].sort((a, b) => Date.parse(a.survey.taken_at ?? 0) - Date.parse(b.survey.taken_at ?? 0));
  }

  /** Two surveys of one tree: what differs, before all else, and which directories grew and shrank most. */
  function difference() {
    const [before, after] = byTime();
    // What is looked for comes first: a phone shows two or three columns.
    const row = (name, a, b, text) => (known(a) && known(b) ? [name, { text: signed(num(b) - num(a), text), value: num(b) - num(a) },
      num(a) > 0 ? cells.change(num(b) / num(a) - 1) : Format.MISSING, { text: text(a), value: num(a) }, { text: text(b), value: num(b) }] : null);
    const dist = (each) => each.dist("file_size");
    const rows = [row("Files", before.counts.files, after.counts.files, count), row("Bytes", before.totals.size_bytes, after.totals.size_bytes, size),
      num(before.totals.allocated_bytes) > 0 && num(after.totals.allocated_bytes) > 0 && row("Allocated", before.totals.allocated_bytes, after.totals.allocated_bytes, size),
      row("Directories", before.counts.directories, after.counts.directories, count), row("Median size", dist(before)?.deciles?.[4], dist(after)?.deciles?.[4], size),
      row("Mean size", dist(before)?.mean, dist(after)?.mean, (value) => size(Math.round(value)))].filter(Boolean);
    const grown = Treemap.grown(before, after);
    return el("div", { class: "block" }, el("h2", { class: "small" }, "Difference"),
      Format.table({
        caption: "Difference between the two surveys",
        columns: [{ title: "", text: true }, { title: "Difference" }, { title: "Change" },
          ...[["Before", before], ["After", after]].map(([when, { survey }]) => ({ title: [when, survey.taken_at && Format.time(survey.taken_at)].filter(Boolean).join(", ") }))],
        rows,
      }),
      grown.length > 0 && el("h3", {}, "Directories that changed most"),
      grown.length > 0 && Format.table({
        caption: "Directories that changed most, among those that both surveys keep", sortable: true,
        columns: [{ title: "Directory", text: true }, { title: "Difference", sorted: true }, { title: "Files" }, { title: "Bytes before" }, { title: "Bytes after" }],
        rows: grown.map(({ path, a, b }) => [{ text: path, name: true }, { text: signed(b.size_bytes - a.size_bytes, size), value: b.size_bytes - a.size_bytes },
          { text: signed(b.files - a.files, count), value: b.files - a.files }, cells.size(a.size_bytes), cells.size(b.size_bytes)]),
      }));
  }

  /** Which of several sources everything below is about. */
  const shownNow = (shown) => el("h2", { class: "small shown name" }, shown.name,
    el("span", { class: "dim" }, shown.survey.taken_at && !shown.name.includes(shown.survey.taken_at.split("T")[0]) ? `, ${Format.time(shown.survey.taken_at)}` : "", ": everything below; the choice at the top shows another"));

  /** The choice of source, where there are several. */
  function sourcePick() {
    return all.length > 1 && el("label", { class: "pick source" }, el("span", { class: "dim" }, "Source"), el("select", {
      id: "source", onchange: (event) => {
        chosen = Number(event.target.value);
        build();
        document.getElementById("source")?.focus({ preventScroll: true });
      },
    }, all.map((each, index) => el("option", { value: index, selected: index === chosen }, Format.shorten(each.name, 40)))));
  }

  // ---------------------------------------------------------------- footer

  function command(shown) {
    if (typeof shown.source.command === "string") return shown.source.command;
    const { survey, roots } = shown;
    if (!["walk", "inode-scan"].includes(survey.method) || !roots.length) return null;
    const options = survey.options ?? {};
    return ["granulo survey", ...roots.map((path) => shellWord(path.startsWith("-") ? `./${path}` : path)),
      options.hard_links && options.hard_links !== "once" ? `--hard-links ${shellWord(options.hard_links)}` : null,
      options.one_file_system ? "--one-file-system" : null,
      options.snapshots === "include" ? "--include-snapshots" : null,
      shown.small === 65536 ? null : `--small ${shown.small}`,
      ...(options.excluded ?? []).map((glob) => `--exclude ${shellWord(glob)}`),
      "--report report.html"].filter(Boolean).join(" ");
  }

  const HARD_LINKS = {
    once: "A file with several names is counted once, under the first name found; its other names are counted as skipped hard links.",
    each: "Each name of a file with several names is counted as a separate file.",
    shared: "A file with several names is divided among them.",
  };

  function footer(shown) {
    const hardLinks = HARD_LINKS[shown.survey.options?.hard_links];
    return Shell.footer({
      method: ["Size is the length of a file. Allocated is what the file system reserves for it. Overhead is what is allocated beyond the size, as a share of what is allocated, summed over files allocated more than their size; " +
        "what sparse, compressed and inline files have not allocated is a figure of its own. Buckets are half-open: a file of exactly 4 KiB is in the bucket that starts at 4 KiB. " +
        `By files, every file counts once; by bytes, every byte counts once. KiB, MiB and GiB are powers of 1,024.${hardLinks ? ` ${hardLinks}` : ""}`,
      (data.published ?? []).length > 0 && "The 1984 and 2005 curves are from Tanenbaum, Herder and Bos, “File Size Distribution on UNIX Systems: Then and Now”, Fig. 1."],
      again: "survey", command: command(shown), data,
    });
  }

  // ---------------------------------------------------------------- the whole

  function build() {
    const shown = all[chosen];
    if (!shown) {
      Shell.showNothing(data.title || "File size survey");
      return;
    }
    const sections = [
      Sections.buckets(shown), Sections.cumulative(shown, all, data.published), Sections.blockSizes(shown, all), Sections.overhead(shown),
      Ages.section(shown), Places.where(shown), Places.others(shown), Places.counted(shown), machines(shown),
    ].filter(Boolean);
    Shell.show({
      subject: "survey", sections, pick: sourcePick(), footer: footer(shown),
      nodes: [header(shown), warnings(shown), areOfOneTree() ? difference() : all.length > 1 && sideBySide(), all.length > 1 && shownNow(shown), keyFigures(shown), Treemap.picture(shown),
        Shell.words(shown.source.words)],
    });
  }

  build();
});
