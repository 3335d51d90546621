#!/usr/bin/env python3
"""Libraries that could hold the index of granulo's store, on the index's own work; docs/BENCHMARKS.md has the protocol.

Builds index-bench, then runs it step by step, every step a process of its own: rounds of loads and look-ups, candidates interleaved;
then two processes at once, kills, stale readers. Root is needed to drop caches; without it nothing is cold and the record says so.
"""

import argparse
import csv
import json
import os
import random
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness  # noqa: E402
from harness import Failure, drop_caches, spread, table  # noqa: E402

HERE = Path(__file__).resolve().parent
ENGINES = ["table", "lmdb", "redb", "sqlite", "fjall"]
LIBRARIES = [e for e in ENGINES if e != "table"]
# How a file is opened for reading, by who wrote it.
READERS = {"table": ["table"], "lmdb": ["lmdb", "lmdb-nora"], "redb": ["redb", "redb-1g"], "sqlite": ["sqlite", "sqlite-mmap"],
           "fjall": ["fjall"]}
CRATES = {"lmdb": "heed", "redb": "redb", "sqlite": "rusqlite", "fjall": "fjall"}
NAMES = {"table": "floor: sorted table", "lmdb": "LMDB", "lmdb-nora": "LMDB, no read-ahead", "redb": "redb", "redb-1g": "redb, cache 1 GiB",
         "redb-qr": "redb, quick repair", "sqlite": "SQLite", "sqlite-mmap": "SQLite, mmap", "fjall": "fjall"}


class Bench:
    def __init__(self, binary, scratch):
        self.binary, self.scratch, self.rows, self.cold = binary, scratch, [], harness.can_drop_caches()
        self.begun, self.minutes = time.monotonic(), 0

    def spent(self):
        """The part of the time allowed that has gone."""
        return (time.monotonic() - self.begun) / 60 / self.minutes if self.minutes else 0

    def command(self, step, engine, directory, *arguments):
        return [str(self.binary), step, engine, str(directory), *map(str, arguments)]

    def step(self, phase, round_, step, engine, directory, *arguments, timeout=900):
        """Runs one step and keeps what it prints; what it says when it fails is kept too."""
        try:
            done = subprocess.run(self.command(step, engine, directory, *arguments), capture_output=True, text=True, timeout=timeout)
            error = done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""
            error = error or (f"exit status {done.returncode}" if done.returncode else "")
            values = dict(pair.split("=", 1) for pair in done.stdout.split()) if not error else {}
        except subprocess.TimeoutExpired:
            error, values = f"still waiting after {timeout} s", {}
        return self.keep(phase, round_, engine, values, error)

    def keep(self, phase, round_, engine, values, error=""):
        # Other names for the same files do not belong into a record.
        error = error.replace(str(self.scratch), "$SCRATCH")
        for name, value in values.items():
            self.rows.append([phase, round_, engine, name, value])
        if error:
            self.rows.append([phase, round_, engine, "error", error])
            print(f"  {phase} {engine}: {error}", flush=True)
        return values, error

    def samples(self, phase, engine, name):
        return [float(r[4]) for r in self.rows if r[0] == phase and r[2] == engine and r[3] == name]

    def net(self, phase, engine, scale):
        """Private memory without what the step needed before it opened the index."""
        return [(a - b) * scale for a, b in zip(self.samples(phase, engine, "private_kib"), self.samples(phase, engine, "own_kib"))]

    def errors(self, phase, engine):
        return [r[4] for r in self.rows if r[0] == phase and r[2] == engine and r[3] == "error"]


