#!/usr/bin/env python3
"""The benchmark of `granulo survey`: granulo, a floor written in C, and the programs people use instead.

Builds a tree on a loop-mounted ext4 image, runs every program on it in interleaved rounds with a warm and with a cold
cache, counts system calls, and writes a dated record: README.md (host, versions, command line), raw.csv (every sample)
and summary.md (the tables). docs/BENCHMARKS.md explains the protocol and what is not fair about it.

    benchmarks/survey/run.py --scratch DIR --keep
    benchmarks/survey/run.py --quick                # 20,000 entries, 2 rounds: does it still work?

Python standard library only. Mounting and dropping the cache need root; --no-image does without both.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import export_space  # noqa: E402
import harness  # noqa: E402
from harness import GIB, KIB, MIB, Failure, figure, ratio, run, say  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = harness.REPOSITORY
SEED = 2005
COMMAND_SECONDS_MAX = 3600
IMAGE_BYTES_PER_ENTRY = 256 * KIB  # the mean size of the tree's files is about 110 KiB: the image is half full
IMAGE_BYTES_MIN = 4 * GIB
CACHE_BYTES_PER_ENTRY = 3 * KIB  # inode, directory entry and buffers, in the image's cache and in the host's
SPREAD_MAX = 1.3  # slowest against fastest run of the floor; an idle machine stays below
PEER_BYTES_PER_ENTRY = 1 * KIB  # what the largest peer allocates
SYSTEM_CALLS = ("statx", "newfstatat", "fstat", "openat", "getdents64", "close", "readlinkat", "readlink", "lgetxattr")


# ---- the programs ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Command:
    """One row of the tables."""

    name: str
    argv: list
    records: str  # what is left of an entry once it was read: the honest column of the comparison
    kind: str = "peer"  # granulo, export (of granulo), floor or peer
    states: tuple = ("warm", "cold")
    before: tuple = ()  # files to remove first

    @property
    def missing(self):
        return self.argv[0] is None


class Tools:
    """Where the programs are. A program that is not installed is None and becomes a row that says so."""

    def __init__(self, args, build):
        self.path = os.pathsep.join([str(args.peers / "bin"), os.environ.get("PATH", os.defpath)])
        self.build = build
        granulo = args.granulo.resolve()
        self.granulo = str(granulo) if os.access(granulo, os.X_OK) else None
        self.floor = str(build / "floor")
        self.measure = str(build / "measure")
        self.make_tree = str(build / "make_tree")

    def find(self, name):
        return shutil.which(name, path=self.path)

    def compile(self):
        compiler = self.find(os.environ.get("CC", "cc")) or self.find("gcc") or self.find("clang")
        if not compiler:
            raise Failure("no C compiler found (apt-get install gcc libc6-dev)")
        for name in ("floor", "measure", "make_tree"):
            run([compiler, "-O2", "-pthread", "-o", self.build / name, HERE / f"{name}.c", "-lm"])


def find_argv(program, tree):
    """All that fsstats takes from an entry: type, size, blocks, links, times, inode, name, target of a symlink.

    Unfair to find and bfs: they turn every field into text, which nobody reads. It is still what a survey by
    `find -printf | awk` costs before awk has started.
    """
    return [program, tree, "-printf", r"%y %s %b %n %i %T@ %C@ %A@ %f %l\n"]


def commands(tools, tree, scratch):
    """The rows. The options are the ones that make each peer fastest, and everything is printed to /dev/null.

    Unfair to granulo: apart from find and bfs, the peers keep sums, not one distribution; du, dust, dua, gdu, ncdu, duc and
    pdu answer a smaller question. pdu and dua run without hard link detection or with the cheapest there is.
    Unfair to the peers: dust, gdu and ncdu build a tree to browse, duc writes a database, granulo does neither.
    """
    tree = str(tree)
    database = scratch / "duc.db"
    find = tools.find
    survey = "every distribution"
    rows = [
        Command("granulo, default threads", [tools.granulo, "survey", "--json", tree], survey, "granulo"),
        Command("floor, 16 threads", [tools.floor, "16", tree], "sum of sizes", "floor"),
        Command("granulo, 2 threads", [tools.granulo, "survey", "--threads", "2", "--json", tree], survey, "granulo"),
        Command("floor, 2 threads", [tools.floor, "2", tree], "sum of sizes", "floor"),
        Command("granulo, 1 thread", [tools.granulo, "survey", "--threads", "1", "--json", tree], survey, "granulo"),
        Command("floor, 1 thread", [tools.floor, "1", tree], "sum of sizes", "floor"),
        # pdu takes every loop device for a hard disk and then uses one thread; --threads=max undoes that.
        Command("pdu", [find("pdu"), "--threads=max", "--max-depth=1", tree], "totals by directory"),
        Command("pdu, 16 threads", [find("pdu"), "--threads=16", "--max-depth=1", tree], "totals by directory", states=("cold",)),
        Command("dust", [find("dust"), "-P", "-b", "-d", "1", "-n", "20", tree], "totals by directory"),
        Command("dust, 16 threads", [find("dust"), "-P", "-b", "-d", "1", "-n", "20", "-T", "16", tree], "totals by directory", states=("cold",)),
        Command("dua", [find("dua"), "aggregate", "--no-total", tree], "one total"),
        Command("dua, 16 threads", [find("dua"), "aggregate", "-t", "16", "--no-total", tree], "one total", states=("cold",)),
        Command("gdu", [find("gdu"), "-n", "-p", "-c", "-s", tree], "a tree of sizes"),
        Command("du", [find("du"), "-s", tree], "one total"),
        Command("ncdu -o", [find("ncdu"), "-0", "-o", "/dev/null", tree], "exports sizes"),
        # Both export every field of every entry.
        Command("ncdu -e -o", [find("ncdu"), "-0", "-e", "-o", "/dev/null", tree], "exports everything"),
        Command("granulo --ncdu", [tools.granulo, "survey", "--quiet", "--ncdu", "/dev/null", tree], "exports everything", "export"),
        Command("duc index", [find("duc"), "index", "-q", "-d", str(database), tree], "a database of sizes", before=(database,)),
        Command("find -printf", find_argv(find("find"), tree), "prints all fields"),
        Command("bfs -printf", find_argv(find("bfs"), tree), "prints all fields"),
        Command("perl lstat", [find("perl"), str(HERE / "lstat_walk.pl"), tree], "sum of sizes, as fsstats walks"),
    ]
    return rows


def versions(tools):
    """First telling line of each program's version output."""
    asked = {
        "granulo": [tools.granulo, "--version"],
        "find": [tools.find("find"), "--version"],
        "bfs": [tools.find("bfs"), "--version"],
        "du": [tools.find("du"), "--version"],
        "gdu": [tools.find("gdu"), "--version"],
        "dust": [tools.find("dust"), "--version"],
        "dua": [tools.find("dua"), "--version"],
        "pdu": [tools.find("pdu"), "--version"],
        "duc": [tools.find("duc"), "--version"],
        "ncdu": [tools.find("ncdu"), "--version"],
        "perl": [tools.find("perl"), "-e", "print $^V"],
        "strace": [tools.find("strace"), "--version"],
        "mke2fs": [tools.find("mke2fs"), "-V"],
        "cc": [tools.find(os.environ.get("CC", "cc")), "--version"],
    }
    found = harness.versions(asked)
    found["python"] = sys.version.split()[0]
    return found


