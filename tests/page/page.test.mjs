// The report page in headless Chromium: `npm ci && npm test`.
//
//   GRANULO_PAGE         pages that granulo wrote (several: separated by ':'); a fixture with hostile names is always
//                        tested
//   GRANULO_CHROMIUM     the browser, /usr/bin/chromium by default
//   GRANULO_SCREENSHOTS  directory for PNG files: desktop light, desktop dark and phone of every page
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, delimiter, dirname, join, resolve } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  DESKTOP, PHONE, assertDrawn, assertNoGaps, assertNoOverflow, chart, extent, hover, scratch, settle, shoot, tip, useEverything, visit,
} from "./browser.mjs";
import { page as render } from "./template.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const fixture = readFileSync(join(here, "fixture.json"), "utf8");
const CHARTS = ["tree", "buckets", "cumulative", "block-size", "overhead-by-size", "ages", "age-curves", "directories", "owners", "extensions", "distribution"];

/** A page made from the fixture after `change`, as a file. */
function variant(name, change = () => {}) {
  const data = JSON.parse(fixture);
  change(data);
  const file = join(scratch, `${name}.html`);
  writeFileSync(file, render(name === "hostile" ? fixture : JSON.stringify(data)));
  return file;
}

/** What holds for every page, whoever made it: how it looks, and how it answers to a reader. */
function common(name, file, expected) {
  looks(name, file, expected);
  answers(name, file, expected);
}

function looks(name, file, expected) {
  test("is one file below 5 MB that may load nothing", () => {
    assert.ok(statSync(file).size < 5_000_000);
    const html = readFileSync(file, "utf8");
    assert.match(html, /Content-Security-Policy" content="default-src 'none';/);
    assert.doesNotMatch(html, /<(script|link|img|iframe)[^>]+(src|href)="(?!data:)/);
  });

  test("draws every chart on a desk, without a sound", () => visit(file, DESKTOP, async (page) => {
    await assertDrawn(page, expected);
    await assertNoGaps(page);
    await assertNoOverflow(page);
    await shoot(page, name, "desktop-light");
  }));

  test("fits a phone", () => visit(file, PHONE, async (page) => {
    await assertDrawn(page, expected);
    await assertNoGaps(page);
    await assertNoOverflow(page);
    await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
    await assertNoOverflow(page);
    await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = false; }));
    await shoot(page, name, "phone");
  }));

  test("survives every control", () => visit(file, DESKTOP, useEverything));
}

