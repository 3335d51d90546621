#!/usr/bin/env python3
"""Files of one size read from Python: open(), granulo, LMDB, HDF5 and tar shards as of WebDataset; docs/BENCHMARKS.md has the protocol.

Batches of 256 at random; then epochs in a new order, with one and with four workers. Warm; cold (with root); and epochs
also under a memory limit of a quarter of the data (with root and cgroup v1). The targets take turns in every round. A
target whose package is not installed is left out and named. Every target's contents are compared with what was written.

    benchmarks/python/run.py            # 50,000 files of 20,000 bytes, five rounds; needs pip install ./crates/python
    benchmarks/python/run.py --quick    # 1,000 files, one round: does it still work?
"""

import argparse
import contextlib
import importlib.metadata
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import harness  # noqa: E402
from harness import MIB, Failure, say  # noqa: E402
from targets import ALONE, BATCH_FILES, TARGETS, batches, content_of  # noqa: E402

WORKERS = (1, 4)
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
# What interpreters and libraries need besides the data, in each process.
INTERPRETER_BYTES = 48 * MIB
COLUMNS = ["task", "cache", "workers", "target", "round", "files", "wall_seconds", "cpu_seconds"]


def cpu_seconds():
    both = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measured(work):
    """Wall and CPU seconds of some work, its children included."""
    start, cpu = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - start, cpu_seconds() - cpu