def rounds(bench, n, options, done):
    for round_ in range(done + 1, done + options.rounds + 1):
        if round_ > done + 1 and bench.spent() * (round_ - done) / (round_ - done - 1) > 0.5:
            break
        print(f"round {round_}, load {os.getloadavg()[0]:.2f}, {time.strftime('%H:%M:%S', time.gmtime())}", flush=True)
        directories = {}
        for engine in ENGINES:
            directory = directories[engine] = bench.scratch / f"{engine}-sorted"
            shutil.rmtree(directory, ignore_errors=True)
            os.sync()
            bench.step("load sorted, one commit", round_, "load", engine, directory, n, "sorted", "one")
        for engine in ENGINES:
            for reader in READERS[engine]:
                drop_caches()
                bench.step("cold 1 thread", round_, "cold", reader, directories[engine], n, "get", options.cold_gets, 1)
                drop_caches()
                bench.step("cold 4 threads", round_, "cold", reader, directories[engine], n, "get", options.cold_gets, 4)
                drop_caches()
                bench.step("cold directory", round_, "cold", reader, directories[engine], n, "directory", 0, 0)
                drop_caches()
                bench.step("cold all", round_, "cold", reader, directories[engine], n, "all", 0, 0)
        for engine in ENGINES:
            for reader in READERS[engine]:
                bench.step("warm", round_, "warm", reader, directories[engine], n, options.warm_gets)
        for engine in LIBRARIES:
            directory = bench.scratch / f"{engine}-random"
            shutil.rmtree(directory, ignore_errors=True)
            os.sync()
            bench.step("load random, one commit", round_, "load", engine, directory, n, "random", "one")
            drop_caches()
            bench.step("cold 1 thread, loaded at random", round_, "cold", engine, directory, n, "get", options.cold_gets, 1)
            bench.step("update", round_, "update", engine, directory, n)
            shutil.rmtree(directory)
    options.rounds = len(bench.samples("warm", "table", "all"))


def loads_with_commits(bench, n):
    """Once: what takes long and is far apart anyway."""
    for order in ["sorted", "random"]:
        for engine in [*LIBRARIES, "redb-qr"]:
            if bench.spent() > 0.85:
                return
            directory = bench.scratch / "each"
            shutil.rmtree(directory, ignore_errors=True)
            os.sync()
            bench.step(f"load {order}, commit each 10,000", 1, "load", engine, directory, n, order, "each", timeout=150)
            shutil.rmtree(directory)


def lines_until(process, seconds):
    """The lines a process has printed within some seconds."""
    end, data = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            data += piece
    return data


