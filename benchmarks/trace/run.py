#!/usr/bin/env python3
"""How fast traces are read: text of strace, its conversion, and granulo's own form, two million operations of eight processes.

The text is made from a seed: files with log-normal sizes, each opened, asked for its attributes, read to its end in requests of 64 KiB, and
closed. Rounds are interleaved; wall time, user time and peak memory of the process. Wanted: a million operations a second or more from the own
form, in memory that does not grow with the trace.
"""

import argparse
import os
import platform
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import GRANULO, main, median_and_range, record_directory, timed, write_record  # noqa: E402

WANTED_RATE = 1_000_000
MOST_MIB = 64.0


def make_text(path, operations):
    """Writes text as strace prints it; how many operations it has."""
    chance = random.Random(1)
    now, count = 1_700_000_000_000_000, 0
    with open(path, "w") as out:

        def line(pid, call):
            nonlocal now, count
            out.write(f"{pid} {now // 1_000_000}.{now % 1_000_000:06d} {call} <0.{chance.randrange(2, 99):06d}>\n")
            now, count = now + 10, count + 1

        while count < operations:
            number, pid = chance.randrange(50_000), 1000 + chance.randrange(8)
            size = int(chance.lognormvariate(9, 2)) + 1
            name = f"/w/dir{number % 97}/file{number}"
            line(pid, f'openat(AT_FDCWD</w>, "{name[3:]}", O_RDONLY|O_CLOEXEC) = 3<{name}>')
            line(pid, f'newfstatat(3<{name}>, "", {{st_mode=S_IFREG|0644, st_size={size}, ...}}, AT_EMPTY_PATH) = 0')
            for start in range(0, size, 65536):
                line(pid, f'read(3<{name}>, ""..., 65536) = {min(65536, size - start)}')
            line(pid, f'read(3<{name}>, "", 65536) = 0')
            line(pid, f"close(3<{name}>) = 0")
    return count


def measure():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=GRANULO)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a small trace, one round, no verdict")
    parser.add_argument("--out", type=Path, help="directory of the record (default benchmarks/runs/DATE-trace; with --quick target/bench-trace-quick)")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as scratch:
        text, own, again = (Path(scratch) / name for name in ("t.strace", "t.gtrace", "again.gtrace"))
        count = make_text(text, 20_000 if options.quick else 2_000_000)
        granulo = [options.binary, "trace", "read"]
        timed([*granulo, text, "-o", own])
        tasks = {
            "text of strace: figures": [*granulo, text],
            "text of strace: figures and conversion": [*granulo, text, "-o", again],
            "own form: figures": [*granulo, own],
            "own form: figures and another copy": [*granulo, own, "-o", again],
        }
        samples = {task: [] for task in tasks}
        for _ in range(rounds):
            for task, command in tasks.items():
                samples[task].append(timed(command))
        sizes = f"{text.stat().st_size / count:.1f} bytes an operation as text, {own.stat().st_size / count:.1f} in the own form"
    rows, rates, peaks = [], {}, {}
    for task, taken in samples.items():
        wall = [sample.wall_seconds for sample in taken]
        rates[task], peaks[task] = count / statistics.median(wall), max(sample.peak_mib for sample in taken)
        user = statistics.median(sample.user_seconds for sample in taken)
        rows.append(f"| {task} | {rates[task]:,.0f} | {median_and_range(wall)} | {user:.2f} | {peaks[task]:.0f} |")
    passed = rates["own form: figures"] >= WANTED_RATE and max(peaks.values()) <= MOST_MIB
    summary = [
        "# granulo trace read", "",
        f"{count:,} operations, {rounds} rounds, interleaved, on {platform.machine()}, Linux {platform.release()}, {os.cpu_count()} cores; {sizes}. "
        f"Wanted: {WANTED_RATE:,} operations a second from the own form, peak below {MOST_MIB:.0f} MiB: {'reached' if passed else 'missed'}.", "",
        "| task | operations a second | median s | smallest to largest | user s | peak MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |", *rows]
    raw = [(task, number, f"{sample.wall_seconds:.4f}", f"{sample.user_seconds:.4f}", f"{sample.peak_mib:.4f}")
           for task, taken in samples.items() for number, sample in enumerate(taken)]
    write_record(record_directory(options, "trace"), ["task", "round", "wall_seconds", "user_seconds", "peak_mib"], raw, {"summary.md": summary})
    print("\n".join(summary))
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    main(measure)
