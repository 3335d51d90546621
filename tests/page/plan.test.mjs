// The page of a plan in headless Chromium: `npm ci && npm test`.
//
//   GRANULO_PLAN_PAGE    pages that `granulo plan --report` wrote (several: separated by ':'); the first should have
//                        prices, a trace and --fast, as `make test-page` writes it
//   GRANULO_REQUIRE_ALL  1: fail, instead of skipping, where there is no such page
import assert from "node:assert/strict";
import { basename, delimiter, resolve } from "node:path";
import { describe, test } from "node:test";
import {
  DESKTOP, HOSTILE, PHONE, assertAlone, assertDrawn, assertFitsPhone, assertFollowsDark, assertNoGaps, assertNoOverflow, chart, dataOf, hover,
  settle, shoot, tip, useEverything, variant, visit,
} from "./browser.mjs";

const pages = (process.env.GRANULO_PLAN_PAGE ?? "").split(delimiter).filter(Boolean).map((file) => resolve(file));

/** The answers below a slider, by name. */
const answers = (page, which) => page.$$eval(`.pair > div:nth-child(${which}) .facts > div`, (nodes) =>
  Object.fromEntries(nodes.map((node) => [node.querySelector("dt").textContent, node.querySelector("dd").innerText])));
const slide = (page, id, value) => page.$eval(`#${id}`, (node, to) => {
  node.value = to;
  node.dispatchEvent(new Event("input", { bubbles: true }));
}, value);

function holds(file) {
  const name = basename(file, ".html");
  const data = dataOf(file);
  const { plan } = data;
  const tiered = plan.fast_tiers.length > 0;
  const priced = plan.fast_tiers.some((tier) => tier.costs.length);
  const asked = plan.operations || plan.caching || plan.recommendation?.tolerance_fraction !== 0.05;
  const charts = ["layouts", tiered && "fast-tier", priced && "costs", "files", asked && "block-size"].filter(Boolean);

  test("is one file below 1.5 MB that may load nothing", () => assertAlone(file, 1_500_000));

  test("draws every chart on a desk, without a sound", () => visit(file, DESKTOP, async (page) => {
    await assertDrawn(page, charts);
    await assertNoGaps(page);
    await assertNoOverflow(page);
    await shoot(page, name, "desktop-light");
    await page.$$eval("details.words", (nodes) => nodes.forEach((node) => { node.open = true; }));
    const text = await page.innerText("#page");
    for (const sentence of data.words) assert.ok(text.includes(sentence), sentence);
    for (const { model } of plan.models) assert.ok(text.includes(model), model);
    assert.match(text, /works offline/);
    if (tiered) {
      const card = await page.innerText("#card");
      assert.ok(card.includes(plan.fast_tiers[0].model) && /What to buy/.test(card), card);
      for (const line of plan.fast_tiers[0].settings ?? []) assert.ok(card.includes(line), line);
      assert.ok((await page.locator("#card").boundingBox()).y < 400, "the card is not what the page opens with");
    }
    if (plan.bills.length && plan.reads) {
      const bills = await page.locator(".block", { hasText: "Object store bills" }).innerText();
      for (const { model, puts, reads } of plan.bills) {
        const figures = await page.evaluate((counts) => counts.map(Format.count), [puts, reads.requests]);
        for (const part of [model, ...figures]) assert.ok(bills.includes(part), `${part}: ${bills}`);
      }
      assert.ok(bills.includes(data.reads), bills);
    }
    // Every time, by cache and block size.
    const cells = await page.$$eval("#caches td", (all) => all.length);
    assert.equal(cells, (plan.caching?.times ?? []).reduce((sum, at) => sum + at.seconds.length, 0));
  }));

  test("fits a phone", () => assertFitsPhone(file, name, charts));

  test("follows the dark mode of the system, and its own button", () => assertFollowsDark(file, name, charts));

  test("survives every control", () => visit(file, DESKTOP, useEverything));

  test("shows values under the pointer and to the keyboard", () => visit(file, DESKTOP, async (page) => {
    await hover(page, "files", 0.5, 0.25);
    assert.match(await tip(page, "files").innerText(), /File of [\d.]+ KiB/);
    await hover(page, "layouts", 0.3, 0.1);
    assert.match(await tip(page, "layouts").innerText(), /total/);
    if (!asked) return;
    await chart(page, "block-size").focus();
    for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowRight");
    await settle(page);
    assert.match(await page.locator("#live").textContent(), /\bblocks\b/);
  }));
}