# ---- the trees ------------------------------------------------------------------------------------------------------


class Trees:
    """Three trees side by side: `large` (N entries), `small` (N/10), and `flat` (N entries in one directory)."""

    def __init__(self, args, tools, scratch):
        self.args, self.tools, self.scratch = args, tools, scratch
        self.entries = {"large": args.files, "small": max(1, args.files // 10), "flat": args.files}
        self.image = scratch / f"survey-{args.files}.img"
        self.manifest_file = scratch / f"survey-{args.files}.json"
        self.root = scratch / ("trees" if args.no_image else "mount")
        self.mounted = False
        self.created = False
        self.made = {}

    def path(self, name):
        return self.root / name

    def key(self):
        source = (HERE / "make_tree.c").read_bytes()
        return {"make_tree": hashlib.sha256(source).hexdigest(), "seed": SEED, "entries": self.entries, "image": not self.args.no_image}

    def open(self):
        """Builds the trees, or takes the ones an earlier run left with --keep."""
        store = self.root if self.args.no_image else self.image
        with contextlib.suppress(OSError, ValueError):
            manifest = json.loads(self.manifest_file.read_text())
            if manifest["key"] == self.key() and store.exists():
                self.made = manifest["made"]
                say(f"using the trees made earlier: {store}")
        if not self.made:
            self.created = True
            self.build()
        if not self.args.no_image and not self.mounted:
            self.mount("ro,noatime")

    def build(self):
        self.manifest_file.unlink(missing_ok=True)
        needed = 2 * GIB + 4 * KIB * sum(self.entries.values())
        free = shutil.disk_usage(self.scratch).free
        if free < needed and not self.args.quick:
            raise Failure(f"{self.scratch} has {free // MIB} MiB free; {needed // MIB} MiB are needed (use --scratch)")
        if self.args.no_image:
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir()
        else:
            harness.make_image(self.image, "ext4", max(IMAGE_BYTES_MIN, IMAGE_BYTES_PER_ENTRY * self.args.files))
            self.mount("rw,noatime")
        for name, entries in self.entries.items():
            say(f"making tree `{name}`: {entries:,} entries")
            self.path(name).mkdir()
            options = ["--flat", "--sparse"] if name == "flat" else ["--sparse"] if self.args.no_image else []
            output = run([self.tools.make_tree, "--seed", SEED, *options, self.path(name), entries])
            self.made[name] = json.loads(output)
        os.sync()
        if self.mounted:
            self.unmount()  # so that the first warm run does not find what the making left in memory
        harness.write_atomically(self.manifest_file, json.dumps({"key": self.key(), "made": self.made}, indent=1) + "\n")

    def mount(self, options):
        if os.path.ismount(self.root):
            harness.unmount(self.root)
        harness.mount(self.image, self.root, "ext4", f"loop,{options}")
        self.mounted = True

    def unmount(self):
        harness.unmount(self.root)
        self.mounted = False

    def close(self):
        if self.mounted:
            self.unmount()
        with contextlib.suppress(OSError):
            if not self.args.no_image:
                self.root.rmdir()
        unfinished = not self.manifest_file.exists()
        if self.created and (unfinished or not self.args.keep):
            self.manifest_file.unlink(missing_ok=True)
            self.image.unlink(missing_ok=True)
            if self.args.no_image:
                shutil.rmtree(self.root, ignore_errors=True)

    def entry_count(self, name):
        """Names below the root, directories included: what a survey has to stat."""
        made = self.made[name]
        return made["regular"] + made["extra_links"] + made["symlinks"] + made["special"] + made["directories"] - 1


# ---- measuring ------------------------------------------------------------------------------------------------------

CSV_FIELDS = ("section", "tree", "state", "round", "command", "wall_seconds", "user_seconds", "system_seconds", "peak_kib", "exit_status")


class Bench:
    def __init__(self, args, tools, trees, scratch):
        self.args, self.tools, self.trees, self.scratch = args, tools, trees, scratch
        self.samples = []
        self.complaints = {}  # last failure of each command
        self.refused = set()
        self.can_drop = harness.can_drop_caches()
        home = scratch / "home"
        home.mkdir(exist_ok=True)
        # No configuration file and no locale of the user's changes what a program does.
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("DUA_", "XDG_", "LC_"))}
        self.environment = {**keep, "PATH": tools.path, "HOME": str(home), "LC_ALL": "C", "LANG": "C"}

    def touch_bytes(self, tree, state):
        if self.args.touch_mib is not None:
            return self.args.touch_mib * MIB
        entries = self.trees.entry_count(tree)
        if state == "cold":
            return min(entries * CACHE_BYTES_PER_ENTRY, harness.memory_bytes("MemAvailable") // 2)
        return min(entries * PEER_BYTES_PER_ENTRY, harness.memory_bytes("MemFree") // 2)  # must not push out a warm cache

    def sample(self, section, tree, state, number, command):
        for path in command.before:
            path.unlink(missing_ok=True)
        if state == "cold":
            harness.drop_caches()
        if self.touch_bytes(tree, state):
            harness.touch_memory(self.touch_bytes(tree, state))
        if state == "cold":
            harness.drop_caches()
        result_file = self.scratch / "result.json"
        error_file = self.scratch / "stderr.txt"
        result_file.unlink(missing_ok=True)
        with open(error_file, "wb") as errors:
            child = subprocess.Popen([self.tools.measure, str(result_file), *command.argv], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=errors, env=self.environment, cwd=self.scratch)
            try:
                child.wait(COMMAND_SECONDS_MAX)
            except BaseException:
                child.kill()
                child.wait()
                raise
        result = json.loads(result_file.read_text())
        if result["exit_status"] != 0:
            with open(error_file, errors="replace") as errors:
                lines = errors.read(100_000).strip().splitlines()
            self.complaints[command.name] = f"exit status {result['exit_status']}: {lines[-1][:200] if lines else 'no message'}"
        row = {"section": section, "tree": tree, "state": state, "round": number, "command": command.name, **result}
        self.samples.append(row)
        return row

    def refuse(self, rows, why):
        """Takes these commands out of the run: their time would be the time of something else."""
        for row in rows:
            self.refused.add(row.name)
            self.complaints[row.name] = why

    def rounds(self, section, tree, state, count, rows):
        """A B C, A B C, ...: a slow minute of the machine hits every program, and ratios survive it."""
        present = [row for row in rows if not row.missing and row.name not in self.refused]
        if state == "warm":
            for _ in range(2):
                run([self.tools.floor, "2", self.trees.path(tree)])
        for number in range(1, count + 1):
            say(f"{section}, {tree}, {state}: round {number} of {count}")
            for command in present:
                row = self.sample(section, tree, state, number, command)
                say(f"  {command.name:26} {row['wall_seconds']:9.3f} s {row['peak_kib'] / 1024:8.1f} MiB"
                    + ("" if row["exit_status"] == 0 else f"   FAILED, status {row['exit_status']}"))

    def table(self, section, tree, state):
        """Statistics by command of the samples that succeeded."""
        groups = {}
        for row in self.samples:
            if (row["section"], row["tree"], row["state"]) == (section, tree, state):
                groups.setdefault(row["command"], []).append(row)
        return {name: Statistics(rows) for name, rows in groups.items()}


class Statistics:
    def __init__(self, rows):
        self.failed = sum(row["exit_status"] != 0 for row in rows)
        good = [row for row in rows if row["exit_status"] == 0]
        self.count = len(good)
        wall = [row["wall_seconds"] for row in good]
        self.wall, self.low, self.high = (statistics.median(wall), min(wall), max(wall)) if wall else (None, None, None)
        self.cpu = statistics.median([row["user_seconds"] + row["system_seconds"] for row in good]) if good else None
        self.peak_mib = max(row["peak_kib"] for row in good) / 1024 if good else None


def check_counts(bench, tools, trees):
    """Do floor and granulo see the tree that was made? A fast walk that misses entries is no result."""
    made = trees.made["large"]
    names = made["regular"] + made["extra_links"]
    expected = {"regular names": names, "symlinks": made["symlinks"], "special": made["special"], "directories": made["directories"]}
    floor = json.loads(run([tools.floor, "2", trees.path("large")]))
    seen = {"made": expected,
            "floor": {"regular names": floor["regular"], **{k: floor[k] for k in ("symlinks", "special", "directories")}}}
    if tools.granulo:
        done = subprocess.run([tools.granulo, "survey", "--json", str(trees.path("large"))], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=bench.environment)
        try:
            survey = json.loads(done.stdout)
            counts = survey["counts"]
            seen["granulo"] = {"regular names": counts["files"] + counts["hard_links_skipped"],
                               **{k: counts[k] for k in ("symlinks", "special", "directories")}}
            expected["size of all files, links once"] = made["size_bytes"]
            seen["granulo"]["size of all files, links once"] = survey["totals"]["size_bytes"]
        except (ValueError, KeyError, TypeError) as error:
            seen["granulo"] = {"no survey": f"status {done.returncode}, no survey on standard output ({type(error).__name__})"}
    wrong = [who for who, counts in seen.items() if any(expected.get(k) != v for k, v in counts.items())]
    return seen, wrong


def system_calls(bench, tools, trees, argv):
    """How often argv calls what, by `strace -fc`, and how many look-ups it makes with an absolute path in the tree."""
    strace = tools.find("strace")
    if not strace or argv[0] is None:
        return None
    output = bench.scratch / "strace.txt"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": bench.environment}
    if subprocess.run([strace, "-f", "-c", "-o", str(output), *argv], **quiet).returncode != 0:
        return None
    calls = {}
    for line in output.read_text(errors="replace").splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != "total":
            calls[fields[-1]] = int(fields[3])
    subprocess.run([strace, "-f", "-e", "trace=%file", "-o", str(output), *argv], **quiet)
    prefix = str(trees.root).encode() + b"/"
    absolute = 0
    with open(output, "rb") as file:
        for line in file:
            found = re.search(rb'\w+\((?:AT_FDCWD, |\d+, )?"((?:[^"\\]|\\.)*)"', line)
            absolute += bool(found and b"execve" not in line and found.group(1).startswith(prefix))
    output.unlink(missing_ok=True)
    return {"calls": calls, "absolute": absolute}


# ---- the record -----------------------------------------------------------------------------------------------------


def rows_table(bench, rows, stats, state, base_name):
    """One table, fastest first; then what failed, then what is missing."""
    base = stats.get(base_name)
    lines = [f"| program | wall s, median | min | max | x {base_name} | CPU s | x its CPU | peak MiB | keeps |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    def seconds(row):
        wall = stats[row.name].wall if row.name in stats else None
        return float("inf") if wall is None else wall

    for row in sorted((row for row in rows if state in row.states), key=seconds):
        name = f"**{row.name}**" if row.kind in ("granulo", "export") else row.name
        if row.missing:
            lines.append(f"| {name} | missing: not installed | | | | | | | {row.records} |")
            continue
        s = stats.get(row.name)
        if s is None or s.wall is None:
            lines.append(f"| {name} | failed: {bench.complaints.get(row.name, 'no sample')} | | | | | | | {row.records} |")
            continue
        note = f" ({s.failed} of {s.failed + s.count} runs failed)" if s.failed else ""
        lines.append(f"| {name}{note} | {figure(s.wall)} | {figure(s.low)} | {figure(s.high)} | {figure(ratio(s.wall, base.wall), 2)} | "
                     f"{figure(s.cpu, 2)} | {figure(ratio(s.cpu, base.cpu), 2)} | {figure(s.peak_mib, 1)} | {row.records} |")
    return lines


def targets_table(rows, warm, cold, counts_wrong):
    """What granulo has to reach, against the floor and the peers of the same run.

    A survey that does not count what is there reaches nothing, however fast it is.
    """
    def wall(stats, name):
        return stats[name].wall if name in stats else None

    def cpu(stats, name):
        return stats[name].cpu if name in stats else None

    def fastest_peer(stats):
        times = [(wall(stats, row.name), row.name) for row in rows if row.kind == "peer" and wall(stats, row.name) is not None]
        return min(times) if times else (None, "no peer")

    warm_peer, warm_peer_name = fastest_peer(warm)
    cold_peer, cold_peer_name = fastest_peer(cold)
    granulo_peaks = [stats[row.name].peak_mib for stats in (warm, cold) for row in rows
                     if row.kind == "granulo" and row.name in stats and stats[row.name].peak_mib is not None]
    two, one, default = "granulo, 2 threads", "granulo, 1 thread", "granulo, default threads"
    lines = ["| target | at most | wall | CPU | |", "| --- | ---: | ---: | ---: | --- |"]

    def add(text, limit, measured, cpu_measured=None, digits=2):
        verdict = "not measured" if measured is None else "void: counts differ" if counts_wrong else "reached" if measured <= limit else "**missed**"
        lines.append(f"| {text} | {limit:g} | {figure(measured, digits)} | {figure(cpu_measured, digits)} | {verdict} |")

    add("warm, 2 threads, x floor with 2 threads", 1.25, ratio(wall(warm, two), wall(warm, "floor, 2 threads")),
        ratio(cpu(warm, two), cpu(warm, "floor, 2 threads")))
    add(f"warm, 2 threads, x fastest peer ({warm_peer_name})", 0.6, ratio(wall(warm, two), warm_peer), ratio(cpu(warm, two), cpu(warm, warm_peer_name)))
    add("warm, 1 thread, x floor with 1 thread", 1.15, ratio(wall(warm, one), wall(warm, "floor, 1 thread")),
        ratio(cpu(warm, one), cpu(warm, "floor, 1 thread")))
    add("cold, default threads, x floor with 16 threads", 1.1, ratio(wall(cold, default), wall(cold, "floor, 16 threads")),
        ratio(cpu(cold, default), cpu(cold, "floor, 16 threads")))
    add(f"cold, default threads, x fastest peer ({cold_peer_name})", 1.0, ratio(wall(cold, default), cold_peer),
        ratio(cpu(cold, default), cpu(cold, cold_peer_name)))
    add("peak memory of granulo, MiB", 16, max(granulo_peaks, default=None), digits=1)
    return lines


def growth_table(bench, trees, rows):
    lines = ["| program | tree | entries | wall s, median | us an entry | CPU s | peak MiB |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    labels = {"small": "as people have them", "large": "as people have them", "flat": "one directory"}
    for name in rows:
        for tree in ("small", "large", "flat"):
            s = bench.table("growth", tree, "warm").get(name)
            entries = trees.entry_count(tree)
            if s is None or s.wall is None:
                why = bench.complaints.get(name, "missing: not installed")
                lines.append(f"| {name} | {labels[tree]} | {entries:,} | {why} | | | |")
            else:
                lines.append(f"| {name} | {labels[tree]} | {entries:,} | {figure(s.wall)} | {figure(s.wall * 1e6 / entries, 2)} | "
                             f"{figure(s.cpu, 2)} | {figure(s.peak_mib, 1)} |")
    return lines


def calls_table(trees, traced):
    entries, directories = trees.entry_count("small"), trees.made["small"]["directories"]
    lines = [f"Tree of {entries:,} entries and {directories:,} directories, 2 threads, `strace -fc`. Calls of the start-up are included.", ""]
    for name, result in traced.items():
        if result is None:
            lines += [f"{name}: not measured (the program or strace is missing, or it failed).", ""]
            continue
        lines += [f"{name}: {result['absolute']:,} look-ups by a path from the root of the file system (the root of the survey is one).", "",
                  "| call | count | an entry | a directory |", "| --- | ---: | ---: | ---: |"]
        calls = result["calls"]
        for call in sorted(calls, key=lambda c: (c not in SYSTEM_CALLS, -calls[c])):
            if call in SYSTEM_CALLS or calls[call] * 100 >= entries:
                lines.append(f"| {call} | {calls[call]:,} | {calls[call] / entries:.3f} | {calls[call] / directories:.3f} |")
        rest = sum(count for call, count in calls.items() if call not in SYSTEM_CALLS and count * 100 < entries)
        lines += [f"| all others | {rest:,} | {rest / entries:.3f} | {rest / directories:.3f} |", ""]
    return lines


def counts_table(seen, wrong):
    keys = list(seen["made"])
    lines = ["| | " + " | ".join(keys) + " | |", "| --- |" + " ---: |" * len(keys) + " --- |"]
    for who, counts in seen.items():
        cells = [f"{counts[k]:,}" if k in counts else "-" for k in keys]
        verdict = "the tree" if who == "made" else counts.get("no survey") or ("**differs**" if who in wrong else "equal")
        lines.append(f"| {who} | " + " | ".join(cells) + f" | {verdict} |")
    return lines


def summary(args, bench, trees, rows, traced, exported, seen, wrong):
    made = trees.made["large"]
    warm, cold = bench.table("main", "large", "warm"), bench.table("main", "large", "cold")
    out = ["# Survey benchmark: results", "",
           f"{trees.entry_count('large'):,} entries: {made['regular'] + made['extra_links']:,} names of regular files, "
           f"{made['symlinks']:,} symlinks, {made['special']:,} fifos, {made['directories']:,} directories; largest directory "
           f"{made['largest_directory']:,} entries, depth {made['depth']}. Host, versions and command line: README.md; every sample: raw.csv.", ""]
    if args.quick or args.files < 100_000:
        out += ["This is a small tree that shows whether the benchmark works. Its times say nothing.", ""]
    spread = warm["floor, 2 threads"].high / warm["floor, 2 threads"].low
    if spread > SPREAD_MAX:
        out += [f"**Something else was running: the slowest warm run of the floor took {spread:.1f} times as long as the fastest. "
                "Wall times of this run are not worth quoting.**", ""]
    out += ["## Warm", "", f"Everything in the page cache; interleaved rounds: {args.rounds}.", "",
            *rows_table(bench, rows, warm, "warm", "floor, 2 threads"), ""]
    if cold:
        out += ["## Cold", "", f"Page cache, dentries and inodes dropped before every command; interleaved rounds: {args.cold_rounds}.", "",
                *rows_table(bench, rows, cold, "cold", "floor, 16 threads"), ""]
    else:
        out += ["## Cold", "", "Not measured: " + ("switched off." if bench.can_drop else "dropping the caches needs root."), ""]
    out += ["## Targets", "", *targets_table(rows, warm, cold, bool(wrong)), "",
            "## Growth", "", f"Warm; interleaved rounds on each tree: {args.growth_rounds}.", "",
            *growth_table(bench, trees, ("granulo, default threads", "granulo, 2 threads", "floor, 2 threads")), "",
            "## System calls", "", *calls_table(trees, traced), "## Space of an export", "", *exported, "",
            "## Counts", "", *counts_table(seen, wrong), ""]
    return "\n".join(out).rstrip() + "\n"


def host_facts(args, tools, trees, scratch):
    below = harness.mount_of(scratch)
    facts = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "granulo commit": harness.commit(),
        "system": harness.system(),
        "processor": harness.processor(),
        "memory": f"{harness.memory_bytes('MemTotal') / GIB:.1f} GiB, {harness.memory_bytes('MemAvailable') / GIB:.1f} GiB available at the start",
        "load average at the start": harness.load(),
    }
    if args.no_image:
        facts["file system"] = f"{below[2]} ({below[3]}), no image"
    else:
        own = harness.mount_of(trees.root)
        device = pathlib.Path(own[0]).name
        direct = harness.first_line(f"/sys/block/{device}/loop/dio", "0")
        facts["file system"] = f"ext4 ({own[3]}), mke2fs defaults with lazy initialisation off"
        facts["device"] = f"loop device ({'direct' if direct == '1' else 'buffered'}) over a sparse file on {below[2]}"
    space = os.statvfs(trees.root)
    facts["fill level"] = (f"{100 * (1 - space.f_bfree / space.f_blocks):.0f} % of {space.f_blocks * space.f_frsize / GIB:.0f} GiB, "
                           f"{space.f_files - space.f_ffree:,} of {space.f_files:,} inodes, block size {space.f_bsize}")
    return facts


def readme(title, script, args, bench, facts, found, wrong, rows):
    def clean(text):
        return str(text).replace(str(bench.scratch), "$SCRATCH").replace(str(args.peers.resolve()), "$PEERS").replace(str(REPOSITORY) + "/", "")

    arguments = [clean(pathlib.Path(a).resolve() if os.sep in a and not a.startswith("-") else a) for a in sys.argv[1:]]
    missing = sorted({row.name.split(",")[0] for row in rows if row.missing})
    touched = {state: bench.touch_bytes("large", state) // MIB for state in ("warm", "cold")}
    facts = {key: clean(value) for key, value in facts.items()} | {
        "cache": "warm: two unmeasured walks first; cold: sync, drop_caches 3 before every command, again after touching memory",
        "memory touched before each command": f"warm {touched['warm']:,} MiB, cold {touched['cold']:,} MiB",
        "rounds": f"warm {args.rounds}, cold {args.cold_rounds if bench.can_drop else 0}, growth {args.growth_rounds}",
        "tree": f"make_tree, seed {SEED}, {args.files:,} entries without directories"}
    out = [*harness.readme(title, script, facts, [" ".join(arguments)]),
           *harness.versions_section("program", {name: clean(text) for name, text in found.items()}),
           "## Commands", "", "Standard output goes to /dev/null; HOME is empty; LC_ALL=C.", "", "```"]
    for row in rows:
        if not row.missing:
            argv = [pathlib.Path(row.argv[0]).name, *row.argv[1:]]
            out.append(f"{row.name:26} " + " ".join(f"'{clean(a)}'" if re.search(r"[\s%\\]", a) else clean(a) for a in argv))
    out += ["```", ""]
    if missing:
        out += ["Missing, therefore not measured: " + ", ".join(missing) + ".", ""]
    if bench.complaints:
        out += ["Commands that failed:", ""] + [f"- {name}: {clean(text)}" for name, text in bench.complaints.items()] + [""]
    if wrong:
        out += ["**Counts differ from the tree that was made: " + ", ".join(wrong) + " (table in summary.md).**", ""]
    return out


def write_record(args, bench, texts):
    harness.write_record(args.out, CSV_FIELDS, [[row[field] for field in CSV_FIELDS] for row in bench.samples], texts)
    print(texts["summary.md"])
    say(f"record: {args.out}")


# ---- main -----------------------------------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=pathlib.Path, default=harness.GRANULO, help="binary to measure (default: target/release/granulo)")
    parser.add_argument("--peers", type=pathlib.Path, default=REPOSITORY / "target/peers", help="directory with bin/ of install-peers.sh (default: target/peers); PATH is searched too")
    parser.add_argument("--scratch", type=pathlib.Path, help="directory for the image (default: a new one in $TMPDIR, removed at the end)")
    parser.add_argument("--keep", action="store_true", help="leave the image in --scratch for the next run")
    parser.add_argument("--files", type=int, help="entries of the large tree without directories (default: 1000000)")
    parser.add_argument("--rounds", type=int, help="warm rounds (default: 7)")
    parser.add_argument("--cold-rounds", type=int, help="cold rounds; 0 leaves them out (default: 3)")
    parser.add_argument("--growth-rounds", type=int, help="rounds of the growth section (default: 5)")
    parser.add_argument("--only", help="measure only commands whose name matches this regular expression (floors always run)")
    parser.add_argument("--touch-mib", type=int, help="memory to touch before a command; 0 for none (default: 1 KiB an entry warm, 3 KiB cold)")
    parser.add_argument("--no-image", action="store_true", help="make the trees in --scratch itself: no root, no mount")
    parser.add_argument("--out", type=pathlib.Path, help="directory of the record (default: benchmarks/runs/DATE-survey; with --quick target/bench-survey-quick)")
    parser.add_argument("--quick", action="store_true", help="20,000 entries, 2 rounds: a smoke test")
    args = parser.parse_args()
    defaults = {"files": 20_000, "rounds": 2, "cold_rounds": 1, "growth_rounds": 2} if args.quick else \
               {"files": 1_000_000, "rounds": 7, "cold_rounds": 3, "growth_rounds": 5}
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.files < 1000 or args.rounds < 1 or args.growth_rounds < 1 or args.cold_rounds < 0:
        parser.error("--files must be at least 1000, --rounds and --growth-rounds at least 1")
    if args.keep and not args.scratch:
        parser.error("--keep needs --scratch")
    args.out = harness.record_directory(args, "survey")
    return args


def measure_all(args, tools, trees, scratch):
    tools.compile()
    trees.open()
    bench = Bench(args, tools, trees, scratch)
    rows = commands(tools, trees.path("large"), scratch)
    if args.only:
        rows = [row for row in rows if row.kind == "floor" or re.search(args.only, row.name)]
    facts = host_facts(args, tools, trees, scratch)
    seen, wrong = check_counts(bench, tools, trees)
    if "no survey" in seen.get("granulo", {}):
        bench.refuse([row for row in rows if row.kind == "granulo"], seen["granulo"]["no survey"])
    for who in wrong:
        say(f"warning: {who} counts {seen[who]}, the tree has {seen['made']}")
    for row in rows:
        if row.missing:
            say(f"missing: {row.name}")

    bench.rounds("main", "large", "warm", args.rounds, [row for row in rows if "warm" in row.states])
    if bench.can_drop and args.cold_rounds:
        bench.rounds("main", "large", "cold", args.cold_rounds, rows)
    for tree in ("small", "large", "flat"):
        wanted = ("granulo, default threads", "granulo, 2 threads", "floor, 2 threads")
        bench.rounds("growth", tree, "warm", args.growth_rounds,
                     [row for row in commands(tools, trees.path(tree), scratch) if row.name in wanted])
    small = str(trees.path("small"))
    traced = {"granulo": None if bench.refused else system_calls(bench, tools, trees, [tools.granulo, "survey", "--threads", "2", "--json", small]),
              "floor": system_calls(bench, tools, trees, [tools.floor, "2", small])}

    exported = export_space.table(bench, trees, tools.granulo)
    tables = summary(args, bench, trees, rows, traced, exported, seen, wrong)
    head = readme("Survey benchmark run", "benchmarks/survey/run.py", args, bench, facts, versions(tools), wrong, rows)
    write_record(args, bench, {"summary.md": tables, "README.md": head})
    failed = [row.name for row in rows if row.kind != "peer" and (row.missing or row.name in bench.complaints)]
    return 1 if wrong or failed else 0


def main():
    args = parse_arguments()
    if not args.no_image and os.geteuid() != 0:
        raise Failure("mounting the image and dropping caches need root: run with sudo, or with --no-image "
                      "(trees in --scratch itself, warm only)")
    with contextlib.ExitStack() as cleanup:
        build = pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="granulo-bench-")))
        if args.scratch:
            args.scratch.mkdir(parents=True, exist_ok=True)
            scratch = args.scratch.resolve()
        else:
            scratch = build / "scratch"
            scratch.mkdir()
        if not args.no_image:
            harness.private_mounts()
        tools = Tools(args, build)
        trees = Trees(args, tools, scratch)
        cleanup.callback(remove_leftovers, scratch)
        cleanup.callback(trees.close)
        return measure_all(args, tools, trees, scratch)


def remove_leftovers(scratch):
    for name in ("duc.db", "result.json", "stderr.txt", "strace.txt"):
        (scratch / name).unlink(missing_ok=True)
    shutil.rmtree(scratch / "home", ignore_errors=True)


if __name__ == "__main__":
    harness.main(main)
