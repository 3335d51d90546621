#!/usr/bin/env python3
"""A store in a bucket of a real Ceph beside one object a file; docs/BENCHMARKS.md has the protocol.

The gateway is that of tests/servers/ceph.sh, new for each run: three OSDs on this machine, a replicated storage class and an erasure-coded one
(2+1). The same files go there with boto3 on 32 threads, with s5cmd if it is installed, and with `granulo store import`; then they are read at
random and as a whole. Requests are counted by the gateway's own log, whoever makes them. Writes a dated record: README.md (host, versions,
command line), raw.csv (every sample), summary.md (the tables).

    benchmarks/bucket/install-peers.sh       # once: what it runs on and compares with
    benchmarks/bucket/run.py                 # 50,000 files of 20,000 bytes, three rounds; space; a store of 600,000 files, pushed
    benchmarks/bucket/run.py --quick         # 300 files, one round: does it still work?

Python standard library only; boto3 in a process of its own.
"""

import argparse
import collections
import io
import json
import os
import random
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
from harness import GIB, GRANULO, REPOSITORY, Failure, run, say  # noqa: E402

CEPH = REPOSITORY / "tests/servers/ceph.sh"
FILES = Path(__file__).with_name("files.py")
S5CMD = REPOSITORY / "target/tools/s5cmd"
THREADS = 32
STEP_SECONDS_MAX = 3600
# How long the gateway may take to write what it did to its log.
LOG_SECONDS = 1.0
# A space measurement waits until the OSDs have reported, and what they say no longer changes.
REPORT_SECONDS, REPORTS = 2.0, 4
PUSHED_BYTES = 2833
REQUEST = re.compile(r'beast: .* "([A-Z]+) /')


