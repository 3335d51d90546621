#!/usr/bin/env python3
"""A mounted store beside files on ext4 and the read-only mounts that people use for many small files; docs/BENCHMARKS.md has the protocol.

The same files as `store-bench` writes them, each place on an ext4 of its own on a loop image: files; a store, mounted through FUSE and by the
kernel; a squashfs image, mounted by the kernel and by squashfuse; a tar archive, mounted by ratarmount. In every round, each step is done by
each place in turn. Writes a dated record: README.md (host, versions, command line), raw.csv (every sample), summary.md (the tables). Needs
root for images, mounts and dropping the caches.

    benchmarks/mount/run.py                  # three rounds of set A, one of set B, three of writing, a million objects, a slow disk
    benchmarks/mount/run.py --quick          # 2,000 objects, one round: does it still work?

Python standard library only.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import harness  # noqa: E402
from harness import GIB, GRANULO, MIB, Failure, run, say  # noqa: E402

STEP_SECONDS_MAX = 1800
STATFS_CALLS = 20_000
BASE = "ext4"
READERS = (BASE, "fuse", "kernel", "squashfs", "squashfuse", "ratarmount")
WRITERS = (BASE, "fuse")
# What is untarred: files of this size at most, as source trees have them.
LARGEST_SOURCE_BYTES = 64 * 1024
# A disk at 7,200 revolutions per minute, as `granulo bench --emulate hdd` has it.
SLOW_OPERATIONS, SLOW_BYTES = 120, 160_000_000
BLKIO = Path("/sys/fs/cgroup/blkio")
# A virtual machine whose idle processors halt at once pays 100 us to wake one, twice for each request to a file system in a process.
HALT_POLL, HALT_POLL_NS = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns"), 200_000


class Volume:
    """A new ext4 in a sparse image on a loop device with direct I/O."""

    def __init__(self, scratch, name, size_bytes):
        self.image, self.root = scratch / f"{name}.image", scratch / name
        harness.make_image(self.image, "ext4", size_bytes)
        self.device = harness.attach_loop(self.image)
        harness.mount(self.device, self.root, "ext4", "noatime")

    def remove(self):
        harness.unmount(self.root, self.device)
        self.image.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)


class Bench:
    def __init__(self, store_bench, scratch, options):
        self.store_bench, self.scratch, self.options = store_bench, scratch, options
        self.rows = []  # set, round, place, step, name, value
        self.failures = 0
        self.point = scratch / "point"
        self.point.mkdir()

    def keep(self, key, step, **values):
        self.rows += [[*key, step, name, value] for name, value in values.items()]

    def fails(self, key, step, why):
        self.keep(key, step, error=why.replace(str(self.scratch), "$SCRATCH"))
        say(f"  {key[2]}, {step}: {why}")
        self.failures += 1

    def cold(self, will_cache_bytes=256 * MIB):
        harness.drop_caches()
        if not self.options.quick:
            harness.touch_memory(min(will_cache_bytes, harness.memory_bytes("MemAvailable") // 2))
            harness.drop_caches()

    @contextlib.contextmanager
    def shown(self, place, home, *more):
        """Mounts what is in `home`; yields the root of the files. Nothing of it is cached by the kernel afterwards."""
        if place == BASE:
            yield home / "files"
            return
        if place in ("fuse", "kernel"):
            how = ["--background"] if place == "fuse" else ["--kernel"]
            run([GRANULO, "mount", *how, *more, home / "store", self.point])
        elif place == "squashfs":
            harness.mount(home / "files.squashfs", self.point, "squashfs", "loop,ro")
        elif place == "squashfuse":
            run(["squashfuse", home / "files.squashfs", self.point])
        else:
            run([self.options.ratarmount, "--index-file", home / "files.tar.index", home / "files.tar", self.point])
        try:
            yield self.point
        finally:
            if place in ("fuse", "kernel"):
                run([GRANULO, "unmount", self.point])
            else:
                harness.unmount(self.point)

    def call(self, step, root, set_, count, *arguments):
        """Seconds that a step of store-bench needs with the files in `root`."""
        words = [self.store_bench, step, "files", root, set_, count, *arguments]
        done = dict(pair.split("=", 1) for pair in run(words, timeout=STEP_SECONDS_MAX).split())
        return float(done["seconds"])

    def step(self, key, place, home, name, measure, *more, cold=None):
        """Mounts, measures, unmounts. What a place cannot do is a row without a figure."""
        try:
            with self.shown(place, home, *more) as root:
                if cold is not None:
                    self.cold(cold)
                seconds = measure(root)
            self.keep(key, name, seconds=seconds)
        except (Failure, subprocess.TimeoutExpired) as failure:
            self.fails(key, name, str(failure))

    # ---- reading ------------------------------------------------------------------------------------------------------

    def prepare(self, set_, count, payload):
        """Every place with the same files; returns the home of each."""
        homes, source = {}, None
        for place in READERS:
            if place == "kernel":
                homes[place] = homes["fuse"]
                continue
            if place == "squashfuse":
                homes[place] = homes["squashfs"]
                continue
            if place == "ratarmount" and not self.options.ratarmount:
                continue
            volume = Volume(self.scratch, f"{set_}-{place}", int(1.5 * payload) + 40 * 1024 * count // 10 + 2 * GIB)
            self.volumes.append(volume)
            home = homes[place] = volume.root
            if place == BASE:
                source = home / "files"
                source.mkdir()
                self.call("ingest", source, set_, count)
            elif place == "fuse":
                run([GRANULO, "store", "init", "--align", "512", home / "store"])
                run([GRANULO, "store", "import", home / "store", source])
            elif place == "squashfs":
                run(["mksquashfs", source, home / "files.squashfs", "-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX", "-no-duplicates",
                     "-mem", "256M"])
            else:
                run(["tar", "--sort=name", "-C", source, "-cf", home / "files.tar", "."])
                run([self.options.ratarmount, "--index-file", home / "files.tar.index", home / "files.tar", self.point])
                harness.unmount(self.point)
        os.sync()
        return homes

    def read(self, set_, count, payload, rounds):
        self.volumes = []
        o = self.options
        try:
            homes = self.prepare(set_, count, payload)
            whole, few = int(1.1 * payload) + 64 * MIB, payload * o.sparse // count * 2 + 256 * MIB

            def random(how, reads, threads):
                return lambda root: self.call("random", root, set_, count, how, reads, threads)

            def load(how):
                return lambda root: self.call("load", root, set_, count, how)

            def again(measure):
                """Everything was read twice before: by this, and by the step itself."""
                return lambda root: load("cold")(root) and measure(root)

            steps = [("all cold", load("cold"), whole), ("all warm", again(load("warm")), None)]
            steps += [(f"random cold {threads}", random("sparse", o.sparse, threads), few) for threads in (1, 4)]
            steps += [(f"random warm {threads}", again(random("warm", o.dense, threads)), None) for threads in (1, 4)]
            steps += [("find cold", sizes_found, 256 * MIB), ("statfs", statfs_called, None)]
            for number in range(1, rounds + 1):
                for name, measure, cold in steps:
                    say(f"set {set_}, round {number} of {rounds}: {name}, load {os.getloadavg()[0]:.2f}")
                    # It takes minutes where others take seconds.
                    left_out = () if number == 1 else ("ratarmount",)
                    for place in [place for place in READERS if place in homes and place not in left_out]:
                        self.step((set_, number, place), place, homes[place], name, measure, cold=cold)
                key = (set_, number, "kernel")
                self.cold(whole)
                start = time.monotonic()
                self.step(key, "kernel", homes["kernel"], "all prefetched", lambda root: load("cold")(root) and time.monotonic() - start, "--prefetch")
        finally:
            for volume in self.volumes:
                volume.remove()

    # ---- writing ------------------------------------------------------------------------------------------------------

    def write(self, archive, rounds, slow):
        """Untars a source tree, until the last byte is durable; reads it; removes it."""
        name = "slow" if slow else "tree"
        for number in range(1, rounds + 1):
            for place in WRITERS:
                say(f"{name}, round {number} of {rounds}: {place}, load {os.getloadavg()[0]:.2f}")
                volume = Volume(self.scratch, f"write-{place}", 2 * archive.stat().st_size + 4 * GIB)
                key = (name, number, place)
                try:
                    home = volume.root
                    if place == BASE:
                        (home / "files").mkdir()
                    else:
                        run([GRANULO, "store", "init", home / "store"])
                    # The archive is read from memory.
                    self.cold()
                    archive.read_bytes()
                    with slowed(volume.device) if slow else contextlib.nullcontext():
                        self.step(key, place, home, "untar", lambda root: seconds_of(untar, archive, root))
                        self.step(key, place, home, "read", lambda root: seconds_of(read_all, root), cold=0)
                        if not slow:
                            self.step(key, place, home, "find", sizes_found, cold=0)
                            self.step(key, place, home, "remove", lambda root: seconds_of(remove, root / "tree"), cold=0)
                finally:
                    volume.remove()

    # ---- a million ----------------------------------------------------------------------------------------------------

    def million(self, count):
        """What grows with the number of objects."""
        key = ("many", 1, "fuse")
        volume = Volume(self.scratch, "many", 20 * 1024 * count + 4 * GIB)
        try:
            files = volume.root / "files"
            files.mkdir()
            self.call("ingest", files, "C", count)
            home = volume.root
            run([GRANULO, "store", "init", "--align", "512", home / "store"])
            run([GRANULO, "store", "import", home / "store", files])
            with self.shown("fuse", home) as root:
                self.cold()
                self.keep(key, "find cold", seconds=sizes_found(root))
                self.keep(key, "find cold", peak_kib=server_peak_kib(root))
                self.cold()
                self.keep(("many", 1, BASE), "find cold", seconds=sizes_found(files))
            with self.shown("fuse", home) as root:
                (root / "all").mkdir()
                for name in sorted(os.listdir(root)):
                    if name != "all":
                        os.rename(root / name, root / "all" / name)
                for number in range(1, 6):
                    os.sync()
                    before, after = root / ("all" if number % 2 else "moved"), root / ("moved" if number % 2 else "all")
                    self.keep(("many", number, "fuse"), "rename", seconds=seconds_of(os.rename, before, after))
            for number in range(1, 4):
                for cold in (True, False):
                    if cold:
                        self.cold()
                    start = time.monotonic()
                    with self.shown("kernel", home):
                        self.keep(("many", number, "kernel"), f"image {'cold' if cold else 'warm'}", seconds=time.monotonic() - start)
        finally:
            volume.remove()


@contextlib.contextmanager
def awake(is_wanted):
    """Idle processors of a virtual machine poll for a while before they halt, as those of most machines do; says what is the case."""
    before = HALT_POLL.read_text() if HALT_POLL.exists() else None
    if before is None or not is_wanted:
        yield f"as they are{f' (guest_halt_poll_ns {before.strip()})' if before else ''}"
        return
    try:
        HALT_POLL.write_text(str(HALT_POLL_NS))
        yield f"poll for {HALT_POLL_NS // 1000} us before they halt (guest_halt_poll_ns; {before.strip()} before and after)"
    finally:
        HALT_POLL.write_text(before)


def seconds_of(work, *arguments):
    start = time.monotonic()
    work(*arguments)
    return time.monotonic() - start


def sizes_found(root):
    return seconds_of(harness.timed, ["find", root, "-type", "f", "-printf", "%s\\n"])


def statfs_called(root):
    """Calls of statfs(2), each one request to a file system in a process, which has little to do for it."""
    return seconds_of(lambda: [os.statvfs(root) for _ in range(STATFS_CALLS)])


def make_durable(root):
    """syncfs for a file system of the kernel, fsync of the root for one of FUSE, to which the kernel passes no syncfs."""
    run(["sync", "--file-system", root])
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def untar(archive, root):
    (root / "tree").mkdir()
    run(["tar", "-C", root / "tree", "-xf", archive])
    make_durable(root)


def remove(tree):
    run(["rm", "-r", tree])
    make_durable(tree.parent)


def read_all(root):
    """Every file, in the order of the listing, as a copy or a build would."""
    run(["sh", "-c", 'find "$1" -type f -print0 | xargs -0 cat > /dev/null', "sh", root])


def server_peak_kib(root):
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and str(root).encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text()).group(1))
    raise Failure("the server of the mount was not found")


@contextlib.contextmanager
def slowed(device):
    """Limits the rates of a device through cgroup v1: reads of this process, write-back of the root group."""
    number = os.stat(device).st_rdev
    numbers = f"{os.major(number)}:{os.minor(number)}"
    limits = [(f"blkio.throttle.{way}_{what}_device", value)
              for way in ("read", "write") for what, value in (("iops", SLOW_OPERATIONS), ("bps", SLOW_BYTES))]
    own = next((line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":blkio:" in line), "/")
    groups = {BLKIO, BLKIO / own.lstrip("/")}
    try:
        for group in groups:
            for name, value in limits:
                (group / name).write_text(f"{numbers} {value}")
        yield
    finally:
        for group in groups:
            for name, _ in limits:
                (group / name).write_text(f"{numbers} 0")


def make_archive(path, wanted, tree):
    """Files of a tree as a source tree has them, up to `wanted`; returns number and bytes."""
    count = total = 0
    with tarfile.open(path, "w") as archive:
        for directory, below, names in os.walk(tree):
            below.sort()
            for name in sorted(names):
                file = Path(directory, name)
                if count < wanted and file.is_file() and not file.is_symlink() and file.stat().st_size <= LARGEST_SOURCE_BYTES:
                    archive.add(file, file.relative_to(tree), recursive=False)
                    count, total = count + 1, total + file.stat().st_size
    return count, total


# ---- the record -------------------------------------------------------------------------------------------------------


def values(rows, set_, place, step, name="seconds"):
    return [float(row[5]) for row in rows if (row[0], row[2], row[3], row[4]) == (set_, place, step, name)]


def comparison(rows, set_, steps, places):
    """Seconds of each place, and how many times faster than files on ext4 it is, by the ratio of medians."""
    lines = []
    for step in steps:
        base = values(rows, set_, BASE, step)
        cells = []
        for place in places:
            found = values(rows, set_, place, step)
            cell = harness.spread(found) if found else "-"
            if found and base and place != BASE:
                cell += f", {statistics.median(base) / statistics.median(found):.2f} x"
            cells.append(cell)
        lines.append([step, *cells])
    return harness.table(["step", *places], lines)


def summary(rows, options):
    lines = ["# A mounted store beside files", "", "Seconds: median, smallest and largest of the rounds; and the speed relative to files on ext4, by "
             "the ratio of medians (above 1 x is faster).", ""]
    reading = ["random cold 1", "random cold 4", "random warm 1", "random warm 4", "find cold", "statfs", "all cold", "all warm"]
    for set_ in ("A", "B"):
        if values(rows, set_, BASE, "all cold"):
            lines += [f"## Set {set_}", "", *comparison(rows, set_, reading, READERS)]
            prefetched = values(rows, set_, "kernel", "all prefetched")
            if prefetched:
                lines += [f"`mount --kernel --prefetch` and then all files: {harness.spread(prefetched)} s, the mount included.", ""]
    for set_, title in (("tree", "A source tree"), ("slow", "A source tree, on a device slowed to a disk's rates")):
        if values(rows, set_, BASE, "untar"):
            lines += [f"## {title}", "", *comparison(rows, set_, [s for s in ("untar", "read", "find", "remove") if values(rows, set_, BASE, s)], WRITERS)]
    if values(rows, "many", "fuse", "rename"):
        lines += [f"## {options.many:,} objects of 100 bytes", "", *harness.table(["", "median (range)"], [
            ["find -printf %s cold, FUSE, s", harness.spread(values(rows, "many", "fuse", "find cold"))],
            ["the same, ext4, s", harness.spread(values(rows, "many", BASE, "find cold"))],
            ["peak memory of the server after it, MiB", harness.spread(values(rows, "many", "fuse", "find cold", "peak_kib"), 1 / 1024, 1)],
            ["rename of the directory above all, ms", harness.spread(values(rows, "many", "fuse", "rename"), 1000)],
            ["mount --kernel, cold, s", harness.spread(values(rows, "many", "kernel", "image cold"))],
            ["mount --kernel, warm, s", harness.spread(values(rows, "many", "kernel", "image warm"))],
        ])]
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=50_000, help="objects in each set (default: 50000)")
    parser.add_argument("--dense", type=int, default=60_000, help="random reads of the warm steps (default: 60000)")
    parser.add_argument("--sparse", type=int, default=3_000, help="random reads of the cold steps, each another object (default: 3000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of set A (default: 3)")
    parser.add_argument("--rounds-b", type=int, default=1, help="rounds of set B (default: 1)")
    parser.add_argument("--rounds-tree", type=int, default=3, help="rounds of the source tree (default: 3)")
    parser.add_argument("--rounds-slow", type=int, default=1, help="rounds of it on the slow device (default: 1)")
    parser.add_argument("--slow-files", type=int, default=5_000, help="files of the source tree there (default: 5000)")
    parser.add_argument("--many", type=int, default=1_000_000, help="objects of the last part; 0 leaves it out (default: 1000000)")
    parser.add_argument("--tree", type=Path, default=Path("/usr"), help="where the files of the source tree come from (default: /usr)")
    parser.add_argument("--halt", action="store_true", help="leave idle processors of a virtual machine as they are")
    parser.add_argument("--ratarmount", default=shutil.which("ratarmount"), help="the program, if it is not found")
    parser.add_argument("--scratch", type=Path, help="directory for images (default: a new one in $TMPDIR)")
    parser.add_argument("--out", type=Path, help="where the record goes (default: benchmarks/runs/DATE-mount; with --quick target/bench-mount-quick)")
    parser.add_argument("--quick", action="store_true", help="2,000 objects, one round: a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.objects, options.dense, options.sparse, options.many, options.slow_files = 2000, 2000, 200, 10_000, 100
        options.rounds = options.rounds_tree = options.rounds_slow = 1
        options.rounds_b = 0
    options.out = harness.record_directory(options, "mount")
    return options


def measure(options, store_bench, scratch, idle):
    begun, load, commit = time.time(), os.getloadavg(), harness.commit()
    bench = Bench(store_bench, scratch, options)
    described = {}
    for set_, rounds in (("A", options.rounds), ("B", options.rounds_b)):
        if rounds:
            words = run([store_bench, "describe", set_, options.objects]).split()
            described[set_] = int(dict(word.split("=") for word in words)["payload"])
            bench.read(set_, options.objects, described[set_], rounds)
    trees = {}
    for name, rounds, wanted in (("tree", options.rounds_tree, options.objects), ("slow", options.rounds_slow, options.slow_files)):
        if name == "slow" and not BLKIO.is_dir():
            say("the slow device is left out: there is no controller blkio of cgroup v1")
        elif rounds:
            archive = scratch / f"{name}.tar"
            trees[name] = make_archive(archive, wanted, options.tree)
            bench.write(archive, rounds, name == "slow")
            archive.unlink()
    if options.many:
        bench.million(options.many)
    facts = {
        "date": harness.date_and_minutes(begun), "granulo commit": commit, "system": harness.system(),
        "processor": harness.processor(), "memory": f"{harness.memory_bytes('MemTotal') / GIB:.1f} GiB",
        "load average at the start": harness.load(load),
        "file systems": f"ext4, new for each place, on loop devices with direct I/O over a sparse file on {harness.mount_of(scratch)[2]}; "
                        "defaults without lazy initialisation, noatime",
        "disk below": harness.fill_level(scratch), "caches": "dropped before each cold step",
        **{f"set {set_}": f"{options.objects:,} files, {payload:,} bytes" for set_, payload in described.items()},
        **{f"source tree, {name}": f"{count:,} files of {options.tree}, {total:,} bytes, none above {LARGEST_SOURCE_BYTES:,}"
           for name, (count, total) in trees.items()},
        "idle processors": idle,
        "slow device": f"{SLOW_OPERATIONS} operations and {SLOW_BYTES:,} bytes a second in each direction (cgroup v1)",
    }
    programs = harness.versions({"mke2fs": ["mke2fs", "-V"], "mksquashfs": ["mksquashfs", "-version"], "squashfuse": ["squashfuse", "--help"],
                                 "ratarmount": [options.ratarmount, "--version"], "find": ["find", "--version"], "tar": ["tar", "--version"]})
    arguments = [re.sub(r"(^|=)/.*$", r"\1$PATH_TO_IT", argument) for argument in sys.argv[1:]]
    text = [*harness.readme("Mount benchmark run", "benchmarks/mount/run.py", facts, [" ".join(arguments)]),
            *harness.versions_section("program", programs)]
    tables = summary(bench.rows, options)
    harness.write_record(options.out, ["set", "round", "place", "step", "name", "value"], bench.rows, {"summary.md": tables, "README.md": text})
    print("\n".join(tables))
    say(f"record: {options.out}")
    return 1 if bench.failures else 0


def main():
    options = parse_arguments()
    if os.geteuid() != 0:
        raise Failure("images, mounts and dropping the caches need root: run with sudo")
    store_bench = harness.store_bench(is_quick=options.quick)
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="mount-bench-") as scratch:
        harness.private_mounts()
        with awake(not options.halt) as idle:
            return measure(options, store_bench, Path(scratch).resolve(), idle)


if __name__ == "__main__":
    harness.main(main)
