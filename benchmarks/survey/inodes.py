#!/usr/bin/env python3
"""The benchmark of `granulo survey --method inode-scan`: scans of inodes beside walks of the same file system, in one run.

Makes images of ext4, XFS and btrfs that hold one tree each, mounts them, and runs the floor (a bare walk, floor.c), granulo's walk and its scans in
interleaved rounds with a warm and with a cold cache. Writes a dated record like run.py, whose protocol it shares.

    benchmarks/survey/inodes.py --scratch DIR --keep
    benchmarks/survey/inodes.py --quick             # 20,000 entries, 2 rounds: does it still work?

Python standard library only; mounting and dropping the cache need root.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[n]) for n in range(2)]
import harness  # noqa: E402
import run as base  # noqa: E402  (it lies beside this file)
from harness import figure, ratio, run, say  # noqa: E402

FLOOR, WALK, SCAN, ALONE = "floor, 2 threads", "granulo, walk", "granulo, inode scan", "granulo, inode scan, no names"
NIGHTLY = "granulo, inode scan, incremental"
BOUND = "granulo, inode scan, bound memory"
FLOOR_ALONE, SCAN_ALONE = "floor, 1 thread", "granulo, inode scan, 1 thread"
# Factors that the scan has to reach against the floor, by state of the cache; memory that it may take, by number of files.
FASTER = {"warm": {SCAN: 8, ALONE: 18}, "cold": {SCAN: 8.6}}
# Other file systems, and the factor there with a warm cache.
FASTER_ELSEWHERE = {"xfs": 1.2, "btrfs": 2}
PEAK_MIB = {1_000_000: 24, 10_000_000: 96}
# The bound that a scan is given, and has to keep with what every program has.
BOUND_MIB = {1_000_000: 24, 10_000_000: 96}


class Images:
    """An image of ext4 for each number of entries and one of each other kind, with one tree below its root; mounted while it is measured."""

    def __init__(self, args, tools, scratch):
        self.args, self.tools, self.scratch = args, tools, scratch
        self.root = scratch / "mount"
        self.entries = {str(n): n for n in [args.files, *args.growth]} | {kind: args.files for kind in args.kinds}
        self.made = {}
        self.mounted = None

    def kind(self, name):
        return name if name in harness.MKFS else "ext4"

    def image(self, name):
        return self.scratch / f"inodes-{name}.img"

    def path(self, _name):
        return self.root

    def entry_count(self, name):
        # The README of run.py knows one tree of several, and calls it so.
        made = self.made[str(self.args.files) if name == "large" else name]
        return made["regular"] + made["extra_links"] + made["symlinks"] + made["special"] + made["directories"] - 1

    def open(self, name):
        """Makes the image, or takes the one that an earlier run left with --keep, and mounts it."""
        self.close()
        image, manifest = self.image(name), self.image(name).with_suffix(".json")
        with contextlib.suppress(OSError, ValueError):
            self.made[name] = json.loads(manifest.read_text())
        if name not in self.made or not image.exists():
            entries = self.entries[name]
            say(f"making an image with {entries:,} entries")
            manifest.unlink(missing_ok=True)
            harness.make_image(image, self.kind(name), max(base.IMAGE_BYTES_MIN, base.IMAGE_BYTES_PER_ENTRY * entries))
            self.mount(name, "rw,noatime")
            tree = self.root / "tree"
            tree.mkdir()
            # The largest has no blocks: it takes half the time to make, and its tables are as large.
            sparse = ["--sparse"] if entries > self.args.files else []
            self.made[name] = json.loads(run([self.tools.make_tree, "--seed", base.SEED, *sparse, tree, entries]))
            os.sync()
            self.close()
            harness.write_atomically(manifest, json.dumps(self.made[name]) + "\n")
        self.mount(name, "ro,noatime")

    def mount(self, name, options):
        harness.mount(self.image(name), self.root, self.kind(name), f"loop,{options}")
        self.mounted = name

    def close(self):
        if self.mounted:
            harness.unmount(self.root)
            self.mounted = None

    def remove(self):
        self.close()
        with contextlib.suppress(OSError):
            self.root.rmdir()
        if not self.args.keep:
            for name in self.entries:
                self.image(name).unlink(missing_ok=True)
                self.image(name).with_suffix(".json").unlink(missing_ok=True)


def commands(tools, root, scratch, kind="ext4", entries=0):
    survey = [tools.granulo, "survey", "--json"]
    everything = "every distribution"
    scan = [*survey, "--method", "inode-scan", str(root)]
    nightly = scratch / "nightly.json"
    bound_mib = next(bound for most, bound in BOUND_MIB.items() if entries <= most)
    rows = [
        base.Command(FLOOR, [tools.floor, "2", str(root)], "sum of sizes", "floor"),
        base.Command(SCAN, scan, everything, "granulo"),
        base.Command(BOUND, [*scan, "--memory", f"{bound_mib}MiB", "--scratch", str(scratch)], everything, "granulo"),
        base.Command(ALONE, [*scan, "--without-names"], "all but names", "granulo"),
        base.Command(WALK, [*survey, "--method", "walk", str(root)], everything, "granulo"),
        base.Command(NIGHTLY, [*scan, "--incremental", str(nightly), "-o", str(nightly)], everything, "granulo"),
    ]
    if kind == "ext4":
        return rows
    return [
        *rows,
        base.Command(FLOOR_ALONE, [tools.floor, "1", str(root)], "sum of sizes", "floor"),
        base.Command(SCAN_ALONE, [*scan, "--threads", "1"], everything, "granulo"),
    ]


def check(tools, bench, images, name):
    """What keeps a row from being a result: another count than the tree has, or another survey than the walk's."""
    made, wrong, surveys = images.made[name], [], {}
    kind = images.kind(name)
    rows = [row for row in commands(tools, images.root, bench.scratch, kind) if row.kind == "granulo"]
    for row in rows:
        done = subprocess.run(row.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bench.environment)
        try:
            surveys[row.name] = survey = json.loads(done.stdout)
        except ValueError:
            wrong.append(f"{row.name}: status {done.returncode}, no survey")
            continue
        counts = survey["counts"]
        # The root of the image is there too, and lost+found.
        expected = (made["regular"], made["extra_links"], made["symlinks"], made["directories"] + 1 + (kind == "ext4"))
        seen = (counts["files"], counts["hard_links_skipped"], counts["symlinks"], counts["directories"])
        if seen != expected:
            wrong.append(f"{row.name}: counts {seen}, the tree has {expected}")
    if not wrong:
        for row in (row.name for row in rows if row.name != WALK):
            for part, value in surveys[WALK]["distributions"].items():
                missing = row == ALONE and part in ("directory_entries", "name_length", "directory_depth")
                if not missing and "age" not in part and surveys[row]["distributions"][part] != value:
                    wrong.append(f"{row}: {part} is not that of the walk")
    return wrong