class Gateway:
    """Ceph and its gateway, and who asked what of it."""

    def __init__(self, directory, quick):
        self.directory = directory
        wanted = {"CEPH_MANAGER": "1", **({"CEPH_STORE": "memstore", "CEPH_OSD_BYTES": str(GIB)} if quick else {"CEPH_OSD_BYTES": str(40 * GIB)})}
        printed = run(["env", *(f"{name}={value}" for name, value in wanted.items()), CEPH, "start", directory])
        self.settings = dict(line.split("=", 1) for line in printed.splitlines())
        self.log = directory / "log/client.gateway.log"

    def stop(self):
        run([CEPH, "stop", self.directory])

    def environment(self):
        """Nothing of what this machine has configured for AWS."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        theirs = {name: value for name, value in self.settings.items() if name.startswith("AWS_") or name == "BUCKET"}
        # s5cmd has a name of its own for the server.
        return {**mine, **theirs, "S3_ENDPOINT_URL": theirs["AWS_ENDPOINT_URL"]}

    def address(self, prefix):
        return f"s3://{self.settings['BUCKET']}/{prefix}"

    def position(self):
        time.sleep(LOG_SECONDS)
        return self.log.stat().st_size

    def requests_since(self, position):
        """Requests by their methods."""
        end = self.position()
        with open(self.log, "rb") as log:
            log.seek(position)
            text = log.read(end - position).decode(errors="replace")
        return collections.Counter(found.group(1) for found in map(REQUEST.search, text.splitlines()) if found)

    def used_bytes(self):
        """What all objects need on the OSDs, copies and parity included, once that no longer changes."""
        seen = []
        while len(seen) < REPORTS or len(set(seen[-REPORTS:])) > 1:
            time.sleep(REPORT_SECONDS)
            lines = run(["ceph", "-c", self.settings["CEPH_CONF"], "df", "--format", "json"], timeout=60)
            seen.append(sum(pool["stats"]["bytes_used"] for pool in json.loads(lines)["pools"]))
        return seen[-1]


class Bench:
    def __init__(self, gateway, store_bench, scratch, options):
        self.gateway, self.store_bench, self.scratch, self.options = gateway, store_bench, scratch, options
        self.rows = []  # round, way, step, name, value
        self.failures = 0
        self.caches = 0

    def keep(self, key, step, **values):
        self.rows += [[*key, step, name, value] for name, value in values.items()]

    def measure(self, key, step, argv, stdin="", cache=None, storage_class=None):
        """Runs a client: its seconds, those that it says itself if it does, its memory, and its requests."""
        environment = {**self.gateway.environment(), "XDG_CACHE_HOME": str(cache or self.new_cache())}
        if storage_class:
            environment |= dict.fromkeys(("STORAGE_CLASS", "GRANULO_FAST_CLASS", "GRANULO_SLOW_CLASS"), storage_class)
        argv = [str(word) for word in argv]
        before = self.gateway.position()
        start = time.monotonic()
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, errors="replace", env=environment, timeout=STEP_SECONDS_MAX)
            why = done.stderr.strip()[-300:] if done.returncode else None
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        seconds = time.monotonic() - start
        if why is not None:
            say(f"  {key[1]}, {step}: {why}")
            self.keep(key, step, error=why.replace(str(self.scratch), "$SCRATCH"))
            self.failures += 1
            return
        own = re.search(r"(?:^| )seconds=([0-9.]+)", done.stdout)
        requests = self.gateway.requests_since(before)
        self.keep(key, step, seconds=f"{float(own.group(1)) if own else seconds:.3f}", requests=sum(requests.values()),
                  **{f"requests_{method.lower()}": count for method, count in sorted(requests.items())})
        say(f"  {key[1]}, {step}: {seconds:.1f} s, {sum(requests.values()):,} requests")

    def new_cache(self):
        self.caches += 1
        return self.scratch / f"cache{self.caches}"

    def init(self, prefix):
        place = self.gateway.address(prefix)
        self.quietly([self.options.granulo, "store", "init", place])
        return place

    def quietly(self, argv):
        """A client that is not measured."""
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, errors="replace", env=self.gateway.environment())
        if done.returncode != 0:
            raise Failure(f"{argv[0]}: {done.stderr.strip()[-300:]}")

    # ---- many small files -------------------------------------------------------------------------------------------

    def rounds(self):
        o = self.options
        tree = self.scratch / "tree"
        tree.mkdir()
        run([self.store_bench, "ingest", "files", tree, "A", o.objects])
        payload = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())
        names = sorted(str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file())
        read = random.Random(7).sample(names, min(o.reads, len(names)))
        large = self.scratch / "large"
        with open(large, "wb") as out:
            for name in names:
                out.write((tree / name).read_bytes())
        self.quietly([sys.executable, FILES, "put", large.parent, "whole", 1, large.name])
        for number in range(1, o.rounds + 1):
            say(f"round {number} of {o.rounds}, load {os.getloadavg()[0]:.2f}")
            self.one_round(number, tree, read)
        shutil.rmtree(tree)
        large.unlink()
        return payload

    def one_round(self, number, tree, read):
        o = self.options
        boto3, s5cmd, granulo = (number, "boto3"), (number, "s5cmd"), (number, "granulo")
        lines = "".join(f"{name}\n" for name in read)
        self.measure(boto3, "put", [sys.executable, FILES, "put", tree, f"boto3-{number}", THREADS])
        store = self.init(f"store-{number}")
        cache = self.new_cache()
        self.measure(granulo, "put", [o.granulo, "store", "import", "--quiet", store, tree], cache=cache)
        if o.s5cmd:
            place = self.gateway.address(f"s5cmd-{number}")
            self.measure(s5cmd, "put", [o.s5cmd, "--numworkers", THREADS, "cp", f"{tree}/", f"{place}/"])
        self.measure(boto3, "random", [sys.executable, FILES, "get", f"boto3-{number}", THREADS], stdin=lines)
        if o.s5cmd:
            commands = "".join(f"cat {place}/{name}\n" for name in read)
            self.measure(s5cmd, "random", [o.s5cmd, "--numworkers", THREADS, "run"], stdin=commands)
        # `sparse` are distinct objects in random order, one by one; `list` are the same, all known in advance.
        for step, how in (("random", "sparse"), ("random, known in advance", "list")):
            self.measure(granulo, step, [self.store_bench, "random", "granulo", store, "A", o.objects, how, len(read), THREADS])
        self.measure((number, "one large object"), "load", [sys.executable, FILES, "stream", "whole/large"])
        self.measure(granulo, "load", [self.store_bench, "load", "granulo", store, "A", o.objects])
        for prefix in (f"boto3-{number}", f"s5cmd-{number}", f"store-{number}"):
            self.quietly([sys.executable, FILES, "remove", prefix])

    # ---- space --------------------------------------------------------------------------------------------------------

    def space(self):
        """The sizes of vu-2005, all on the erasure-coded class."""
        o = self.options
        tree = self.scratch / "published"
        tree.mkdir()
        run([self.store_bench, "ingest", "files", tree, "B", o.space_objects])
        payload = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())
        cold = self.gateway.settings["SLOW_CLASS"]
        empty = self.gateway.used_bytes()
        self.measure((1, "boto3"), "put vu-2005", [sys.executable, FILES, "put", tree, "space-boto3", THREADS], storage_class=cold)
        one = self.gateway.used_bytes()
        self.keep((1, "boto3"), "space", payload_bytes=payload, used_bytes=one - empty)
        store = self.init("space-store")
        before = self.gateway.used_bytes()
        self.measure((1, "granulo"), "put vu-2005", [o.granulo, "store", "import", "--quiet", store, tree], storage_class=cold)
        self.keep((1, "granulo"), "space", payload_bytes=payload, used_bytes=self.gateway.used_bytes() - before)
        shutil.rmtree(tree)

    # ---- push ---------------------------------------------------------------------------------------------------------

    def push(self):
        o = self.options
        home, archive = self.scratch / "home", self.scratch / "many.tar"
        write_archive(archive, o.pushed)
        run([o.granulo, "store", "init", home])
        run([o.granulo, "store", "import", "--quiet", home, archive])
        archive.unlink()
        target = self.gateway.address("pushed")
        cache = self.new_cache()
        self.measure((1, "granulo"), "clone", [o.granulo, "store", "clone", home, target], cache=cache)
        changed = self.scratch / "changed"
        for number in range(1, o.rounds + 1):
            changed.write_bytes(random.Random(number).randbytes(PUSHED_BYTES))
            run([o.granulo, "store", "put", "--quiet", home, "000/000/000", changed])
            self.measure((number, "granulo"), "push of one change", [o.granulo, "store", "push", home, target], cache=cache)
        shutil.rmtree(home)


def write_archive(path, count):
    """Files of one size with random contents, a thousand in a directory."""
    draws = random.Random(11)
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            entry = tarfile.TarInfo(f"{number // 1_000_000:03}/{number // 1000 % 1000:03}/{number % 1000:03}")
            entry.size, entry.mtime = PUSHED_BYTES, 1_700_000_000
            archive.addfile(entry, io.BytesIO(draws.randbytes(PUSHED_BYTES)))


# ---- the record -------------------------------------------------------------------------------------------------------


def values(rows, way, step, name="seconds"):
    return [float(row[4]) for row in rows if (row[1], row[2], row[3]) == (way, step, name)]


def line(rows, way, step, base=None):
    """A row of a table: seconds, requests, and how many times faster and with how many fewer requests than the base."""
    seconds, requests = values(rows, way, step), values(rows, way, step, "requests")
    cells = [f"{way}: {step}", harness.spread(seconds) if seconds else "-", f"{statistics.median(requests):,.0f}" if requests else "-"]
    than = values(rows, *base) if base else []
    if not seconds or not than:
        return [*cells, "-", "-"]
    fewer = harness.ratio(statistics.median(values(rows, *base, "requests")), statistics.median(requests))
    return [*cells, f"{statistics.median(than) / statistics.median(seconds):.2f} x", f"{harness.figure(fewer, 1)} x"]


def summary(rows):
    head = ["", "seconds", "requests", "faster", "fewer requests"]
    tables = {
        "Files into the bucket, beside boto3": [("boto3", "put", None), ("s5cmd", "put", ("boto3", "put")), ("granulo", "put", ("boto3", "put"))],
        "Random reads, 32 in flight, beside boto3": [
            ("boto3", "random", None), ("s5cmd", "random", ("boto3", "random")), ("granulo", "random", ("boto3", "random")),
            ("granulo", "random, known in advance", ("boto3", "random"))],
        "Everything, beside one large object": [("one large object", "load", None), ("granulo", "load", ("one large object", "load"))],
        "A store from a directory": [("granulo", "clone", None), ("granulo", "push of one change", None)],
    }
    lines = ["# A store in a bucket beside one object a file", "",
             "Seconds: median, smallest and largest of the rounds; ratios are of medians (above 1 x is better).", ""]
    for title, steps in tables.items():
        lines += [f"## {title}", "", *harness.table(head, [line(rows, *step) for step in steps])]
    space = [[way, *(f"{value:,.0f}" for value in (used, payload)), f"{used / payload:.3f} x"] for way in ("boto3", "granulo")
             for used, payload in zip(values(rows, way, "space", "used_bytes"), values(rows, way, "space", "payload_bytes"))]
    return [*lines, "## Space on the erasure-coded class, sizes of vu-2005", "", *harness.table(["", "bytes on the OSDs", "bytes of the files", "ratio"], space)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=50_000, help="files of 20,000 bytes (default: 50000)")
    parser.add_argument("--reads", type=int, default=10_000, help="random reads, each of another file (default: 10000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--space-objects", type=int, default=20_000, help="files with the sizes of vu-2005; 0 leaves space out (default: 20000)")
    parser.add_argument("--pushed", type=int, default=600_000, help="files of the pushed store; 0 leaves it out (default: 600000)")
    parser.add_argument("--granulo", type=Path, default=GRANULO, help="another binary, built with the feature bucket")
    parser.add_argument("--s5cmd", default=str(S5CMD) if S5CMD.exists() else shutil.which("s5cmd"), help="the program, if it is not found")
    parser.add_argument("--scratch", type=Path, help="directory for files and the server (default: a new one in $TMPDIR)")
    parser.add_argument("--out", type=Path, help="where the record goes (default: benchmarks/runs/DATE-bucket; with --quick target/bench-bucket-quick)")
    parser.add_argument("--quick", action="store_true", help="300 files, one round: a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.objects, options.reads, options.rounds = 300, 100, 1
        options.space_objects, options.pushed = min(options.space_objects, 100), min(options.pushed, 300)
    options.out = harness.record_directory(options, "bucket")
    return options


def measure(options, store_bench, scratch):
    begun, load, commit = time.time(), os.getloadavg(), harness.commit()
    gateway = Gateway(scratch / "ceph", options.quick)
    try:
        bench = Bench(gateway, store_bench, scratch, options)
        payload = bench.rounds()
        if options.space_objects:
            bench.space()
        if options.pushed:
            bench.push()
    finally:
        gateway.stop()
    facts = {
        "date": harness.date_and_minutes(begun), "granulo commit": commit, "system": harness.system(), "processor": harness.processor(),
        "memory": f"{harness.memory_bytes('MemTotal') / GIB:.1f} GiB", "load average at the start": harness.load(load),
        "disk below": f"{harness.mount_of(scratch)[2]}, {harness.fill_level(scratch)}",
        "server": "one monitor, one manager, one gateway, three OSDs "
                  f"({'memstore' if options.quick else 'bluestore in sparse files'}), all on this machine beside the clients",
        "classes": "STANDARD: three copies; COLD: erasure-coded 2+1",
        "files": f"{options.objects:,} of 20,000 bytes, {payload:,} bytes",
        "caches": "of granulo: a new directory for each step, but for the pushes of one change",
    }
    programs = harness.versions({"ceph": ["ceph", "--version"], "radosgw": ["radosgw", "--version"], "s5cmd": [options.s5cmd, "version"],
                                 "boto3": [sys.executable, "-c", "import boto3; print(boto3.__version__)"]})
    arguments = [re.sub(r"(^|=)/.*$", r"\1$PATH_TO_IT", argument) for argument in sys.argv[1:]]
    text = [*harness.readme("Bucket benchmark run", "benchmarks/bucket/run.py", facts, [" ".join(arguments)]),
            *harness.versions_section("program", programs)]
    tables = summary(bench.rows)
    harness.write_record(options.out, ["round", "way", "step", "name", "value"], bench.rows, {"summary.md": tables, "README.md": text})
    print("\n".join(tables))
    say(f"record: {options.out}")
    return 1 if bench.failures else 0


def main():
    options = parse_arguments()
    run([sys.executable, "-c", "import boto3"])
    store_bench = harness.store_bench(["--features", "bucket"], is_quick=options.quick)
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bucket-bench-") as scratch:
        return measure(options, store_bench, Path(scratch).resolve())


if __name__ == "__main__":
    harness.main(main)
