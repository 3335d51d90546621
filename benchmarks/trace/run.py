#!/usr/bin/env python3
"""How fast traces are read: text of strace, its conversion, and granulo's own form, two million operations of eight processes.

The text is made from a seed: files with log-normal sizes, each opened, asked for its attributes, read to its end in requests of 64 KiB, and
closed. Rounds are interleaved; wall time, user time and peak memory of the process. Wanted: a million operations a second or more from the own
form, in memory that does not grow with the trace.
"""

import argparse
import datetime
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


def run(command):
    """Wall seconds, user seconds and peak MiB of a command that has to succeed."""
    start = time.monotonic()
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(command, stdout=nothing, stderr=nothing)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return seconds, usage.ru_utime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/granulo")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a small trace, one round, no verdict")
    parser.add_argument("--out", type=Path, help="directory of the record [default: benchmarks/runs/DATE-trace]")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    out = options.out or ROOT / "benchmarks/runs" / f"{datetime.date.today()}-trace"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        text, own, again = (Path(scratch) / name for name in ("t.strace", "t.gtrace", "again.gtrace"))
        count = make_text(text, 20_000 if options.quick else 2_000_000)
        granulo = [options.binary, "trace", "read"]
        run([*granulo, text, "-o", own])
        tasks = {
            "text of strace: figures": [*granulo, text],
            "text of strace: figures and conversion": [*granulo, text, "-o", again],
            "own form: figures": [*granulo, own],
            "own form: figures and another copy": [*granulo, own, "-o", again],
        }
        samples = {task: [] for task in tasks}
        for _ in range(rounds):
            for task, command in tasks.items():
                samples[task].append(run(command))
        sizes = f"{text.stat().st_size / count:.1f} bytes an operation as text, {own.stat().st_size / count:.1f} in the own form"
    lines = []
    for task, taken in samples.items():
        wall = [seconds for seconds, _, _ in taken]
        user, peak = statistics.median(s[1] for s in taken), max(s[2] for s in taken)
        median = statistics.median(wall)
        lines.append((task, count / median, median, min(wall), max(wall), user, peak))
    passed = lines[2][1] >= WANTED_RATE and all(line[6] <= MOST_MIB for line in lines)
    with open(out / "raw.csv", "w") as raw:
        raw.write("task,round,wall_seconds,user_seconds,peak_mib\n")
        for task, taken in samples.items():
            for number, sample in enumerate(taken):
                raw.write(f"{task},{number}," + ",".join(f"{figure:.4f}" for figure in sample) + "\n")
    with open(out / "summary.md", "w") as summary:
        summary.write(f"# granulo trace read\n\n{count:,} operations, {rounds} rounds, interleaved, on {platform.machine()}, ")
        summary.write(f"Linux {platform.release()}, {os.cpu_count()} cores; {sizes}. ")
        verdict = "reached" if passed else "missed"
        summary.write(f"Wanted: {WANTED_RATE:,} operations a second from the own form, peak below {MOST_MIB:.0f} MiB: {verdict}.\n\n")
        summary.write("| task | operations a second | median s | smallest to largest | user s | peak MiB |\n")
        summary.write("| --- | ---: | ---: | ---: | ---: | ---: |\n")
        for task, rate, median, least, most, user, peak in lines:
            summary.write(f"| {task} | {rate:,.0f} | {median:.2f} | {least:.2f} to {most:.2f} | {user:.2f} | {peak:.0f} |\n")
    print((out / "summary.md").read_text())
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