function answers(name, file, expected) {
  test("follows the dark mode of the system, and its own button", () => visit(file, { ...DESKTOP, colorScheme: "dark" }, async (page) => {
    const look = () => page.evaluate(() => [getComputedStyle(document.body).backgroundColor, document.querySelector("svg text").getAttribute("fill") ?? document.querySelector("svg text").style.fill]);
    await assertDrawn(page, expected);
    await shoot(page, name, "desktop-dark");
    const dark = await look();
    await page.click("button.theme");
    await settle(page);
    const light = await look();
    assert.notEqual(dark[0], light[0]);
    assert.notEqual(dark[1], light[1], "the charts kept their colours");
    assert.equal(light[0], "rgb(255, 255, 255)");
  }));

  test("shows values under the pointer", () => visit(file, DESKTOP, async (page) => {
    await hover(page, "buckets", 0.45, 0.2);
    const text = await tip(page, "buckets").innerText();
    assert.match(text, /\d/);
    assert.match(text, /files/);
    assert.match(text, /%/);
    await assertNoGaps(page);
  }));

  test("zooms by dragging, wheel, buttons and keys, and resets", () => visit(file, DESKTOP, async (page) => {
    const labels = () => page.$$eval('[data-chart="buckets"] svg text', (nodes) => nodes.map((node) => node.textContent).join("|"));
    const [from, to] = await extent(page, "buckets");
    const whole = await labels();
    const box = await hover(page, "buckets", 0.3, 0.3);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height * 0.3, { steps: 5 });
    await page.mouse.up();
    await settle(page);
    const dragged = await extent(page, "buckets");
    assert.ok(dragged[0] > from && dragged[1] < to, `dragging: ${dragged} within ${[from, to]}`);
    assert.notEqual(await labels(), whole, "the axis kept its labels");

    await page.keyboard.press("0");
    await settle(page);
    assert.deepEqual(await extent(page, "buckets"), [from, to]);
    await page.keyboard.press("+");
    await settle(page);
    const keyed = await extent(page, "buckets");
    assert.ok(keyed[1] - keyed[0] < to - from);

    await page.click('#figure-buckets [data-control="reset"]');
    await settle(page);
    assert.deepEqual(await extent(page, "buckets"), [from, to]);
    await hover(page, "buckets", 0.5, 0.3);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -240);
    await page.keyboard.up("Control");
    await settle(page);
    const wheeled = await extent(page, "buckets");
    assert.ok(wheeled[1] - wheeled[0] < to - from);
    await page.mouse.dblclick(box.x + box.width * 0.5, box.y + box.height * 0.3);
    await settle(page);
    assert.deepEqual(await extent(page, "buckets"), [from, to]);
    const before = await page.evaluate(() => scrollY);
    await page.evaluate(() => document.activeElement.blur());
    await page.mouse.wheel(0, 200);
    await page.waitForFunction((y) => scrollY > y, before);
  }));

  test("zooms by pinching, and moves sideways under one finger", () => visit(file, PHONE, async (page) => {
    const [from, to] = await extent(page, "buckets");
    await page.evaluate(() => document.querySelector('[data-chart="buckets"]').scrollIntoView({ block: "center" }));
    const box = await chart(page, "buckets").boundingBox();
    const touch = await page.context().newCDPSession(page);
    const fingers = (type, ...places) => touch.send("Input.dispatchTouchEvent", {
      type, touchPoints: places.map((x, id) => ({ x: box.x + box.width * x, y: box.y + box.height * 0.3, id })),
    });
    await fingers("touchStart", 0.5, 0.6);
    for (const spread of [0.05, 0.1, 0.15]) await fingers("touchMove", 0.5 - spread, 0.6 + spread);
    await fingers("touchEnd");
    await settle(page);
    const pinched = await extent(page, "buckets");
    assert.ok(pinched[1] - pinched[0] < (to - from) * 0.7, `pinching: ${pinched} of ${[from, to]}`);
    await fingers("touchStart", 0.5);
    for (const x of [0.55, 0.65, 0.75]) await fingers("touchMove", x);
    await fingers("touchEnd");
    await settle(page);
    const moved = await extent(page, "buckets");
    assert.ok(moved[0] < pinched[0], `moving: ${moved} after ${pinched}`);
  }));

  test("reads values to the keyboard", () => visit(file, DESKTOP, async (page) => {
    await chart(page, "buckets").focus();
    for (let i = 0; i < 4; i += 1) await page.keyboard.press("ArrowRight");
    await settle(page);
    assert.match(await page.locator("#live").textContent(), /files/);
    assert.match(await tip(page, "buckets").innerText(), /\d/);
  }));
}

test("the vendored library is the one that its README names", () => {
  const vendor = join(here, "../../web/vendor");
  const sha256 = createHash("sha256").update(readFileSync(join(vendor, "echarts.granulo.min.js"))).digest("hex");
  assert.ok(readFileSync(join(vendor, "README.md"), "utf8").includes(sha256));
});

