// The pages of traces, caches, stores, histories, allocations, comparisons, checks and other results in headless Chromium: `npm ci && npm test`.
//
//   GRANULO_TRACE_PAGE   pages that `granulo report` wrote of traces (several: separated by ':'), such as one of one
//                        trace and one of two
//   GRANULO_CACHE_PAGE   pages that it wrote of results of `granulo cache`
//   GRANULO_STORE_PAGE   pages that `granulo store status --report` wrote
//   GRANULO_HISTORY_PAGE pages that `granulo history --report` wrote
//   GRANULO_ALLOCATE_PAGE  pages that `granulo allocate --report` wrote
//   GRANULO_COMPARE_PAGE  pages that `granulo compare --report` wrote, such as one of one tree and one of populations
//   GRANULO_CHECK_PAGE   pages that `granulo store check --report` wrote
//   GRANULO_RESULT_PAGE  pages that `granulo report` wrote of other results
//   GRANULO_REQUIRE_ALL  1: fail, instead of skipping, where there is no such page
import assert from "node:assert/strict";
import { basename, delimiter, resolve } from "node:path";
import { describe, test } from "node:test";
import {
  DESKTOP, HOSTILE, assertAlone, assertDrawn, assertFitsPhone, assertFollowsDark, assertNoGaps, assertNoOverflow, assertTurnsIntoPhone, chart, dataOf, hover,
  settle, shoot, tip, useEverything, variant, visit,
} from "./browser.mjs";

const pagesOf = (name) => (process.env[name] ?? "").split(delimiter).filter(Boolean).map((file) => resolve(file));

/** The charts that a page of traces has. */
function chartsOfTraces({ traces }) {
  const moved = traces.some((trace) => trace.reads.whole.count || trace.writes.whole.count);
  const timed = traces.map((trace, at) => trace.clock !== "none" && trace.rates.intervals.length > 1 && `rates-${at}`);
  return [...(moved ? ["trace-sizes", "one-block", "file-sizes"] : []), ...traces.map((_, at) => `kinds-${at}`), ...timed].filter(Boolean);
}

const chartsOfCaches = ({ studies }) => studies.map((_, at) => `misses-${at}`);

function holds(file, chartsOf, pointed) {
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
    for (const sentence of data.words ?? []) assert.ok(text.includes(sentence), sentence);
    assert.match(text, /works offline/);
  }));

  test("fits a phone", () => assertFitsPhone(file, name, charts));

  test("follows the dark mode of the system, and its own button", () => assertFollowsDark(file, name, charts));

  test("survives every control", () => visit(file, DESKTOP, useEverything));

  test("shows values under the pointer and to the keyboard", () => visit(file, DESKTOP, async (page) => {
    for (const [each, text] of Object.entries(pointed).filter(([each]) => charts.includes(each))) {
      await hover(page, each, 0.5, 0.3);
      assert.match(await tip(page, each).innerText(), text);
      // Bars without an axis are read from their table.
      if (await chart(page, each).getAttribute("data-extent") === null) continue;
      await chart(page, each).focus();
      for (let at = 0; at < 2; at += 1) await page.keyboard.press("ArrowRight");
      await settle(page);
      assert.match(await page.locator("#live").textContent(), text);
    }
  }));
}

function all(variable, chartsOf, pointed, hostile, empty) {
  const pages = pagesOf(variable);
  if (!pages.length) {
    const required = process.env.GRANULO_REQUIRE_ALL === "1";
    if (!required) console.error(`SKIPPED: pages are not tested, because ${variable} is not set`);
    test(variable, { skip: required ? false : `${variable} is not set` }, () => assert.fail(`${variable} is not set`));
    return;
  }
  for (const file of pages) describe(`the page ${basename(file)}`, () => holds(file, chartsOf, pointed));

  test(`names cannot leave the data: ${variable}`, () => visit(variant(pages[0], `hostile-${variable}`, (data) => {
    data.title = HOSTILE;
    data.words = [HOSTILE];
    hostile(data);
  }), DESKTOP, async (page) => {
    assert.ok((await page.innerText("#page")).includes(HOSTILE));
    await useEverything(page);
    await assertTurnsIntoPhone(page);
  }));

  test(`a page without results says that there is nothing: ${variable}`, () => visit(variant(pages[0], `no-${variable}`, empty), DESKTOP, async (page) => {
    assert.match(await page.innerText("#page"), /Nothing to show/);
  }));
}

all("GRANULO_TRACE_PAGE", chartsOfTraces, { "trace-sizes": /Up to/, "one-block": /\bblocks\b/, "file-sizes": /Files below/, "rates-0": /After/ }, (data) => {
  for (const trace of data.traces) [trace.name, trace.recorder, trace.command, trace.notes] = [HOSTILE, HOSTILE, HOSTILE, [HOSTILE]];
}, (data) => { data.traces = []; });

all("GRANULO_CACHE_PAGE", chartsOfCaches, { "misses-0": /Cache of/ }, (data) => {
  for (const study of data.studies) [study.trace, study.notes] = [HOSTILE, [HOSTILE]];
}, (data) => { data.studies = []; });

all("GRANULO_STORE_PAGE", () => ["fill"], { fill: /Device \d/ }, (data) => {
  for (const store of data.stores) {
    store.home = HOSTILE;
    for (const device of store.devices) [device.path, device.trouble] = [HOSTILE, HOSTILE];
    for (const snapshot of store.snapshots) snapshot.name = HOSTILE;
  }
}, (data) => { data.stores = []; });

