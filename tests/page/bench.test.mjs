// The page of benches in headless Chromium: `npm ci && npm test`.
//
//   GRANULO_BENCH_PAGE   pages that `granulo report` wrote of results of benches (several: separated by ':');
//                        `make test-page` makes them of the committed runs, one of each bench and one of several runs
//                        together
//   GRANULO_REQUIRE_ALL  1: fail, instead of skipping, where there is no such page
import assert from "node:assert/strict";
import { basename, delimiter, resolve } from "node:path";
import { describe, test } from "node:test";
import {
  DESKTOP, HOSTILE, assertAlone, assertDrawn, assertFitsPhone, assertFollowsDark, assertNoGaps, assertNoOverflow, assertTurnsIntoPhone, chart, dataOf, hover,
  settle, shoot, tip, useEverything, variant, visit,
} from "./browser.mjs";

const pages = (process.env.GRANULO_BENCH_PAGE ?? "").split(delimiter).filter(Boolean).map((file) => resolve(file));

/** The charts that the benches of a page have. */
function chartsOf({ runs }) {
  const of = (bench) => runs.filter((run) => run.document.details.bench === bench);
  const has = (bench, is) => of(bench).some((run) => is(run.document));
  const groups = new Set(of("cache").flatMap((run) => run.document.subjects.map((subject) => subject.name.replace(/ \d+ KiB/, ""))));
  // Of what is measured on several targets, the best is shown first.
  const compared = runs.some(({ document: { series } }) => series.some((one) => one.level === null
    && series.some((other) => other !== one && ["measure", "unit", "caches", "level", "second_level"].every((key) => other[key] === one[key]))));
  return [
    ...(compared ? ["verdict"] : []), ...(has("create", () => true) ? ["nth", "rates"] : []), ...(has("pack", () => true) ? ["pack"] : []),
    ...(has("fill", (document) => document.series.some((series) => series.level !== null)) ? ["fill", "fill-relative"] : []),
    ...(has("metadata", (document) => document.details.load_points.length) ? ["load"] : []), ...(has("metadata", (document) => document.series.length) ? ["metadata"] : []),
    ...[...groups].map((_, index) => `cache-${index}`),
  ];
}

function holds(file) {
  const name = basename(file, ".html");
  const data = dataOf(file);
  const charts = chartsOf(data);

  test("is one file below 2 MB that may load nothing", () => assertAlone(file, 2_000_000));

  test("draws every chart on a desk, without a sound", () => visit(file, DESKTOP, async (page) => {
    await assertDrawn(page, charts);
    await assertNoGaps(page);
    await assertNoOverflow(page);
    await shoot(page, name, "desktop-light");
    const text = await page.innerText("#page");
    assert.ok(text.includes(data.words[0]), data.words[0]);
    const folded = await page.textContent("details.words").catch(() => "");
    for (const sentence of data.words.slice(1)) assert.ok(folded.includes(sentence), sentence);
    for (const run of data.runs) {
      for (const subject of run.document.subjects) assert.ok(text.includes(subject.name), subject.name);
      for (const note of run.document.notes) assert.ok(text.includes(note), note);
    }
    assert.match(text, /works offline/);
  }));

  test("fits a phone", () => assertFitsPhone(file, name, charts));

  test("follows the dark mode of the system, and its own button", () => assertFollowsDark(file, name, charts));

  test("survives every control", () => visit(file, DESKTOP, useEverything));

  test("shows values under the pointer and to the keyboard", () => visit(file, DESKTOP, async (page) => {
    const expected = { nth: /Operation [\d,]+/, fill: /% full/, load: /offered/, "cache-0": /[KMG]iB/ };
    for (const [each, text] of Object.entries(expected).filter(([each]) => charts.includes(each))) {
      await hover(page, each, 0.5, 0.4);
      assert.match(await tip(page, each).innerText(), text);
      await chart(page, each).focus();
      for (let at = 0; at < 2; at += 1) await page.keyboard.press("ArrowRight");
      await settle(page);
      assert.match(await page.locator("#live").textContent(), text);
    }
  }));
}

if (!pages.length) {
  const required = process.env.GRANULO_REQUIRE_ALL === "1";
  if (!required) console.error("SKIPPED: the page of benches is not tested, because GRANULO_BENCH_PAGE is not set");
  test("the page of benches", { skip: required ? false : "GRANULO_BENCH_PAGE is not set" }, () => assert.fail("GRANULO_BENCH_PAGE is not set"));
} else {
  for (const file of pages) describe(`the page ${basename(file)}`, () => holds(file));

  test("names cannot leave the data", () => visit(variant(pages[0], "hostile-bench", (data) => {
    data.title = HOSTILE;
    data.words = [HOSTILE];
    for (const run of data.runs) {
      run.name = HOSTILE;
      for (const subject of run.document.subjects) [subject.name, subject.path, subject.device.name, subject.file_system.made_by] = [HOSTILE, HOSTILE, HOSTILE, HOSTILE];
      run.document.notes = [HOSTILE];
      run.document.command_line = ["granulo", HOSTILE];
    }
  }), DESKTOP, async (page) => {
    assert.ok((await page.innerText("#page")).includes(HOSTILE));
    await useEverything(page);
    await assertTurnsIntoPhone(page);
  }));

  test("an interrupted run says so, and what is missing is not drawn", () => visit(variant(pages[0], "half-bench", (data) => {
    for (const { document } of data.runs) {
      document.complete = false;
      document.series = document.series.slice(0, 2);
      if (document.details.phases) document.details.phases = document.details.phases.slice(0, 1);
    }
    for (const run of data.runs) run.curves = run.curves.slice(0, 1);
  }), DESKTOP, async (page) => {
    assert.match(await page.innerText(".head"), /Interrupted/);
    await assertNoGaps(page);
    await useEverything(page);
  }));

  test("a page without runs says that there is nothing", () => visit(variant(pages[0], "no-bench", (data) => { data.runs = []; }), DESKTOP, async (page) => {
    assert.match(await page.innerText("#page"), /Nothing to show/);
  }));
}