def kills(bench, n, times, seed):
    """A writer killed at random moments, and what the next ones find."""
    chance = random.Random(seed)
    for engine in [*LIBRARIES, "redb-qr"]:
        directory = bench.scratch / "killed"
        shutil.rmtree(directory, ignore_errors=True)
        source = bench.scratch / f"{engine.split('-')[0]}-sorted"
        subprocess.run(["cp", "-r", "--sparse=always", source, directory], check=True)
        first = 0
        for kill in range(1, times + 1):
            with subprocess.Popen(bench.command("crash-write", engine, directory, n, first), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as writer:
                data = os.read(writer.stdout.fileno(), 65536)
                data += lines_until(writer, chance.uniform(0.02, 0.4))
                writer.kill()
                data += writer.stdout.read()
                error = writer.stderr.read().decode(errors="replace").strip()
            acknowledged = [int(line) for line in data.split(b"\n")[:-1]]
            until = acknowledged[-1] + 1 if acknowledged else first
            bench.keep("kill", kill, engine, {"acknowledged": str(len(acknowledged))}, error)
            bench.step("reader after a kill", kill, "try-read", engine, directory, n) if engine != "fjall" else None
            phase = "reopen after a kill"
            if kill == times:
                drop_caches()
                phase = "reopen after a kill, cold"
            bench.step(phase, kill, "reopen", engine, directory)
            bench.step("kill", kill, "crash-check", engine, directory, n, first, until)
            first = until + 1
        shutil.rmtree(directory)


def processes(bench, n, seconds):
    """One writer and one reader at once; a second writer."""
    milliseconds = int(seconds * 1000)
    for engine in LIBRARIES:
        directory = bench.scratch / f"{engine}-sorted"
        bench.step("first generations", 1, "advance", engine, directory, n, 200)
        bench.step("reader alone", 1, "follow", engine, directory, n, milliseconds)
        writer = subprocess.Popen(bench.command("advance", engine, directory, n, milliseconds + 1500), stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        bench.step("reader beside a writer", 1, "follow", engine, directory, n, milliseconds)
        output = writer.communicate()[0]
        bench.keep("writer beside a reader", 1, engine, dict(pair.split("=", 1) for pair in output.split()),
                   f"exit status {writer.returncode}" if writer.returncode else "")
        with subprocess.Popen(bench.command("crash-write", engine, directory, n, 500_000), stdout=subprocess.PIPE) as writer:
            os.read(writer.stdout.fileno(), 100)
            bench.step("second writer", 1, "try-write", engine, directory, timeout=3)
            writer.kill()
        with subprocess.Popen(bench.command("crash-write", engine, directory, n, 600_000), stdout=subprocess.PIPE) as writer:
            os.read(writer.stdout.fileno(), 100)
            follower = subprocess.Popen(bench.command("follow", engine, directory, n, 1000), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
            time.sleep(0.5)
            writer.kill()
            output, error = follower.communicate()
            bench.keep("reader whose writer is killed", 1, engine, dict(pair.split("=", 1) for pair in output.split()), error.strip())
        bench.step("writer after a killed one", 1, "try-write", engine, directory, timeout=60)


def stale(bench, n, commits):
    """Growth of the files by overwriting, without a reader, with a reader's snapshot, and with one whose process was killed."""
    for engine in LIBRARIES:
        for case in ["no reader", "live reader", "dead reader", "dead reader, cleared"]:
            directory = bench.scratch / "stale"
            shutil.rmtree(directory, ignore_errors=True)
            bench.step(f"stale: {case}, load", 1, "load", engine, directory, n, "sorted", "one")
            holders = []
            for idle in {"no reader": [], "live reader": [""]}.get(case, ["", "idle"]):
                holders.append(subprocess.Popen(bench.command("hold", engine, directory, idle), stdout=subprocess.PIPE))
                os.read(holders[-1].stdout.fileno(), 100)
            if case.startswith("dead"):
                # The idle one keeps the index in use, so that the next to open it is not the first and resets nothing.
                holders[0].kill()
                holders.pop(0).wait()
            bench.step(f"stale: {case}", 1, "churn", engine, directory, n, commits, "clear" if case.endswith("cleared") else "keep")
            for holder in holders:
                holder.kill()
                holder.wait()
            shutil.rmtree(directory, ignore_errors=True)


def flips(bench, n, times, seed):
    """One bit of the file inverted, then everything read: right answers, an error, wrong answers, or a crash."""
    chance = random.Random(seed)
    for engine in ENGINES:
        directory, copy = bench.scratch / "whole", bench.scratch / "flipped"
        bench.step("flip: load", 1, "load", engine, directory, n, "sorted", "one")
        for flip in range(1, times + 1):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(directory, copy)
            files = [(f, f.stat().st_size) for f in copy.rglob("*") if f.is_file() and f.name not in ("lock.mdb", "lock") and not f.suffix == ".jnl"]
            file = chance.choices([f for f, _ in files], [size for _, size in files])[0]
            with open(file, "r+b") as opened:
                at = chance.randrange(file.stat().st_size)
                opened.seek(at)
                byte = opened.read(1)[0]
                opened.seek(at)
                opened.write(bytes([byte ^ 1 << chance.randrange(8)]))
            try:
                done = subprocess.run(bench.command("flipped", engine, copy, n), capture_output=True, text=True, timeout=20)
                outcome = {0: "right" if "right=1" in done.stdout else "wrong", 1: "error", 101: "panic"}.get(done.returncode, "crash")
            except subprocess.TimeoutExpired:
                outcome = "endless"
            bench.keep("flip", flip, engine, {"outcome": outcome})
        shutil.rmtree(directory)
        shutil.rmtree(copy)


def facts(bench):
    """Versions, licences, what is compiled in, from cargo."""
    metadata = json.loads(subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", HERE / "Cargo.toml"],
                                         capture_output=True, text=True, check=True).stdout)
    packages = {(p["name"], p["version"]): p for p in metadata["packages"]}
    found = {}
    for engine, crate in CRATES.items():
        tree = subprocess.run(["cargo", "tree", "--manifest-path", HERE / "Cargo.toml", "-p", crate, "-e", "normal", "--prefix", "none",
                               "--no-dedupe"], capture_output=True, text=True, check=True).stdout
        members = sorted({tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()})
        rust = foreign = unsafe = 0
        for name, version in members:
            if name in ("libc", "linux-raw-sys"):
                continue  # declarations of the system's interface, nothing that runs
            source = Path(packages[(name, version[1:])]["manifest_path"]).parent
            for path in source.rglob("*"):
                relative = path.relative_to(source).as_posix()
                if path.suffix == ".rs" and relative.startswith("src/"):
                    text = path.read_text(errors="replace")
                    rust += text.count("\n")
                    unsafe += len(re.findall(r"^\s*(?!//)[^\n]*\bunsafe\s*(?:\{|fn|impl)", text, re.M))
        for package, path in {"heed": [("lmdb-master-sys", "lmdb/libraries/liblmdb/mdb.c"), ("lmdb-master-sys", "lmdb/libraries/liblmdb/midl.c")],
                              "rusqlite": [("libsqlite3-sys", "sqlite3/sqlite3.c")]}.get(crate, []):
            home = next(p["manifest_path"] for p in metadata["packages"] if p["name"] == package)
            foreign += (Path(home).parent / path).read_text(errors="replace").count("\n")
        main = next(p for (name, _), p in packages.items() if name == crate)
        found[engine] = {"crate": f"{crate} {main['version']}", "licence": main["license"], "crates": len(members), "rust": rust,
                         "c": foreign, "unsafe": unsafe}
        bench.keep("facts", 1, engine, {k: str(v) for k, v in found[engine].items()})
    return found


def summary(bench, n, key, options, found):
    s = bench.samples
    readers = [r for e in ENGINES for r in READERS[e]]
    name = NAMES.get
    rate = lambda phase, e, count, field="seconds": [count / v / 1000 for v in s(phase, e, field)]
    out = ["# Index libraries", "",
           f"{n:,} entries, keys of {key:.1f} bytes on average, values of 40; {options.rounds} rounds, interleaved; median (smallest to largest). "
           "Host, versions and how to read this: README.md; every sample: raw.csv; protocol: docs/BENCHMARKS.md.", ""]
    out += ["## Loads", "", "Seconds until durable. `settled` ends when the background is quiet and the log is in its place. Commits each 10,000 entries: once.", ""]
    rows = []
    for e in [*ENGINES, "redb-qr"]:
        if e == "redb-qr" and not s("load sorted, commit each 10,000", e, "seconds"):
            continue
        rows.append([name(e), *(spread(s(p, e, f)) for p, f in [
            ("load sorted, one commit", "seconds"), ("load random, one commit", "seconds"), ("load random, one commit", "settled"),
            ("load sorted, commit each 10,000", "seconds"), ("load random, commit each 10,000", "seconds")]),
            spread([max(s(p, e, "peak_kib"), default=0) / 1024 for p in ["load sorted, one commit"] if s(p, e, "peak_kib")], digits=0),
            spread([v / 1024 for v in s("load random, one commit", e, "peak_kib")][:1], digits=0),
            spread(bench.net("load random, commit each 10,000", e, 1 / 1024), digits=0)])
    out += table(["", "sorted, one commit", "random, one commit", "settled", "sorted, each 10,000", "random, each 10,000",
                      "peak MiB, sorted", "random", "private MiB, random, each"], rows)
    out += ["## Size on disk", "", "Bytes allocated for an entry besides its key (value included: 40 of them), settled and closed. Wanted: 100 at most.", ""]
    rows = []
    for e in [*ENGINES, "redb-qr"]:
        cells = []
        for p in ["load sorted, one commit", "load random, one commit", "load sorted, commit each 10,000", "load random, commit each 10,000"]:
            cells.append(spread([v / n - key for v in s(p, e, "allocated")][:1], digits=1))
        if any(c != "-" for c in cells):
            rows.append([name(e), *cells])
    out += table(["", "sorted, one commit", "random, one commit", "sorted, each 10,000", "random, each 10,000"], rows)
    out += ["## Cold", "", f"Caches dropped before each. {options.cold_gets:,} look-ups of existing keys at random, opening included, thousands a second; "
            "`cached` is what they leave in the page cache, `private` what the process holds itself, in bytes for each entry of the index.", ""]
    rows = []
    for r in readers:
        rows.append([name(r), spread([v * 1000 for v in s("cold 1 thread", r, "opened")], digits=1),
                     spread(rate("cold 1 thread", r, options.cold_gets), digits=1), spread(rate("cold 4 threads", r, options.cold_gets), digits=1),
                     spread(rate("cold 1 thread, loaded at random", r, options.cold_gets), digits=1),
                     spread([v * 1000 for v in s("cold directory", r, "seconds")], digits=1), spread(s("cold all", r, "seconds")),
                     spread([v * 1024 / n for v in s("cold 1 thread", r, "cached_kib")][:1], digits=1),
                     spread(bench.net("cold 1 thread", r, 1024 / n)[:1], digits=1)])
    out += table(["", "open and first look-up, ms", "1 thread, k/s", "4 threads, k/s", "1 thread, loaded at random, k/s",
                      "directory of 10,000, ms", "everything, s", "cached", "private"], rows)
    out += ["## Warm", "", f"{options.warm_gets:,} look-ups at random, everything in the page cache, thousands a second. Making the key and the value to compare is in every "
            f"figure ({statistics.median(s('warm', 'table', 'keys')) / options.warm_gets * 1e9:.0f} ns a look-up).", ""]
    rows = []
    for r in readers:
        rows.append([name(r), *(spread(rate("warm", r, options.warm_gets, f), digits=0) for f in ["get1", "get4", "miss"]),
                     spread([v * 1000 for v in s("warm", r, "directory")], digits=2), spread(s("warm", r, "all")),
                     spread([v / 1024 for v in s("warm", r, "peak_kib")][:1], digits=0),
                     spread(bench.net("warm", r, 1024 / n)[:1], digits=1)])
    out += table(["", "1 thread", "4 threads", "misses", "directory of 10,000, ms", "everything, s", "peak MiB, mapping included",
                      "private bytes an entry"], rows)
    out += ["## Updates", "", f"{n // 100:,} entries overwritten, then {n // 100:,} deleted, at random, on the index that was loaded at random; commits of 10,000. "
            "Length of the files per entry of the index, key included.", ""]
    rows = [[name(e), spread(s("update", e, "overwrite")), spread(s("update", e, "delete")), spread([v / n for v in s("update", e, "before")][:1], digits=0),
             spread([v / n for v in s("update", e, "after")][:1], digits=0)] for e in LIBRARIES]
    out += table(["", "overwrite, s", "delete, s", "bytes before", "bytes after"], rows)
    out += ["## A writer and a reader, two processes", "", "The writer gives 1,000 entries a new generation with each durable commit; the reader takes snapshot after snapshot. Torn: a snapshot "
            "with two generations, or one older than the last. Held: a snapshot kept all the time still shows what it did.", ""]
    rows = []
    for e in LIBRARIES:
        p = "reader beside a writer"
        refused = bench.errors(p, e)
        get = lambda f, phase=p: next((r[4] for r in bench.rows if r[0] == phase and r[2] == e and r[3] == f), "-")
        second = bench.errors("second writer", e)
        rows.append([name(e), *([f"refused: {refused[0]}"] + ["-"] * 5 if refused else [
            get("snapshots"), get("changes"), get("torn") + (f", failed {get('failed')}: {get('why')}" if get("failed") not in "0-" else ""), get("held"),
            f"{get('median_ms', 'reader alone')} / {get('slowest_ms', 'reader alone')}", f"{get('median_ms')} / {get('slowest_ms')}"]),
            get("commits", "writer beside a reader"), second[0] if second else f"waits its turn ({spread(s('second writer', e, 'seconds'), 1000, 0)} ms)"])
    out += table(["", "snapshots", "generations seen", "torn", "held", "alone: ms to a snapshot and look-up, median / slowest", "beside the writer",
                      "commits of the writer", "second writer"], rows)
    out += ["## Killed writers", "", f"{options.kills} times SIGKILL at a random moment of a writer that commits 1,000 entries at a time, on the index of {n:,} entries. It shows what a process's death "
            "does, not what a power failure does.", ""]
    rows = []
    for e in [*LIBRARIES, "redb-qr"]:
        after = bench.errors("reader after a kill", e)
        tries = len(s("reader after a kill", e, "seconds")) + len(after)
        parts = s("kill", e, "unacknowledged")
        rows.append([name(e), f"{len(s('reopen after a kill', e, 'opened')) + len(s('reopen after a kill, cold', e, 'opened'))} of {options.kills}",
                     spread(s("reopen after a kill", e, "opened"), 1000, 1), spread(s("reopen after a kill, cold", e, "opened"), 1000, 0),
                     f"{sum(s('kill', e, 'acknowledged')):,.0f}", f"{sum(s('kill', e, 'lost')):.0f}",
                     f"{sum(0 < v < 1000 for v in parts)} ({sum(v == 1000 for v in parts)} whole)",
                     f"{tries - len(after)} of {tries}" + (f": {after[0]}" if after else "") if tries else "a reader is a writer",
                     f"{s('reader whose writer is killed', e, 'failed')[0]:.0f}" if e != "fjall" and s("reader whose writer is killed", e, "failed") else "-",
                     "at once" if s("writer after a killed one", e, "seconds") else "-"])
    out += table(["", "opens", "ms", "ms cold, the last", "commits acknowledged", "entries lost of them", "torn commits",
                      "a reader opens before any writer did", "failures of a reader open meanwhile", "lock of a dead writer: the next opens"], rows)
    out += ["## Readers that died", "", f"Growth of the files in MiB by {options.churn} commits that overwrite 1,000 of {options.stale_entries:,} entries each.", ""]
    rows = []
    for e in LIBRARIES:
        cells = []
        for case in ["no reader", "live reader", "dead reader", "dead reader, cleared"]:
            p = f"stale: {case}"
            values = [(b, a) for b, a in zip(s(p, e, "before"), s(p, e, "after"))]
            error = bench.errors(p, e)
            cells.append(f"{(values[-1][1] - values[0][0]) / 2**20:,.0f}" if values and not error else (error[0] if error else "-"))
        cleared = [r[4] for r in bench.rows if r[0] == "stale: dead reader, cleared" and r[2] == e and r[3] == "cleared"]
        rows.append([name(e), *cells, (cleared[0] if cleared else "-").replace("_", " ")])
    out += table(["", "no reader", "live reader", "reader killed", "killed, and cleared where there is a call for it", "the call said"], rows)
    if options.large:
        out += [f"## {options.large:,} entries", "", "Once: loaded in key order with one commit, then cold.", ""]
        rows = []
        for e in ENGINES:
            rows.append([name(e), spread(s("large load", e, "seconds")), spread([v / 2**20 for v in s("large load", e, "allocated")], digits=0),
                         *(spread([options.cold_gets / v / 1000 for v in s(p, e, "seconds")], digits=1) for p in ["large cold 1 thread", "large cold 4 threads"]),
                         spread([v * 1000 for v in s("large cold 1 thread", e, "opened")], digits=1), spread(s("large cold all", e, "seconds")),
                         spread(bench.net("large cold 1 thread", e, 1024 / options.large), digits=1)])
        out += table(["", "load, s", "MiB", "cold, 1 thread, k/s", "4 threads", "open, ms", "everything cold, s", "private bytes an entry"], rows)
    if flipped := [r for r in bench.rows if r[0] == "flip"]:
        out += ["## Damaged files", "", "One bit inverted anywhere in the files (not in logs and locks), then everything listed and looked up. The floor says panic where its "
                "checksum says no.", ""]
        outcomes = ["right", "error", "panic", "wrong", "crash", "endless"]
        out += table(["", "no effect", "error", "panic", "**wrong answers, no error**", "**killed by a signal**", "endless"],
                         [[name(e), *(str(sum(r[2] == e and r[4] == o for r in flipped)) for o in outcomes)] for e in ENGINES])
    out += ["## The libraries", ""]
    rows = []
    for e in LIBRARIES:
        f = found[e]
        longest = [r[4] for r in bench.rows if r[0] == "longest key" and r[2] == e and r[3] == "longest"]
        rows.append([name(e), f["crate"], f["licence"], str(f["crates"]), f"{f['rust']:,}", f"{f['c']:,}" if f["c"] else "none", f"{f['unsafe']:,}",
                     {"lmdb": "yes: to open, to set flags"}.get(e, "no"), (longest or ["-"])[0].replace("8192", "8,192 or more")])
    out += table(["", "crate", "licence", "crates compiled in", "lines of Rust", "lines of C", "`unsafe` in that Rust", "`unsafe` for the caller",
                      "longest key"], rows)
    return "\n".join(out)


def everything(bench, n, options):
    keys, _ = bench.step("keys", 1, "keys", "-", bench.scratch, n)
    found = facts(bench)
    rounds(bench, n, options, 0)
    print("processes", time.strftime("%H:%M:%S", time.gmtime()), flush=True)
    processes(bench, n, options.seconds)
    print("kills", time.strftime("%H:%M:%S", time.gmtime()), flush=True)
    kills(bench, n, options.kills, 2005)
    print("stale readers", time.strftime("%H:%M:%S", time.gmtime()), flush=True)
    stale(bench, options.stale_entries, options.churn)
    flips(bench, 20_000, options.flips, 2005)
    for engine in LIBRARIES:
        (bench.scratch / "longest").mkdir()
        bench.step("longest key", 1, "longest-key", engine, bench.scratch / "longest")
        shutil.rmtree(bench.scratch / "longest")
    for engine in ENGINES:
        shutil.rmtree(bench.scratch / f"{engine}-sorted", ignore_errors=True)
    print("loads with many commits", time.strftime("%H:%M:%S", time.gmtime()), flush=True)
    loads_with_commits(bench, n)
    if bench.spent() > 0.9:
        options.large = 0
    for engine in ENGINES if options.large else []:
        print("large", engine, time.strftime("%H:%M:%S", time.gmtime()), flush=True)
        place = bench.scratch / "large"
        bench.step("large load", 1, "load", engine, place, options.large, "sorted", "one")
        for threads, phase in [(1, "large cold 1 thread"), (4, "large cold 4 threads")]:
            drop_caches()
            bench.step(phase, 1, "cold", engine, place, options.large, "get", options.cold_gets, threads)
        drop_caches()
        bench.step("large cold all", 1, "cold", engine, place, options.large, "all", 0, 0)
        shutil.rmtree(place)
    return keys, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", type=int, default=0, help="so many entries once more, loaded in order and read cold")
    parser.add_argument("--cold-gets", type=int, default=20_000)
    parser.add_argument("--warm-gets", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--flips", type=int, default=200, help="bits inverted, one at a time")
    parser.add_argument("--churn", type=int, default=200, help="commits beside a stale reader")
    parser.add_argument("--stale-entries", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=4.0, help="of the reader beside the writer")
    parser.add_argument("--minutes", type=float, default=0, help="fewer rounds, and the last parts left out, when it takes longer")
    parser.add_argument("--add", type=Path, metavar="RAW.CSV", help="only the rounds, added to the samples of an earlier run on the same machine")
    parser.add_argument("--scratch", type=Path, help="directory for the indexes (default: a new one in $TMPDIR)")
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-index)")
    parser.add_argument("--quick", action="store_true", help="2,000,000 entries, one round, three kills; record in target/bench-index-quick")
    options = parser.parse_args()
    if options.quick:
        options.entries, options.rounds, options.kills = min(options.entries, 2_000_000), 1, 3
    subprocess.run(["cargo", "build", "--release", "--locked", "--manifest-path", HERE / "Cargo.toml"], check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target"))
    out = harness.record_directory(options, "index")
    begun, load = time.time(), os.getloadavg()
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="index-bench-") as directory:
        bench = Bench(target / "release/index-bench", Path(directory))
        n, bench.minutes = options.entries, options.minutes
        if options.add:
            with open(options.add, newline="") as file:
                bench.rows = [row for row in csv.reader(file)][1:]
            bench.rows = [row for row in bench.rows if row[0] != "facts"]
            keys = {row[3]: row[4] for row in bench.rows if row[0] == "keys"}
            if int(round(float(keys["bytes"]) / float(keys["mean"]), -4)) != n:
                raise Failure(f"{options.add} is not of {n:,} entries")
            found = facts(bench)
            if not bench.samples("flip: load", "table", "seconds"):
                flips(bench, 20_000, options.flips, 2005)
            rounds(bench, n, options, len(bench.samples("warm", "table", "all")))
            if not bench.samples("large load", "table", "seconds"):
                options.large = 0
        else:
            keys, found = everything(bench, n, options)
        fill_level = harness.fill_level(directory)
    commands, when, loads = [" ".join(sys.argv[1:])], "", ""
    if options.add:
        earlier = (options.add.parent / "README.md").read_text()
        commands = re.findall(r"^benchmarks/index/run.py ?(.*)$", earlier, re.M) + commands
        when = re.search(r"^\| date \| (.*) \|$", earlier, re.M).group(1) + "; "
        loads = re.search(r"^\| load average at the start \| (.*) \|$", earlier, re.M).group(1) + "; "
    commands = [re.sub(r"(--scratch|--out|--add)[ =]\S+", r"\1 $PATH_TO_IT", c) for c in commands]
    described = {
        "date": when + harness.date_and_minutes(begun), "granulo commit": harness.commit(), "system": harness.system(),
        "processor": harness.processor(), "memory": f"{harness.memory_bytes('MemTotal') / harness.GIB:.1f} GiB",
        "load average at the start": loads + harness.load(load), "disk": fill_level,
        "caches": "dropped before each cold step" if bench.cold else "could NOT be dropped: nothing is cold", "rounds": options.rounds,
        "keys": f"mean {keys['mean']} bytes, longest {keys['longest']}, shared with the one before {keys['shared']}",
        "compiler": harness.versions({"rustc": ["rustc", "--version"]})["rustc"]}
    harness.write_record(out, ["phase", "round", "engine", "name", "value"], bench.rows, {
        "summary.md": summary(bench, n, float(keys["mean"]), options, found),
        "README.md": harness.readme("Index benchmark run", "benchmarks/index/run.py", described, commands)})
    print(f"{out}: {(time.time() - begun) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    harness.main(main)