/** What only a plan with a fast tier answers. */
function answersSliders(file) {
  const { plan } = dataOf(file);
  const [tier] = plan.fast_tiers;
  const { curve } = tier;

  test("answers cutoffs: at the points as the plan has them, between them in between", () => visit(file, DESKTOP, async (page) => {
    const expected = (point) => page.evaluate((at) => ({
      Files: Format.share(at.small_file_fraction), Bytes: Format.share(at.small_data_fraction), Slow: Format.size(at.slow_bytes), buy: Format.size(at.fast_device_bytes),
    }), point);
    assert.equal(Number(await page.getAttribute("#try-cutoff", "max")), (curve.length - 1) * 4);
    for (const index of [0, 1, Math.floor(curve.length / 3), Math.floor(curve.length / 2), curve.length - 1]) {
      await slide(page, "try-cutoff", index * 4);
      const [answer, wanted] = [await answers(page, 1), await expected(curve[index])];
      assert.ok(answer.Files.startsWith(wanted.Files), `${answer.Files} is not ${wanted.Files}`);
      assert.ok(answer.Bytes.startsWith(wanted.Bytes), `${answer.Bytes} is not ${wanted.Bytes}`);
      assert.equal(answer["Slow tier"], wanted.Slow);
      assert.ok(answer["Capacity to buy"].startsWith(wanted.buy), `${answer["Capacity to buy"]} is not ${wanted.buy}`);
      assert.doesNotMatch(await page.innerText("#try"), /Interpolated[^]*Fast capacity/);
    }
    const files = [];
    for (let stop = 40; stop <= 80; stop += 1) {
      await slide(page, "try-cutoff", stop);
      files.push(parseFloat((await answers(page, 1)).Files));
    }
    assert.ok(files.every((value, index) => index === 0 || value >= files[index - 1]), "the share of the files fell");
    await slide(page, "try-cutoff", 42);
    assert.match(await page.innerText(".pair > div:first-child"), /Interpolated/);
    await page.focus("#try-cutoff");
    const before = await page.innerText("output.answer");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    assert.notEqual(await page.innerText("output.answer"), before, "the keyboard does not move the slider");
    await settle(page);
    await assertNoGaps(page);
  }));

  test("answers capacities, typed and slid", () => visit(file, DESKTOP, async (page) => {
    if (tier.fit) {
      const answer = await answers(page, 2);
      const spilled = await page.evaluate((bytes) => (Number(bytes) > 0 ? Format.size(bytes) : "nothing"), tier.fit.spill.spilled_bytes);
      const named = Object.keys(answer).find((key) => key.startsWith("Does not fit"));
      assert.ok(answer[named].startsWith(spilled), `${answer[named]} is not ${spilled}`);
    }
    await page.fill("#try-growth", "0");
    await page.fill("#try-fill", "100 %");
    const middle = curve[Math.floor(curve.length / 2)];
    await page.fill("#try-capacity-text", `${middle.fast_bytes}`);
    const exact = await answers(page, 2);
    const share = await page.evaluate((value) => Format.share(value), middle.small_file_fraction);
    assert.ok(parseFloat(exact.Files) >= parseFloat(share) - 0.1, `${exact.Files} is less than the ${share} that fit`);
    await page.fill("#try-capacity-text", "1");
    assert.match((await answers(page, 2))["Largest cutoff"], /none|metadata only/);
    await page.fill("#try-capacity-text", "15 EiB");
    assert.match((await answers(page, 2))["Largest cutoff"], /every file/);
    const max = Number(await page.getAttribute("#try-capacity", "max"));
    const min = Number(await page.getAttribute("#try-capacity", "min"));
    const seen = [];
    for (const value of [min, (min + max) / 2, max]) {
      await slide(page, "try-capacity", Math.round(value));
      seen.push(await page.inputValue("#try-capacity-text"), parseFloat((await answers(page, 2)).Files));
      await settle(page);
      await assertNoGaps(page);
    }
    assert.ok(seen[1] <= seen[3] && seen[3] <= seen[5], `more capacity holds fewer files: ${seen}`);
    assert.equal(seen[5], 100);
  }));

  test("says what is wrong with what was typed, and keeps the last answer", () => visit(file, DESKTOP, async (page) => {
    for (const text of ["", "x", "12 QiB", "-5 GiB", "1e9", "0", "99 EiB", "1.", "٣ GiB", "<b>1</b>"]) {
      await page.fill("#try-capacity-text", text);
      assert.notEqual(await page.innerText("#capacity-trouble"), "", `${JSON.stringify(text)} was taken`);
      assert.equal(await page.getAttribute("#try-capacity-text", "aria-invalid"), "true");
    }
    await page.fill("#try-capacity-text", "2 tib");
    assert.equal(await page.innerText("#capacity-trouble"), "");
    for (const [field, wrong, right] of [["try-growth", ["", "-1", "x", "1e3", "NaN"], "12.5"], ["try-fill", ["0", "101", "", "-3"], "80%"]]) {
      for (const text of wrong) {
        await page.fill(`#${field}`, text);
        assert.notEqual(await page.innerText("#try-trouble"), "", `${field}: ${JSON.stringify(text)} was taken`);
        assert.equal(await page.getAttribute(`#${field}`, "aria-invalid"), "true");
      }
      await page.fill(`#${field}`, right);
      assert.equal(await page.innerText("#try-trouble"), "");
    }
    await assertNoGaps(page);
    const sizes = await page.evaluate(() => ["65536", "64KiB", "64 k", "64kB", "1.5 GiB", "1_000", "2TB"].map((text) => PlanTier.parseSize(text).bytes));
    assert.deepEqual(sizes, [65536, 65536, 65536, 64000, 1610612736, 1000, 2e12]);
  }));

  test("more growth buys more, and a fuller tier less", () => visit(file, DESKTOP, async (page) => {
    const bought = async () => page.evaluate((text) => PlanTier.parseSize(text.split("\n")[0]).bytes, (await answers(page, 1))["Capacity to buy"]);
    await page.fill("#try-growth", "0");
    await page.fill("#try-fill", "100");
    const plain = await bought();
    await page.fill("#try-growth", "100");
    assert.ok(Math.abs((await bought()) / plain - 2) < 0.02);
    await page.fill("#try-fill", "50");
    assert.ok(Math.abs((await bought()) / plain - 4) < 0.04);
  }));

  test("speaks of the layout that is chosen", () => visit(file, DESKTOP, async (page) => {
    for (const { model } of plan.fast_tiers.slice(1, 4)) {
      await page.selectOption("#try-model", model);
      await settle(page);
      assert.ok((await page.innerText("#tier")).includes(`Under ${model}, `));
      await assertNoGaps(page);
    }
  }));

  test("prints its answers without the sliders", () => visit(file, DESKTOP, async (page) => {
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.isVisible("#try-cutoff"), false);
    assert.equal(await page.isVisible(".pair .facts"), true);
    await assertNoOverflow(page);
  }));
}

