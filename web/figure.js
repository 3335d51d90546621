// Figures: a chart with its controls, legend, zoom and data table. A section hands in a specification (see `Figure`);
// this file turns it into ECharts options, draws it again on every change of state, theme or width, and zooms by
// setting the extent of the x axis. Tooltips and legends are DOM nodes; chart labels are SVG text.
"use strict";

const Figures = (() => {
  const { el } = Format;
  const figures = new Map();
  let waiting = 0;

  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const PANEL_TOP = 46;
  const AXIS_BOTTOM = 46;

  function theme() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(`--${name}`).trim();
  }

  // ---------------------------------------------------------------- axes

  /** The place of a value on an axis of powers of two, where zero stands one step left of 1. */
  const log2 = (value) => (value <= 0 ? -1 : Math.log2(value));
  const unlog2 = (place) => (place <= -0.5 ? 0 : 2 ** place);

  /** Steps that a reader adds up without effort: 1, 2, 5 times a power of ten, or powers of two for sizes. */
  function niceStep(span, most, binary) {
    const least = span / most;
    if (binary) return 2 ** Math.max(0, Math.ceil(Math.log2(least) - 1e-9));
    const ten = 10 ** Math.floor(Math.log10(least));
    return ten * [1, 2, 5, 10].find((candidate) => candidate * ten >= least * 0.999);
  }

  /** A linear y axis for what is in sight; `panel.min` and `panel.max` where they are given. */
  function linearScale(panel, extent) {
    const values = panel.series.flatMap((series) => series.values(extent));
    const low = panel.min ?? Math.min(0, ...values);
    let high = panel.max ?? Math.max(0, ...values);
    if (high <= low) high = low + (panel.unit === "share" ? 0.01 : 1);
    const nice = niceStep(high - low, 4.5, panel.unit === "bytes");
    const whole = panel.step ?? (panel.unit === "count" ? Math.max(1, nice) : nice);
    // A little below zero does not deserve a whole step.
    const slight = low < 0 && low > -0.3 * whole;
    const min = panel.min ?? (slight ? Math.min(low, -0.02 * (high - low)) : Math.floor(low / whole) * whole);
    const max = panel.max ?? Math.ceil(high / whole - 1e-9) * whole;
    const ticks = [];
    for (let index = Math.ceil(min / whole - 1e-9); index * whole <= max * (1 + 1e-9); index += 1) ticks.push(index * whole + 0); // + 0: no "−0"
    return { axis: { type: "value", min, max }, ticks };
  }

  /** What each step of a log axis multiplies by: little where there is little to show. */
  function logBase(panel, ratio) {
    if (panel.unit === "bytes") return ratio > 256 ? 32 : 4;
    return panel.unit === "share" && panel.max === 1 && ratio < 20 ? 2 : 10;
  }

  function logScale(panel, extent) {
    const values = panel.series.flatMap((series) => series.values(extent)).filter((value) => value > 0);
    const base = logBase(panel, values.length ? Math.max(...values) / Math.min(...values) : 1);
    const power = (value) => Math.log(value) / Math.log(base);
    const high = panel.max ? Math.round(power(panel.max)) : values.length ? Math.ceil(power(Math.max(...values)) + 1e-9) : 1;
    const low = Math.min(high - 1, values.length ? Math.floor(power(Math.min(...values)) - 1e-9) : 0);
    return { axis: { type: "log", logBase: base, min: base ** low, max: base ** high }, ticks: undefined };
  }

  /**
   * Where zero stands on an axis of powers of two: one step left of 1, or where the figure has nothing further right.
   */
  const zeroOf = (x) => x.zero ?? -1;

  /** Days since 1970 with a tick between two: days, months or years, whose first day it is. */
  function dateTicks([from, to], most) {
    const day = (year, month) => Date.UTC(year, month, 1) / 86400000;
    if ((to - from) / 30.44 < 2) {
      const step = [1, 2, 5, 10].find((each) => (to - from) / each <= most) ?? 20;
      return Array.from({ length: Math.max(0, Math.floor(to / step) - Math.ceil(from / step) + 1) }, (_, index) => (Math.ceil(from / step) + index) * step);
    }
    const months = [1, 2, 3, 6, 12, 24, 60, 120].find((step) => (to - from) / (30.44 * step) <= most) ?? 240;
    const ticks = [];
    const first = new Date(from * 86400000).getUTCFullYear();
    for (let month = 0; day(first, month) <= to; month += months) if (day(first, month) >= from) ticks.push(day(first, month));
    return ticks;
  }

  /** Where the x axis has its ticks, for the part in sight. */
  function xTicks(x, [from, to], width) {
    if (x.unit === "date") return dateTicks([from, to], Math.max(2, width / 100));
    if (x.scale === "linear") {
      const step = niceStep(to - from, Math.max(2, width / 90), x.unit === "bytes");
      const ticks = [];
      for (let tick = Math.ceil(from / step) * step; tick <= to * (1 + 1e-12); tick += step) ticks.push(tick);
      return ticks;
    }
    const room = Math.max(2, Math.floor(width / 58));
    const step = [1, 2, 5, 10, 20].find((candidate) => (to - from) / candidate <= room) ?? 40;
    const ticks = [];
    for (let tick = Math.ceil(from / step) * step; tick <= to + 1e-9; tick += step) if (tick > zeroOf(x)) ticks.push(tick);
    if (from <= zeroOf(x)) {
      const crowded = width / (to - from) < 34;
      return [zeroOf(x), ...ticks.filter((tick) => tick > zeroOf(x) + 1 || !crowded)];
    }
    return ticks;
  }

  const xLabel = (x, place) => (x.scale === "linear" ? Format.shortUnit(place, x.unit)
    : place < zeroOf(x) + 0.5 ? "0" : Format.shortUnit(Math.round(2 ** place), x.unit));

  function yLabel(panel, value) {
    if (panel.unit === "share") {
      const percent = value * 100;
      if (percent >= 1e4) return `${Format.shortCount(percent)} %`;
      const digits = percent === 0 || Math.abs(percent) >= 1 ? (Number.isInteger(Number(percent.toFixed(6))) ? 0 : 1)
        : Math.min(6, Math.ceil(-Math.log10(Math.abs(percent)) - 1e-9));
      return `${Format.decimal(percent, digits)} %`;
    }
    return Format.shortUnit(value, panel.unit === "count" ? "entries" : panel.unit);
  }

  // ---------------------------------------------------------------- series

  /** A line through `points` ([x, y]); `dash` and `symbol` as ECharts names them. */
  function line(points, { color, dash, width, symbol, symbolSize }) {
    return {
      values: (extent) => within(points, extent).map(([, y]) => y),
      option: (_, extent) => ({
        type: "line", data: within(points, extent), showSymbol: Boolean(symbol), symbol: symbol ?? "none", symbolSize: symbolSize ?? 6,
        lineStyle: { color, width: width ?? 2.25, type: dash ?? "solid", join: "round" },
        itemStyle: { color }, emphasis: { disabled: true }, silent: true,
      }),
    };
  }

  /** Up to here curves of single files have a point at every block that a layout may begin. */
  const STEPS_UP_TO = 2 << 20;

  /**
   * Between two points at most a block apart, allocation jumps right behind the first: blocks are begun by their first
   * byte.
   */
  function steps(points) {
    return points.flatMap(([at, value], index) => {
      const next = points[index + 1];
      const jumps = next && next[1] !== value && at > 0 && next[0] - at > 1 && next[0] <= STEPS_UP_TO;
      return jumps ? [[at, value], [at + 1, next[1]]] : [[at, value]];
    });
  }

  /** The area between two lines over the same places; `low` and `high` are [x, y]. */
  function band(low, high, { color }) {
    return {
      values: () => [],
      option: (log, extent) => {
        const floor = (points) => within(points, extent).filter(([, y]) => !log || y > 0);
        const outline = [...floor(high), ...floor(low).reverse()];
        return {
          type: "custom", clip: true, silent: true, data: outline.length > 2 ? [outline[0]] : [], encode: { x: 0, y: 1 }, z: 1,
          renderItem: (_, api) => ({
            type: "polygon", shape: { points: outline.map((point) => api.coord(point)) }, style: { fill: color, opacity: 0.22 }, emphasisDisabled: true,
          }),
        };
      },
    };
  }

  /** The part of a line in sight, cut at the edges: browsers give up on dashes of lines that run far outside. */
  function within(points, [from, to]) {
    const cut = (a, b, x) => [x, a[1] + ((x - a[0]) / (b[0] - a[0])) * (b[1] - a[1])];
    return points.flatMap((point, index) => {
      const next = points[index + 1];
      const kept = point[0] >= from && point[0] <= to ? [point] : [];
      if (next && next[0] > point[0]) {
        if (point[0] < from && next[0] > from) kept.push(cut(point, next, from));
        if (point[0] < to && next[0] > to) kept.push(cut(point, next, to));
      }
      return kept;
    });
  }

  /** Histogram bars with true edges: `items` are [from, to, value]; `slot` of `slots` shares a bucket with others. */
  function bars(items, { color, slot = 0, slots = 1 }) {
    return {
      values: ([from, to]) => items.filter(([left, right]) => right > from && left < to).map(([, , value]) => value),
      option: (log) => ({
        type: "custom", clip: true, silent: true,
        data: items.map(([from, to, value]) => [(from + to) / 2, value, from, to]),
        encode: { x: 0, y: 1 },
        renderItem(frame, api) {
          const value = api.value(1);
          if (log ? value <= 0 : value === 0) return undefined;
          const [left, end] = api.coord([api.value(2), value]);
          const [right] = api.coord([api.value(3), value]);
          const base = log ? frame.coordSys.y + frame.coordSys.height : api.coord([api.value(2), 0])[1];
          const inset = Math.min(3, (right - left) * 0.09);
          const width = (right - left - 2 * inset) / slots;
          const height = Math.max(Math.abs(base - end), 1.5);
          return {
            type: "rect",
            shape: {
              x: left + inset + slot * width, y: value < 0 ? base : base - height,
              width: Math.max(width - (slots > 1 ? 1 : 0), 0.75), height,
            },
            style: { fill: color },
            emphasisDisabled: true,
          };
        },
      }),
    };
  }

  // ---------------------------------------------------------------- tooltips

  function tooltip(content) {
    if (!content) return "";
    const cells = (row) => [row.value].flat().map((value) => el("td", {}, value));
    return el("div", { class: "tip-body" },
      el("div", { class: content.name ? "tip-title name" : "tip-title" }, content.title),
      el("table", { class: content.columns ? null : "plain" }, content.columns && el("tr", {}, el("td", {}), el("td", {}), content.columns.map((text) => el("th", {}, text))),
        content.rows.map((row) => el("tr", {}, el("td", {}, swatch(row)), el("td", { class: "tip-label" }, row.label), cells(row)))));
  }

  /** Where a tooltip stands: beside what it explains, and above the chart where there is no room beside. */
  function beside([x, y], _, __, ___, { contentSize: [width, height], viewSize: [all, high] }) {
    const gap = 18;
    if (x + gap + width <= all) return [x + gap, Math.max(0, Math.min(y - height / 2, high - height))];
    if (x - gap - width >= 0) return [x - gap - width, Math.max(0, Math.min(y - height / 2, high - height))];
    const left = Math.max(0, Math.min(x - width / 2, all - width));
    return y - gap - height >= -40 ? [left, y - gap - height] : [left, y + gap];
  }

  /**
   * Where the tooltip of a rectangle stands: beside the whole of it, else above or below it, and outside the chart if it
   * fills that; never on it.
   */
  function besideRectangle(point, params, node, rect, { contentSize, viewSize }) {
    if (!rect) return beside(point, params, node, rect, { contentSize, viewSize });
    const [[width, height], [all, high]] = [contentSize, viewSize];
    const gap = 8;
    const within = (value, room) => Math.max(0, Math.min(value, room));
    const y = within(point[1] - height / 2, high - height);
    if (rect.x + rect.width + gap + width <= all) return [rect.x + rect.width + gap, y];
    if (rect.x - gap - width >= 0) return [rect.x - gap - width, y];
    const x = within(point[0] - width / 2, all - width);
    return [x, rect.y - gap - height >= 0 ? rect.y - gap - height : rect.y + rect.height + gap];
  }

  function swatch({ color, dash, block }) {
    const node = el("span", { class: dash ? `swatch ${dash}` : block ? "swatch patch" : "swatch", "aria-hidden": "true" });
    if (color) node.style.setProperty("--swatch", color);
    else node.classList.add("none");
    return node;
  }

  /**
   * One figure. The specification:
   * - `name`, `title` (or `heading(state)`), `note`, `alt` (what a screen reader says), `state` (initial);
   * - `controls`: `[{key, label, options: [[value, text]], when(state), select}]`;
   * - `legend(color, state)`: `[{key, label, color, dash, name}]`; what has a key can be hidden;
   * - either `layout(state, color)`: `{x, panels, mark: {at, text}, tip(x)}` with panels one below the other on the
   *   same x axis. x: `{scale, unit, title, full, start, least, stops, snap}`: the whole extent and the first one, the
   *   least span of a zoom, where the arrow keys stop; on an axis of powers of two, `zero` is the place of 0. There can
   *   be several marks, with `color` and `panel` (above which the text stands). A panel:
   *   `{title, unit, log, min, max, step, series}`. A tip:
   *   `{title, columns, rows: [{label, value (one a column), color, dash}]}`;
   * - or `rows(state, color)`: `[{label, value, text, color, tip}]`, horizontal bars, to the left where they are below 0;
   *   `parts`, `[{value, color}]`, divide them;
   * - or `tiles(state, color, width)`: `[{name, value, tip, itemStyle, children}]`, nested rectangles; `open(tile, figure)`
   *   when one is chosen, `trail(state)`: `[{at, text, name, last}]`, the way back, of which one becomes `state.at`;
   * - `table(state)`: what `Format.table` takes, folded away; `show(state)`: nodes in sight below the chart.
   */
  class Figure {
    constructor(spec) {
      this.spec = spec;
      this.state = { hidden: new Set(), ...spec.state };
      this.zoomed = null;
      this.drawn = false;
      this.build();
    }

    build() {
      const { spec } = this;
      this.canvas = el("div", {
        class: "chart", "data-chart": spec.name, tabindex: "0", role: "img",
        "aria-label": `${spec.alt ?? spec.title}. The data table below the chart has the values.` +
          (spec.layout ? " Use the arrow keys to read values, plus and minus to zoom, 0 to reset." : ""),
      });
      this.controlBox = el("div", { class: "controls" });
      this.legendBox = el("div", { class: "legend", role: "group", "aria-label": "Legend" });
      this.trailBox = spec.trail && el("nav", { class: "trail", "aria-label": "Directories above" });
      this.below = el("div", { class: "below" });
      this.details = spec.table && el("details", { class: "data", ontoggle: () => this.fillTable() },
        el("summary", {}, "Data table"), el("div", { class: "data-body" }));
      this.node = el("figure", { class: "figure", id: `figure-${spec.name}` },
        el("figcaption", {}, el("div", { class: "headed" }, el("h3", {}, spec.title), Save.chartButtons(this)),
          spec.note ? el("p", { class: "note" }, spec.note) : null),
        this.controlBox, this.legendBox, this.trailBox, this.canvas,
        spec.layout && el("p", { class: "hint" },
          el("span", { class: "mouse" }, "Drag across the chart or use Ctrl + mouse wheel to zoom; double-click to reset."),
          el("span", { class: "touch" }, "Pinch to zoom; drag sideways to pan.")),
        this.below, this.details);
    }

    /** To be called once the node is in the page. */
    start() {
      waiting += 1;
      figures.set(this.spec.name, this);
      this.width = this.canvas.clientWidth;
      this.arrange();
      this.chart = echarts.init(this.canvas, null, { renderer: "svg", width: this.width, height: this.height });
      this.chart.on("finished", () => this.finished());
      if (this.spec.layout) listenForZoom(this);
      if (this.spec.tiles) {
        this.listenForTiles();
        this.chart.on("rendered", () => this.hideStumps());
      }
      this.render();
      this.observer = new ResizeObserver(() => {
        const width = this.canvas.clientWidth;
        if (width && width !== this.width) {
          this.width = width;
          this.render();
        }
      });
      this.observer.observe(this.canvas);
    }

    stop() {
      this.observer?.disconnect();
      this.chart?.dispose();
      figures.delete(this.spec.name);
    }

    finished() {
      if (this.drawn || !this.canvas.querySelector("svg path, svg rect")) return;
      this.drawn = true;
      this.canvas.dataset.drawn = "true";
      waiting -= 1;
      if (waiting === 0) document.documentElement.dataset.ready = "true";
    }

    set(key, value) {
      this.state[key] = value;
      this.zoomed = null;
      this.render();
    }

    zoom(extent) {
      const { full, least } = this.plan.x;
      if (extent === null) {
        this.zoomed = null;
      } else {
        const span = Math.min(full[1] - full[0], Math.max(least, extent[1] - extent[0]));
        const from = Math.min(full[1] - span, Math.max(full[0], (extent[0] + extent[1] - span) / 2));
        this.zoomed = [from, from + span];
      }
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.render();
      });
    }

    /** The part of the x axis in sight. */
    extent() {
      return this.zoomed ?? this.plan.x.start ?? this.plan.x.full;
    }

    zoomBy(factor, around) {
      const [from, to] = this.extent();
      const middle = around ?? (from + to) / 2;
      this.zoom([middle - (middle - from) * factor, middle + (to - middle) * factor]);
    }

    pan(fraction) {
      const [from, to] = this.extent();
      const step = (to - from) * fraction;
      this.zoom([from + step, to + step]);
    }

    /** Pixel to x, and back. */
    place(pixel) {
      const [from, to] = this.extent();
      return from + ((pixel - this.left) / (this.width - this.left - this.right)) * (to - from);
    }

    pixel(place) {
      const [from, to] = this.extent();
      return this.left + ((place - from) / (to - from)) * (this.width - this.left - this.right);
    }

    /** What the state asks for, and how high it will be. */
    arrange() {
      const color = theme();
      const narrow = this.width < 560;
      if (this.spec.tiles) {
        this.plan = { tiles: this.spec.tiles(this.state, color, this.width) };
        this.height = narrow ? 380 : 480;
        return;
      }
      if (this.spec.rows) {
        this.plan = { rows: this.spec.rows(this.state, color) };
        this.height = Math.max(1, this.plan.rows.length) * 38 + 8;
        return;
      }
      this.plan = this.spec.layout(this.state, color);
      const wide = this.plan.panels.some((panel) => panel.unit === "bytes");
      [this.left, this.right] = narrow ? [wide ? 64 : 54, 14] : [70, 20];
      const height = narrow ? 170 : 210;
      this.tops = this.plan.panels.map((panel, index) => PANEL_TOP + index * (height + PANEL_TOP + 20));
      this.panelHeight = height;
      this.height = this.tops.at(-1) + height + AXIS_BOTTOM;
    }

    render() {
      this.arrange();
      const color = theme();
      this.canvas.style.height = `${this.height}px`;
      this.chart.resize({ width: this.width, height: this.height });
      const option = this.plan.tiles ? this.tilesOption(color) : this.plan.rows ? this.rowsOption(color) : this.panelsOption(color);
      this.chart.setOption(option, { notMerge: true });
      if (this.plan.x) this.canvas.dataset.extent = this.extent().join(" ");
      if (this.spec.heading) this.node.querySelector("h3").textContent = this.spec.heading(this.state);
      this.fillControls();
      this.fillLegend(color);
      this.fillTrail();
      this.below.replaceChildren(...(this.spec.show?.(this.state) ?? []));
      this.fillTable();
    }

    // -------------------------------------------------------------- ECharts options

    common(color) {
      return {
        animation: false,
        textStyle: { fontFamily: FONT, fontSize: 12, color: color("muted") },
        tooltip: {
          trigger: "axis", confine: false, position: beside, transitionDuration: 0, hideDelay: 40, className: "tip", padding: 0, borderWidth: 0,
          backgroundColor: color("raised"), textStyle: { color: color("ink"), fontSize: 13, fontFamily: FONT },
          extraCssText: "box-shadow:none;border-radius:4px",
        },
      };
    }

    panelsOption(color) {
      const { x, panels, mark, tip } = this.plan;
      const extent = this.extent();
      const ticks = xTicks(x, extent, this.width - this.left - this.right);
      const option = this.common(color);
      option.tooltip.formatter = (hits) => tooltip(hits.length ? tip(hits[0].axisValue) : null);
      option.axisPointer = { link: [{ xAxisIndex: "all" }] };
      option.grid = panels.map((_, index) => ({
        left: this.left, right: this.right, top: this.tops[index], height: this.panelHeight, outerBoundsMode: "none",
      }));
      option.xAxis = panels.map((_, index) => ({
        type: "value", gridIndex: index, min: extent[0], max: extent[1],
        axisLine: { show: true, onZero: false, lineStyle: { color: color("axis") } },
        axisTick: { show: true, customValues: ticks, length: 4, lineStyle: { color: color("axis") } },
        axisLabel: {
          customValues: ticks, color: color("muted"), fontSize: 11.5, hideOverlap: true, margin: 9,
          formatter: (place) => xLabel(x, place),
        },
        splitLine: { show: false },
        name: index === panels.length - 1 ? x.title : "", nameLocation: "middle", nameGap: 30,
        nameTextStyle: { color: color("muted"), fontSize: 12 },
        axisPointer: {
          show: true, snap: Boolean(x.snap), triggerTooltip: true, label: { show: false },
          lineStyle: { color: color("faint"), width: 1, type: "solid" },
        },
      }));
      const scales = panels.map((panel) => (panel.log ? logScale(panel, extent) : linearScale(panel, extent)));
      option.yAxis = panels.map((panel, index) => ({
        ...scales[index].axis,
        gridIndex: index, axisLine: { show: false, onZero: false }, axisTick: { show: false, customValues: scales[index].ticks },
        axisLabel: {
          color: color("muted"), fontSize: 11.5, margin: 8, formatter: (value) => yLabel(panel, value), customValues: scales[index].ticks,
        },
        splitLine: { lineStyle: { color: color("rule"), width: 1 } },
        axisPointer: { show: false },
        name: panel.title, nameLocation: "end", nameGap: 22, nameMoveOverlap: false,
        nameTextStyle: { align: "left", color: color("ink"), fontSize: 13, fontWeight: 600, padding: [0, 0, 0, -this.left + 2] },
      }));
      option.series = panels.flatMap((panel, index) => {
        const place = { xAxisIndex: index, yAxisIndex: index };
        const list = panel.series.map((series) => ({ ...series.option(panel.log, extent), ...place }));
        const seen = [mark ?? []].flat().filter(({ at }) => at > extent[0] && at < extent[1]);
        return [...list, ...seen.map((each) => this.markSeries(each, index, color, place))];
      });
      return option;
    }

    /** A vertical line through a panel, with its text above the first one, or the one that it names. */
    markSeries(mark, index, color, place) {
      const tint = mark.color ?? color("faint");
      // Text stands to the right of the line, where there is room for it.
      const wide = this.pixel(mark.at) + mark.text.length * 6.5 > this.width - 6;
      return {
        type: "line", data: [], silent: true, ...place,
        markLine: {
          symbol: "none", silent: true, animation: false, data: [{ xAxis: mark.at }],
          lineStyle: { color: tint, type: [3, 3], width: 1 },
          label: {
            show: index === (mark.panel ?? 0), position: "end", distance: 5, color: color("muted"), fontSize: 11.5, align: wide ? "right" : "left",
            padding: [0, wide ? -3 : 0, 0, wide ? 0 : -3], formatter: () => mark.text,
          },
        },
      };
    }

    rowsOption(color) {
      const { rows } = this.plan;
      const option = this.common(color);
      const longest = Math.max(6, ...rows.map((row) => row.text.length));
      const room = Math.max(12, Math.floor((this.width - longest * 6.6 - 24) / 6.7));
      const label = (text, align) => ({
        type: "category", inverse: true, data: rows.map((_, index) => String(index)), position: align,
        axisLine: { show: false }, axisTick: { show: false }, splitLine: { show: false }, axisPointer: { show: align === "left", label: { show: false } },
        axisLabel: {
          inside: true, margin: 0, interval: 0, align, verticalAlign: "bottom", padding: [0, 0, 12, 0], fontSize: 12.5, z: 10,
          color: color(align === "left" ? "ink" : "muted"), formatter: (_, index) => text(rows[index]),
        },
      });
      option.tooltip.axisPointer = { type: "shadow", shadowStyle: { color: color("hover") } };
      option.tooltip.formatter = (hits) => tooltip(hits.length ? rows[hits[0].dataIndex]?.tip : null);
      // A label stands above its bar, so that the whole of them sits a little low in its row.
      option.grid = { left: 1, right: 1, top: 12, bottom: -4, outerBoundsMode: "none" };
      option.xAxis = { type: "value", show: false, min: Math.min(0, ...rows.map((row) => row.value)), max: Math.max(1e-9, ...rows.map((row) => row.value)), axisPointer: { show: false } };
      option.yAxis = [label((row) => Format.shorten(row.label, room), "left"), label((row) => row.text, "right")];
      const bar = { type: "bar", barWidth: 8, silent: true, emphasis: { disabled: true } };
      const background = { showBackground: true, backgroundStyle: { color: color("panel") } };
      const parts = Math.max(0, ...rows.map((row) => row.parts?.length ?? 0));
      option.series = parts === 0
        ? [{ ...bar, ...background, barMinHeight: 1, data: rows.map((row) => ({ value: row.value, itemStyle: { color: row.color } })) }]
        : Array.from({ length: parts }, (_, at) => ({
          ...bar, ...(at === 0 ? background : {}), stack: "parts",
          data: rows.map((row) => ({ value: row.parts[at].value, itemStyle: { color: row.parts[at].color } })),
        }));
      return option;
    }

    tilesOption(color) {
      const option = this.common(color);
      option.tooltip.trigger = "item";
      option.tooltip.position = besideRectangle;
      option.tooltip.formatter = (hit) => tooltip(hit.data?.tip);
      const edge = color("bg");
      const head = { show: true, height: 20, color: color("ink"), fontSize: 12, fontWeight: 600, padding: [0, 5], overflow: "truncate" };
      const parent = { borderColor: color("panel"), borderWidth: 2, gapWidth: 1 };
      option.series = [{
        type: "treemap", animation: false, animationDurationUpdate: 0, data: this.plan.tiles, left: 0, right: 0, top: 0, bottom: 0, roam: false, nodeClick: false, breadcrumb: { show: false },
        visibleMin: 60, childrenVisibleMin: 900, squareRatio: 1, cursor: "pointer",
        label: { show: true, position: "insideTopLeft", padding: [4, 5], color: edge, fontSize: 12, overflow: "truncate", ellipsis: "…", formatter: (hit) => hit.name },
        upperLabel: head, itemStyle: { borderColor: edge, borderWidth: 1, gapWidth: 1 },
        emphasis: { label: { color: edge }, upperLabel: head, itemStyle: { borderColor: color("ink") } },
        levels: [{ itemStyle: { borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } }, { itemStyle: parent, upperLabel: head }, { itemStyle: parent, upperLabel: head }, {}],
      }];
      return option;
    }

    /** Hides what is left of names that had to be cut to a few letters: nobody can read them. */
    hideStumps() {
      const names = new Set();
      const enter = (tiles) => tiles.forEach((tile) => {
        names.add(tile.name);
        enter(tile.children ?? []);
      });
      enter(this.plan.tiles);
      for (const node of this.canvas.querySelectorAll("svg text")) {
        const text = node.textContent;
        const isWhole = names.has(text) || (text.endsWith("…") && Array.from(text).length > 4);
        node.style.display = isWhole ? "" : "none";
      }
    }

    /** A rectangle opens when it is chosen, and so does the first that is large with Enter; Backspace leads back. */
    listenForTiles() {
      this.chart.on("click", (hit) => this.spec.open(hit.data, this));
      this.canvas.addEventListener("keydown", (event) => {
        const way = this.spec.trail(this.state);
        if (event.key === "Enter") this.spec.open([...this.plan.tiles].sort((a, b) => b.value - a.value).find((tile) => tile.at !== null), this);
        else if (event.key === "Backspace" && way.length > 1) this.set("at", way.at(-2).at);
        else return;
        event.preventDefault();
        announce(this.spec.trail(this.state).at(-1).text);
      });
    }

    fillTrail() {
      if (!this.trailBox) return;
      const way = this.spec.trail(this.state);
      const had = this.trailBox.contains(document.activeElement);
      this.trailBox.replaceChildren(...way.map((step) => (step.last
        ? el("span", { class: step.name ? "name" : null, "aria-current": "true" }, step.text)
        : el("button", { type: "button", class: step.name ? "name" : null, onclick: () => this.set("at", step.at) }, step.text))));
      if (had) (this.trailBox.querySelector("button:last-of-type") ?? this.canvas).focus({ preventScroll: true });
    }

    // -------------------------------------------------------------- what stands around the chart

    fillControls() {
      const had = this.controlBox.contains(document.activeElement) ? document.activeElement.dataset.control : null;
      const groups = (this.spec.controls ?? []).filter((control) => !control.when || control.when(this.state)).map((control) =>
        control.select ? el("label", { class: "pick" }, control.label, " ", el("select", {
          "data-control": control.key, onchange: (event) => this.set(control.key, event.target.value),
        }, control.options.map(([value, text]) => el("option", { value, selected: this.state[control.key] === value }, text))))
          : el("div", { class: "segment", role: "group", "aria-label": control.label }, control.options.map(([value, text]) =>
            el("button", {
              type: "button", "aria-pressed": String(this.state[control.key] === value), "data-control": `${control.key}:${value}`,
              onclick: () => this.set(control.key, value),
            }, text))));
      if (this.spec.layout) {
        const button = (key, label, text, action, off) =>
          el("button", { type: "button", "aria-label": label, title: label, "data-control": key, disabled: off, onclick: action }, text);
        groups.push(el("div", { class: "segment zoom", role: "group", "aria-label": "Zoom" },
          button("out", "Zoom out", "−", () => this.zoomBy(1.6)),
          button("in", "Zoom in", "+", () => this.zoomBy(1 / 1.6)),
          button("reset", "Reset zoom", "Reset", () => this.zoom(null), this.zoomed === null)));
      }
      this.controlBox.replaceChildren(...groups);
      if (had) this.controlBox.querySelector(`[data-control="${CSS.escape(had)}"]:not(:disabled)`)?.focus({ preventScroll: true });
    }

    fillLegend(color) {
      const entries = this.spec.legend?.(color, this.state) ?? [];
      const had = this.legendBox.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      this.legendBox.hidden = entries.length === 0;
      this.legendBox.replaceChildren(...entries.map((entry) => {
        const content = [swatch(entry), el("span", { class: entry.name ? "name" : null }, entry.label)];
        if (!entry.key) return el("span", { class: "key" }, content);
        return el("button", {
          type: "button", class: "key", "data-key": entry.key, "aria-pressed": String(!this.state.hidden.has(entry.key)),
          onclick: () => {
            if (!this.state.hidden.delete(entry.key)) this.state.hidden.add(entry.key);
            this.render();
          },
        }, content);
      }));
      if (had) this.legendBox.querySelector(`[data-key="${CSS.escape(had)}"]`)?.focus({ preventScroll: true });
    }

    fillTable() {
      if (!this.details) return;
      const body = this.details.lastChild;
      body.replaceChildren(...(this.details.open ? [Format.table(this.spec.table(this.state))] : []));
    }

    /** Shows the values at the next stop, for the arrow keys. */
    step(direction) {
      const [from, to] = this.extent();
      const stops = this.plan.x.stops.filter((stop) => stop >= from && stop <= to);
      if (!stops.length) return;
      const at = this.cursor === undefined ? (direction > 0 ? -1 : stops.length) : stops.findIndex((stop) => stop >= this.cursor - 1e-9);
      const index = Math.min(stops.length - 1, Math.max(0, at + direction));
      this.cursor = stops[index];
      this.chart.dispatchAction({ type: "showTip", x: this.pixel(this.cursor), y: this.tops[0] + this.panelHeight / 2 });
      const content = this.plan.tip(this.cursor);
      if (content) announce(`${content.title}: ${content.rows.map((row) => `${row.label} ${[row.value].flat().join(" ")}`).join(", ")}`);
    }
  }

  function announce(text) {
    const live = document.getElementById("live");
    if (live) live.textContent = text;
  }

  // ---------------------------------------------------------------- zoom by pointer, wheel and keys

  function listenForZoom(figure) {
    const { canvas } = figure;
    const pointers = new Map();
    const selection = el("div", { class: "selection", hidden: true });
    let start = null;
    canvas.append(selection);
    const pixelOf = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const inside = (pixel) => Math.min(figure.width - figure.right, Math.max(figure.left, pixel));

    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button !== 0) return;
      pointers.set(event.pointerId, pixelOf(event));
      start = { pixels: [...pointers.values()], extent: figure.extent(), touch: event.pointerType !== "mouse" };
      if (!start.touch) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId) || !start) return;
      pointers.set(event.pointerId, pixelOf(event));
      const now = [...pointers.values()];
      if (!start.touch) {
        const [a, b] = [inside(start.pixels[0]), inside(now[0])];
        selection.hidden = Math.abs(a - b) < 6;
        selection.style.left = `${Math.min(a, b)}px`;
        selection.style.width = `${Math.abs(a - b)}px`;
      } else if (now.length === 2 && start.pixels.length === 2) {
        const scale = (start.extent[1] - start.extent[0]) / (figure.width - figure.left - figure.right);
        const factor = Math.abs(start.pixels[0] - start.pixels[1]) / Math.max(12, Math.abs(now[0] - now[1]));
        const middle = start.extent[0] + ((start.pixels[0] + start.pixels[1]) / 2 - figure.left) * scale;
        const shift = ((start.pixels[0] + start.pixels[1] - now[0] - now[1]) / 2) * scale * factor;
        figure.zoom([middle - (middle - start.extent[0]) * factor + shift, middle + (start.extent[1] - middle) * factor + shift]);
      } else if (now.length === 1 && figure.zoomed) {
        const scale = (start.extent[1] - start.extent[0]) / (figure.width - figure.left - figure.right);
        const shift = (start.pixels[0] - now[0]) * scale;
        figure.zoom([start.extent[0] + shift, start.extent[1] + shift]);
      }
    });
    const end = (event) => {
      if (!pointers.has(event.pointerId)) return;
      const from = start && !start.touch && !selection.hidden ? inside(start.pixels[0]) : null;
      if (from !== null && event.type === "pointerup") {
        const [a, b] = [from, inside(pixelOf(event))].sort((left, right) => left - right);
        figure.zoom([figure.place(a), figure.place(b)]);
      }
      selection.hidden = true;
      pointers.delete(event.pointerId);
      start = pointers.size ? { pixels: [...pointers.values()], extent: figure.extent(), touch: true } : null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", () => figure.zoom(null));
    // A bare wheel scrolls the page, unless the reader has clicked into the chart; a pinch on a touchpad comes with
    // ctrlKey.
    canvas.addEventListener("wheel", (event) => {
      const chosen = document.activeElement === canvas;
      if (!(event.ctrlKey || event.metaKey || chosen)) return;
      if (event.deltaY > 0 && !figure.zoomed && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) figure.pan(event.deltaX / figure.width);
      else figure.zoomBy(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), figure.place(inside(pixelOf(event))));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const keys = {
        "+": () => figure.zoomBy(1 / 1.6), "=": () => figure.zoomBy(1 / 1.6), "-": () => figure.zoomBy(1.6), 0: () => figure.zoom(null),
        ArrowLeft: () => (event.shiftKey ? figure.pan(-0.2) : figure.step(-1)),
        ArrowRight: () => (event.shiftKey ? figure.pan(0.2) : figure.step(1)),
        Escape: () => canvas.blur(),
      };
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    canvas.addEventListener("blur", () => {
      figure.cursor = undefined;
      figure.chart.dispatchAction({ type: "hideTip" });
    });
  }

  /** Draws everything again, in the colours that the page has now. */
  function redraw() {
    for (const figure of figures.values()) figure.render();
  }

  function stopAll() {
    for (const figure of [...figures.values()]) {
      if (!figure.drawn) waiting -= 1;
      figure.stop();
    }
  }

  return { Figure, line, bars, band, steps, log2, unlog2, redraw, stopAll, get: (name) => figures.get(name) };
})();