describe("a page with hostile names", () => {
  const file = variant("hostile");
  common("fixture", file, CHARTS);

  test("shows them as text and runs none", () => visit(file, DESKTOP, async (page) => {
    await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
    await settle(page);
    for (const [x, y] of [[0.3, 0.12], [0.3, 0.2], [0.3, 0.29], [0.3, 0.37], [0.3, 0.45]]) {
      await hover(page, "directories", x, y);
      assert.match(await tip(page, "directories").innerText(), /\/srv\/data/);
    }
    await hover(page, "owners", 0.2, 0.6);
    assert.match(await tip(page, "owners").innerText(), /<script>alert\(6\)<\/script>/);
    const found = await page.evaluate(() => ({
      elements: [...document.querySelectorAll("#page script, #page img, #page b, #page iframe, [onerror], [onmouseover]")].map((node) => node.outerHTML),
      text: document.getElementById("page").innerText,
      labels: [...document.querySelectorAll("svg text")].map((node) => node.textContent),
      title: document.title,
    }));
    assert.deepEqual(found.elements, []);
    assert.equal(found.title, "Survey of /srv/data <script>alert(0)</script>");
    for (const name of ["/srv/data/<script>alert(1)</script>", "/srv/data/<img src=x onerror=alert(1)>", "/srv/data/{{data}}/{a|b}/${alert(4)}/$&$1",
      "/srv/data/\\x1b[31mred\\x1b[0m", "/srv/data/&lt;b&gt;&amp;", "/srv/data/\\u{202e}gpj.exe"]) {
      assert.ok(found.text.includes(name), `${name} is not in a table`);
      assert.ok(found.labels.includes(name), `${name} is not in a chart`);
    }
  }));

  const tiles = (page) => page.$$eval('[data-chart="tree"] svg text', (nodes) => nodes.map((node) => node.textContent));
  const trail = (page) => page.$$eval("#figure-tree .trail > *", (nodes) => nodes.map((node) => node.textContent));

  test("opens with a picture that leads down and back", () => visit(file, DESKTOP, async (page) => {
    const box = await chart(page, "tree").boundingBox();
    assert.ok(box.y < DESKTOP.viewport.height - 100, `the picture begins at ${box.y}`);
    // A chain of directories that hold nothing else is one.
    assert.ok((await tiles(page)).includes("projects/sequencing/2026"), (await tiles(page)).join("|"));
    assert.deepEqual(await trail(page), ["/srv/data"]);
    await hover(page, "tree", 0.1, 0.5);
    assert.match(await tip(page, "tree").innerText(), /projects[^]*share of the bytes/);
    await chart(page, "tree").focus();
    await page.keyboard.press("Enter");
    await settle(page);
    assert.deepEqual(await trail(page), ["/srv/data", "projects/sequencing/2026"]);
    assert.ok((await tiles(page)).includes("run-0418"));
    await page.click("#figure-tree details.data summary");
    // The table is made after the click, by an event of its own.
    await page.waitForSelector("#figure-tree .data-body table");
    assert.match(await page.innerText("#figure-tree .data-body"), /run-0417[^]*651,000/);
    await page.click("#figure-tree .trail button");
    await settle(page);
    assert.deepEqual(await trail(page), ["/srv/data"]);
    const text = await page.locator('[data-chart="tree"] svg text', { hasText: "run-0418" }).first().boundingBox();
    await page.mouse.click(text.x + 5, text.y + text.height + 5);
    await page.waitForFunction(() => document.querySelectorAll("#figure-tree .trail > *").length > 1);
  }));

  test("colours and measures change the picture", () => visit(file, DESKTOP, async (page) => {
    const fills = () => page.$$eval('[data-chart="tree"] svg path', (nodes) => nodes.map((node) => `${node.getAttribute("d")} ${node.getAttribute("fill")}`).join());
    const seen = new Set([await fills()]);
    for (const key of ["hue:owner", "hue:kind", "measure:files", "measure:small", "measure:overhead"]) {
      await page.click(`#figure-tree [data-control="${key}"]`);
      await settle(page);
      seen.add(await fills());
    }
    assert.ok(seen.size > 3, `${seen.size} pictures`);
    assert.match(await page.innerText("#figure-tree .legend"), /code and text/);
  }));

  test("saves charts and tables", () => visit(file, DESKTOP, async (page) => {
    const saved = async (selector) => {
      const [download] = await Promise.all([page.waitForEvent("download"), page.click(selector)]);
      return { name: download.suggestedFilename(), content: readFileSync(await download.path()) };
    };
    for (const name of ["tree", "buckets", "directories"]) {
      const svg = await saved(`#figure-${name} .save button:nth-child(1)`);
      assert.equal(svg.name, `granulo-${name}.svg`);
      assert.match(svg.content.toString(), /^<svg xmlns[^]*<\/svg>$/);
      const png = await saved(`#figure-${name} .save button:nth-child(2)`);
      assert.equal(png.content.subarray(1, 4).toString(), "PNG");
      assert.ok(png.content.length > 4000, `${name}: ${png.content.length} bytes`);
    }
    const csv = (await saved("#figure-owners .scroll .save button")).content.toString();
    assert.match(csv, /^Owner,Files,Small files,/);
    assert.match(csv, /\r\n[^,]+,\d{4,},\d+/);
    assert.match(csv, /<script>alert\(6\)<\/script>,/);
    const formula = await page.evaluate(() => Save.csv({ columns: [{ title: "a" }, { title: "b" }], rows: [["=1+1", "−1,234.5"], ["x\"y,z", { text: "1 KiB", value: 1024 }]] }));
    assert.equal(formula, "a,\"b, bytes\"\r\n'=1+1,-1234.5\r\n\"x\"\"y,z\",1024\r\n");
    await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
    const buckets = (await saved("#figure-buckets .data-body .save button")).content.toString();
    assert.match(buckets, /^File size,Files,"Share of the files, fraction","Bytes, bytes","Share of the bytes, fraction"\r\n/);
    assert.match(buckets, /\r\n4 KiB up to 8 KiB,\d+,0\.\d{4,},\d{6,},0\.\d{5,}\r\n/);
  }));

  test("tooltips stand beside what they explain", () => visit(file, DESKTOP, async (page) => {
    for (const [name, x, y] of [["buckets", 0.3, 0.2], ["buckets", 0.9, 0.2], ["directories", 0.3, 0.3], ["tree", 0.2, 0.5]]) {
      const box = await hover(page, name, x, y);
      const shown = await tip(page, name).boundingBox();
      const [px, py] = [box.x + box.width * x, box.y + box.height * y];
      const covers = px > shown.x && px < shown.x + shown.width && py > shown.y && py < shown.y + shown.height;
      assert.ok(!covers, `${name}: the pointer at ${px}, ${py} is under ${JSON.stringify(shown)}`);
    }
  }));

  test("tooltips of the map do not cover the rectangle that they explain", () => visit(file, DESKTOP, async (page) => {
    for (const [x, y] of [[0.1, 0.5], [0.45, 0.3], [0.9, 0.8]]) {
      await hover(page, "tree", x, y);
      const shown = await tip(page, "tree").boundingBox();
      assert.ok(shown.width < 400, `${shown.width} px wide`);
      // The rectangle that is chosen has a dark border.
      const hit = await page.evaluate(([left, top]) => {
        const under = document.elementsFromPoint(left, top).find((node) => node.tagName === "path" && node.closest('[data-chart="tree"]'));
        const { x: a, y: b, width, height } = under.getBoundingClientRect();
        return { a, b, width, height };
      }, await chart(page, "tree").boundingBox().then((box) => [box.x + box.width * x, box.y + box.height * y]));
      const covers = Math.min(hit.a + hit.width, shown.x + shown.width) - Math.max(hit.a, shown.x) > 4 && Math.min(hit.b + hit.height, shown.y + shown.height) - Math.max(hit.b, shown.y) > 4;
      assert.ok(!covers, `${JSON.stringify(shown)} covers ${JSON.stringify(hit)}`);
    }
  }));

  test("the map shows no names that were cut to a few letters", () => visit(file, DESKTOP, async (page) => {
    const shown = () => page.$$eval('[data-chart="tree"] svg text', (nodes) => nodes.filter((node) => node.style.display !== "none").map((node) => node.textContent));
    for (const key of ["measure:bytes", "measure:files", "measure:overhead"]) {
      await page.click(`#figure-tree [data-control="${key}"]`);
      await settle(page);
      const names = new Set(JSON.parse(fixture).sources[0].survey.tree.nodes.map((node) => node.name).join("/").split("/"));
      for (const text of await shown()) {
        assert.ok(["files here", "others"].includes(text) || text.endsWith("…") && text.length > 4 || text.split("/").every((word) => names.has(word)), `"${text}" is a stump`);
      }
    }
    await page.click('#figure-tree [data-control="measure:overhead"]');
    assert.match(await page.innerText("#figure-tree h3"), /^Where the overhead is$/);
    await page.click('#figure-tree [data-control="measure:files"]');
    assert.match(await page.innerText("#figure-tree h3"), /^Where the files are$/);
  }));

  test("says which machine, how full, and which build", () => visit(file, DESKTOP, async (page) => {
    assert.match(await page.innerText(".head"), /alpha[^]*xfs, 4 TiB, 80\.0 % in use, 768 GiB free/);
    assert.match(await page.innerText("#machine"), /6\.1\.0-18-amd64[^]*\/dev\/sdb1[^]*rw,noatime[^]*<b>data<\/b>[^]*10111213-1415[^]*3 TiB, 80\.0 %[^]*10\.0 %/);
    assert.match(await page.innerText("footer"), /granulo 0\.1\.0 \(0123456789ab\)/);
  }));

  test("keeps what packaging reset apart from ages", () => visit(file, DESKTOP, async (page) => {
    assert.match(await page.innerText("#figure-ages .legend"), /less than 30 d[^]*reset by packaging/);
    const table = await page.innerText("#ages .scroll");
    assert.match(table, /Modified \(mtime\)[^]*20\.0 %/);
    await hover(page, "ages", 0.5, 0.2);
    assert.match(await tip(page, "ages").innerText(), /90 d to 1 y/);
  }));

  test("keeps integers beyond 2^53 exact", () => visit(file, DESKTOP, async (page) => {
    await page.selectOption("#figure-distribution select", "allocated");
    await settle(page);
    assert.match(await page.locator("#figure-distribution .facts").innerText(), /8 EiB/);
    const exact = await page.evaluate(() => Format.count(Format.parse('{"n": 9223372036854775807, "s": "9223372036854775807 \\" 1", "f": 0.12345678901234567}').n));
    assert.equal(exact, "9,223,372,036,854,775,807");
  }));
});