/** The charts of trees with surveys at several times. */
const chartsOfHistories = ({ trees }) => trees.map((tree, at) => !tree.anonymous && new Set(tree.points.map((point) => point.taken_at_seconds)).size > 1 && `history-${at}`).filter(Boolean);

all("GRANULO_HISTORY_PAGE", chartsOfHistories, { "history-0": /UTC/ }, (data) => {
  for (const tree of data.trees) {
    [tree.name, tree.host, tree.roots] = [HOSTILE, HOSTILE, [HOSTILE]];
    for (const point of tree.points) point.source = HOSTILE;
  }
}, (data) => { data.trees = []; });

const sizesOf = ({ allocations }) => new Set(allocations.flatMap(({ files }) => files.map((file) => file.size_bytes)));

all("GRANULO_ALLOCATE_PAGE", (data) => (sizesOf(data).size > 2 ? ["allocated"] : []), { allocated: /File of/ }, (data) => {
  for (const layout of data.allocations) layout.model = HOSTILE;
}, (data) => { data.allocations = []; });

const chartsOfComparisons = ({ comparison: { growth } }) => {
  const has = (key) => growth?.[key].by_size.length || growth?.[key].by_files.length;
  const changed = ["directories", "owners", "extensions"].filter(has);
  return [...changed.map((key) => `changed-${key}`), ...(growth?.by_size.length ? ["changed-sizes"] : []), "compared"];
};

all("GRANULO_COMPARE_PAGE", chartsOfComparisons, { "changed-directories": /bytes/, "changed-sizes": /files/, compared: /or smaller/ }, ({ comparison }) => {
  for (const source of comparison.sources) [source.name, source.host] = [HOSTILE, HOSTILE];
  for (const pair of comparison.distances) [pair.a, pair.b] = [HOSTILE, HOSTILE];
  const { growth } = comparison;
  if (!growth) return;
  [growth.name, growth.host, growth.notes] = [HOSTILE, HOSTILE, [HOSTILE]];
  for (const [key, field] of [["directories", "path"], ["owners", "name"], ["extensions", "extension"]]) {
    for (const list of Object.values(growth[key])) for (const row of list) row[field] = HOSTILE;
  }
}, (data) => { data.comparison.sources = []; });

all("GRANULO_CHECK_PAGE", ({ check }) => (check.problem_count ? ["problems"] : []), { problems: /what helps/ }, ({ check }) => {
  check.home = check.host = HOSTILE;
  for (const problem of check.problems) [problem.path, problem.object, problem.cause] = [HOSTILE, HOSTILE, HOSTILE];
}, (data) => { data.check = {}; });

const [comparisonPage] = pagesOf("GRANULO_COMPARE_PAGE").filter((file) => dataOf(file).comparison.growth);
test("a comparison opens with a picture of what changed", { skip: !comparisonPage && "there is no page of one tree" }, () => visit(comparisonPage, DESKTOP, async (page) => {
  const box = await chart(page, "changed-directories").boundingBox();
  assert.ok(box.y + box.height / 2 < 900, `the picture is at ${box.y}`);
  const text = await page.innerText("main");
  assert.match(text, /between the surveys|files and/);
  for (const title of ["Owners", "File types, by extension", "Change by size of the files"]) assert.ok(text.includes(title), title);
}));

const [storePage] = pagesOf("GRANULO_STORE_PAGE");
test("a device whose content is nowhere else cannot be rebuilt", { skip: !storePage && "there is no page of a store" }, () => visit(variant(storePage, "alone", ({ stores: [store] }) => {
  store.devices = store.devices.slice(0, 1);
  Object.assign(store, { copies: 1, parity_units: 0 });
}), DESKTOP, async (page) => {
  assert.match(await page.innerText("#devices"), /cannot be rebuilt/);
  assert.doesNotMatch(await page.innerText("#devices tbody"), / ms| s\b/);
}));

const [historyPage] = pagesOf("GRANULO_HISTORY_PAGE");
test("a history has room as df has it, and tells surveys of one minute apart", { skip: !historyPage && "there is no page of a history" }, () => visit(variant(historyPage, "room", ({ trees: [tree] }) => {
  for (const point of tree.points) Object.assign(point, { capacity_bytes: 1000, used_bytes: 300, available_bytes: 100 });
  for (const [at, second] of [[0, "01"], [1, "44"]]) tree.points[at].taken_at = `2026-07-01T03:00:${second}Z`;
}), DESKTOP, async (page) => {
  assert.match(await page.innerText(".keys"), /75\.0 %/);
  assert.match(await page.innerText("#surveys"), /03:00:01 UTC[^]*03:00:44 UTC/);
}));

all("GRANULO_RESULT_PAGE", () => [], {}, (data) => {
  data.name = HOSTILE;
  for (const fact of data.document.facts) [fact.name, fact.text] = [HOSTILE, HOSTILE];
  for (const table of data.document.tables) {
    table.title = HOSTILE;
    for (const column of table.columns) column.title = HOSTILE;
    for (const row of table.rows) for (const cell of row) cell.text = HOSTILE;
  }
}, (data) => { data.document.facts = []; data.document.tables = []; });
