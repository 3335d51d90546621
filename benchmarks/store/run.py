#!/usr/bin/env python3
"""granulo's store beside the ways in which people keep many small files today, and a floor; docs/BENCHMARKS.md has the protocol.

Builds store-bench, then gives every engine its turn in every round: a new file system on a loop image, everything written, read cold and warm,
listed and deleted, each step a process of its own. Writes a dated record: README.md (host, versions, command line), raw.csv (every
sample), summary.md (the tables). Needs root for images, mounts and dropping the caches.

    benchmarks/store/run.py                  # three rounds of set A, one of B and one of C
    benchmarks/store/run.py --rounds 0 --rounds-b 0 --small 10000000    # set C alone, ten million
    benchmarks/store/run.py --quick          # 2,000 objects, one round: does it still work?
    benchmarks/store/run.py --here --scratch DIR   # in DIR's own file system, without images: a real disk

Python standard library only.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in range(2)]
import harness  # noqa: E402
import report  # noqa: E402, beside this file
from harness import GIB, MIB, Failure, run, say  # noqa: E402

HERE = Path(__file__).resolve().parent
STEP_SECONDS_MAX = 1800
DEPTH = 32
# Set C is for the time that an object takes whatever is in it; the others take minutes for a million of them.
SMALL_ENGINES = ("files-ext4", "floor-checksum", "lmdb", "rocksdb", "granulo")


class Place:
    """Where one engine has its turn: a new file system in a sparse image, or a directory with `kind` None."""

    def __init__(self, scratch, kind, size_bytes):
        self.kind, self.size_bytes = kind, size_bytes
        self.image, self.root = scratch / "image", scratch / "volume"
        self.objects = self.root / "objects"
        self.device, self.used_at_first = None, 0

    def __enter__(self):
        try:
            self.root.mkdir()
            if self.kind:
                harness.make_image(self.image, self.kind, self.size_bytes)
                self.device = harness.attach_loop(self.image)
                harness.mount(self.device, self.root, self.kind, "noatime")
            self.objects.mkdir()
            os.sync()
            self.used_at_first = self.used()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A step that was killed may have left a mount inside.
        if self.kind:
            harness.unmount(self.root, self.device)
            self.image.unlink(missing_ok=True)
        else:
            harness.unmount(self.objects / "mount")
        shutil.rmtree(self.root, ignore_errors=True)

    def used(self):
        """Bytes in use: of the file system if it is ours alone, otherwise those allocated to what lies in it."""
        if self.kind:
            space = os.statvfs(self.root)
            return (space.f_blocks - space.f_bfree) * space.f_frsize
        blocks = 0
        for directory, _, names in os.walk(self.root):
            blocks += sum(os.lstat(os.path.join(directory, name)).st_blocks for name in [*names, "."])
        return blocks * 512

    def allocated(self):
        os.sync()
        return self.used() - self.used_at_first


class Bench:
    def __init__(self, binary, scratch, options):
        self.binary, self.scratch, self.options = binary, scratch, options
        self.rows = []  # set, round, engine, step, name, value
        self.can_drop = harness.can_drop_caches()

    def call(self, *arguments):
        """What one step prints, and what it says when it fails."""
        try:
            done = subprocess.run([str(self.binary), *map(str, arguments)], capture_output=True, text=True, errors="replace",
                                  timeout=STEP_SECONDS_MAX, env=harness.administrator())
        except subprocess.TimeoutExpired:
            return {}, f"still waiting after {STEP_SECONDS_MAX} s"
        if done.returncode == 0:
            return dict(pair.split("=", 1) for pair in done.stdout.split()), None
        lines = done.stderr.strip().splitlines()
        return {}, (lines[-1] if lines else f"exit status {done.returncode}").replace(str(self.scratch), "$SCRATCH")

    def cold(self, will_cache_bytes):
        harness.drop_caches()
        if not self.options.quick:
            harness.touch_memory(min(will_cache_bytes, harness.memory_bytes("MemAvailable") // 2))
            harness.drop_caches()

    def keep(self, key, step, values, error=None):
        for name, value in values.items():
            self.rows.append([*key, step, name, value])
        if error:
            self.rows.append([*key, step, "error", error])
            say(f"  {key[2]}, {step}: {error}")

    def turn_small(self, number, engine):
        """Many small objects with one engine: what each of them costs."""
        o, key = self.options, ("C", number, engine)
        program = engine.split("-")[0] if engine == report.BASE else engine
        # ext4 makes an inode for every 16 KiB.
        with Place(self.scratch, None if o.here else "ext4", 20 * 1024 * o.small + 2 * GIB) as place:
            def step(name, *arguments, program=program):
                values, error = self.call(arguments[0], program, place.objects, "C", o.small, *arguments[1:])
                self.keep(key, name, values, error)
                return error is None

            self.cold(512 * o.small + 256 * MIB)
            if not step("ingest", "ingest"):
                return
            self.keep(key, "ingest", {"allocated": place.allocated()})
            if self.can_drop:
                self.cold(512 * MIB)
                step("list", "list", "names")
            step("list warm", "list", "warm")
            for threads in (1, 4):
                step(f"random warm {threads}", "random", "warm", o.dense, threads)
            step("delete", "delete")
            step("empty", "empty")
            if program == "granulo":
                shutil.rmtree(place.objects)
                place.objects.mkdir()
                self.cold(512 * o.small + 256 * MIB)
                step("ingest batches", "ingest", program="granulo-batches")
                step("delete tree", "delete", program="granulo-tree")
                step("empty tree", "empty")

    def turn(self, set_, number, engine, payload):
        """Everything with one engine, from an empty file system to an empty store."""
        o, key = self.options, (set_, number, engine)
        count = o.objects
        program, kind = (engine.split("-")[0], engine.split("-")[1]) if engine.startswith("files-") else (engine, "ext4")
        few = payload * o.sparse // count * 2 + 256 * MIB
        with Place(self.scratch, None if o.here else kind, 3 * payload + 2 * GIB) as place:
            def step(name, *arguments):
                values, error = self.call(arguments[0], program, place.objects, set_, count, *arguments[1:])
                self.keep(key, name, values, error)
                return error is None

            self.cold(int(1.3 * payload) + 256 * MIB)
            if not step("ingest", "ingest"):
                return
            self.keep(key, "ingest", {"allocated": place.allocated()})
            if self.can_drop:
                self.cold(int(1.1 * payload) + 64 * MIB)
                step("load cold", "load", "cold")
            step("load warm", "load", "warm")
            for threads in (1, 4):
                step(f"random warm {threads}", "random", "warm", o.dense, threads)
            if self.can_drop:
                for threads in (1, 4):
                    self.cold(int(1.1 * payload) + 64 * MIB)
                    step(f"random cold {threads}", "random", "cold", o.dense, threads)
                for threads in (1, 4):
                    self.cold(few)
                    step(f"sparse {threads}", "random", "sparse", o.sparse, threads)
                self.cold(few)
                step("sparse deep", "random", "list", o.sparse, DEPTH)
                self.cold(256 * MIB)
                step("list", "list", "names")
                self.cold(256 * MIB)
                step("list attributes", "list", "attributes")
            self.cold(512 * MIB)
            deleted = step("delete", "delete")
            self.keep(key, "delete", {"allocated": place.allocated()})
            if deleted and "unsupported" not in [row[4] for row in self.rows if row[:4] == [*key, "delete"]]:
                step("empty", "empty")
            if program == "granulo":
                # Once more, removed as one tree: beside the tables, as the peers delete one by one.
                shutil.rmtree(place.objects)
                place.objects.mkdir()
                if step("ingest again", "ingest"):
                    self.cold(512 * MIB)
                    self.keep(key, "delete tree", *self.call("delete", "granulo-tree", place.objects, set_, count))
                    step("empty tree", "empty")
            if program in ("granulo", "files"):
                # Last, because what was changed alone takes longer to delete.
                shutil.rmtree(place.objects)
                place.objects.mkdir()
                if step("ingest for modes", "ingest"):
                    self.cold(512 * MIB)
                    before = place.allocated()
                    if step("modes", "modes"):
                        self.keep(key, "modes", {"written": place.allocated() - before})


def facts(options, bench, begun, load, sets):
    below = harness.mount_of(bench.scratch)
    found = {
        "date": harness.date_and_minutes(begun),
        "granulo commit": harness.commit(),
        "system": harness.system(),
        "processor": harness.processor(),
        "memory": f"{harness.memory_bytes('MemTotal') / GIB:.1f} GiB",
        "load average at the start": harness.load(load),
        "file systems": f"{below[2]} itself" if options.here else "ext4 and XFS, new for each turn, on loop devices with direct I/O over a sparse "
                        f"file on {below[2]}; defaults, ext4 without lazy initialisation, noatime",
        "disk below": harness.fill_level(bench.scratch),
        "caches": "dropped before each cold step" if bench.can_drop else "could NOT be dropped: nothing is cold",
    }
    for set_, described in sets.items():
        found[f"set {set_}"] = (f"{int(described['count']):,} objects, {int(described['payload']):,} bytes, the largest {int(described['largest']):,}; "
                                f"{options.rounds[set_]} rounds")
    return found


def versions(features):
    """First telling line of each program's version, and the crates of the lock file."""
    found = harness.versions({"rustc": ["rustc", "--version"], "mke2fs": ["mke2fs", "-V"], "mkfs.xfs": ["mkfs.xfs", "-V"],
                              "sqfstar": ["sqfstar", "-version"]})
    locked = dict(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', (HERE / "Cargo.lock").read_text()))
    for crate in ("rusqlite", "libsqlite3-sys", "heed", "lmdb-master-sys", "tar", "twox-hash", "io-uring"):
        found[crate] = locked.get(crate, "missing")
    found["librocksdb"] = "missing: not measured (install librocksdb-dev)"
    if features:
        header = Path("/usr/include/rocksdb/version.h").read_text()
        found["librocksdb"] = ".".join(re.search(rf"ROCKSDB_{part}\s+(\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
    return found


def readme(found, programs, bench):
    arguments = [re.sub(r"(^|=)/.*$", r"\1$PATH_TO_IT", argument) for argument in sys.argv[1:]]
    lines = [*harness.readme("Store benchmark run", "benchmarks/store/run.py", found, [" ".join(arguments)]),
             *harness.versions_section("program or crate", programs)]
    errors = sorted({f"- {row[2]}, set {row[0]}, {row[3]}: {row[5]}" for row in bench.rows if row[4] == "error"})
    return lines + (["## Steps that failed", "", *errors, ""] if errors else [])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=50_000, help="objects in each set (default: 50000)")
    parser.add_argument("--dense", type=int, default=60_000, help="random reads of the dense and the warm steps (default: 60000)")
    parser.add_argument("--sparse", type=int, default=3_000, help="random reads of the sparse steps, each another object (default: 3000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of set A (default: 3)")
    parser.add_argument("--rounds-b", type=int, default=1, help="rounds of set B; 0 leaves it out (default: 1)")
    parser.add_argument("--rounds-c", type=int, default=1, help="rounds of set C; 0 leaves it out (default: 1)")
    parser.add_argument("--small", type=int, default=1_000_000, help="objects in set C (default: 1000000)")
    parser.add_argument("--only", default="", help="only engines whose name matches this regular expression, and files on ext4")
    parser.add_argument("--here", action="store_true", help="in the file system of --scratch itself, without images; no XFS row")
    parser.add_argument("--scratch", type=Path, help="directory for images and data (default: a new one in $TMPDIR); what is put there is removed")
    parser.add_argument("--out", type=Path, help="where the record goes (default: benchmarks/runs/DATE-store; with --quick target/bench-store-quick)")
    parser.add_argument("--quick", action="store_true", help="2,000 objects, 20,000 small ones, one round of each set: a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.objects, options.dense, options.sparse, options.rounds, options.rounds_b = 2000, 2000, 200, 1, 1
        options.small, options.rounds_c = 20_000, 1
    if options.small < 100 or options.rounds_c < 0:
        parser.error("at least 100 objects in set C")
    if options.objects < 100 or not 0 < options.sparse <= options.objects or options.dense < 1 or options.rounds < 0 or options.rounds_b < 0:
        parser.error("at least 100 objects, and not more sparse reads than objects")
    options.rounds = {name: rounds for name, rounds in {"A": options.rounds, "B": options.rounds_b, "C": options.rounds_c}.items() if rounds}
    if not options.rounds:
        parser.error("no rounds, no results")
    options.out = harness.record_directory(options, "store")
    return options


def measure(options, binary, scratch, features):
    begun, load = time.time(), os.getloadavg()
    bench = Bench(binary, scratch, options)
    names = run([binary, "engines"]).split()
    engines = [row for name in names for row in (["files-ext4", "files-xfs"] if name == "files" else [name])]
    if options.here:
        engines.remove("files-xfs")
    engines = [name for name in engines if name == report.BASE or re.search(options.only, name)]
    sets = {}
    for set_ in options.rounds:
        sets[set_], error = bench.call("describe", set_, options.small if set_ == "C" else options.objects)
        if error:
            raise Failure(f"set {set_}: {error}")
    needed = max(3 * int(described["payload"]) + (5 * 1024 * int(described["count"]) if set_ == "C" else 0) for set_, described in sets.items()) + 2 * GIB
    free = shutil.disk_usage(scratch).free
    if free < needed:
        raise Failure(f"{scratch} has {free // MIB:,} MiB free; {needed // MIB:,} MiB may be needed at once (use --scratch)")
    for set_, rounds in options.rounds.items():
        for number in range(1, rounds + 1):
            for engine in engines:
                if set_ == "C" and not (engine in SMALL_ENGINES and re.search(options.only, engine)):
                    continue
                say(f"set {set_}, round {number} of {rounds}: {engine}, {time.strftime('%H:%M:%S', time.gmtime())}, load {os.getloadavg()[0]:.2f}")
                if set_ == "C":
                    bench.turn_small(number, engine)
                else:
                    bench.turn(set_, number, engine, int(sets[set_]["payload"]))
    tables = report.summary(options, bench.rows, engines, sets)
    found = facts(options, bench, begun, load, sets)
    harness.write_record(options.out, ["set", "round", "engine", "step", "name", "value"], bench.rows,
                         {"summary.md": tables, "README.md": readme(found, versions(features), bench)})
    print(tables)
    say(f"record: {options.out}")
    ours = [row for row in bench.rows if row[4] == "error" and row[2] in ("granulo", "floor", "floor-checksum", report.BASE)]
    return 1 if ours else 0


def main():
    options = parse_arguments()
    if os.geteuid() != 0 and not options.here:
        raise Failure("images, mounts and dropping the caches need root: run with sudo, or with --here (warm steps only)")
    features = ["--features", "rocksdb"] if Path("/usr/include/rocksdb/c.h").exists() else []
    binary = harness.store_bench(features, options.quick)
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="store-bench-") as scratch:
        if os.geteuid() == 0:
            harness.private_mounts()
        return measure(options, binary, Path(scratch).resolve(), features)


if __name__ == "__main__":
    harness.main(main)
