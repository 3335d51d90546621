// Builds echarts.granulo.min.js from the locked packages: `npm ci && npm run build`.
// `npm run check` builds it again and fails unless the result is the committed file, byte for byte.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "echarts.granulo.min.js");
const version = JSON.parse(readFileSync(join(here, "node_modules/echarts/package.json"), "utf8")).version;

// The page is a redistribution: the notices travel with it.
const notices = ["NOTICE", "licenses/LICENSE-zrender", "licenses/LICENSE-d3", "licenses/LICENSE-tslib"]
  .map((name) => `${name.replace(/.*LICENSE-/, "")}:\n${readFileSync(join(here, name), "utf8").trim()}`).join("\n\n");
if (notices.includes("*/")) throw new Error("a notice would end the comment that holds it");
const banner = `/*!\nApache ECharts ${version}, Apache License 2.0 <https://www.apache.org/licenses/LICENSE-2.0>, reduced to some of its parts.\n\n${notices}\n*/`;

const result = await build({
  absWorkingDir: here,
  entryPoints: ["echarts.entry.js"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "echarts",
  target: ["chrome100", "firefox100", "safari15"],
  charset: "ascii",
  legalComments: "none",
  define: { "process.env.NODE_ENV": '"production"' },
  banner: { js: banner },
  write: false,
});
const bytes = Buffer.from(result.outputFiles[0].contents);
if (/<\/script|<!--/i.test(bytes.toString())) throw new Error("the build cannot stand inside a <script> element");

const sha256 = createHash("sha256").update(bytes).digest("hex");
if (process.argv.includes("--check")) {
  if (!bytes.equals(readFileSync(target))) throw new Error(`the committed file differs from this build (sha256 ${sha256})`);
} else {
  writeFileSync(target, bytes);
}
console.log(`${bytes.length} bytes, sha256 ${sha256}`);
