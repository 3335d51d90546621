// Saving: each chart as SVG and as PNG, each table as CSV. Files are made from what is on the page, by the browser
// alone; nothing is sent anywhere. Defined before what uses it is called, so it may use `Format`.
"use strict";

const Save = (() => {
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const SCALE = 2;

  const fileName = (text, ending) => `granulo-${text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "page"}.${ending}`;

  function hand(blob, name) {
    const url = URL.createObjectURL(blob);
    const link = Format.el("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  // ---------------------------------------------------------------- charts

  /** The chart as a document of its own: title, background and font are those of the page. */
  function svgOf(figure) {
    const drawn = figure.canvas.querySelector("svg");
    const style = getComputedStyle(document.documentElement);
    const [width, height] = [figure.width, figure.height];
    const head = 34;
    const make = (tag, attributes, text) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
      if (text) node.textContent = text;
      return node;
    };
    const whole = make("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: height + head, viewBox: `0 0 ${width} ${height + head}` });
    const copy = drawn.cloneNode(true);
    copy.setAttribute("y", head);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    whole.append(make("rect", { width, height: height + head, fill: style.getPropertyValue("--bg").trim() }),
      make("text", { x: 4, y: 21, "font-family": FONT, "font-size": 15, "font-weight": 600, fill: style.getPropertyValue("--ink").trim() },
        figure.node.querySelector("h3").textContent), copy);
    return { text: new XMLSerializer().serializeToString(whole), width, height: height + head };
  }

  function asSvg(figure) {
    hand(new Blob([svgOf(figure).text], { type: "image/svg+xml" }), fileName(figure.spec.name, "svg"));
  }

  async function asPng(figure) {
    const { text, width, height } = svgOf(figure);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = Format.el("canvas", { width: width * SCALE, height: height * SCALE });
    const context = canvas.getContext("2d");
    context.scale(SCALE, SCALE);
    context.drawImage(image, 0, 0);
    canvas.toBlob((blob) => blob && hand(blob, fileName(figure.spec.name, "png")), "image/png");
  }

  const button = (text, label, onclick) => Format.el("button", { type: "button", "aria-label": label, title: label, onclick }, text);

  function chartButtons(figure) {
    return Format.el("span", { class: "save" }, button("SVG", "Save the chart as SVG", () => asSvg(figure)), button("PNG", "Save the chart as PNG", () => asPng(figure)));
  }

  // ---------------------------------------------------------------- tables

  /** A cell: the number behind it where there is one (bytes, seconds, days, shares of 1), else its text; numbers without
   *  the commas of the page. */
  function cellText(cell) {
    const plain = cell === null || typeof cell !== "object" || cell instanceof Node;
    if (!plain && cell.text === Format.MISSING) return "";
    if (!plain && cell.value !== undefined && typeof cell.value !== "object") return String(cell.value);
    const content = plain ? cell : cell.text;
    const text = content instanceof Node ? content.textContent : [content ?? ""].flat().map((part) => (part instanceof Node ? part.textContent : String(part))).join("");
    if (text === Format.MISSING) return "";
    return /^−?\d{1,3}(,\d{3})*(\.\d+)?$/.test(text) ? text.replaceAll(",", "").replace("−", "-") : text;
  }

  /** A field of RFC 4180; a text that a spreadsheet would run as a formula gets an apostrophe before it. */
  function field(text) {
    const safe = /^[=+@\t\r]/.test(text) || (/^-/.test(text) && !/^-[\d.]+(e[+-]?\d+)?$/i.test(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  const UNITS = [[/(?:^|[\s≥≤+−±\d])(?:B|[KMGTPEZY]iB)\*?$/, "bytes"], [/%$/, "fraction"], [/\d (?:ns|µs|ms|s|min)$/, "seconds"], [/(?:\d d|days?|years\))$/, "days"]];

  /** The unit of the numbers of a column, which are saved without it; nothing where they differ. */
  function unitOf(rows, at) {
    const texts = rows.map((row) => row[at]).filter((cell) => cell && typeof cell === "object" && cell.value !== undefined && typeof cell.text === "string" && cell.text !== Format.MISSING);
    const units = new Set(texts.map((cell) => UNITS.find(([pattern]) => pattern.test(cell.text))?.[1]));
    return units.size === 1 ? [...units][0] : undefined;
  }

  function csv({ columns, rows }) {
    const heads = columns.map(({ title }, at) => [title, unitOf(rows, at)].filter(Boolean).join(", "));
    const lines = [heads, ...rows.map((row) => row.map(cellText))];
    return lines.map((line) => `${line.map(field).join(",")}\r\n`).join("");
  }

  function tableButton(spec) {
    return Format.el("p", { class: "save" }, button("CSV", `Save the table as CSV: ${spec.caption}`, () =>
      hand(new Blob([csv(spec)], { type: "text/csv;charset=utf-8" }), fileName(spec.caption, "csv"))));
  }

  return { chartButtons, tableButton, csv };
})();