describe("a page of a published table", () => {
  looks("published", variant("published", (data) => {
    const [source] = data.sources;
    data.title = "VU 2005";
    source.curve = data.published[1].curve;
    source.words = [];
    delete source.ages;
    Object.assign(source.survey, {
      name: "vu-2005", roots: [], machines: [], method: "published", resolution: "buckets", taken_at: null, elapsed_seconds: 0, complete: true, where: null, tree: null,
      overhead_by_size: { positive: [], negative: [] }, errors: { by_kind: [], examples: [] },
      counts: { files: 1_700_000, directories: 0, symlinks: 0, special: 0, hard_links_skipped: 0, errors: 0, empty_files: 19_000 },
    });
    source.survey.totals = { size_bytes: source.survey.totals.size_bytes, allocated_bytes: 0, overhead_fraction: 0, directories_allocated_bytes: 0, symlinks_allocated_bytes: 0 };
    for (const [name, dist] of Object.entries(source.survey.distributions)) {
      if (name !== "file_size") Object.assign(dist, { count: 0, min: 0, max: 0, mean: 0, total: 0, deciles: [], deciles_by_total: [], buckets: [] });
    }
  }), ["buckets", "cumulative", "block-size"]);
});

describe("a page of an anonymous survey beside another source", () => {
  const file = variant("anonymous", (data) => {
    const [source] = data.sources;
    const second = structuredClone(source);
    second.survey.name = "web-2005";
    second.survey.method = "published";
    second.survey.where = null;
    delete second.survey.tree;
    second.curve = data.published[2].curve;
    const { survey } = source;
    Object.assign(survey, { name: null, roots: [], anonymous: true, complete: true });
    survey.options.excluded = [];
    survey.errors.examples = [];
    for (const scope of Object.values(survey.where.directories)) for (const list of Object.values(scope)) for (const row of list) row.path = null;
    for (const node of survey.tree.nodes) {
      node.name = null;
      node.own.uids = node.subtree.uids = null;
    }
    for (const row of survey.where.owners.rows) Object.assign(row, { uid: null, name: null });
    for (const row of survey.where.extensions.rows) row.extension = null;
    data.sources.push(second);
  });
  looks("anonymous", file, CHARTS);

  test("does not take another population for an earlier survey", () => visit(file, DESKTOP, async (page) => {
    const text = await page.innerText("main");
    assert.ok(!text.includes("Difference between") && !/Before,/.test(text));
    assert.match(text, /Sources[^]*web-2005/);
  }));

  test("switches between its sources", () => visit(file, DESKTOP, async (page) => {
    await page.selectOption("#source", "1");
    await settle(page);
    await assertDrawn(page, CHARTS.filter((name) => !["tree", "directories", "owners", "extensions"].includes(name)));
    await assertNoGaps(page);
    await page.selectOption("#source", "0");
    await settle(page);
    await assertDrawn(page, CHARTS);
  }));
});

