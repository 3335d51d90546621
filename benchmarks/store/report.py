"""The tables of the store benchmark: medians, spread, ratios to files on ext4, targets, and the rows that granulo loses.

Samples are lists [set, round, engine, step, name, value] as raw.csv has them, so that a record's tables can be made again from its samples.
"""

import dataclasses
import statistics

from harness import figure, table

BASE = "files-ext4"
NAMES = {"files-ext4": "files on ext4", "files-xfs": "files on XFS", "floor": "floor, unchecked", "floor-checksum": "floor with XXH3", "tar": "tar",
         "squashfs": "squashfs", "sqlite": "SQLite", "sqlite-mmap": "SQLite, mmap", "lmdb": "LMDB, no read-ahead",
         "lmdb-writemap": "LMDB, writemap, read-ahead", "rocksdb": "RocksDB, blob files", "granulo": "**granulo**"}
# Whether the contents that an engine hands out were verified; what is unchecked has less to do.
CHECKED = {"floor-checksum", "rocksdb", "granulo"}


@dataclasses.dataclass
class Measure:
    title: str
    step: str
    kind: str  # bytes: payload a second; reads: operations a second, in thousands; seconds; size: allocated bytes a payload byte
    digits: int

    @property
    def more_is_better(self):
        return self.kind in ("bytes", "reads")


MEASURES = [
    Measure("ingest, MB/s", "ingest", "bytes", 0),
    Measure("size ratio", "ingest", "size", 4),
    Measure("load cold, MB/s", "load cold", "bytes", 0),
    Measure("load warm, MB/s", "load warm", "bytes", 0),
    Measure("dense cold 1, k/s", "random cold 1", "reads", 1),
    Measure("dense cold 4, k/s", "random cold 4", "reads", 1),
    Measure("sparse cold 1, k/s", "sparse 1", "reads", 1),
    Measure("sparse cold 4, k/s", "sparse 4", "reads", 1),
    Measure("sparse cold deep, k/s", "sparse deep", "reads", 1),
    Measure("random warm 1, k/s", "random warm 1", "reads", 0),
    Measure("random warm 4, k/s", "random warm 4", "reads", 0),
    Measure("list, s", "list", "seconds", 3),
    Measure("list with attributes, s", "list attributes", "seconds", 3),
    Measure("change all modes, s", "modes", "seconds", 2),
    Measure("delete all, s", "delete", "seconds", 2),
]

# Multiples of files on ext4 in the same run, at least and wanted, by the title of the measure without its unit. None:
# no target for that set.
TARGETS = {
    "ingest": {"A": (3, 3.8), "B": (1.5, 1.8)},
    "sparse cold 1": {"A": (1.4, 1.5), "B": (1.4, 1.5)},
    "sparse cold 4": {"A": (1.3, 1.5), "B": (1.3, 1.5)},
    "random warm 1": {"A": (1.2, 1.8)},
    "random warm 4": {"A": (1.1, 1.8)},
    "list with attributes": {"A": (25, 35), "B": (25, 35)},
    "delete all": {"A": (6, 10)},
}
# Multiples of the verified floor.
LOAD_TARGETS = {"load cold": (1, 1.05), "load warm": (1, 1.05)}
TREE_TARGET = (20, 40)
DEEP_TARGET, SIZE_TARGET, PEAK_MIB_TARGET = (1.5, 1.8), (1.005, 1.003), (64, 48)
# Of set C, at most.
SMALL_TARGETS = [
    ("ingest in batches of 2,500, processor µs an object", "ingest batches", "cpu", 1e6, (4, 3)),
    ("delete each, processor µs an object", "delete", "cpu", 1e6, (3, 1.5)),
    ("delete as a tree, processor µs an object", "delete tree", "cpu", 1e6, (3, 1.5)),
    ("list warm, µs an object", "list warm", "seconds", 1e6, (0.12, 0.06)),
    ("index bytes an object besides the key", "ingest", "index", 1, (24, None)),
]
OPEN_TARGET_MS = (2, 0.5)


