#!/usr/bin/env python3
"""The benchmark of `granulo watch`: processor time at a thousand changes a second, memory per file, and equality with a survey.

Makes an image of each kind of file system with one tree, watches it, and makes random changes at a steady rate: writes, creations, removals,
renames of files and directories, links, attributes. A round is one interval, with about one document. Processor time is that of the watcher
(/proc/PID/stat, all threads); what the kernel adds to the changing programs is measured apart, as their time with and without a watcher. At
the end the last document has to be what a survey finds. Writes a dated record.

    benchmarks/survey/watch.py --scratch DIR
    benchmarks/survey/watch.py --quick             # 5,000 files, one short round: does it still work?

Python standard library only; mounting and fanotify need root.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
import harness  # noqa: E402
from harness import figure, say  # noqa: E402

SEED = 2005
BYTES_PER_ENTRY, BYTES_LEAST = 20 << 10, 1 << 30
FILES_A_DIRECTORY = 12
WARM_UP_SECONDS = 120
TICKS = os.sysconf("SC_CLK_TCK")
COLUMNS = ["file_system", "round", "changes", "seconds", "watcher_cpu_seconds", "events", "looks", "compose_seconds", "resident_kib", "inodes", "names"]


class Tree:
    """A tree of small files, and random changes of it that keep its size."""

    def __init__(self, root, files):
        self.random = random.Random(SEED)
        self.root, self.made = root, 0
        self.directories = [str(root / "tree")]
        os.mkdir(self.directories[0])
        for number in range(files // FILES_A_DIRECTORY):
            directory = f"{self.random.choice(self.directories[-2000:])}/d{number}" if number % 3 else f"{self.directories[0]}/d{number}"
            os.mkdir(directory)
            self.directories.append(directory)
        # Leaves may be renamed without a word to those below.
        above = {os.path.dirname(directory) for directory in self.directories}
        self.leaves = [place for place, directory in enumerate(self.directories) if directory not in above]
        self.files = []
        for _ in range(files):
            self.create()

    def new_name(self, directory):
        self.made += 1
        return (directory, f"file-{self.made}.x{self.made % 9}")

    def path(self, file):
        return f"{self.directories[file[0]]}/{file[1]}"

    def create(self):
        file = self.new_name(self.random.randrange(len(self.directories)))
        with open(self.path(file), "wb") as out:
            out.write(b"x" * self.random.choice((0, 100, 1000, 3000)))
        self.files.append(file)

    def change(self):
        pick = self.random.randrange(100)
        place = self.random.randrange(len(self.files))
        file = self.files[place]
        if pick < 50:
            with open(self.path(file), "r+b") as out:
                out.seek(self.random.randrange(8000))
                out.write(b"y" * 500)
        elif pick < 65:
            self.create()
        elif pick < 80:
            os.unlink(self.path(file))
            self.files[place] = self.files[-1]
            self.files.pop()
        elif pick < 88:
            self.files[place] = self.new_name(self.random.randrange(len(self.directories)))
            os.rename(self.path(file), self.path(self.files[place]))
        elif pick < 92:
            self.files.append(self.new_name(self.random.randrange(len(self.directories))))
            os.link(self.path(file), self.path(self.files[-1]))
        elif pick < 98:
            os.chmod(self.path(file), 0o600 + self.random.randrange(64))
        else:
            leaf = self.random.choice(self.leaves)
            renamed = f"{os.path.dirname(self.directories[leaf])}/r{self.made}-{leaf}"
            os.rename(self.directories[leaf], renamed)
            self.directories[leaf] = renamed

    def run(self, changes, rate):
        """Makes changes at a rate; returns how long it took, and the processor time of this process."""
        began, cpu = time.monotonic(), time.process_time()
        for number in range(changes):
            self.change()
            if rate and number % 50 == 49:
                time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
        return time.monotonic() - began, time.process_time() - cpu


class Watcher:
    def __init__(self, granulo, root, scratch, interval):
        self.root, self.output, self.metrics = root, scratch / "watched.json", scratch / "watched.prom"
        for path in (self.output, self.metrics):
            path.unlink(missing_ok=True)
        self.granulo = granulo
        began = time.monotonic()
        argv = [granulo, "watch", root, "-o", self.output, "--prometheus", self.metrics, "--interval", interval]
        self.process = subprocess.Popen([str(a) for a in argv])
        while not self.metrics.exists():
            if self.process.poll() is not None:
                raise harness.Failure("granulo watch ended")
            time.sleep(0.01)
        self.seconds_to_first = time.monotonic() - began

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_kib(self):
        return int(harness.found_in(f"/proc/{self.process.pid}/status", r"VmRSS:\s+(\d+)", "0"))

    def figures(self):
        found = {}
        for line in self.metrics.read_text().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name.split("{")[0].removeprefix("granulo_")] = float(value)
        return found

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait() != 0:
            raise harness.Failure("granulo watch ended with a failure")

    def differences(self):
        """Fields of the last document that a survey does not find."""
        document = json.loads(self.output.read_text())
        argv = [self.granulo, "survey", "--json", "--method", "walk", "-x", "--as-of", document["ages_relative_to"], self.root]
        survey = json.loads(harness.run(argv))
        but = ("taken_at", "elapsed_seconds")
        return [field for field in document if field not in but and document[field] != survey.get(field)]


def measure(args, kind, scratch, rows, notes):
    image, root = scratch / f"watch-{kind}.img", scratch / "mount"
    harness.make_image(image, kind, max(BYTES_LEAST, BYTES_PER_ENTRY * args.files))
    harness.mount(image, root, kind, "loop,noatime")
    try:
        say(f"{kind}: making {args.files:,} files")
        tree = Tree(root, args.files)
        _, alone = tree.run(args.changes, 0)
        harness.drop_caches()
        watcher = Watcher(args.granulo, root, scratch, args.interval)
        first = watcher.figures()
        resident = watcher.resident_kib()
        notes.append({"kind": kind, "inodes": first["watch_inodes"], "names": first["watch_names"], "resident_kib": resident,
                      "seconds_to_first": watcher.seconds_to_first})
        changes = int(args.rate * args.interval)
        # Written files are looked at after 45 s, with the looks of every 60 s: until then, a change costs less.
        tree.run(int(args.rate * WARM_UP_SECONDS), args.rate)
        for number in range(args.rounds):
            before, cpu, began = watcher.figures(), watcher.cpu(), time.monotonic()
            tree.run(changes, args.rate)
            seconds, spent, after = time.monotonic() - began, watcher.cpu() - cpu, watcher.figures()
            rows.append([kind, number, changes, round(seconds, 2), round(spent, 2), int(after["watch_events_total"] - before["watch_events_total"]),
                         int(after["watch_looks_total"] - before["watch_looks_total"]), after["watch_compose_seconds"], watcher.resident_kib(),
                         int(after["watch_inodes"]), int(after["watch_names"])])
            say(f"{kind}, round {number}: {spent:.2f} s of {seconds:.1f} s, {100 * spent / seconds:.2f} % of a core")
        _, watched = tree.run(args.changes, 0)
        notes[-1] |= {"alone": alone, "watched": watched}
        os.sync()
        watcher.end()
        notes[-1]["scans"] = watcher.figures()["watch_scans_total"]
        notes[-1]["differences"] = watcher.differences()
        notes[-1]["changes"] = 2 * args.changes + args.rate * WARM_UP_SECONDS + sum(row[2] for row in rows if row[0] == kind)
    finally:
        harness.unmount(root)
        image.unlink(missing_ok=True)


def summary(args, rows, notes):
    out = ["# Watch benchmark: results", ""]
    if args.quick:
        out += ["This is a small tree that shows whether the benchmark works. Its times say nothing.", ""]
    out += [f"{args.rate:,} random changes a second in a tree of {args.files:,} files; a document every {args.interval} s. Median of {args.rounds} "
            "rounds, and the range.", "", "## Processor time", ""]
    head = ["file system", "% of a core", "µs a change", "events a change", "looks a change", "document, s"]
    table = []
    for note in notes:
        mine = [dict(zip(COLUMNS, row)) for row in rows if row[0] == note["kind"]]
        of = lambda value: harness.spread([value(row) for row in mine])  # noqa: E731
        table.append([note["kind"], of(lambda r: 100 * r["watcher_cpu_seconds"] / r["seconds"]),
                      of(lambda r: 1e6 * r["watcher_cpu_seconds"] / r["changes"]), of(lambda r: r["events"] / r["changes"]),
                      of(lambda r: r["looks"] / r["changes"]), of(lambda r: r["compose_seconds"])])
    out += harness.table(head, table)
    worst = max(100 * row[4] / row[3] for row in rows)
    middle = max(statistics.median(100 * row[4] / row[3] for row in rows if row[0] == note["kind"]) for note in notes)
    out += [f"Target: less than 1 % of a core. The highest median is {middle:.2f} %, the highest round {worst:.2f} %: "
            f"{'reached' if middle < 1 else '**missed**'}.", "",
            "The programs that make the changes pay for events as well; their processor time for the same number of changes, at full speed:", ""]
    out += harness.table(["file system", "changes", "alone, s", "watched, s"],
                         [[n["kind"], f"{args.changes:,}", figure(n["alone"], 2), figure(n["watched"], 2)] for n in notes])
    out += ["## Memory and start", ""]
    out += harness.table(["file system", "inodes", "names", "resident after the first document, MiB", "bytes an inode", "first document after, s (cold)"],
                         [[n["kind"], f"{n['inodes']:,.0f}", f"{n['names']:,.0f}", figure(n["resident_kib"] / 1024, 1),
                           figure(1024 * n["resident_kib"] / n["inodes"], 0), figure(n["seconds_to_first"], 2)] for n in notes])
    out += ["## Equality", ""]
    out += harness.table(["file system", "changes", "scans", "fields of the last document that a survey does not find"],
                         [[n["kind"], f"{n['changes']:,}", f"{n['scans']:.0f}", ", ".join(n["differences"]) or "none"] for n in notes])
    return out


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=pathlib.Path, default=harness.GRANULO, help="binary to measure")
    parser.add_argument("--scratch", type=pathlib.Path, help="directory for the images (default: a new one in $TMPDIR)")
    parser.add_argument("--kinds", nargs="*", choices=list(harness.MKFS), default=list(harness.MKFS), help="file systems (default: all)")
    parser.add_argument("--files", type=int, help="files of the tree (default: 500000)")
    parser.add_argument("--rate", type=int, default=1000, help="changes a second (default: 1000)")
    parser.add_argument("--interval", type=int, help="seconds of a round, and between two documents (default: 60)")
    parser.add_argument("--rounds", type=int, help="rounds on each file system (default: 3)")
    parser.add_argument("--changes", type=int, help="changes at full speed (default: 50000)")
    parser.add_argument("--out", type=pathlib.Path, help="directory of the record (default: benchmarks/runs/DATE-watch)")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    args = parser.parse_args()
    defaults = {"files": 5000, "interval": 2, "rounds": 1, "changes": 1000} if args.quick else \
               {"files": 500_000, "interval": 60, "rounds": 3, "changes": 50_000}
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.out = harness.record_directory(args, "watch")
    return args


def main():
    args = parse_arguments()
    if os.geteuid() != 0:
        raise harness.Failure("mounting images and fanotify need root: run with sudo")
    begun, load = time.time(), os.getloadavg()
    rows, notes = [], []
    with contextlib.ExitStack() as cleanup:
        scratch = args.scratch or pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="granulo-bench-")))
        scratch = scratch.resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        harness.private_mounts()
        for kind in args.kinds:
            measure(args, kind, scratch, rows, notes)
        facts = {
            "date": harness.date_and_minutes(begun),
            "granulo commit": harness.commit(),
            "system": harness.system(),
            "processor": harness.processor(),
            "memory": f"{harness.memory_bytes('MemTotal') / harness.GIB:.1f} GiB",
            "load average at the start": harness.load(load),
            "load average at the end": harness.load(),
            "file systems": ", ".join(args.kinds) + "; default options, noatime",
            "device": f"loop device (buffered) over a sparse file on {harness.mount_of(scratch)[2]}",
            "cache": "dropped before the watcher starts; warm afterwards",
        }
    versions = harness.versions({"granulo": [args.granulo, "--version"], "python": [sys.executable, "--version"]})
    command = f"--files {args.files} --rate {args.rate} --interval {args.interval} --rounds {args.rounds} --kinds {' '.join(args.kinds)}"
    readme = harness.readme("Watch benchmark run", "benchmarks/survey/watch.py", facts, [command])
    harness.write_record(args.out, COLUMNS, rows, {"README.md": readme + harness.versions_section("program", versions),
                                                    "summary.md": summary(args, rows, notes)})
    return 1 if any(note["differences"] for note in notes) else 0


if __name__ == "__main__":
    harness.main(main)
