// The fast tier: its curve over the cutoff, and two sliders that answer from the points of that curve, without asking
// anybody. What a slider says between two points is interpolated in log space and says so.
"use strict";

const PlanTier = (() => {
  const { el, num, count, size, share, cells, table } = Format;
  const { Figure, line, band } = Figures;
  const { looks, manyHidden, LINEAR_OR_LOG } = PlanSections;
  /** Stops of the slider between two points of the curve. */
  const STOPS = 4;
  /** Stops of the slider of capacities in each doubling. */
  const PER_OCTAVE = 16;

  // ---------------------------------------------------------------- curves

  function curveOf(tier, look) {
    const points = tier.curve.map((point) => ({
      cutoff: num(point.cutoff_bytes), files: num(point.small_file_fraction), bytes: num(point.small_data_fraction),
      least: num(point.fast_least_bytes), fast: num(point.fast_bytes), slow: num(point.slow_bytes), device: num(point.fast_device_bytes),
    }));
    return { tier, look, points, model: tier.model, fill: num(tier.fill_fraction) || 1 };
  }

  /** Between `a` and `b`: evenly in the logarithm where there is one. */
  const between = (a, b, part) => (a > 0 && b > 0 ? a * (b / a) ** part : a + (b - a) * part);
  const partOf = (a, b, value) => (b === a ? 0 : a > 0 && b > 0 && value > 0 ? Math.log(value / a) / Math.log(b / a) : (value - a) / (b - a));

  /** What a cutoff makes: a point of the curve, or between two of them. */
  function at({ points }, cutoff) {
    const after = points.findIndex((point) => point.cutoff >= cutoff);
    if (after < 0) return { ...points.at(-1), cutoff };
    if (after === 0 || points[after].cutoff === cutoff) return { ...points[after], known: true };
    const [a, b] = [points[after - 1], points[after]];
    const part = partOf(a.cutoff, b.cutoff, cutoff);
    const straight = (key) => a[key] + (b[key] - a[key]) * part;
    const curved = (key) => between(a[key], b[key], part);
    return { cutoff, files: straight("files"), bytes: straight("bytes"), least: curved("least"), fast: curved("fast"), slow: curved("slow"), known: false };
  }

  /** The largest cutoff for which at most `usable` bytes are fast; null where metadata alone are more. */
  function held({ points }, usable) {
    const beyond = points.findIndex((point) => point.fast > usable);
    if (beyond < 0) return Infinity;
    if (beyond === 0) return null;
    const [a, b] = [points[beyond - 1], points[beyond]];
    return Math.floor(between(a.cutoff, b.cutoff, partOf(a.fast, b.fast, usable)));
  }

  /** The stop of a slider, as a cutoff, and back: whole steps are the points of the curve. */
  function cutoffOf({ points }, stop) {
    const index = Math.min(points.length - 1, Math.floor(stop / STOPS));
    const next = points[index + 1];
    const part = (stop - index * STOPS) / STOPS;
    return next && part > 0 ? Math.round(between(points[index].cutoff, next.cutoff, part)) : points[index].cutoff;
  }

  function stopOf({ points }, cutoff) {
    const after = points.findIndex((point) => point.cutoff >= cutoff);
    if (after <= 0) return after === 0 ? 0 : (points.length - 1) * STOPS;
    return Math.round((after - 1 + partOf(points[after - 1].cutoff, points[after].cutoff, cutoff)) * STOPS);
  }

  /** Places on the axis of cutoffs: powers of two from the least cutoff above 0, with 0 one step left of it. */
  function axisOf({ points }) {
    const least = points.find((point) => point.cutoff > 0)?.cutoff ?? 512;
    const zero = Math.log2(least) - 1;
    return {
      zero,
      place: (cutoff) => (cutoff < least ? zero + cutoff / least : Math.log2(cutoff)),
      cutoff: (place) => (place <= zero ? 0 : place < zero + 1 ? (place - zero) * least : 2 ** place),
    };
  }

  // ---------------------------------------------------------------- what a reader types

  const FACTORS = "kmgtpe";

  /** A size as the command line takes it: `65536`, `2 TiB`, `2T`, `2TB` (1,000-based). `{bytes}` or `{error}`. */
  function parseSize(text) {
    const wrong = { error: "Not a size: write, for example, 500 GiB, 2TiB, 2T (= TiB) or 2TB (powers of 1,000)." };
    const found = /^\s*(\d[\d_]*(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
    if (!found) return wrong;
    const unit = found[2].toLowerCase();
    const power = FACTORS.indexOf(unit[0]) + 1;
    const rest = power > 0 ? unit.slice(1) : null;
    if (unit !== "" && unit !== "b" && (power === 0 || !["", "ib", "b"].includes(rest))) return wrong;
    const bytes = Math.round(Number(found[1].replaceAll("_", "")) * (rest === "b" ? 1000 : 1024) ** power);
    if (!(bytes < 2 ** 64)) return { error: "Larger than any device: write less than 16 EiB." };
    return bytes > 0 ? { bytes } : { error: "A fast tier needs at least one byte." };
  }

  /** A share in per cent, with its sign or without, as a fraction. */
  function parsePercent(text, from, to, error) {
    const found = /^\s*(\d+(?:\.\d+)?)\s*%?\s*$/.exec(text);
    const value = found ? Number(found[1]) / 100 : NaN;
    return value > from && value <= to ? { value } : { error };
  }

  const percent = (fraction) => String(Number((fraction * 100).toFixed(3)));
  /** Rounded to what `size` shows, upwards: so that what the field says holds what it should. */
  function rounded(bytes) {
    const unit = 1024 ** Math.max(0, Math.min(8, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
    const scaled = bytes / unit;
    const step = scaled >= 100 ? 1 : scaled >= 10 ? 0.1 : 0.01;
    return Math.ceil(Number(((Math.ceil(scaled / step - 1e-9) * step)).toFixed(2)) * unit);
  }

  // ---------------------------------------------------------------- the section

  function tier({ plan }) {
    const look = looks(plan);
    const curves = plan.fast_tiers.filter((entry) => entry.curve?.length > 1).map((entry) => curveOf(entry, look.get(entry.model)));
    if (!curves.length) return null;
    const usual = num(plan.usual_cutoff_bytes);
    const first = curves[0];
    const state = {
      curve: first, cutoff: usual, growth: num(plan.growth_fraction), fill: first.fill,
      capacity: num(first.tier.fit?.fast_device_bytes) || rounded(Math.max(1, at(first, usual).device)),
    };
    const figure = chart(plan, curves, state);
    const profiles = el("div", { class: "block" });
    const controls = tryIt(plan, curves, state, () => {
      figure.state.model = state.curve.model;
      figure.state.hidden.delete(state.curve.model);
      later(() => figure.chart && figure.render());
      ratios(profiles, state.curve, usual);
    });
    ratios(profiles, first, usual);
    const here = at(first, usual);
    const lead = [`Metadata and files up to ${size(usual)} need ${range(here)} under ${first.model}, ${share(here.fast / (here.fast + here.slow || 1))} of everything it stores.`,
      `They are ${share(here.files)} of the files and ${share(here.bytes)} of the bytes.`];
    return { id: "tier", title: "The fast tier", short: "Fast tier", lead, parts: [figure, controls, profiles] };
  }

  /** At most one call for each frame. */
  let frame = 0;
  function later(call) {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(call);
  }

  const range = (point) => (Math.round(point.least) < Math.round(point.fast) && size(Math.round(point.least)) !== size(Math.round(point.fast))
    ? `${size(Math.round(point.least))} to ${size(Math.round(point.fast))}` : size(Math.round(point.fast)));
  const usableOf = (state) => (state.capacity * state.fill) / (1 + state.growth);
  const boughtFor = (state, bytes) => (bytes * (1 + state.growth)) / state.fill;

  /** What the capacity holds: exactly as the plan has it, as long as nothing was changed. */
  function heldNow(state, plan) {
    const { tier: entry } = state.curve;
    const asked = entry.fit && num(entry.fit.fast_device_bytes) === state.capacity && state.growth === num(plan.growth_fraction) && state.fill === state.curve.fill;
    const largest = num(plan.source.largest_bytes);
    if (asked) {
      const fit = entry.fit.largest;
      return fit && { cutoff: Math.min(largest, num(fit.cutoff_bytes)), files: num(fit.small_file_fraction), bytes: num(fit.small_data_fraction), fast: num(fit.fast_bytes), all: num(fit.cutoff_bytes) >= largest && num(fit.slow_bytes) === 0, exact: true };
    }
    const cutoff = held(state.curve, usableOf(state));
    if (cutoff === null) return null;
    if (cutoff >= largest) {
      const last = state.curve.points.at(-1);
      // A layout that limits the cutoff leaves something to the slow tier whatever the capacity.
      if (last.slow > 0) {
        const first = state.curve.points.find((point) => point.fast === last.fast);
        return { ...first, cutoff: Math.max(first.cutoff, num(entry.fit?.largest?.cutoff_bytes ?? 0)), all: false, exact: true };
      }
      return { ...last, cutoff: largest, all: true, exact: true };
    }
    return { ...at(state.curve, cutoff), all: false, exact: false };
  }

  // ---------------------------------------------------------------- the chart

  function chart(plan, curves, now) {
    const axis = axisOf(curves[0]);
    const full = [axis.zero, axis.place(curves[0].points.at(-1).cutoff) + 0.2];
    const shareOf = (point, key = "fast") => (point[key] + point.slow > 0 ? point[key] / (point[key] + point.slow) : 0);
    return new Figure({
      name: "fast-tier",
      title: "Fast bytes by cutoff",
      note: "Metadata and files up to the cutoff, including redundancy: in bytes, and as a share of everything the layout stores." +
        (curves.some((curve) => curve.points.some((point) => size(point.least) !== size(point.fast)))
          ? " Shaded: the range between minimum and maximum, which depends on records and compression." : ""),
      alt: "Fast bytes and their share of all bytes by cutoff, for each layout with a fast tier",
      state: { model: curves[0].model, axis: "log", hidden: manyHidden(curves.map((curve) => curve.model)) },
      controls: [LINEAR_OR_LOG],
      legend: (color) => curves.map(({ model, look }) => ({ key: model, label: model, name: true, color: color(look.color), dash: look.dash })),
      layout(state, color) {
        const log = state.axis === "log";
        const chosen = now.curve;
        const seen = curves.filter((curve) => !state.hidden.has(curve.model));
        const spot = at(chosen, now.cutoff);
        const fits = heldNow(now, plan);
        const upwards = [...seen.filter((curve) => curve !== chosen), ...seen.filter((curve) => curve === chosen)];
        const lines = (value) => upwards.flatMap((curve) => {
          const points = (key) => curve.points.map((point) => [axis.place(point.cutoff), value(point, key)]).filter(([, y]) => !log || y > 0);
          const tint = color(curve.look.color);
          const open = curve.points.some((point) => point.least < point.fast);
          return [...(open ? [band(points("least"), points("fast"), { color: tint })] : []),
            line(points("fast"), { color: tint, dash: curve.look.type, width: curve === chosen ? 3 : 1.5 })];
        });
        const dots = (value) => (state.hidden.has(chosen.model) ? [] : [spot, fits].filter((point) => point && (!log || value(point, "fast") > 0)).map((point) =>
          line([[axis.place(point.cutoff), value(point, "fast")]], { color: color("ink"), symbol: point === spot ? "circle" : "diamond", symbolSize: point === spot ? 9 : 11 })));
        const bytes = (point, key) => point[key];
        const usable = usableOf(now);
        const least = Math.min(...seen.flatMap((curve) => curve.points.map((point) => point.fast)).filter((value) => value > 0));
        const most = Math.max(...seen.flatMap((curve) => curve.points.map((point) => point.fast)));
        const limit = usable > least / 4 && usable < most * 2 ? [line(full.map((x) => [x, usable]), { color: color("published"), width: 1.25, dash: [2, 3] })] : [];
        return {
          x: { scale: "log2", unit: "bytes", title: "Cutoff", zero: axis.zero, full, least: 1, stops: curves[0].points.map((point) => axis.place(point.cutoff)) },
          mark: [
            { at: axis.place(spot.cutoff), text: `● cutoff: ${spot.cutoff === 0 ? "0" : size(spot.cutoff)}` },
            ...(fits ? [{ at: axis.place(fits.cutoff), text: `◆ held: ${fits.all ? "everything" : fits.cutoff === 0 ? "metadata" : size(fits.cutoff)}`, panel: 1 }] : []),
          ],
          panels: [
            { title: "Fast bytes", unit: "bytes", log, series: [...limit, ...lines(bytes), ...dots(bytes)] },
            { title: "Share of all bytes", unit: "share", log, min: log ? undefined : 0, max: 1, step: log ? undefined : 0.25, series: [...lines(shareOf), ...dots((point) => shareOf(at(chosen, point.cutoff)))] },
          ],
          tip(place) {
            const cutoff = Math.round(axis.cutoff(place));
            return {
              title: cutoff === 0 ? "Metadata only" : `Metadata, and files up to ${size(cutoff)}`,
              columns: ["fast", "of all bytes"],
              rows: seen.map((curve) => {
                const point = at(curve, cutoff);
                return { color: color(curve.look.color), dash: curve.look.dash, label: Format.shorten(curve.model, 32), value: [range(point), share(shareOf(point))] };
              }),
            };
          },
        };
      },
      table() {
        const { model, points } = now.curve;
        const whole = points.filter((point) => point.cutoff === 0 || Number.isInteger(Math.log2(point.cutoff)) || !isPart(point.cutoff));
        const open = whole.some((point) => size(point.least) !== size(point.fast));
        return {
          caption: `Fast bytes by cutoff: ${model}`,
          columns: [{ title: "Cutoff", text: true }, { title: "Files" }, { title: "Their bytes" }, ...(open ? [{ title: "Fast, at least" }] : []), { title: open ? "Fast, at most" : "Fast" },
            { title: "Slow" }, { title: "Fast, of all" }, { title: "Capacity to buy" }],
          rows: whole.map((point) => [point.cutoff === 0 ? "metadata only" : cells.size(point.cutoff), cells.share(point.files), cells.share(point.bytes), ...(open ? [cells.size(point.least)] : []), cells.size(point.fast),
            cells.size(point.slow), cells.share(shareOf(point)), cells.size(Math.ceil(boughtFor(now, point.fast)))]),
        };
      },
    });
  }

  /** Whether a cutoff is at a quarter of an octave; the others were asked for. */
  const isPart = (cutoff) => Math.round(2 ** (Math.round(Math.log2(cutoff) * 4) / 4)) === cutoff;

  // ---------------------------------------------------------------- the sliders

  const facts = (list) => list.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, more) : null)));

  function tryIt(plan, curves, state, changed) {
    const usual = num(plan.usual_cutoff_bytes);
    const trouble = (id) => el("p", { class: "trouble", id, role: "alert" });
    const field = (id, label, value, suffix) => {
      const input = el("input", { id, type: "text", inputmode: "decimal", size: 6, autocomplete: "off", spellcheck: "false", value, "aria-describedby": "try-trouble" });
      return [input, el("label", { class: "pick", for: id }, label, input, suffix)];
    };
    const [growth, growthLabel] = field("try-growth", "Growth", percent(state.growth), "%");
    const [fill, fillLabel] = field("try-fill", "Maximum fill level", percent(state.fill), "%");
    const allowance = trouble("try-trouble");
    const choice = curves.length > 1 && el("label", { class: "pick" }, "Layout", el("select", {
      id: "try-model", onchange: (event) => {
        state.curve = curves.find((curve) => curve.model === event.target.value) ?? curves[0];
        state.fill = state.curve.fill;
        fill.value = percent(state.fill);
        allow();
      },
    }, curves.map((curve) => el("option", { value: curve.model }, curve.model))));

    const cutoffSlider = el("input", { id: "try-cutoff", type: "range", min: 0, max: (state.curve.points.length - 1) * STOPS, step: 1, value: stopOf(state.curve, state.cutoff) });
    const cutoffText = el("output", { for: "try-cutoff", class: "answer" });
    const cutoffNote = el("p", { class: "note" });
    const cutoffFacts = el("dl", { class: "facts" });
    const devices = curves.flatMap((curve) => curve.points.map((point) => point.fast)).filter((bytes) => bytes > 0);
    const ends = [Math.floor(Math.log2(Math.min(...devices, 2 ** 62))) - 1, Math.ceil(Math.log2(Math.max(...devices, 1))) + 1];
    const capacitySlider = el("input", { id: "try-capacity", type: "range", min: ends[0] * PER_OCTAVE, max: ends[1] * PER_OCTAVE, step: 1, "aria-label": "Fast capacity" });
    const capacityText = el("input", { id: "try-capacity-text", type: "text", size: 10, autocomplete: "off", spellcheck: "false", value: size(state.capacity), "aria-describedby": "capacity-trouble" });
    const capacityTrouble = trouble("capacity-trouble");
    const capacityNote = el("p", { class: "note" });
    const capacityFacts = el("dl", { class: "facts" });

    function answerCutoff() {
      const point = at(state.curve, state.cutoff);
      cutoffText.textContent = state.cutoff === 0 ? "metadata only" : size(state.cutoff);
      cutoffSlider.setAttribute("aria-valuetext", cutoffText.textContent);
      cutoffNote.textContent = point.known ? "" : "Interpolated between points of the curve.";
      cutoffFacts.replaceChildren(...facts([
        ["Files", share(point.files), "of the files are fast"],
        ["Bytes", share(point.bytes), "of the bytes are in them"],
        ["Fast tier", range(point), `${share(point.fast / (point.fast + point.slow || 1))} of everything stored`],
        ["Slow tier", size(Math.round(point.slow))],
        ["Capacity to buy", size(Math.ceil(boughtFor(state, point.fast))), allowanceText(state)],
      ]));
    }

    function answerCapacity() {
      const usable = usableOf(state);
      const fits = heldNow(state, plan);
      const needed = at(state.curve, usual).fast;
      const spilled = Math.max(0, needed - usable);
      const about = fits && !fits.exact ? "about " : "";
      capacitySlider.setAttribute("aria-valuetext", size(state.capacity));
      capacityNote.textContent = fits === null || fits.exact ? "" : "Interpolated between points of the curve.";
      capacityFacts.replaceChildren(...facts([
        ["Largest cutoff", fits === null ? "none" : fits.all ? "every file" : fits.cutoff === 0 ? "metadata only" : `${about}${size(fits.cutoff)}`,
          fits === null ? `metadata alone needs ${size(Math.round(state.curve.points[0].fast))}` : fits.all ? "nothing left for a slow tier" : fits.cutoff > 0 ? "plus all metadata" : null],
        ["Files", share(fits?.files ?? 0), "of the files are fast"],
        ["Bytes", share(fits?.bytes ?? 0), "of the bytes are in them"],
        ["Usable today", size(Math.floor(usable)), allowanceText(state)],
        [`Does not fit at ${size(usual)}`, spilled > 0 ? size(Math.ceil(spilled)) : "nothing", spilled > 0 ? `${share(spilled / needed)} of ${size(Math.round(needed))}` : `${size(Math.round(needed))} fit`],
      ]));
    }

    function all() {
      answerCutoff();
      answerCapacity();
      changed();
    }

    /** Takes over growth and fill, or says what is wrong with them. */
    function allow() {
      const grown = parsePercent(growth.value, -1, 1e4, "Growth must be a percentage of 0 or more, for example 50.");
      const filled = parsePercent(fill.value, 0, 1, "The fill level must be more than 0 % and at most 100 %.");
      for (const [input, read] of [[growth, grown], [fill, filled]]) input.setAttribute("aria-invalid", String(Boolean(read.error)));
      allowance.textContent = grown.error ?? filled.error ?? "";
      state.growth = grown.value ?? state.growth;
      state.fill = filled.value ?? state.fill;
      all();
    }

    const slideTo = (bytes) => { capacitySlider.value = Math.round(Math.log2(bytes) * PER_OCTAVE); };
    for (const input of [growth, fill]) input.addEventListener("input", allow);
    cutoffSlider.addEventListener("input", () => {
      state.cutoff = cutoffOf(state.curve, Number(cutoffSlider.value));
      answerCutoff();
      changed();
    });
    capacitySlider.addEventListener("input", () => {
      state.capacity = rounded(2 ** (Number(capacitySlider.value) / PER_OCTAVE));
      capacityText.value = size(state.capacity);
      said("");
      answerCapacity();
      changed();
    });
    const said = (error) => {
      capacityTrouble.textContent = error;
      capacityText.setAttribute("aria-invalid", String(error !== ""));
      capacityFacts.classList.toggle("stale", error !== "");
    };
    capacityText.addEventListener("input", () => {
      const { bytes, error } = parseSize(capacityText.value);
      said(error ?? "");
      if (error) return;
      state.capacity = bytes;
      slideTo(bytes);
      answerCapacity();
      changed();
    });
    slideTo(state.capacity);
    answerCutoff();
    answerCapacity();
    return el("div", { class: "block try", id: "try" },
      el("h3", {}, "Try a cutoff or a capacity"),
      el("p", { class: "note" }, "Both are marked in the chart above: ● the cutoff, ◆ the largest cutoff that the capacity can hold."),
      el("div", { class: "controls" }, choice, growthLabel, fillLabel), allowance,
      el("div", { class: "pair" },
        el("div", {}, el("div", { class: "asked" }, el("label", { for: "try-cutoff" }, "Cutoff"), cutoffText), cutoffSlider, cutoffNote, cutoffFacts),
        el("div", {}, el("div", { class: "asked" }, el("label", { for: "try-capacity-text" }, "Fast capacity"), capacityText), capacitySlider, capacityTrouble, capacityNote, capacityFacts)));
  }

  function allowanceText(state) {
    const parts = [state.growth > 0 && `${percent(state.growth)}\u00a0% growth`, state.fill < 1 && `filled to ${percent(state.fill)}\u00a0%`].filter(Boolean);
    return parts.join(", ") || null;
  }

  // ---------------------------------------------------------------- three ratios

  function ratios(box, curve, usual) {
    const rows = curve.tier.profiles ?? [];
    box.hidden = rows.length === 0;
    box.replaceChildren(el("h3", {}, "Usual ratios of fast to slow capacity"),
      el("p", { class: "note name" }, `Under ${curve.model}, with a slow tier just large enough for the files above a cutoff of ${size(usual)}.`),
      table({
        caption: "Three ratios of fast to slow capacity compared",
        columns: [{ title: "Fast to slow", text: true }, { title: "Fast tier" }, { title: `Enough for ${size(usual)}`, text: true }, { title: "Largest cutoff" }, { title: `Does not fit at ${size(usual)}` }],
        rows: rows.map((row) => {
          const largest = row.largest_cutoff_bytes;
          const spilled = num(row.spill.spilled_bytes);
          return [share(row.ratio), size(row.fast_device_bytes), row.fits ? "yes" : "no", largest === null ? "metadata does not fit" : num(largest) === 0 ? "metadata only" : size(largest),
            spilled > 0 ? `${size(spilled)} (${share(row.spill.spilled_fraction)})` : "nothing"];
        }),
      }));
  }

  return { tier, parseSize, parsePercent };
})();