class Samples:
    def __init__(self, options, rows, sets):
        self.options, self.sets = options, sets
        self.found = {}
        for set_, _, engine, step, name, value in rows:
            self.found.setdefault((set_, engine, step, name), []).append(value)

    def raw(self, set_, engine, step, name):
        return [float(value) for value in self.found.get((set_, engine, step, name), [])]

    def error(self, set_, engine, step):
        return (self.found.get((set_, engine, step, "error")) or [None])[0]

    def count(self, set_):
        return int(self.sets[set_]["count"])

    def payload(self, set_):
        return int(self.sets[set_]["payload"])

    def values(self, set_, engine, measure):
        if measure.kind == "size":
            return [value / self.payload(set_) for value in self.raw(set_, engine, measure.step, "allocated")]
        seconds = self.raw(set_, engine, measure.step, "seconds")
        if measure.kind == "bytes":
            return [self.payload(set_) / value / 1e6 for value in seconds]
        if measure.kind == "reads":
            return [count / value / 1e3 for count, value in zip(self.raw(set_, engine, measure.step, "operations"), seconds)]
        return seconds

    def median(self, set_, engine, measure):
        values = self.values(set_, engine, measure)
        return statistics.median(values) if values else None

    def ratio(self, set_, engine, measure, base=BASE, base_measure=None):
        """How many times better than the base, by medians."""
        value, beside = self.median(set_, engine, measure), self.median(set_, base, base_measure or measure)
        if not value or not beside:
            return None
        return value / beside if measure.more_is_better else beside / value

    def middle(self, set_, engine, step, name):
        values = self.raw(set_, engine, step, name)
        return statistics.median(values) if values else None

    def each(self, set_, engine, step, name, factor):
        """The median for one object."""
        value = self.middle(set_, engine, step, name)
        return None if value is None else value * factor / self.count(set_)

    def peak_mib(self, set_, engine, step):
        """The engine's own peak: the process's without what the benchmark holds, or that of the program it started, if larger."""
        peaks = []
        triples = zip(*(self.raw(set_, engine, step, name) for name in ("own_kib", "peak_kib", "child_kib")))
        for own, peak, child in triples:
            peaks.append((child if engine == "squashfs" and step == "ingest" and child > peak else peak - own) / 1024)
        return max(peaks, default=None)


def medians_table(samples, set_, engines):
    rows = []
    for engine in engines:
        cells = []
        for measure in MEASURES:
            failed = samples.error(set_, engine, measure.step)
            cells.append("failed" if failed else figure(samples.median(set_, engine, measure), measure.digits))
        rows.append([NAMES.get(engine, engine), *cells])
    return table(["", *(measure.title for measure in MEASURES)], rows)


def spread_table(samples, set_, engines):
    rows = []
    for engine in engines:
        cells = []
        for measure in MEASURES:
            values = samples.values(set_, engine, measure)
            cells.append(f"{max(values) / min(values):.2f}" if len(values) > 1 and min(values) > 0 else "-")
        rows.append([NAMES.get(engine, engine), *cells])
    return table(["slowest / fastest", *(measure.title.split(",")[0] for measure in MEASURES)], rows)


def ratios_table(samples, set_, engines):
    rows = [[NAMES.get(engine, engine), *(figure(samples.ratio(set_, engine, measure), 2) for measure in MEASURES)] for engine in engines]
    return table(["x files on ext4", *(measure.title.split(",")[0] for measure in MEASURES)], rows)


def space_table(samples, set_, engines):
    count, keys, payload = samples.count(set_), int(samples.sets[set_]["keys"]), samples.payload(set_)
    rows = []
    for engine in engines:
        allocated = samples.raw(set_, engine, "ingest", "allocated")
        index = samples.raw(set_, engine, "ingest", "index")
        after = samples.raw(set_, engine, "delete", "allocated") if samples.raw(set_, engine, "delete", "seconds") else []
        rows.append([NAMES.get(engine, engine), figure((statistics.median(allocated) - payload - keys) / count if allocated else None, 1),
                     figure((index[0] - keys) / count if index else None, 1),
                     figure(statistics.median(after) / (1 << 20) if after else None, 1)])
    return table(["", "bytes an object besides content and key", "of them in index files", "MiB allocated after deleting all"], rows)


STEPS = ["ingest", "load cold", "load warm", "random cold 1", "random cold 4", "sparse 1", "sparse 4", "sparse deep", "random warm 1",
         "random warm 4", "list", "list attributes", "modes", "delete"]


def memory_table(samples, set_, engines):
    rows = [[NAMES.get(engine, engine), *(figure(samples.peak_mib(set_, engine, step), 1) for step in STEPS)] for engine in engines]
    return table(["peak MiB", *STEPS], rows)


SMALL_MEASURES = [("ingest", "ingest"), ("in batches of 2,500", "ingest batches"), ("list cold", "list"), ("list warm", "list warm"), ("delete", "delete"),
                  ("delete as a tree", "delete tree")]


