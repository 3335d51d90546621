// The page itself: reads the data, builds header, sections and footer, and follows theme, print and choice of source.
"use strict";

(() => {
  const { el, num, known, count, size, share } = Format;
  const root = document.documentElement;
  const data = Format.parse(document.getElementById("data").textContent);
  const all = (data.sources ?? []).map(Sections.view);
  let chosen = 0;

  // ---------------------------------------------------------------- header

  const METHODS = {
    walk: "walked the tree", merge: "merged from several surveys", fsstats: "read from an fsstats file", published: "published table",
  };

  function header(shown) {
    const { survey } = shown;
    const facts = [
      ["Source", survey.method ? METHODS[survey.method] ?? survey.method : null],
      ["Taken", survey.taken_at ? Format.time(survey.taken_at) : null],
      ["Took", num(survey.elapsed_seconds) > 0 ? Format.duration(survey.elapsed_seconds) : null],
    ].filter(([, value]) => value);
    const badges = [
      survey.complete === false && ["warn", "Partial: interrupted"],
      survey.anonymous && ["", "Anonymous"],
      survey.resolution === "buckets" && ["", "Interpolated from a table"],
    ].filter(Boolean);
    return el("header", { class: "head" },
      el("p", { class: "kicker" }, "File size survey"),
      el("h1", { class: "name" }, data.title || "File size survey"),
      shown.roots.length > 0 && shown.roots.join() !== data.title && el("ul", { class: "roots", "aria-label": "Roots" }, shown.roots.map((path) => el("li", { class: "name" }, path))),
      el("p", { class: "facts-line" }, facts.map(([name, value]) => el("span", {}, el("span", { class: "dim" }, `${name} `), value)),
        badges.map(([kind, text]) => el("span", { class: `badge ${kind}`.trim() }, text))));
  }

  function warnings(shown) {
    const errors = num(shown.counts.errors);
    const list = [
      shown.survey.complete === false && "The survey was interrupted: every figure covers only the part that was read.",
      errors > 0 && [`${count(errors)} ${errors === 1 ? "entry" : "entries"} could not be read and ${errors === 1 ? "is" : "are"} missing here. `,
        shown.survey.errors?.by_kind?.length ? el("a", { href: "#counted" }, "Which?") : ""],
    ].filter(Boolean);
    return list.length > 0 && el("ul", { class: "warnings", role: "note" }, list.map((text) => el("li", {}, text)));
  }

  function keyFigures(shown) {
    const small = Sections.upTo(shown, shown.small);
    const dist = shown.dist("file_size");
    const { counts, totals } = shown;
    const empty = counts.empty_files;
    const figures = [
      ["Files", count(counts.files), known(counts.directories) && num(counts.directories) > 0 ? `in ${count(counts.directories)} directories` : null],
      ["Bytes", size(totals.size_bytes), known(totals.allocated_bytes) && num(totals.allocated_bytes) > 0 ? `${size(totals.allocated_bytes)} allocated` : null],
      ["Median size", size(dist?.deciles?.[4]), known(dist?.mean) ? `mean ${size(dist.mean)}` : null],
      small && [`${size(shown.small)} or less`, share(small.files), `of files, ${share(small.bytes)} of bytes`],
      num(totals.allocated_bytes) > 0 && ["Overhead", share(totals.overhead_fraction), "of allocated"],
      known(empty) && ["Empty files", count(empty), `${share(num(counts.files) > 0 ? num(empty) / num(counts.files) : 0)} of files`],
    ].filter((entry) => entry && entry[1] !== Format.MISSING);
    return figures.length > 0 && el("dl", { class: "keys" }, figures.map(([name, value, more]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, el("strong", {}, value), more ? el("span", {}, more) : null))));
  }

  function summary(shown) {
    const words = (shown.source.words ?? []).filter((sentence) => typeof sentence === "string");
    return words.length > 0 && el("div", { class: "summary" },
      el("p", { class: "name first" }, words[0]), words.length > 1 && el("p", { class: "name" }, words.slice(1).join(" ")));
  }

  /** Several sources: their key figures side by side. */
  function sideBySide() {
    return el("div", { class: "block" }, el("h2", { class: "small" }, "Sources"), Format.table({
      caption: "Sources side by side",
      columns: [{ title: "Source", text: true }, { title: "Files" }, { title: "Bytes" }, { title: "Median size" }, { title: "Mean size" }, { title: "Small files" }, { title: "Their bytes" }],
      rows: all.map((each) => {
        const small = Sections.upTo(each, each.small);
        const dist = each.dist("file_size");
        return [{ text: each.name, name: true }, count(each.counts.files), size(each.totals.size_bytes), size(dist?.deciles?.[4]), size(dist?.mean),
          share(small?.files), share(small?.bytes)];
      }),
    }));
  }

  // ---------------------------------------------------------------- bar at the top

  function topBar(sections) {
    const theme = el("button", {
      type: "button", class: "theme",
      onclick: () => {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        root.dataset.chosen = "true";
        themed();
      },
    });
    const pick = all.length > 1 && el("label", { class: "pick source" }, el("span", { class: "dim" }, "Source"), el("select", {
      id: "source", onchange: (event) => {
        chosen = Number(event.target.value);
        build();
        document.getElementById("source")?.focus({ preventScroll: true });
      },
    }, all.map((each, index) => el("option", { value: index, selected: index === chosen }, Format.shorten(each.name, 40)))));
    return el("div", { class: "top" }, el("nav", { "aria-label": "Sections" },
      sections.map((section) => el("a", { href: `#${section.id}` }, section.short))), pick, theme);
  }

  function themed() {
    const button = document.querySelector("button.theme");
    const dark = root.dataset.theme === "dark";
    if (button) {
      button.textContent = dark ? "Light" : "Dark";
      button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
    }
    Figures.redraw();
  }

  // ---------------------------------------------------------------- sections and footer

  function section({ id, title, lead, parts }, index) {
    const text = (lead ?? []).filter(Boolean).join(" ");
    return el("section", { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, el("span", { class: "ordinal" }, `${index + 1}`), title),
      text && el("p", { class: "lead" }, text),
      parts.filter(Boolean).map((part) => (part instanceof Figures.Figure ? part.node : part)));
  }

  /** A word of a shell command. Escaped names (with a backslash) need the $'…' form, which undoes the escapes. */
  function shellWord(text) {
    if (/^[\w@%+=:,./-]+$/.test(text)) return text;
    if (!text.includes("\\")) return `'${text.replaceAll("'", "'\\''")}'`;
    const inner = text.replace(/\\u\{([0-9a-f]+)\}/g, (_, hex) => `\\U${hex.padStart(8, "0")}`).replaceAll("'", "\\'");
    return `$'${inner}'`;
  }

  function command(shown) {
    if (typeof shown.source.command === "string") return shown.source.command;
    const { survey, roots } = shown;
    if (survey.method !== "walk" || !roots.length) return null;
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
    once: "A file with several names is counted once, under the first name found; its other names are the hard links skipped.",
    each: "Every name of a file with several names is counted as a file of its own.",
    shared: "A file with several names is shared out between them.",
  };

  function footer(shown) {
    const line = command(shown);
    const hardLinks = HARD_LINKS[shown.survey.options?.hard_links];
    return el("footer", {},
      el("h2", { class: "small" }, "Method"),
      el("p", {}, "Size is the length of a file. Allocated is what the file system reserves for it. Overhead is allocated minus size: positive where blocks are rounded up, ",
        "negative where a file is sparse, compressed or stored inline. Buckets are half-open: a file of exactly 4 KiB is in the bucket that begins at 4 KiB. ",
        "By files, every file counts once; by bytes, every byte counts once. KiB, MiB and GiB are powers of 1,024.", hardLinks ? ` ${hardLinks}` : ""),
      (data.published ?? []).length > 0 && el("p", {}, "The curves of 1984 and 2005 are from Tanenbaum, Herder and Bos, “File Size Distribution on UNIX Systems: Then and Now”, Fig. 1."),
      line && el("p", {}, "To repeat this survey:"),
      line && el("pre", { class: "name", tabindex: "0", "aria-label": "Command" }, el("code", {}, line)),
      el("p", { class: "dim" }, `Written by granulo ${data.granulo_version ?? ""} on ${Format.time(data.generated_at)}. `,
        "This page works offline and loads nothing. Charts: Apache ECharts, Apache License 2.0."));
  }

  // ---------------------------------------------------------------- the whole

  function build() {
    Figures.stopAll();
    const page = document.getElementById("page");
    const shown = all[chosen];
    if (!shown) {
      page.replaceChildren(el("main", {}, el("h1", {}, data.title || "File size survey"), el("p", {}, "There is nothing to show.")));
      root.dataset.ready = "true";
      return;
    }
    const sections = [
      Sections.buckets(shown), Sections.cumulative(shown, all, data.published), Sections.blockSizes(shown, all), Sections.overhead(shown),
      Sections.ages(shown), Places.where(shown), Places.others(shown), Places.counted(shown),
    ].filter(Boolean);
    const figures = sections.flatMap((each) => each.parts).filter((part) => part instanceof Figures.Figure);
    const nodes = [header(shown), warnings(shown), summary(shown), keyFigures(shown), all.length > 1 && sideBySide(), sections.map(section)];
    page.replaceChildren(
      el("a", { class: "skip", href: "#main" }, "Skip to the survey"), topBar(sections),
      el("main", { id: "main" }, nodes.flat().filter(Boolean)), footer(shown),
      el("div", { id: "live", class: "hidden", "aria-live": "polite" }));
    themed();
    for (const figure of figures) figure.start();
    if (!figures.length) root.dataset.ready = "true";
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (root.dataset.chosen) return;
    root.dataset.theme = event.matches ? "dark" : "light";
    themed();
  });

  // Paper is white: charts are drawn in light colours for it, and data tables stay as the reader left them.
  let before = null;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    themed();
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = before ?? root.dataset.theme;
    themed();
  });

  build();
})();