def targets(args, bench, wrong):
    lines = ["| target | at least | measured | |", "| --- | ---: | ---: | --- |"]

    def add(text, limit, measured, good):
        verdict = "not measured" if measured is None else "void: surveys differ" if wrong else "reached" if good else "**missed**"
        lines.append(f"| {text} | {limit} | {figure(measured, 1)} | {verdict} |")

    for state in ("warm", "cold"):
        stats = bench.table("main", str(args.files), state)
        for name, factor in FASTER[state].items():
            have = stats.get(name) and stats.get(FLOOR) and ratio(stats[FLOOR].wall, stats[name].wall)
            add(f"{state}: {name}, times as fast as {FLOOR}", factor, have, bool(have) and have >= factor)
    for kind, factor in FASTER_ELSEWHERE.items():
        stats = bench.table("kinds", kind, "warm")
        for scan, floor in ((SCAN, FLOOR), (SCAN_ALONE, FLOOR_ALONE)):
            have = ratio(*(stats[row].wall if row in stats else None for row in (floor, scan)))
            add(f"{kind}, warm: {scan}, times as fast as {floor}", factor, have, bool(have) and have >= factor)
    lines += ["", "| memory | at most MiB | measured | |", "| --- | ---: | ---: | --- |"]
    for limits, rows, text in ((PEAK_MIB, (SCAN, ALONE), ""), (BOUND_MIB, (BOUND,), ", with that bound")):
        for entries, limit in limits.items():
            peaks = [row["peak_kib"] / 1024 for row in bench.samples if row["tree"] == str(entries) and row["command"] in rows]
            add(f"{entries:,} entries{text}", limit, max(peaks, default=None), bool(peaks) and max(peaks) <= limit)
    return lines


def growth(args, bench, images):
    lines = ["| program | entries | warm s | us an entry | cold s | CPU s | peak MiB |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in (SCAN, BOUND, ALONE, NIGHTLY, FLOOR):
        for name in images.made:
            if name in args.kinds:
                continue
            warm, cold = (bench.table(section, name, state).get(row) for section, state in
                          ((("main" if name == str(args.files) else "growth"), s) for s in ("warm", "cold")))
            if not warm or warm.wall is None:
                continue
            entries = images.entry_count(name)
            cold_wall = cold.wall if cold else None
            lines.append(f"| {row} | {entries:,} | {figure(warm.wall)} | {figure(warm.wall * 1e6 / entries)} | "
                         f"{figure(cold_wall)} | {figure(warm.cpu, 2)} | {figure(warm.peak_mib, 1)} |")
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=pathlib.Path, default=harness.GRANULO, help="binary to measure")
    parser.add_argument("--scratch", type=pathlib.Path, help="directory for the images (default: a new one in $TMPDIR, removed at the end)")
    parser.add_argument("--keep", action="store_true", help="leave the images in --scratch for the next run")
    parser.add_argument("--files", type=int, help="entries of the image that is measured most (default: 1000000)")
    parser.add_argument("--growth", type=int, nargs="*", help="entries of further images (default: 100000 10000000)")
    parser.add_argument("--kinds", nargs="*", choices=[kind for kind in harness.MKFS if kind != "ext4"], help="other file systems to measure (default: xfs btrfs)")
    parser.add_argument("--rounds", type=int, help="warm rounds (default: 7)")
    parser.add_argument("--cold-rounds", type=int, help="cold rounds; 0 leaves them out (default: 3)")
    parser.add_argument("--growth-rounds", type=int, help="rounds, warm and cold, on each further image and file system (default: 3)")
    parser.add_argument("--touch-mib", type=int, help="memory to touch before a command (default: as run.py)")
    parser.add_argument("--out", type=pathlib.Path, help="directory of the record (default: benchmarks/runs/DATE-inode-scan; with --quick target/bench-inode-scan-quick)")
    parser.add_argument("--quick", action="store_true", help="20,000 entries, 2 rounds: a smoke test")
    args = parser.parse_args()
    defaults = {"files": 20_000, "growth": [2_000], "rounds": 2, "cold_rounds": 1, "growth_rounds": 1} if args.quick else \
               {"files": 1_000_000, "growth": [100_000, 10_000_000], "rounds": 7, "cold_rounds": 3, "growth_rounds": 3}
    defaults["kinds"] = list(FASTER_ELSEWHERE)
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.peers, args.no_image = harness.REPOSITORY / "target/peers", False
    if args.files < 1000 or args.rounds < 1 or args.cold_rounds < 0:
        parser.error("--files must be at least 1000, --rounds at least 1")
    if args.keep and not args.scratch:
        parser.error("--keep needs --scratch")
    args.out = harness.record_directory(args, "inode-scan")
    return args


