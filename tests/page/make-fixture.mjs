// Writes fixture.json: page data of a made-up but plausible survey, with names that try to do something. The same bytes
// at every run.
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const FILES = 60_000;
const SCALE = 31n; // every simulated file stands for so many

let state = 20261121;
const random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state + 0.5) / 2 ** 32;
};
const normal = () => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
const round = (value, digits = 6) => Number(value.toFixed(digits));
const SMALL = 65536;

// ---------------------------------------------------------------- files

const files = Array.from({ length: FILES }, () => {
  const kind = random();
  const size = kind < 0.021 ? 0 : Math.floor(2 ** (kind < 0.8 ? 11.4 + 2.6 * normal() : kind < 0.985 ? 16.2 + 3.1 * normal() : 23.5 + 2.7 * normal()));
  const age = () => Math.floor(2 ** (7.8 + 2.4 * normal()));
  const mtime = Math.min(7000, age());
  return {
    size: Math.min(size, 2 ** 36),
    allocated: size === 0 ? 0 : size < 120 ? 0 : random() < 0.004 ? Math.ceil(size / 8192) * 4096 : Math.ceil(size / 4096) * 4096,
    mtime, ctime: Math.min(mtime, age()), atime: Math.min(mtime, Math.floor(age() / 6)),
  };
}).sort((a, b) => a.size - b.size);
const total = (list, key) => list.reduce((sum, entry) => sum + entry[key], 0);
const bytes = total(files, "size");

// ---------------------------------------------------------------- distributions

const times = (value) => Number(BigInt(Math.round(value)) * SCALE);

function distribution(unit, values, weight = () => 1) {
  const list = values.map((value, index) => [value, weight(index)]).sort((a, b) => a[0] - b[0]);
  const count = list.reduce((sum, [, w]) => sum + w, 0);
  const sum = list.reduce((all, [value, w]) => all + value * w, 0);
  const deciles = (measure, whole) => {
    let [at, so_far] = [0, 0];
    return Array.from({ length: 10 }, (_, index) => {
      while (at < list.length && so_far < ((index + 1) / 10) * whole - 1e-9) so_far += measure(list[at++]);
      return list[Math.max(0, at - 1)]?.[0] ?? 0;
    });
  };
  const buckets = [];
  for (const [value, w] of list) {
    const power = value === 0 ? 0 : Math.floor(Math.log2(value)) + 1;
    while (buckets.length <= power) {
      const k = buckets.length;
      buckets.push({ low: k === 0 ? 0 : 2 ** (k - 1), high: 2 ** k, count: 0, sum: 0 });
    }
    buckets[power].count += w;
    buckets[power].sum += w * value;
  }
  return {
    unit, count: times(count), min: list[0]?.[0] ?? 0, max: list.at(-1)?.[0] ?? 0, mean: count ? round(sum / count, 3) : 0, total: times(sum),
    deciles: list.length ? deciles(([, w]) => w, count) : [], deciles_by_total: list.length ? deciles(([value, w]) => value * w, sum) : [],
    buckets: buckets.map((entry) => ({ ...entry, count: times(entry.count), sum: times(entry.sum) })),
  };
}

const some = (number, value) => Array.from({ length: number }, value);
const entries = some(5200, () => Math.floor(2 ** (2.6 + 2.1 * normal())));
const pick = (key) => files.map((file) => file[key]);
const over = files.map((file) => file.allocated - file.size);
const empty = { ...distribution("bytes", []), buckets: [] };

const distributions = {
  file_size: distribution("bytes", pick("size")),
  allocated: distribution("bytes", pick("allocated")),
  positive_overhead: distribution("bytes", over.filter((value) => value >= 0)),
  negative_overhead: distribution("bytes", over.filter((value) => value < 0).map((value) => -value)),
  directory_entries: distribution("entries", entries),
  directory_size: distribution("bytes", entries.map((value) => Math.max(1, Math.ceil(value / 90)) * 4096)),
  name_length: distribution("bytes", some(8000, () => Math.max(1, Math.min(255, Math.round(16 + 8 * normal()))))),
  link_count: distribution("links", some(8000, () => (random() < 0.985 ? 1 : 2 + Math.floor(6 * random())))),
  symlink_target_length: distribution("bytes", some(900, () => Math.max(1, Math.round(22 + 11 * normal())))),
};
for (const stamp of ["mtime", "ctime", "atime"]) {
  distributions[`${stamp}_age`] = distribution("days", pick(stamp));
  distributions[`${stamp}_age_bytes`] = distribution("days", pick(stamp), (index) => files[index].size);
}
// Sparse files can make a sum larger than a double holds exactly.
distributions.allocated.max = "big:9223372036854775807";

