// What the tests of all pages need: a browser, visits that notice anything that goes wrong, and the pointer.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

export const scratch = mkdtempSync(join(tmpdir(), "granulo-page-"));
export const DESKTOP = { viewport: { width: 1280, height: 900 }, colorScheme: "light" };
export const PHONE = { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
const screenshots = process.env.GRANULO_SCREENSHOTS;

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.GRANULO_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});
after(async () => {
  await browser?.close();
  rmSync(scratch, { recursive: true, force: true });
});

const DATA = /(<script type="application\/json" id="data">)([\s\S]*?)(<\/script>)/;
export const dataOf = (file) => JSON.parse(DATA.exec(readFileSync(file, "utf8"))[2]);
export const HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>${alert(3)}{{data}}$&" + "/path/of-a-trace".repeat(9);

/** A page after `change` of its data, which gets the text of the JSON back to change that too. */
export function variant(from, name, change, rewrite = (text) => text) {
  const data = dataOf(from);
  change(data);
  const json = rewrite(JSON.stringify(data)).replace(/[<>&]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const file = join(scratch, `${name}.html`);
  writeFileSync(file, readFileSync(from, "utf8").replace(DATA, (_, open, __, close) => open + json + close));
  return file;
}

/** Opens a file, waits until it is drawn, runs `inspect`, and asserts that nothing went wrong meanwhile. */
export async function visit(file, options, inspect) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const trouble = [];
  const url = pathToFileURL(file).href;
  page.on("console", (message) => trouble.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`page error: ${error.stack}`));
  page.on("dialog", (dialog) => {
    trouble.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (request.url().split("#")[0] !== url && !request.url().startsWith("data:")) trouble.push(`request: ${request.url()}`);
  });
  try {
    await page.goto(url);
    await page.waitForFunction(() => document.documentElement.dataset.ready === "true", null, { timeout: 20_000 });
    await inspect(page);
    assert.deepEqual(trouble, []);
  } finally {
    await context.close();
  }
}

export const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30)))));

export async function assertDrawn(page, expected) {
  const charts = await page.$$eval("[data-chart]", (nodes) => nodes.map((node) => ({
    name: node.dataset.chart, drawn: node.dataset.drawn === "true", shapes: node.querySelectorAll("svg path, svg rect").length,
    texts: node.querySelectorAll("svg text").length, width: node.clientWidth, height: node.clientHeight, label: node.getAttribute("aria-label") ?? "",
  })));
  if (expected) assert.deepEqual(charts.map((chart) => chart.name), expected);
  assert.ok(charts.length > 0 || expected?.length === 0, "no chart on the page");
  for (const chart of charts) {
    assert.ok(chart.drawn, `${chart.name} was not drawn`);
    assert.ok(chart.shapes > 1 && chart.texts > 0, `${chart.name} is empty`);
    assert.ok(chart.width > 200 && chart.height > 30, `${chart.name} has no room`);
    assert.ok(chart.label.length > 20, `${chart.name} says nothing to a screen reader`);
  }
}

/** What a reader sees must not hold the marks of a missing value; text that is in the data may say what it likes. */
export async function assertNoGaps(page) {
  const { text, attributes } = await page.evaluate(() => {
    const own = [];
    const walk = (value) => {
      if (typeof value === "string") own.push(value);
      else if (value && typeof value === "object") Object.values(value).forEach(walk);
    };
    walk(JSON.parse(document.getElementById("data").textContent));
    const known = new Set(own.filter((entry) => /NaN|undefined|null|Infinity/.test(entry)));
    const texts = [document.body.innerText, ...[...document.querySelectorAll("svg text")].map((node) => node.textContent),
      ...[...document.querySelectorAll("[aria-label]")].map((node) => node.getAttribute("aria-label"))];
    let all = texts.join("\n");
    for (const entry of known) all = all.split(entry).join("");
    const bad = [];
    for (const node of document.querySelectorAll("svg *")) {
      for (const attribute of node.attributes) if (/NaN|undefined|Infinity/.test(attribute.value)) bad.push(`${node.tagName} ${attribute.name}=${attribute.value.slice(0, 60)}`);
    }
    return { text: all, attributes: bad };
  });
  assert.deepEqual(text.match(/.*\b(NaN|undefined|null|Infinity|\[object \w+\]).*/g) ?? [], []);
  assert.deepEqual(attributes, []);
}

