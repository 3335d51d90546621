#!/usr/bin/env python3
"""Memory of workers that share one listing, and the time to list: what a file costs a data loader; docs/BENCHMARKS.md has the protocol.

A store of tiny files is written and listed. Then forked workers each read their first batches of an exact shuffle, and wait
while the memory of all processes is added up (`Pss`: pages that n processes share count as 1/n in each). From it that
of as many workers without a listing is subtracted: what the interpreters and libraries take.

    benchmarks/python/memory.py            # 10,000,000 files, 16 workers; ten minutes and 5 GB of disk
    benchmarks/python/memory.py --quick    # 20,000 files, 4 workers: does it still work?
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import harness  # noqa: E402
from harness import MIB, Failure, say  # noqa: E402

# A directory of the store has so many files.
IN_DIRECTORY = 1000


def memory_bytes(processes):
    """Memory of processes together."""
    return sum(
        int(harness.found_in(f"/proc/{process}/smaps_rollup", r"\nPss:\s+(\d+)", "0")) * harness.KIB for process in processes
    )


def first_batches(listing, worker, workers, ready, leave):
    if listing is not None:
        import granulo

        batches = granulo.Shuffle(listing, 256, memory_bytes=MIB).batches(worker, workers)
        for _ in range(4):
            next(batches)
    ready.release()
    leave.wait()


def with_workers(listing, workers):
    """Memory of this process and of workers that have read something of a listing."""
    context = multiprocessing.get_context("fork")
    ready, leave = context.Semaphore(0), context.Event()
    arguments = [(listing, worker, workers, ready, leave) for worker in range(workers)]
    processes = [context.Process(target=first_batches, args=one) for one in arguments]
    for process in processes:
        process.start()
    try:
        for _ in processes:
            if not ready.acquire(timeout=600):
                raise Failure("a worker did not read its first batches")
        return memory_bytes([os.getpid(), *(process.pid for process in processes)])
    finally:
        leave.set()
        for process in processes:
            process.join()


def write(path, files):
    import granulo

    with granulo.Store(path, "x") as store, store.batch() as batch:
        for number in range(files):
            batch.put(f"{number // IN_DIRECTORY:06d}/{number:09d}.bin", number.to_bytes(8, "little"), 0o644, 0)


def measure():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the store is (default: that for temporary files)")
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-python-memory)")
    parser.add_argument("--quick", action="store_true", help="20,000 files, 4 workers, one round: a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.files, options.workers, options.rounds = 20_000, 4, 1
    if find_spec("granulo") is None:
        raise Failure("install the package first: pip install ./crates/python")
    import granulo

    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="granulo-bench-", dir=options.directory, ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        say(f"writing {options.files:,} files")
        write(place / "store", options.files)
        rows, shared_bytes = [], 0
        for round_ in range(options.rounds):
            harness.drop_caches()
            interpreters = with_workers(None, options.workers)
            start = time.perf_counter()
            listing = granulo.Store(place / "store").listing()
            seconds = time.perf_counter() - start
            shared_bytes = listing.memory_bytes
            together = with_workers(listing, options.workers)
            rows.append((round_, options.files, options.workers, seconds, shared_bytes, together - interpreters, interpreters))
            del listing
        head = ["round", "list, s", "table, MiB", "all workers beyond the interpreters, MiB", "interpreters, MiB"]
        cells = [[str(row[0]), f"{row[3]:.2f}", *(f"{size / MIB:.1f}" for size in row[4:])] for row in rows]
        summary = [
            "# Memory of workers in Python", "", f"{options.files:,} files of 8 bytes, {options.workers} forked workers; "
            f"{shared_bytes / options.files:.1f} bytes a file in the shared table.", "", *harness.table(head, cells),
        ]
        facts = {
            "machine": harness.platform_and_cores(), "commit": harness.commit(), "run": harness.date_and_minutes(begun),
            "load at the end": harness.load(), "Python": sys.version.split()[0],
            "listing": "cold" if harness.can_drop_caches() else "warm: dropping caches needs root",
        }
        page = harness.readme("Memory of workers in Python", "benchmarks/python/memory.py", facts, [" ".join(sys.argv[1:])])
        columns = ["round", "files", "workers", "list_seconds", "table_bytes", "workers_bytes", "interpreters_bytes"]
        texts = {"summary.md": summary, "README.md": page}
        harness.write_record(harness.record_directory(options, "python-memory"), columns, rows, texts)
        print("\n".join(summary))
    return 0


if __name__ == "__main__":
    harness.main(measure)