def small_tables(samples, engines):
    """Set C: microseconds an object, by the clock and of the processor; and what else an object takes."""
    keys, count, payload = int(samples.sets["C"]["keys"]), samples.count("C"), samples.payload("C")
    engines = [engine for engine in engines if samples.raw("C", engine, "ingest", "seconds")]
    out = []
    for what, name in (("by the clock", "seconds"), ("of the processor", "cpu")):
        rows = [[NAMES.get(engine, engine), *(figure(samples.each("C", engine, step, name, 1e6), 2) for _, step in SMALL_MEASURES)] for engine in engines]
        out += table([f"µs an object, {what}", *(title for title, _ in SMALL_MEASURES)], rows)
    rows = []
    for engine in engines:
        allocated, index = samples.middle("C", engine, "ingest", "allocated"), samples.middle("C", engine, "ingest", "index")
        reads = [samples.middle("C", engine, f"random warm {threads}", "operations") for threads in (1, 4)]
        times = [samples.middle("C", engine, f"random warm {threads}", "seconds") for threads in (1, 4)]
        opened = samples.middle("C", engine, "list warm", "opened")
        rows.append([NAMES.get(engine, engine), figure((allocated - payload - keys) / count, 1), figure((index - keys) / count if index else None, 1),
                     figure(1000 * opened if opened is not None else None, 2),
                     *(figure(each / seconds / 1e3 if each and seconds else None, 0) for each, seconds in zip(reads, times)),
                     *(figure(samples.peak_mib("C", engine, step), 1) for step in ("ingest", "ingest batches", "list warm", "delete", "delete tree"))])
    head = ["", "bytes an object besides content and key", "of them in index files", "open, ms", "random warm 1, k/s", "random warm 4, k/s",
            *(f"peak MiB, {step}" for step in ("ingest", "in batches", "list", "delete", "delete as a tree"))]
    return out + table(head, rows)


def small_lost(samples, engines):
    """Rows of set C that someone else wins, by the clock."""
    def seconds(engine, step):
        return samples.middle("C", engine, step, "seconds") if "C" in samples.sets else None

    rows = []
    for title, step in [*SMALL_MEASURES, ("random warm 1", "random warm 1"), ("random warm 4", "random warm 4")]:
        ours = seconds("granulo", step)
        times = [(engine, theirs) for engine in engines if ours and (theirs := seconds(engine, step)) and theirs < ours]
        ahead = sorted(((ours / theirs, engine) for engine, theirs in times), reverse=True)
        if ahead:
            rows.append(["C", title, ", ".join(f"{NAMES.get(engine, engine)}{'' if engine in CHECKED else ' (unchecked)'} {factor:.2f}" for factor, engine in ahead)])
    return rows


def targets_table(samples):
    if not any(engine == "granulo" for _, engine, _, _ in samples.found):
        return ["granulo is not in this run.", ""]
    rows = []

    def add(text, least, wanted, value, digits=2, at_most=False):
        reached = value is not None and (value <= least if at_most else value >= least)
        beyond = wanted is not None and value is not None and (value <= wanted if at_most else value >= wanted)
        verdict = "not measured" if value is None else "reached, and what was wanted" if beyond else "reached" if reached else "**missed**"
        rows.append([text, f"{least:g}", "-" if wanted is None else f"{wanted:g}", figure(value, digits), verdict])

    by_title = {measure.title.split(",")[0]: measure for measure in MEASURES}
    for set_ in [set_ for set_ in samples.sets if set_ != "C"]:
        for title, limits in TARGETS.items():
            if set_ in limits:
                add(f"{set_}: {title}, x files on ext4", *limits[set_], samples.ratio(set_, "granulo", by_title[title]))
        for title, limits in LOAD_TARGETS.items():
            add(f"{set_}: {title}, x the verified floor", *limits, samples.ratio(set_, "granulo", by_title[title], base="floor-checksum"))
        tree, files = (samples.middle(set_, engine, step, "seconds") for engine, step in (("granulo", "delete tree"), (BASE, "delete")))
        add(f"{set_}: delete as one tree, x files on ext4", *TREE_TARGET, files / tree if tree and files else None, 1)
        deep = by_title["sparse cold deep"]
        add(f"{set_}: sparse cold, deep queue, x files on ext4 with 4 threads", *DEEP_TARGET,
            samples.ratio(set_, "granulo", deep, base_measure=by_title["sparse cold 4"]))
        add(f"{set_}: the same, x files on ext4 with as many threads as the queue is deep", *DEEP_TARGET, samples.ratio(set_, "granulo", deep))
        add(f"{set_}: size ratio, at most", *SIZE_TARGET, samples.median(set_, "granulo", by_title["size ratio"]), 4, True)
        peaks = [peak for step in STEPS if (peak := samples.peak_mib(set_, "granulo", step)) is not None]
        add(f"{set_}: peak memory of any step in MiB, at most", *PEAK_MIB_TARGET, max(peaks, default=None), 1, True)
    if "C" in samples.sets:
        keys = int(samples.sets["C"]["keys"]) / samples.count("C")
        for text, step, name, factor, limits in SMALL_TARGETS:
            value = samples.each("C", "granulo", step, name, factor)
            add(f"C: {text}, at most", *limits, value - keys if value is not None and name == "index" else value, 2, True)
        opened = samples.middle("C", "granulo", "list warm", "opened")
        add("C: open for reading, warm, ms, at most", *OPEN_TARGET_MS, None if opened is None else 1000 * opened, 2, True)
        add("C: one batch of all, peak memory in MiB, at most", *PEAK_MIB_TARGET, samples.peak_mib("C", "granulo", "ingest"), 1, True)
    return table(["target", "at least", "wanted", "measured", ""], rows)