if (!pages.length) {
  const required = process.env.GRANULO_REQUIRE_ALL === "1";
  if (!required) console.error("SKIPPED: the page of a plan is not tested, because GRANULO_PLAN_PAGE is not set");
  test("the page of a plan", { skip: required ? false : "GRANULO_PLAN_PAGE is not set" }, () => assert.fail("GRANULO_PLAN_PAGE is not set"));
} else {
  for (const file of pages) {
    describe(`the page ${basename(file)}`, () => {
      holds(file);
      if (dataOf(file).plan.fast_tiers.length) answersSliders(file);
    });
  }

  describe("a plan with hostile names", () => {
    const file = variant(pages[0], "hostile-plan", (data) => {
      data.title = `Plan for ${HOSTILE}`;
      data.words.push(HOSTILE);
      data.plan.source.name = HOSTILE;
      data.source_word = HOSTILE;
      const model = data.plan.models[0].model;
      const named = JSON.parse(JSON.stringify(data.plan), (key, value) => (key === "model" && value === model ? HOSTILE : key === "device" || key === "currency" ? HOSTILE : value));
      for (const tier of named.fast_tiers) tier.settings = [HOSTILE, "# second line"];
      data.plan = named;
      if (named.operations) named.operations.name = HOSTILE;
      data.curves.models[0].model = HOSTILE;
      data.curves.models[0].summary = HOSTILE;
    });
    test("shows them as text and runs none", () => visit(file, DESKTOP, async (page) => {
      await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
      await hover(page, "layouts", 0.3, 0.02);
      await hover(page, "files", 0.5, 0.25);
      await settle(page);
      const found = await page.evaluate(() => [...document.querySelectorAll("#page script, #page img, #page iframe, [onerror], [onmouseover]")].map((node) => node.outerHTML));
      assert.deepEqual(found, []);
      assert.ok((await page.innerText("#page")).includes(HOSTILE));
      await assertNoOverflow(page);
    }));
    test("fits a phone", () => visit(file, PHONE, assertNoOverflow));

    test("copies settings as they are", () => visit(file, { ...DESKTOP, permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
      if (!(await page.locator("#settings").count())) return;
      await page.locator("#settings .copy button").first().click();
      await page.waitForFunction(() => document.querySelector('#settings [role="status"]').textContent !== "");
      assert.match(await page.innerText('#settings [role="status"] >> nth=0'), /Copied|Selected/);
    }));
  });

  describe("plans of other shapes", () => {
    const shape = (name, change, expected, inspect = async () => {}, rewrite) => test(name, () => {
      const file = variant(pages[0], name.replace(/\W+/g, "-"), change, rewrite);
      return visit(file, DESKTOP, async (page) => {
        await assertDrawn(page, expected);
        await inspect(page);
        await useEverything(page);
      });
    });
    const bare = (plan) => Object.assign(plan, { fast_tiers: [], tiers: [], tier_model: null, operations: null, caching: null, bills: [], currency: null, block_sizes_asked: false });

    shape("no fast tier, no trace, no prices", ({ plan }) => bare(plan), ["layouts", "files"]);
    shape("one layout, no recommendation", ({ plan, curves }) => {
      bare(plan);
      plan.models.length = 1;
      curves.models.length = 1;
      plan.recommendation = null;
    }, ["layouts", "files"]);
    shape("nothing but zeros", ({ plan, curves }) => {
      bare(plan);
      for (const model of plan.models) Object.assign(model, { allocated_bytes: 0, metadata_bytes: 0, total_bytes: 0, tree_bytes: null, overhead_fraction: 0 });
      for (const row of plan.block_sizes) Object.assign(row, { allocated_bytes: 0, growth_fraction: 0, single_block_fraction: 1 });
      for (const curve of curves.models) curve.allocated_bytes.fill(0);
      Object.assign(plan.source, { size_bytes: 0, largest_bytes: 0 });
    }, ["layouts", "files"]);
    if (dataOf(pages[0]).plan.fast_tiers.length) {
      shape("fast bytes that are left open", ({ plan }) => {
        for (const tier of plan.fast_tiers) {
          tier.costs = [];
          for (const point of tier.curve) point.fast_least_bytes = Math.floor(Number(point.fast_bytes) * 0.6);
        }
        plan.bills = [];
      }, ["layouts", "fast-tier", "files", "block-size"], async (page) => {
        assert.match((await answers(page, 1))["Fast tier"], / to /);
        assert.match(await page.innerText("#figure-fast-tier"), /Shaded/);
        assert.ok(await page.locator('[data-chart="fast-tier"] svg path[fill-opacity], [data-chart="fast-tier"] svg [opacity]').count() > 0, "no shade");
      });
      shape("a fast tier that takes nothing at a cutoff of 0", ({ plan }) => {
        for (const tier of plan.fast_tiers) {
          tier.costs = [];
          Object.assign(tier.curve[0], { fast_least_bytes: 0, fast_bytes: 0, fast_fraction: 0, fast_device_bytes: 0 });
        }
        plan.bills = [];
      }, ["layouts", "fast-tier", "files", "block-size"], async (page) => {
        await slide(page, "try-cutoff", 0);
        await page.fill("#try-capacity-text", "1");
        await settle(page);
        await assertNoGaps(page);
      });
      shape("more bytes than a double counts", ({ plan }) => {
        plan.source.files = "big:9007199254740993";
        plan.source.size_bytes = "big:9223372036854775807000";
        plan.models[0].total_bytes = "big:92233720368547758070";
        plan.fast_tiers.length = 1;
        plan.fast_tiers[0].costs = [];
        plan.fast_tiers[0].curve.at(-1).fast_bytes = "big:92233720368547758070";
        plan.bills = [];
      }, ["layouts", "fast-tier", "files", "block-size"], async (page) => {
        assert.match(await page.innerText(".keys"), /9,007,199,254,740,993/);
      }, (text) => text.replace(/"big:(\d+)"/g, "$1"));
    }
    test("no plan at all", () => visit(variant(pages[0], "no-plan", (data) => { data.plan = null; }), DESKTOP, async (page) => {
      assert.match(await page.innerText("#page"), /Nothing to show/);
    }));
  });
}
