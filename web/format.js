// Numbers, units and DOM nodes as the page shows them. No text from the data ever becomes HTML: it goes through
// `el`, which sets textContent.
"use strict";

const Format = (() => {
  const MISSING = "–";
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  /** JSON.parse that keeps integers beyond 2^53 exact, as BigInt. */
  function parse(text) {
    const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
      /^-?\d{16,}$/.test(token) ? `{"$integer":"${token}"}` : token);
    return JSON.parse(marked, (_, value) =>
      value !== null && typeof value === "object" && typeof value.$integer === "string" ? exact(value.$integer) : value);
  }

  function exact(digits) {
    const value = Number(digits);
    return Number.isSafeInteger(value) ? value : BigInt(digits);
  }

  /** A number for arithmetic and drawing; 0 for what is missing. */
  function num(value) {
    const number = typeof value === "bigint" ? Number(value) : value;
    return typeof number === "number" && Number.isFinite(number) ? number : 0;
  }

  function known(value) {
    return typeof value === "bigint" || (typeof value === "number" && Number.isFinite(value));
  }

  const group = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

  /** A whole number: `1,234,567`. */
  function count(value) {
    if (!known(value)) return MISSING;
    const whole = typeof value === "bigint" ? value : BigInt(Math.round(value));
    return whole < 0n ? `−${group(String(-whole))}` : group(String(whole));
  }

  /** A count for an axis: `250 k`, `1.5 M`. */
  function shortCount(value) {
    const size = Math.abs(value);
    for (const [factor, suffix] of [[1e12, " tn"], [1e9, " bn"], [1e6, " M"], [1e4, " k"]]) {
      if (size >= factor) {
        const unit = factor === 1e4 ? 1e3 : factor;
        return trim(value / unit) + suffix;
      }
    }
    return size >= 1 || size === 0 ? decimal(value, Number.isInteger(value) ? 0 : 1) : trim(value);
  }

  const trim = (value) => minus(String(Number(value.toPrecision(3))));
  const minus = (text) => text.replace(/^-/, "−");

  /** A number with the given digits after the point and a comma at every thousand. */
  function decimal(value, digits) {
    if (!known(value)) return MISSING;
    const [whole, part] = Math.abs(num(value)).toFixed(digits).split(".");
    const text = group(whole) + (part ? `.${part}` : "");
    return num(value) < 0 && /[1-9]/.test(text) ? `−${text}` : text;
  }

  /** A size: `512 B`, `64 KiB`, `1.50 GiB`. */
  function size(value) {
    if (!known(value)) return MISSING;
    let scaled = Math.abs(num(value));
    let unit = 0;
    while (unit + 1 < UNITS.length && (scaled >= 1024 || (unit > 0 && Math.round(scaled) >= 1024))) {
      scaled /= 1024;
      unit += 1;
    }
    const digits = Number.isInteger(scaled) || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : unit === 0 ? 1 : 2;
    return `${num(value) < 0 ? "−" : ""}${decimal(scaled, digits)} ${UNITS[unit]}`;
  }

  /** A share in per cent: `12.3 %`; `<0.1 %` and `>99.9 %` where rounding would hide that it is neither 0 nor all. */
  function share(fraction) {
    if (!known(fraction)) return MISSING;
    const percent = num(fraction) * 100;
    if (percent > 0 && percent < 0.05) return "<0.1 %";
    if (percent < 100 && percent >= 99.95) return ">99.9 %";
    return `${decimal(percent, Math.abs(percent) >= 1000 ? 0 : 1)} %`;
  }

  /** A share with two digits, as the published tables have it: `0.08 %`. */
  const fineShare = (fraction) => (known(fraction) ? `${decimal(num(fraction) * 100, 2)} %` : MISSING);

  /** A change in per cent, always with its sign: `+1.3 %`. */
  function change(fraction) {
    if (!known(fraction)) return MISSING;
    const percent = num(fraction) * 100;
    const digits = Math.abs(percent) >= 1000 ? 0 : Math.abs(percent) >= 10 ? 1 : 2;
    const text = decimal(percent, digits);
    return `${percent > 0 && /[1-9]/.test(text) ? "+" : ""}${text} %`;
  }

  /** Whole days, and years where that says more: `12 days`, `512 days (1.4 years)`. */
  function days(value) {
    if (!known(value)) return MISSING;
    const whole = `${count(value)} ${num(value) === 1 ? "day" : "days"}`;
    return num(value) >= 365 ? `${whole} (${decimal(num(value) / 365.25, 1)} years)` : whole;
  }

  function shortDays(value) {
    return value >= 365 ? `${trim(Number((value / 365.25).toFixed(value < 3652 ? 1 : 0)))} y` : `${trim(value)} d`;
  }

  /** A value of a distribution in its unit. */
  function inUnit(value, unit) {
    if (!known(value)) return MISSING;
    if (unit === "bytes") return size(value);
    if (unit === "days") return days(value);
    const whole = typeof value === "bigint" || Number.isInteger(value);
    return whole ? count(value) : decimal(value, num(value) < 100 ? 1 : 0);
  }

  /** A time for an axis: `20 µs`, `1.5 s`. */
  function shortSeconds(value) {
    const [unit, name] = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"]].find(([each]) => Math.abs(value) < 999.5 * each) ?? [1, "s"];
    return value === 0 ? "0" : `${shortCount(Number((value / unit).toPrecision(3)))} ${name}`;
  }

  /** A day on an axis, from days since 1970: `29 Nov 2026`. */
  function shortDate(value) {
    const date = new Date(Math.round(value * 86400) * 1000);
    return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
  }

  function shortUnit(value, unit) {
    const short = { bytes: size, days: shortDays, date: shortDate, seconds: shortSeconds, share: (fraction) => `${trim(fraction * 100)} %` };
    return (short[unit] ?? shortCount)(value);
  }

  /** A half-open bucket in words: `4 KiB up to 8 KiB`, `16 to 31 days`, `0`. */
  function bucket(low, high, unit) {
    const [from, to] = [num(low), num(high)];
    if (unit === "bytes") {
      if (to === 1) return "0 bytes";
      if (to === 2) return "1 byte";
      return to <= 1024 ? `${from} to ${to - 1} bytes` : `${size(low)} up to ${size(high)}`;
    }
    const name = unit === "days" ? ["day", "days"] : [unit.replace(/ies$/, "y").replace(/s$/, ""), unit];
    if (to - from === 1) return `${from} ${from === 1 ? name[0] : name[1]}`;
    const text = `${count(low)} to ${count(to - 1)} ${name[1]}`;
    return unit === "days" && to > 365 ? `${text} (${shortDays(from)} to ${shortDays(to)})` : text;
  }

  /** An RFC 3339 time in UTC: `21 Nov 2026, 07:06 UTC`. */
  function time(text) {
    const date = new Date(text ?? "");
    if (Number.isNaN(date.getTime())) return MISSING;
    const two = (value) => String(value).padStart(2, "0");
    return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ` +
      `${two(date.getUTCHours())}:${two(date.getUTCMinutes())} UTC`;
  }

  function duration(seconds) {
    if (!known(seconds)) return MISSING;
    const value = num(seconds);
    if (value > 0 && value < 60) {
      // What would be rounded up to 1,000 of a unit is 1 of the next.
      const [unit, name] = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"]].find(([each]) => value < 999.5 * each) ?? [1, "s"];
      const scaled = value / unit;
      return `${decimal(scaled, name === "ns" || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2)} ${name}`;
    }
    if (value === 0) return "0 s";
    if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
    return `${count(Math.floor(value / 3600))} h ${Math.round((value % 3600) / 60)} min`;
  }

  /** A difference, always with its sign, and with ± for none: `+12`, `−1.50 GiB`, `±0`. */
  function signed(value, text) {
    const shown = text(Math.abs(value));
    return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${shown}`;
  }

  /** Cells of a table: a text, and the number behind it, by which a table is sorted and which is saved. */
  const cellOf = (text) => (value, more) => (known(value) ? { text: text(value), value, ...more } : MISSING);
  const cells = {
    count: cellOf(count), size: cellOf(size), share: cellOf(share), fineShare: cellOf(fineShare), change: cellOf(change), duration: cellOf(duration), days: cellOf(days),
    shortDays: cellOf((value) => `${count(value)} d`), inUnit: (value, unit) => cellOf((number) => inUnit(number, unit))(value),
    decimal: (value, digits) => cellOf((number) => decimal(number, digits))(value),
  };

  /** At most `length` characters, the middle of a path left out: its end says most. */
  function shorten(text, length) {
    const characters = Array.from(text);
    if (characters.length <= length) return text;
    const head = Math.max(1, Math.floor(length * 0.28));
    return `${characters.slice(0, head).join("")}…${characters.slice(head + 1 - length).join("")}`;
  }

  /**
   * An element: `el("p", {class: "note", onclick}, "text", child)`. Strings become text nodes, never HTML; of
   * properties only functions (listeners) and attributes that the page itself names are set.
   */
  function el(tag, properties, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(properties ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") node.addEventListener(key.replace(/^on/, ""), value);
      else node.setAttribute(key, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  }

  /**
   * A table that scrolls inside its own box. Columns: `{title, text}` (text: left-aligned) and `sortable`. Cells: a
   * string or a node, or `{text, value, shade, name}`: value sorts and is saved, shade (0 to 1) tints, name marks
   * text from the data.
   */
  function table({ caption, columns, rows, sortable }) {
    const body = el("tbody");
    const fill = (list) => body.replaceChildren(...list.map((row) => el("tr", {}, row.map((entry, index) => {
      const plain = entry === null || typeof entry !== "object" || entry instanceof Node;
      const cell = plain ? { text: entry } : entry;
      const classes = [columns[index].text ? "text" : "number", cell.name ? "name" : "", cell.shade === undefined ? "" : "shade"];
      const node = el(index === 0 ? "th" : "td", {
        class: classes.join(" ").trim(),
        scope: index === 0 ? "row" : null,
      }, cell.text);
      if (cell.shade !== undefined) node.style.setProperty("--shade", `${Math.round(cell.shade * 100)}%`);
      return node;
    }))));
    fill(rows);

    const heads = columns.map((column, index) => {
      const head = el("th", { scope: "col", class: column.text ? "text" : "number" });
      if (!sortable) {
        head.append(column.title);
        return head;
      }
      const isMissing = (entry) => entry === MISSING || entry?.text === MISSING;
      const order = (entry) => (isMissing(entry) && !column.text ? -Number.MAX_VALUE
        : entry !== null && typeof entry === "object" && "value" in entry ? num(entry.value) : entry?.text ?? entry);
      head.append(el("button", {
        type: "button",
        class: "sort",
        onclick: () => {
          const down = head.getAttribute("aria-sort") === "descending" || (column.text && !head.hasAttribute("aria-sort"));
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", down ? "ascending" : "descending");
          const sign = down ? 1 : -1;
          fill([...rows].sort((a, b) => {
            const [left, right] = [order(a[index]), order(b[index])];
            return sign * (typeof left === "number" ? left - right : String(left).localeCompare(String(right)));
          }));
        },
      }, column.title));
      if (column.sorted) head.setAttribute("aria-sort", "descending");
      return head;
    });
    const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
    box.append(el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body), Save.tableButton({ caption, columns, rows }));
    return box;
  }

  /** A matrix of seconds as a heat map: rows are cache sizes, columns block sizes, the darker the slower. */
  function heat(caption, caches, blocks, seconds, why) {
    const all = caches.flatMap((_, row) => blocks.map((_, column) => seconds(row, column))).filter(known);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    // A thousandth of the slowest bears a 0 among the others.
    const place = (value) => Math.log(value + high / 1000);
    const shade = (value) => (high > low ? 0.06 + 0.6 * ((place(value) - place(low)) / (place(high) - place(low))) : 0.06);
    return table({
      caption, columns: [{ title: "Cache", text: true }, ...blocks.map((block) => ({ title: `${size(block)} blocks` }))],
      rows: caches.map((cache, row) => [cells.size(cache), ...blocks.map((_, column) => {
        const value = seconds(row, column);
        return known(value) ? cells.duration(value, { shade: shade(value) }) : why?.(row, column) ?? Format.MISSING;
      })]),
    });
  }

  return {
    MISSING, parse, num, known, count, shortCount, decimal, size, share, fineShare, change, days, shortDays,
    inUnit, shortUnit, bucket, time, duration, shorten, signed, cells, el, table, heat,
  };
})();