def measure_all(args, tools, images, scratch):
    tools.compile()
    bench = base.Bench(args, tools, images, scratch)
    main = str(args.files)
    images.open(main)
    facts = base.host_facts(args, tools, images, scratch)
    wrong = check(tools, bench, images, main)
    rows = commands(tools, images.root, scratch)
    bench.rounds("main", main, "warm", args.rounds, rows)
    if bench.can_drop and args.cold_rounds:
        bench.rounds("main", main, "cold", args.cold_rounds, rows)
    for name in images.entries:
        if name != main:
            images.open(name)
            wrong += check(tools, bench, images, name)
            section, few = "growth", [row for row in commands(tools, images.root, scratch, "ext4", images.entries[name]) if row.name != WALK]
            if name in args.kinds:
                section, few = "kinds", commands(tools, images.root, scratch, name)
            bench.rounds(section, name, "warm", args.growth_rounds, few)
            if bench.can_drop:
                bench.rounds(section, name, "cold", args.growth_rounds, few)
    made = images.made[main]
    warm, cold = (bench.table("main", main, state) for state in ("warm", "cold"))
    out = ["# Inode scan benchmark: results", "",
           f"{images.entry_count(main):,} entries, of which {made['directories']:,} are directories, alone on an ext4 image. Host, versions and "
           "command line: README.md; every sample: raw.csv.", ""]
    if args.files < 100_000:
        out += ["This is a small tree that shows whether the benchmark works. Its times say nothing.", ""]
    spread = warm[FLOOR].high / warm[FLOOR].low
    if spread > base.SPREAD_MAX:
        out += [f"**Something else was running: the slowest warm run of the floor took {spread:.1f} times as long as the fastest. "
                "Wall times of this run are not worth quoting.**", ""]
    out += [f"**{what}**" for what in wrong] + [""] * bool(wrong)
    for state, stats, count in (("Warm", warm, args.rounds), ("Cold", cold, args.cold_rounds)):
        if stats:
            out += [f"## {state}", "", f"Interleaved rounds: {count}.", "", *base.rows_table(bench, rows, stats, state.lower(), FLOOR), ""]
    for name in args.kinds:
        elsewhere = commands(tools, images.root, scratch, name)
        for state in ("warm", "cold"):
            stats = bench.table("kinds", name, state)
            if stats:
                out += [f"## {name}, {state}", "", f"{images.entry_count(name):,} entries. Interleaved rounds: {args.growth_rounds}.", "",
                        *base.rows_table(bench, elsewhere, stats, state, FLOOR), ""]
    out += ["## Targets", "", *targets(args, bench, wrong), "", "## Growth", "", *growth(args, bench, images), ""]
    readme = base.readme("Inode scan benchmark run", "benchmarks/survey/inodes.py", args, bench, facts, base.versions(tools), wrong, rows)
    base.write_record(args, bench, {"summary.md": "\n".join(out).rstrip() + "\n", "README.md": readme})
    return 1 if wrong or bench.complaints else 0


def remove_names(scratch):
    for name in ("nightly.json", "nightly.json.names"):
        (scratch / name).unlink(missing_ok=True)


def main():
    args = parse_arguments()
    if os.geteuid() != 0:
        raise harness.Failure("mounting images and reading their devices need root: run with sudo")
    with contextlib.ExitStack() as cleanup:
        build = pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="granulo-bench-")))
        scratch = args.scratch.resolve() if args.scratch else build / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        harness.private_mounts()
        tools = base.Tools(args, build)
        images = Images(args, tools, scratch)
        cleanup.callback(base.remove_leftovers, scratch)
        cleanup.callback(remove_names, scratch)
        cleanup.callback(images.remove)
        return measure_all(args, tools, images, scratch)


if __name__ == "__main__":
    harness.main(main)
