#!/usr/bin/env python3
"""Files of one size read from Python: open() and read(), granulo, LMDB, HDF5 and a WebDataset tar.

Batches of 256 at random, warm and cold (with root), the targets interleaved in every round; then an epoch in a new order with
one and with four workers: of files by open(), and of granulo's exact shuffle with memory for a quarter of the data, directly
and through scratch space, beside a load in disk order. Wall time and CPU time of all processes, a file.

A target is left out, and named, if its package is not installed. Every target's contents are compared once.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import (MIB, Failure, can_drop_caches, commit, drop_caches, load, main, median_and_range,  # noqa: E402
                     platform_and_cores, readme, record_directory, say, table, write_record)

BATCH_FILES = 256


def content_of(number, size_bytes):
    return random.Random(number).randbytes(size_bytes)


def key_of(number):
    return f"{number % 50:02d}/{number:07d}"


class Files:
    """Files by open() and read()."""

    def __init__(self, place, files, size_bytes):
        self.root = place / "files"
        for number in range(files):
            path = self.root / key_of(number)
            if number < 50:
                path.parent.mkdir(parents=True)
            path.write_bytes(content_of(number, size_bytes))

    def open(self):
        pass

    def read(self, numbers):
        contents = []
        for number in numbers:
            with open(f"{self.root}/{key_of(number)}", "rb", buffering=0) as file:
                contents.append(file.read())
        return contents


class Granulo:
    """granulo by row numbers of a listing: `read_many`."""

    def __init__(self, place, files, size_bytes):
        import granulo

        self.path = place / "granulo"
        with granulo.Store(self.path, "x") as store, store.batch() as batch:
            for number in range(files):
                batch.put(key_of(number), content_of(number, size_bytes))
        self.files = files

    def open(self):
        import granulo

        self.store = granulo.Store(self.path)
        self.listing = self.store.listing()
        self.rows = [self.listing.index(key_of(number)) for number in range(self.files)]

    def read(self, numbers):
        buffer, offsets = self.listing.read_many([self.rows[number] for number in numbers])
        self.last = buffer, offsets
        return None

    def contents(self):
        buffer, offsets = self.last
        return [bytes(buffer[start:stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]


class GranuloSingle(Granulo):
    """granulo by key, one at a time: `store[key]`."""

    def __init__(self, place, files, size_bytes):
        self.path, self.files = place / "granulo", files

    def read(self, numbers):
        return [self.store[key_of(number)] for number in numbers]


class Lmdb:
    """LMDB, one read transaction a batch, contents copied."""

    def __init__(self, place, files, size_bytes):
        import lmdb

        self.path = str(place / "lmdb")
        with lmdb.open(self.path, map_size=4 * files * size_bytes + 64 * MIB) as environment, environment.begin(write=True) as writer:
            for number in range(files):
                writer.put(key_of(number).encode(), content_of(number, size_bytes))

    def open(self):
        import lmdb

        self.environment = lmdb.open(self.path, readonly=True, lock=False)

    def read(self, numbers):
        with self.environment.begin() as reader:
            return [reader.get(key_of(number).encode()) for number in numbers]


class Hdf5:
    """HDF5 by h5py: one data set of rows, one chunk each."""

    def __init__(self, place, files, size_bytes):
        import h5py
        import numpy as np

        self.path = place / "data.h5"
        with h5py.File(self.path, "w") as file:
            data = file.create_dataset("data", (files, size_bytes), "u1", chunks=(1, size_bytes))
            for number in range(files):
                data[number] = np.frombuffer(content_of(number, size_bytes), "u1")

    def open(self):
        import h5py

        self.data = h5py.File(self.path, "r")["data"]

    def read(self, numbers):
        return [self.data[number].tobytes() for number in numbers]


TARGETS = {
    "files": (Files, None), "granulo read_many": (Granulo, "granulo"), "granulo store[key]": (GranuloSingle, "granulo"),
    "LMDB": (Lmdb, "lmdb"), "HDF5": (Hdf5, "h5py"),
}


def cpu_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measured(work):
    """Wall and CPU seconds of some work, its children included."""
    start, cpu = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - start, cpu_seconds() - cpu


def read_files(root, numbers):
    for number in numbers:
        with open(f"{root}/{key_of(number)}", "rb", buffering=0) as file:
            file.read()


def read_share(shuffle, worker, workers):
    for _ in shuffle.batches(worker, workers):
        pass


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


def epochs(targets, files, size_bytes, place):
    """Ways through an epoch, by name, each a function of the number of the epoch and of workers."""
    import granulo

    granulo_target, root = targets["granulo read_many"], targets["files"].root
    memory_bytes = files * size_bytes // 4

    def by_files(epoch, workers):
        order = random.Random(epoch).sample(range(files), files)
        in_processes(read_files, [(root, order[worker::workers]) for worker in range(workers)])

    def shuffle_of(epoch, workers, **options):
        shuffle = granulo.Shuffle(granulo_target.listing, BATCH_FILES, memory_bytes=memory_bytes // workers, **options)
        shuffle.set_epoch(epoch)
        return shuffle

    def exact(epoch, workers):
        shuffle = shuffle_of(epoch, workers)
        in_processes(read_share, [(shuffle, worker, workers) for worker in range(workers)])

    def through_scratch(epoch, workers):
        shuffle = shuffle_of(epoch, workers, scratch=place)
        with shuffle.spread():
            in_processes(read_share, [(shuffle, worker, workers) for worker in range(workers)])

    def window(epoch, workers):
        shuffle = shuffle_of(epoch, workers, order="window", window=files // 10)
        in_processes(read_share, [(shuffle, worker, workers) for worker in range(workers)])

    def disk(epoch, workers):
        shuffle = shuffle_of(epoch, workers, order="disk")
        in_processes(read_share, [(shuffle, worker, workers) for worker in range(workers)])

    return {"files, random order": by_files, "granulo, exact": exact, "granulo, exact through scratch": through_scratch,
            "granulo, window of a tenth": window, "granulo, disk order": disk}


def measure():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=20_000, help="bytes of a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40, help="batches of 256 in a round")
    parser.add_argument("--directory", type=Path, help="where the data are (default: the directory for temporary files)")
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-python)")
    parser.add_argument("--quick", action="store_true", help="1,000 files, one round: a smoke test")
    options = parser.parse_args()
    files, rounds, batches = (1000, 1, 2) if options.quick else (options.files, options.rounds, options.batches)
    if find_spec("granulo") is None:
        raise Failure("install the package first: pip install ./crates/python")
    place = Path(tempfile.mkdtemp(prefix="granulo-bench-", dir=options.directory))
    try:
        missing, targets = [], {}
        for name, (kind, package) in TARGETS.items():
            if package and find_spec(package) is None:
                missing.append(name)
                continue
            say(f"writing {name}")
            targets[name] = kind(place, files, options.size)
            targets[name].open()
            check(targets[name], files, options.size, name)
        temperatures = ["warm", "cold"] if can_drop_caches() else ["warm"]
        rows = []
        for round_ in range(rounds):
            for temperature in temperatures:
                for name, target in targets.items():
                    numbers = random.Random(round_).choices(range(files), k=batches * BATCH_FILES)
                    if temperature == "cold":
                        drop_caches()
                    work = [numbers[at : at + BATCH_FILES] for at in range(0, len(numbers), BATCH_FILES)]
                    seconds = measured(lambda: [target.read(batch) for batch in work])
                    rows.append(("batches of 256", temperature, 1, name, round_, len(numbers), *seconds))
                for name, way in epochs(targets, files, options.size, place).items():
                    for workers in (1, 4):
                        if temperature == "cold":
                            drop_caches()
                        seconds = measured(lambda: way(round_, workers))
                        rows.append(("epoch", temperature, workers, name, round_, files, *seconds))
        summary = summarise(rows, options, files, rounds, missing)
        facts = {"machine": platform_and_cores(), "commit": commit(), "load at the end": load(),
                 "files": f"{files:,} of {options.size:,} bytes", "cold": "measured" if "cold" in temperatures else "not measured: needs root"}
        write_record(record_directory(options, "python"),
                     ["task", "cache", "workers", "target", "round", "files", "wall_seconds", "cpu_seconds"], rows,
                     {"summary.md": summary, "README.md": readme("Reading from Python", "benchmarks/python/run.py", facts, [" ".join(sys.argv[1:])])})
        print("\n".join(summary))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


def check(target, files, size_bytes, name):
    """Compares some contents with what was written."""
    numbers = random.Random(1).choices(range(files), k=20)
    found = target.read(numbers)
    found = target.contents() if found is None else found
    if found != [content_of(number, size_bytes) for number in numbers]:
        raise Failure(f"{name} returned other contents than were written")


def summarise(rows, options, files, rounds, missing):
    lines = ["# Reading from Python", "", f"{files:,} files of {options.size:,} bytes, {rounds} rounds, targets interleaved. "
             "Microseconds a file: the median, and the smallest to the largest.", ""]
    if missing:
        lines += [f"Not installed, so not measured: {', '.join(missing)}.", ""]
    for task in ("batches of 256", "epoch"):
        cells = []
        for key in dict.fromkeys(row[1:4] for row in rows if row[0] == task):
            of_key = [row for row in rows if row[0] == task and row[1:4] == key]
            wall = [row[6] / row[5] * 1e6 for row in of_key]
            cpu = statistics.median(row[7] / row[5] * 1e6 for row in of_key)
            cells.append([key[2], key[0], str(key[1]), *median_and_range(wall).split(" | "), f"{cpu:.1f}"])
        lines += [f"## {task}", "", *table(["target", "cache", "workers", "wall, µs", "from, to", "CPU, µs"], cells), ""]
    return lines


if __name__ == "__main__":
    main(measure)