describe("a page of several results", () => {
  const file = variant("together", (data) => {
    const [source] = data.sources;
    const later = structuredClone(source);
    later.survey.taken_at = "2026-11-28T07:06:12Z";
    later.survey.totals.size_bytes += 1 << 30;
    for (const at of [0, 1, 2, 3]) later.survey.tree.nodes[at].subtree.size_bytes += 1 << 30;
    data.parts = [{ kind: "survey", title: "First <b>", sources: data.sources, published: data.published },
      { kind: "survey", title: "Two", sources: [source, later], published: [] }];
    delete data.sources;
  });

  test("has a contents list that leads to each", () => visit(file, DESKTOP, async (page) => {
    assert.deepEqual(await page.$$eval(".contents button", (nodes) => nodes.map((node) => node.textContent)), ["Survey First <b>", "Survey Two"]);
    await assertDrawn(page, CHARTS);
    await page.click(".contents li:nth-child(2) button");
    await settle(page);
    assert.match(page.url(), /#part-2$/);
    assert.equal(await page.innerText(".contents [aria-current]"), "Survey Two");
    await assertDrawn(page, CHARTS);
    await assertNoGaps(page);
  }));

  test("begins with the difference of two surveys", () => visit(file, PHONE, async (page) => {
    await page.click(".contents li:nth-child(2) button");
    await settle(page);
    const text = await page.innerText("main");
    assert.ok(text.indexOf("Difference") < text.indexOf("Median size"), "the figures stand before the difference");
    assert.match(text, /Bytes[^\n]*\+1 GiB/);
    // What follows is about one of them, and says which: the later one.
    assert.match(await page.innerText("h2.shown"), /28 Nov 2026/);
    assert.equal(await page.inputValue("#source"), "1");
    await assertNoOverflow(page);
  }));
});

describe("a page with nothing in it", () => {
  test("says so", () => visit(variant("nothing", (data) => { data.sources = []; }), DESKTOP, async (page) => {
    assert.match(await page.innerText("#page"), /Nothing to show/);
  }));

  test("stands an empty tree", () => visit(variant("empty", (data) => {
    const [source] = data.sources;
    source.words = ["No files."];
    delete source.ages;
    source.curve = [{ size_bytes: 0, files_fraction: 0, bytes_fraction: 0 }];
    source.survey.up_to = [];
    source.survey.where = { limit: 20, directories: { own: {}, subtree: {} }, owners: { complete: true, max_error: 0, rows: [] }, extensions: { complete: true, max_error: 0, rows: [] } };
    source.survey.tree = null;
    source.survey.overhead_by_size = { positive: [], negative: [] };
    for (const key of Object.keys(source.survey.counts)) source.survey.counts[key] = 0;
    for (const key of Object.keys(source.survey.totals)) source.survey.totals[key] = 0;
    for (const row of source.survey.block_sizes) Object.assign(row, { allocated_bytes: 0, growth_fraction: 0, single_block_fraction: 0, cumulative_weight: Array(10).fill(0) });
    for (const dist of Object.values(source.survey.distributions)) Object.assign(dist, { count: 0, min: null, max: null, mean: null, total: 0, deciles: [], deciles_by_total: [], buckets: [] });
  }), DESKTOP, async (page) => {
    await assertNoGaps(page);
    await useEverything(page);
  }));
});

for (const file of (process.env.GRANULO_PAGE ?? "").split(delimiter).filter(Boolean)) {
  describe(`the page ${basename(file)}`, () => common(basename(file, ".html"), resolve(file)));
}