def in_processes(function, arguments):
    """Runs a function in forked processes, one for each set of arguments."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise Failure(f"a worker ended with {process.exitcode}")


def epoch(target, name, number, workers):
    """All files once, in the way with that name."""
    with target.prepared(name, number, workers):
        way = target.epochs[name].__get__(target)
        in_processes(way, [(number, worker, workers) for worker in range(workers)])


@contextlib.contextmanager
def limited(size_bytes):
    """This process and its children may have so many bytes of memory, pages of files included."""
    group = MEMORY_GROUPS / f"granulo-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(size_bytes))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (MEMORY_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def can_limit_memory():
    return os.geteuid() == 0 and os.access(MEMORY_GROUPS / "cgroup.procs", os.W_OK)


def read_each(target, numbers):
    """Reads batches one after another. Each is dropped before the next, so that its memory serves again."""
    for batch in numbers:
        target.read(batch)


class Bench:
    def __init__(self, place, options):
        self.place, self.options = place, options
        self.files, self.size_bytes = options.files, options.size
        self.targets, self.missing, self.rows, self.failed = {}, [], [], []

    def write(self):
        for name, kind in TARGETS.items():
            if kind.package and find_spec(kind.package) is None:
                self.missing.append(name)
                continue
            say(f"writing {name}")
            target = self.targets[name] = kind(self.place, self.files, self.size_bytes)
            target.open()
            if target.read:
                self.check(name, target)

    def check(self, name, target):
        """Compares some contents with what was written."""
        numbers = random.Random(1).choices(range(self.files), k=20)
        found = target.read(numbers)
        if isinstance(found, tuple):
            buffer, offsets = found
            found = [bytes(buffer[start:stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]
        if found != [content_of(number, self.size_bytes) for number in numbers]:
            raise Failure(f"{name} returned other contents than were written")

    def cold(self):
        """Drops the caches, after the kernel has got the memory that the data will need."""
        for target in self.targets.values():
            target.unmap()
        if not self.options.quick:
            harness.touch_memory(min(2 * self.files * self.size_bytes, harness.memory_bytes("MemAvailable") // 2))
        harness.drop_caches()

    def warm(self):
        """Reads every file of every target once: a round before may have dropped the caches."""
        for path in self.place.rglob("*"):
            if path.is_file():
                with open(path, "rb", buffering=0) as file:
                    while file.read(MIB):
                        pass

    def random_batches(self, cache, round_):
        numbers = random.Random(round_).choices(range(self.files), k=self.options.batches * BATCH_FILES)
        for name, target in self.targets.items():
            if target.read is None:
                continue
            if cache == "cold":
                self.cold()
            seconds = measured(lambda: read_each(target, batches(numbers)))
            self.rows.append(("batches of 256", cache, 1, name, round_, len(numbers), *seconds))

    def epochs(self, cache, round_):
        ways = [(name, target) for target in self.targets.values() for name in target.epochs]
        for name, target in ways:
            for workers in WORKERS[:1] if name in ALONE else WORKERS:
                if cache != "warm":
                    self.cold()
                limit_bytes = self.files * self.size_bytes // 4 + (workers + 1) * INTERPRETER_BYTES
                try:
                    with limited(limit_bytes) if cache == "limited" else contextlib.nullcontext():
                        seconds = measured(lambda: epoch(target, name, round_, workers))
                except Failure as failure:
                    self.failed.append(f"{name}, {cache}, {workers} workers: {failure}")
                    say(self.failed[-1])
                    continue
                self.rows.append(("epoch", cache, workers, name, round_, self.files, *seconds))

    def run(self):
        caches = ["warm"]
        if harness.can_drop_caches():
            caches += ["cold", "limited"] if can_limit_memory() else ["cold"]
        for round_ in range(self.options.rounds):
            say(f"round {round_ + 1} of {self.options.rounds}")
            self.warm()
            for cache in caches:
                if cache != "limited" and self.options.only != "epoch":
                    self.random_batches(cache, round_)
                if self.options.only != "batches":
                    self.epochs(cache, round_)
        return caches

    def summary(self):
        lines = [
            "# Reading from Python", "",
            f"{self.files:,} files of {self.size_bytes:,} bytes, {self.options.rounds} rounds, targets in turn. Microseconds "
            "a file: the median, and the smallest to the largest; CPU time of all processes together.", "",
        ]
        if self.missing:
            lines += [f"Not installed, so not measured: {', '.join(self.missing)}.", ""]
        lines += [line for failed in self.failed for line in (f"Failed: {failed}.", "")]
        for task in ("batches of 256", "epoch"):
            cells = []
            for key in sorted({row[1:4] for row in self.rows if row[0] == task}):
                of_key = [row for row in self.rows if row[0] == task and row[1:4] == key]
                wall = [row[6] / row[5] * 1e6 for row in of_key]
                cpu = statistics.median(row[7] / row[5] * 1e6 for row in of_key)
                cells.append([key[2], key[0], str(key[1]), *harness.median_and_range(wall).split(" | "), f"{cpu:.1f}"])
            lines += [f"## {task}", "", *harness.table(["target", "cache", "workers", "wall, µs", "from, to", "CPU, µs"], cells)]
        return lines


def measure():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40, help="batches of 256 in a round")
    parser.add_argument("--only", choices=("batches", "epoch"), help="one of the two tasks")
    parser.add_argument("--directory", type=Path, help="where the data are (default: that for temporary files)")
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-python)")
    parser.add_argument("--quick", action="store_true", help="1,000 files, one round: a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.files, options.rounds, options.batches = 1000, 1, 2
    if find_spec("granulo") is None:
        raise Failure("install the package first: pip install ./crates/python")
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="granulo-bench-", dir=options.directory, ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        bench = Bench(place, options)
        bench.write()
        caches = bench.run()
        facts = {
            "machine": harness.platform_and_cores(), "processor": harness.processor(), "commit": harness.commit(),
            "run": harness.date_and_minutes(begun), "load at the end": harness.load(), "caches": ", ".join(caches),
        }
        packages = {"Python": sys.version.split()[0]}
        for name in ("granulo", "numpy", "lmdb", "h5py", "webdataset"):
            packages[name] = "missing"
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                packages[name] = importlib.metadata.version(name)
        page = harness.readme("Reading from Python", "benchmarks/python/run.py", facts, [" ".join(sys.argv[1:])])
        summary = bench.summary()
        texts = {"summary.md": summary, "README.md": page + harness.versions_section("package", packages)}
        harness.write_record(harness.record_directory(options, "python"), COLUMNS, bench.rows, texts)
        print("\n".join(summary))
        status = 1 if bench.failed else 0
    return status


if __name__ == "__main__":
    harness.main(measure)
