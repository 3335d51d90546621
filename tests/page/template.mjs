// Makes a page from the template the way granulo does: one pass over the placeholders, so that nothing that was put in
// is looked at again, and JSON in which no character can end the element that holds it.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = join(dirname(fileURLToPath(import.meta.url)), "../../web");
const read = (name) => readFileSync(join(web, name), "utf8");

const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const escapeJson = (text) => text.replace(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** The page for `json`, the text of the page data. */
export function page(json) {
  const parts = {
    title: escapeHtml(JSON.parse(json).title),
    css: read("report.css"),
    charts: read("vendor/echarts.granulo.min.js"),
    format: read("format.js"),
    save: read("save.js"),
    figure: read("figure.js"),
    shell: read("shell.js"),
    sections: read("sections.js"),
    details: read("treemap.js") + read("ages.js") + read("places.js"),
    script: read("report.js"),
    data: escapeJson(json),
  };
  return read("report.html").replace(/\{\{(\w+)\}\}/g, (_, name) => {
    if (!(name in parts)) throw new Error(`the template has an unknown placeholder {{${name}}}`);
    return parts[name];
  });
}