def lost_table(samples, engines):
    """Every row that someone else wins, and by how much; what is unchecked or cannot be changed says so."""
    if "granulo" not in engines:
        return ["granulo is not in this run.", ""]
    rows = []
    for set_ in [set_ for set_ in samples.sets if set_ != "C"]:
        for measure in MEASURES:
            ahead = []
            for engine in engines:
                factor = samples.ratio(set_, engine, measure, base="granulo")
                if engine != "granulo" and factor is not None and factor > 1:
                    ahead.append((factor, f"{NAMES.get(engine, engine)}{'' if engine in CHECKED else ' (unchecked)'} {factor:.2f}"))
            if ahead:
                rows.append([set_, measure.title, ", ".join(text for _, text in sorted(ahead, reverse=True))])
    rows += small_lost(samples, engines)
    if not rows:
        return ["None: granulo is first in every column.", ""]
    return table(["set", "measure", "ahead of granulo, and how many times better"], rows)


def summary(options, rows, engines, sets):
    samples = Samples(options, rows, sets)
    out = ["# Store benchmark: results", ""]
    if options.quick or options.objects < 20_000 or options.small < 100_000:
        out += ["These are small sets that show whether the benchmark works. Their times say nothing.", ""]
    out += [f"{options.objects:,} objects in sets A and B; dense: {options.dense:,} reads of drawn objects; sparse: {options.sparse:,} reads of different ones, "
            "opening included in both; deep: the list of keys is known at once, 32 requests at a time. Medians of interleaved rounds. Host, versions and "
            "command line: README.md; every sample: raw.csv; protocol and what is not fair: docs/BENCHMARKS.md.", ""]
    for set_ in sets:
        if set_ == "C":
            out += ["## Set C: 100 bytes each", "", f"{samples.count(set_):,} objects; rounds: {options.rounds[set_]}. Ingest is one batch, or where it says so many; "
                    "deletions one by one, or as one tree.", "", *small_tables(samples, engines)]
            continue
        what = "20,000 bytes each" if set_ == "A" else "sizes of vu-2005"
        out += [f"## Set {set_}: {what}", "", f"{samples.payload(set_):,} bytes; rounds: {options.rounds[set_]}.", "",
                *medians_table(samples, set_, engines), "Times better than files on ext4 (size: times smaller):", "",
                *ratios_table(samples, set_, engines)]
        if tree := samples.raw(set_, "granulo", "delete tree", "seconds"):
            out += [f"granulo, everything removed as one tree: {statistics.median(tree):.3f} s.", ""]
        if options.rounds[set_] > 1:
            out += ["Spread of the rounds:", "", *spread_table(samples, set_, engines)]
        out += ["Space:", "", *space_table(samples, set_, engines), "Memory of the step's process beyond what the benchmark itself holds, mapped files included, "
                "the largest of the rounds:", "", *memory_table(samples, set_, engines)]
    out += ["## Targets", "", *targets_table(samples), "## What granulo loses", "", *lost_table(samples, engines)]
    failures = sorted({f"- {NAMES.get(row[2], row[2])}, set {row[0]}, {row[3]}: {row[5]}" for row in rows if row[4] == "error"})
    if failures:
        out += ["## Failed", "", *failures, ""]
    return "\n".join(out).rstrip() + "\n"
