// What every page has around its sections: header, key figures, bar at the top, theme, print and footer. A page hands
// in nodes; see `show`.
"use strict";

const Shell = (() => {
  const { el } = Format;
  const root = document.documentElement;

  // ---------------------------------------------------------------- head of the page

  /** `{kicker, title, roots, facts: [[name, value]], badges: [[kind, text]]}`. */
  function head({ kicker, title, roots = [], facts = [], badges = [] }) {
    return el("header", { class: "head" },
      el("p", { class: "kicker" }, kicker),
      el("h1", { class: "name" }, title),
      roots.length > 0 && el("ul", { class: "roots", "aria-label": "Roots" }, roots.map((path) => el("li", { class: "name" }, path))),
      el("p", { class: "facts-line" }, facts.map(([name, value]) => el("span", {}, el("span", { class: "dim" }, `${name} `), value)),
        badges.map(([kind, text]) => el("span", { class: `badge ${kind}`.trim() }, text))));
  }

  /** Sentences, of which the first says most. */
  function summary(sentences) {
    const words = (sentences ?? []).filter((sentence) => typeof sentence === "string");
    return words.length > 0 && el("div", { class: "summary" },
      el("p", { class: "name first" }, words[0]), words.length > 1 && el("p", { class: "name" }, words.slice(1).join(" ")));
  }

  /** Sentences that say in words what the page shows, folded away. */
  function words(sentences) {
    const list = (sentences ?? []).filter((sentence) => typeof sentence === "string");
    return list.length > 0 && el("details", { class: "data words" }, el("summary", {}, "In words"), el("p", { class: "name" }, list.join(" ")));
  }

  /** Key figures: `[name, value, more]`; those without a value are left out. */
  function keys(list) {
    const figures = list.filter((entry) => entry && entry[1] !== Format.MISSING);
    return figures.length > 0 && el("dl", { class: "keys" }, figures.map(([name, value, more]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, el("strong", {}, value), more ? el("span", {}, more) : null))));
  }

  // ---------------------------------------------------------------- bar at the top

  function topBar(sections, pick) {
    const theme = el("button", {
      type: "button", class: "theme",
      onclick: () => {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        root.dataset.chosen = "true";
        themed();
      },
    });
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
    // A part that is called what the section is called needs no second heading.
    const nodes = parts.filter(Boolean).map((part) => (part instanceof Figures.Figure ? part.node : part));
    const heading = nodes[0]?.querySelector("h3");
    if (heading?.textContent === title) heading.classList.add("hidden");
    return el("section", { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, el("span", { class: "ordinal" }, `${index + 1}`), title),
      text && el("p", { class: "lead" }, text),
      nodes);
  }

  /** A word of a shell command. Escaped names (with a backslash) need the $'…' form, which undoes the escapes. */
  function shellWord(text) {
    if (/^[\w@%+=:,./-]+$/.test(text)) return text;
    if (!text.includes("\\")) return `'${text.replaceAll("'", "'\\''")}'`;
    const inner = text.replace(/\\u\{([0-9a-f]+)\}/g, (_, hex) => `\\U${hex.padStart(8, "0")}`).replaceAll("'", "\\'");
    return `$'${inner}'`;
  }

  /** `again`: what the command repeats, as in "To repeat this survey:". */
  function footer({ method, again, command, data }) {
    return el("footer", {},
      el("h2", { class: "small" }, "Method"),
      method.filter(Boolean).map((text) => el("p", {}, text)),
      command && el("p", {}, `To repeat this ${again}:`),
      command && el("pre", { class: "name", tabindex: "0", "aria-label": "Command" }, el("code", {}, command)),
      el("p", { class: "dim" }, `Written by granulo ${[data.granulo_version, data.granulo_commit && `(${data.granulo_commit})`].filter(Boolean).join(" ")} on ${Format.time(data.generated_at)}. `,
        "This page works offline and loads nothing. Charts: Apache ECharts, Apache License 2.0."));
  }

  // ---------------------------------------------------------------- the whole

  /**
   * Shows a page: `{subject, sections, nodes, pick, footer}`; nodes, of which some may be figures, stand before the
   * sections, `pick` in the bar at the top.
   */
  function show({ subject, sections, nodes, pick, footer: foot }) {
    Figures.stopAll();
    const top = [nodes].flat(Infinity).filter(Boolean);
    const figures = [...top, ...sections.flatMap((each) => each.parts)].filter((part) => part instanceof Figures.Figure);
    document.getElementById("page").replaceChildren(...[
      el("a", { class: "skip", href: "#main" }, `Skip to the ${subject}`), topBar(sections, pick), Pages.contents(),
      el("main", { id: "main" }, [...top.map((part) => (part instanceof Figures.Figure ? part.node : part)), ...sections.map(section)]), foot,
      el("div", { id: "live", class: "hidden", "aria-live": "polite" })].filter(Boolean));
    themed();
    for (const figure of figures) figure.start();
    if (!figures.length) root.dataset.ready = "true";
  }

  function showNothing(title) {
    Figures.stopAll();
    document.getElementById("page").replaceChildren(el("main", {}, el("h1", {}, title), el("p", {}, "Nothing to show.")));
    root.dataset.ready = "true";
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

  return { head, summary, words, keys, footer, shellWord, show, showNothing };
})();

// The kinds of pages, and of several results together the contents list. A script adds what shows its kind; `start`
// shows the page, or the part of it that the address names (`#part-2`).
const Pages = (() => {
  const { el } = Format;
  const kinds = new Map();
  const NAMES = { survey: "Survey", plan: "Plan", bench: "Bench", trace: "Trace", cache: "Caches", store: "Store", history: "History", allocate: "Single files", compare: "Comparison", check: "Store check", fields: "Result" };
  let parts = [];
  let chosen = 0;

  function open(index) {
    chosen = index;
    kinds.get(parts[index].kind)?.(parts[index]);
  }

  /** A list of the results on the page, where there are several. */
  function contents() {
    return parts.length > 1 && el("nav", { class: "contents", "aria-label": "Contents" }, el("ol", {}, parts.map((part, index) => el("li", {},
      el("button", {
        type: "button", "aria-current": index === chosen ? "true" : null,
        onclick: () => {
          open(index);
          history.replaceState(null, "", `#part-${index + 1}`);
          scrollTo(0, 0);
          document.querySelector('.contents [aria-current="true"]')?.focus({ preventScroll: true });
        },
      }, el("span", { class: "dim" }, `${NAMES[part.kind] ?? part.kind} `), el("span", { class: "name" }, Format.shorten(part.title, 60)))))));
  }

  function start() {
    const data = Format.parse(document.getElementById("data").textContent);
    if (!Array.isArray(data.parts)) {
      kinds.values().next().value(data);
      return;
    }
    parts = data.parts.filter((part) => kinds.has(part.kind)).map((part) => ({ ...part, generated_at: data.generated_at, granulo_version: data.granulo_version, granulo_commit: data.granulo_commit }));
    const asked = Number(/^#part-(\d+)$/.exec(location.hash)?.[1]) - 1;
    if (parts.length) open(parts[asked] ? asked : 0);
    else Shell.showNothing(data.title);
  }

  return { add: (kind, show) => kinds.set(kind, show), contents, start };
})();
