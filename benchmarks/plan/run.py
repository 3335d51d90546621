#!/usr/bin/env python3
"""How long a plan takes: every model, every cutoff, on a survey of more than 100 million files.

The survey is one of a real tree added to itself until it is large enough: the time of a plan depends on how many different
sizes there are, not on the number of files. `vu-2005` and `Uni-5` have a file of nearly every size up to 64 KiB, which is the worst
case. A run of several rounds, interleaved; wall time, user time and peak memory of the process.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 1.0
MOST_MIB = 200.0
LARGE_FILES = 100_000_000


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


def files_in(survey):
    return json.loads(Path(survey).read_text())["counts"]["files"]


def large_survey(granulo, tree, scratch, at_least):
    """A survey of `tree`, doubled until it has `at_least` files."""
    survey = scratch / "large.json"
    run([granulo, "survey", tree, "-o", survey])
    while files_in(survey) < at_least:
        run([granulo, "merge", survey, survey, "-o", scratch / "double.json"])
        (scratch / "double.json").rename(survey)
    return survey


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=Path, default=ROOT / "target/release/granulo")
    parser.add_argument("--tree", type=Path, default=Path("/usr"), help="the tree whose sizes are taken (default /usr)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-plan)")
    parser.add_argument("--quick", action="store_true", help="two rounds, no judgement of the times")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    out = options.out or ROOT / "benchmarks/runs" / f"{datetime.date.today()}-plan"
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        large = large_survey(options.granulo, options.tree, scratch, LARGE_FILES)
        files = files_in(large)
        sources = {f"{options.tree}, added to itself: {files:,} files": large, "vu-2005": "vu-2005", "Uni-5": "Uni-5"}
        tasks = {}
        for name, source in sources.items():
            tasks[f"{name}; every model, JSON"] = [options.granulo, "plan", source, "--model", "all", "--json"]
            tasks[f"{name}; every model, --fast, page"] = [
                options.granulo, "plan", source, "--model", "all", "--fast", "10GiB", "--report", scratch / "page.html"]
        samples = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, command in tasks.items():
                samples[name].append(run(command))
    rows, passed = [], True
    for name, values in samples.items():
        seconds, user, memory = zip(*values)
        passed &= statistics.median(seconds) < MOST_SECONDS and max(memory) < MOST_MIB
        rows.append(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} "
                    f"| {statistics.median(user):.2f} | {max(memory):.0f} |")
    summary = "\n".join([
        "# granulo plan", "",
        f"{rounds} rounds, interleaved. Wanted: median below {MOST_SECONDS:.0f} s and peak below {MOST_MIB:.0f} MiB for each row: "
        + ("reached." if passed else "**missed**."), "",
        "| source and task | median s | smallest to largest | user s | peak MiB |", "| --- | ---: | ---: | ---: | ---: |", *rows, ""])
    version = subprocess.run([options.granulo, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.md").write_text(summary)
    (out / "README.md").write_text("\n".join([
        f"# Plan, {datetime.date.today()}", "", f"- {version}, commit {head or 'unknown'}",
        f"- {platform.platform()}, {os.cpu_count()} cores, load average at the end {os.getloadavg()[0]:.2f}",
        f"- repeat: `benchmarks/plan/run.py --rounds {rounds}`; files in the page cache, nothing on a disk is measured", ""]))
    lines = [f"{name},{s:.4f},{u:.4f},{m:.1f}" for name, values in samples.items() for s, u, m in values]
    (out / "raw.csv").write_text("\n".join(["task,seconds,user_seconds,peak_mib", *(f'"{line.rsplit(",", 3)[0]}",' + ",".join(line.rsplit(",", 3)[1:]) for line in lines), ""]))
    print(summary)
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