function overheadBySize(sign) {
  const list = files.map((file, index) => [file.size, over[index]]).filter(([, value]) => (sign > 0 ? value >= 0 : value < 0));
  const { buckets } = distribution("bytes", list.map(([size]) => size));
  for (const bucket of buckets) {
    bucket.sum = times(list.reduce((sum, [size, value]) => (size >= bucket.low && size < bucket.high ? sum + Math.abs(value) : sum), 0));
  }
  return buckets;
}

// ---------------------------------------------------------------- curves and block sizes

function upTo(limit) {
  let [count, sum] = [0, 0];
  for (const file of files) {
    if (file.size > limit) break;
    count += 1;
    sum += file.size;
  }
  return { size_bytes: limit, files_fraction: round(count / FILES), bytes_fraction: round(sum / bytes) };
}
const top = Math.ceil(Math.log2(files.at(-1).size));
const curve = [upTo(0), ...[...new Set(some(4 * top + 1, (_, i) => Math.round(2 ** (i / 4))))].map(upTo)];

const allocatedAt = (block) => files.map((file) => Math.ceil(file.size / block) * block);
const kib = allocatedAt(1024).reduce((a, b) => a + b);
const blockSizes = some(16, (_, i) => {
  const block = 512 << i;
  const list = allocatedAt(block);
  const sum = list.reduce((a, b) => a + b);
  let so_far = 0;
  const weight = list.map((value) => (so_far += value));
  return {
    block_bytes: block, allocated_bytes: times(sum), growth_fraction: round(sum / kib - 1),
    single_block_fraction: round(files.filter((file) => file.size <= block).length / FILES),
    cumulative_weight: some(10, (_, d) => round(weight[Math.ceil(((d + 1) * FILES) / 10) - 1] / sum)),
  };
});

// Tanenbaum, Herder and Bos, Fig. 1: per cent of the files up to 2^0, 2^1, … bytes.
const FIG_1 = {
  "vu-1984": ["VU 1984", "1.79 1.88 2.01 2.31 3.32 5.13 8.71 14.73 23.09 34.44 48.05 60.87 73.51 84.97 92.53 97.21 99.18 99.84 99.96 100"],
  "vu-2005": ["VU 2005", "1.38 1.53 1.65 1.80 2.15 3.15 4.98 8.03 13.29 20.62 30.91 46.09 59.13 69.96 78.92 85.87 90.84 93.73 96.12 97.73 98.87 99.44 99.71 99.86 99.94 99.97 99.99 100"],
  "web-2005": ["Web 2005", "6.67 7.67 8.33 11.30 11.46 12.33 26.10 28.49 32.10 39.94 47.82 59.44 70.64 79.69 86.79 91.65 94.80 96.93 98.48 98.99 99.62 99.80 99.87 99.94 99.97 99.99 99.99 100"],
};
const published = Object.entries(FIG_1).map(([name, [title, row]]) => {
  const percents = row.split(" ").map(Number);
  const weights = percents.map((value, power) => (value - (percents[power - 1] ?? 0)) * 2 ** power * 0.7);
  const whole = weights.reduce((a, b) => a + b);
  let so_far = 0;
  return {
    name, title,
    curve: [{ size_bytes: 0, files_fraction: round(percents[0] / 150), bytes_fraction: 0 }, ...percents.map((value, power) => {
      so_far += weights[power];
      return { size_bytes: 2 ** power, files_fraction: round(value / 100), bytes_fraction: round(so_far / whole) };
    })],
  };
});

// ---------------------------------------------------------------- where