export async function assertNoOverflow(page) {
  const [content, width] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(content <= width, `the page is ${content} px wide in ${width}`);
}

/** That a page that is open on a desk fits a phone, whose width no name may exceed. */
export async function assertTurnsIntoPhone(page) {
  await page.setViewportSize(PHONE.viewport);
  await settle(page);
  await assertNoOverflow(page);
}

/** Every button and choice of every figure, and every data table. */
export async function useEverything(page) {
  for (let at = 0; at < await page.locator(".controls select").count(); at += 1) {
    const select = page.locator(".controls select").nth(at);
    for (const value of await select.locator("option").evaluateAll((options) => options.map((option) => option.value))) {
      await select.selectOption(value);
      await settle(page);
      await assertNoGaps(page);
    }
  }
  await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
  const figures = await page.$$eval(".figure", (nodes) => nodes.map((node) => node.id));
  for (const id of figures) {
    const keys = await page.$$eval(`#${id} [data-control]`, (nodes) => nodes.filter((node) => node.tagName === "BUTTON").map((node) => node.dataset.control));
    for (const key of [...keys, ...keys]) {
      const button = await page.$(`#${id} [data-control="${key}"]:not(:disabled)`);
      if (button) await button.evaluate((node) => node.click());
    }
    for (const key of await page.$$eval(`#${id} button.key`, (nodes) => nodes.map((node) => node.dataset.key))) {
      await page.evaluate(([figure, name]) => document.querySelector(`#${figure} button.key[data-key="${CSS.escape(name)}"]`).click(), [id, key]);
    }
    await settle(page);
    await assertNoGaps(page);
  }
  for (const sort of await page.$$("button.sort")) await sort.evaluate((node) => node.click());
  await assertNoGaps(page);
}

export const chart = (page, name) => page.locator(`[data-chart="${name}"]`);
export const extent = async (page, name) => (await chart(page, name).getAttribute("data-extent")).split(" ").map(Number);
export const tip = (page, name) => page.locator(`[data-chart="${name}"] .tip`);

/** The pointer over a chart, at fractions of its width and height. */
export async function hover(page, name, x, y) {
  await chart(page, name).scrollIntoViewIfNeeded();
  await page.evaluate((which) => document.querySelector(`[data-chart="${which}"]`).scrollIntoView({ block: "center" }), name);
  const box = await chart(page, name).boundingBox();
  await page.mouse.move(box.x + box.width * x - 3, box.y + box.height * y);
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
  await settle(page);
  return box;
}

export async function shoot(page, name, kind) {
  if (!screenshots) return;
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}-${kind}.png`), fullPage: true });
}

/** That a page is one file of less than so many bytes, whole, which may load nothing. */
export function assertAlone(file, bytes) {
  assert.ok(statSync(file).size < bytes);
  const html = readFileSync(file, "utf8");
  assert.match(html, /Content-Security-Policy" content="default-src 'none';/);
  assert.doesNotMatch(html, /<(script|link|img|iframe)[^>]+(src|href)="(?!data:)/);
  assert.doesNotMatch(html.replace(DATA, ""), /\{\{\w+\}\}/, "a part of the template was not filled");
}

/** That a page fits a phone, with everything open too. */
export const assertFitsPhone = (file, name, charts) => visit(file, PHONE, async (page) => {
  await assertDrawn(page, charts);
  await assertNoOverflow(page);
  await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = true; }));
  await assertNoOverflow(page);
  await page.$$eval("details", (nodes) => nodes.forEach((node) => { node.open = false; }));
  await shoot(page, name, "phone");
});

/** That a page follows the dark mode of the system, and its own button. */
export const assertFollowsDark = (file, name, charts) => visit(file, { ...DESKTOP, colorScheme: "dark" }, async (page) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await assertDrawn(page, charts);
  await shoot(page, name, "desktop-dark");
  const dark = await background();
  await page.click("button.theme");
  await settle(page);
  assert.notEqual(await background(), dark);
  assert.equal(await background(), "rgb(255, 255, 255)");
});