const HOSTILE = [
  "/srv/data", "/srv/data/<script>alert(1)</script>", "/srv/data/<img src=x onerror=alert(1)>", "/srv/data/</script><script>alert(2)</script>",
  "/srv/data/\" onmouseover=\"alert(3)\" x=\"", "/srv/data/{{data}}/{a|b}/${alert(4)}/$&$1", "/srv/data/\\x1b[31mred\\x1b[0m", "/srv/data/\\u{202e}gpj.exe",
  "/srv/data/line\\nbreak\\xff", `/srv/data/${"long-directory-name/".repeat(18)}end`, "/srv/data/javascript:alert(5)", "/srv/data/søknad/データ/картинки",
  "/srv/data/&lt;b&gt;&amp;", "/srv/data/projects/sequencing/2026/run-0417/lane-3/images",
];
const row = (rank, of) => {
  const share = 0.92 / (rank + 1) ** 1.15;
  const number = Math.round(of * share);
  const small = Math.round(number * (0.55 + 0.4 * random()));
  return {
    files: number, small_files: small, size_bytes: Math.round(number * 190_000 * (0.3 + random())), small_size_bytes: small * 6100,
    allocated_bytes: Math.round(number * 197_000), overhead_bytes: Math.round(number * 2150 * (0.7 + 0.5 * random())),
  };
};
const FIELD = { files: "files", small_files: "small_files", overhead: "overhead_bytes", size: "size_bytes" };
const directory = (subtree) => Object.fromEntries(Object.entries(FIELD).map(([rank, field]) => [rank, HOSTILE.map((path, index) => ({
  path, depth: index === 0 ? 0 : path.split("/").length - 3, directories: subtree ? Math.round(160_000 / (index + 1) ** 1.3) : 1,
  ...row(subtree ? index : index + 2, times(FILES)),
})).sort((a, b) => b[field] - a[field])]));
const table = (names) => names.map((name, index) => ({ ...name, ...row(index, times(FILES) * 0.6) }));

const counts = {
  files: times(FILES), directories: times(5200), symlinks: times(900), special: 12, fifos: 3, sockets: 8, block_devices: 0, character_devices: 1,
  hard_links_skipped: 4_211, errors: 17, empty_files: times(files.filter((file) => file.size === 0).length),
  sparse_files: times(over.filter((value) => value < 0).length), symlinks_absolute: times(210), symlinks_relative: times(690), vanished: 2, excluded: 140,
  snapshot_directories_skipped: 1, mount_points_skipped: 0, future_times: 6,
};
/** A tree whose parts add up: names with the files in each directory itself, of an age and an owner of their own. */
function treeOf(shape) {
  const KINDS = ["code and text", "documents", "images", "sound and video", "archives", "programs", "data", "other"];
  const nodes = [];
  const add = (into, sums) => {
    for (const [key, value] of Object.entries(sums)) {
      if (key === "kind_bytes") value.forEach((bytes, at) => { into.kind_bytes[at] = (into.kind_bytes[at] ?? 0) + bytes; });
      else if (key === "uids") into.uids = value && [Math.min(into.uids?.[0] ?? value[0], value[0]), Math.max(into.uids?.[1] ?? 0, value[1])];
      else into[key] += value;
    }
  };
  const enter = ([name, number, children], parent, depth) => {
    const at = nodes.length;
    const own = { files: number, small_files: Math.floor(number * 0.8), size_bytes: number * (40_000 + 9_000 * (at % 5)), small_size_bytes: Math.floor(number * 0.8) * 6100,
      allocated_bytes: number * (42_000 + 9_000 * (at % 5)), overhead_bytes: number * 2_000, directories: 1, day_bytes: 0, uids: number ? [at % 3 ? 1000 : 0, at % 3 ? 1000 : 0] : null,
      kind_bytes: KINDS.map((_, kind) => (kind === at % 8 ? number * 40_000 : 0)) };
    own.day_bytes = own.size_bytes * (at % 6 === 5 ? 3_650 : 20_778 - 400 * at);
    const subtree = structuredClone(own);
    nodes.push({ parent, name, depth, subtree, own });
    for (const child of children) add(subtree, enter(child, at, depth + 1));
    return subtree;
  };
  enter(shape, null, 0);
  return { limit: 250, kinds: KINDS, nodes };
}
const leaf = (name, number) => [name, number, []];
const tree = treeOf(["/srv/data", 900, [
  ["projects", 0, [["sequencing", 0, [["2026", 0, [["run-0417", 1_000, [leaf("lane-3", 400_000), leaf("lane-4", 250_000)]], leaf("run-0418", 300_000)]]]]]],
  leaf("<script>alert(8)</script>", 220_000), leaf("<img src=x onerror=alert(9)>", 90_000), leaf("${alert(4)}{{data}}$&", 60_000), leaf("line\\nbreak\\xff", 40_000), leaf("small", 12),
]]);
const survey = {
  schema: "granulo/survey/1", granulo_version: "0.1.0", name: "/srv/data", roots: ["/srv/data", "/srv/<b>old</b> data"], method: "walk", resolution: "exact",
  taken_at: "2026-11-21T07:06:12Z", elapsed_seconds: 12.418, complete: false, anonymous: false,
  options: { hard_links: "once", one_file_system: true, snapshots: "skip", excluded: ["*.tmp", "it's"], small_file_bytes: SMALL },
  counts,
  totals: {
    size_bytes: times(bytes), allocated_bytes: times(total(files, "allocated")), overhead_fraction: round(1 - bytes / total(files, "allocated")),
    directories_allocated_bytes: times(5200 * 4096), symlinks_allocated_bytes: 0,
  },
  distributions,
  overhead_by_size: { positive: overheadBySize(1), negative: overheadBySize(-1) },
  up_to: [upTo(0), ...some(top + 1, (_, power) => upTo(2 ** power))],
  block_sizes: blockSizes,
  where: {
    limit: 20, directories: { own: directory(false), subtree: directory(true) },
    owners: { complete: true, max_error: 0, rows: table([{ uid: 1000, name: "anna" }, { uid: 0, name: "root" }, { uid: 1003, name: "<script>alert(6)</script>" }, { uid: 61234, name: null }]) },
    extensions: {
      complete: false, max_error: 312,
      rows: table(["py", "", "json", "png", "(numeric)", "h", "txt", "(other)", "c", "gz", "so", "md", "html", "parquet"].map((extension) => ({ extension }))),
    },
  },
  tree,
  errors: {
    by_kind: [{ operation: "open directory", kind: "permission denied", count: 14 }, { operation: "stat", kind: "input/output error", count: 3 }],
    examples: [{ path: "/srv/data/<img src=x onerror=alert(7)>", operation: "open directory", cause: "Permission denied (os error 13)" },
      { path: "/srv/data/private", operation: "open directory", cause: "Permission denied (os error 13)" }],
  },
};
// As report/page_ages.rs has them; a fifth of the files is reset, as where packages were unpacked.
const BREAKS = [30, 90, 365, 730, 1825];
function sideOfAges(stamp, weight) {
  const list = files.map((file) => [file[stamp], weight(file)]).sort((a, b) => a[0] - b[0]);
  const whole = list.reduce((sum, [, part]) => sum + part, 0);
  const until = (days) => list.reduce((sum, [age, part]) => (age < days ? sum + part : sum), 0) / whole;
  const quantile = (share) => {
    let left = share * whole;
    return list.find(([, part]) => (left -= part) <= 0)[0];
  };
  const edges = [0, ...BREAKS.map(until), 1];
  return {
    fractions: edges.slice(1).map((edge, at) => round(0.8 * (edge - edges[at]))), reset_fraction: 0.2,
    half_days: quantile(0.5), nine_tenths_days: quantile(0.9), oldest_days: list.at(-1)[0],
  };
}
const ages = { breaks_days: BREAKS, first_reset_days: 16396, times: ["mtime", "ctime", "atime"].map((name) => ({ name, files: sideOfAges(name, () => 1), bytes: sideOfAges(name, (file) => file.size) })) };
survey.machines = [{
  host: "alpha", kernel: "6.1.0-18-amd64",
  file_systems: [{
    roots: survey.roots, kind: "xfs", label: "<b>data</b>", uuid: "10111213-1415-1617-1819-1a1b1c1d1e1f", device: "/dev/sdb1", mount_point: "/srv", mount_options: "rw,noatime",
    capacity_bytes: 4 * 2 ** 40, free_bytes: 2 ** 40, available_bytes: 0.75 * 2 ** 40, inodes: 1e8, free_inodes: 9e7,
  }],
}];
const small = survey.up_to.find((point) => point.size_bytes === SMALL);
const percent = (fraction) => `${(fraction * 100).toFixed(1)} %`;
const words = [
  `${counts.files.toLocaleString("en")} files in ${counts.directories.toLocaleString("en")} directories, half of them of ${distributions.file_size.deciles[4].toLocaleString("en")} bytes or less.`,
  `${percent(small.files_fraction)} of the files are 64 KiB or smaller, and they hold ${percent(small.bytes_fraction)} of the bytes.`,
  "The file system allocates a little more than the files need; blocks of 4 KiB suit them.",
  "A sentence from the data: <b>not bold</b>.",
];
const data = {
  schema: "granulo/report/1", title: "Survey of /srv/data <script>alert(0)</script>", generated_at: "2026-11-21T07:06:25Z", granulo_version: "0.1.0", granulo_commit: "0123456789ab",
  sources: [{ survey, curve, ages, words }], published,
};
const text = JSON.stringify(data).replace(/"big:(\d+)"/g, "$1");
writeFileSync(join(dirname(fileURLToPath(import.meta.url)), "fixture.json"), `${text}\n`);
console.log(`${text.length} bytes`);
