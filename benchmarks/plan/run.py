#!/usr/bin/env python3
"""How long a plan takes: every model, every cutoff, on a survey of more than 100 million files.

The survey is one of a real tree added to itself until it is large enough: the time of a plan depends on how many different
sizes there are, not on the number of files. `vu-2005` and `Uni-5` have a file of nearly every size up to 64 KiB, which is the worst
case. A run of several rounds, interleaved; wall time, user time and peak memory of the process.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import (GRANULO, commit, load, main, median_and_range, platform_and_cores, record_directory, run, timed,  # noqa: E402
                     write_record)

MOST_SECONDS = 1.0
MOST_MIB = 200.0
LARGE_FILES = 100_000_000


def files_in(survey):
    return json.loads(Path(survey).read_text())["counts"]["files"]


def large_survey(granulo, tree, scratch, at_least):
    """A survey of `tree`, doubled until it has `at_least` files."""
    survey = scratch / "large.json"
    timed([granulo, "survey", tree, "-o", survey])
    while files_in(survey) < at_least:
        timed([granulo, "merge", survey, survey, "-o", scratch / "double.json"])
        (scratch / "double.json").rename(survey)
    return survey


def measure():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=Path, default=GRANULO)
    parser.add_argument("--tree", type=Path, default=Path("/usr"), help="the tree whose sizes are taken (default /usr)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-plan; with --quick target/bench-plan-quick)")
    parser.add_argument("--quick", action="store_true", help="two rounds, no judgement of the times")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
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
                samples[name].append(timed(command))
    rows, passed = [], True
    for name, values in samples.items():
        seconds, memory = [value.wall_seconds for value in values], max(value.peak_mib for value in values)
        passed &= statistics.median(seconds) < MOST_SECONDS and memory < MOST_MIB
        user = statistics.median(value.user_seconds for value in values)
        rows.append(f"| {name} | {median_and_range(seconds)} | {user:.2f} | {memory:.0f} |")
    summary = [
        "# granulo plan", "",
        f"{rounds} rounds, interleaved. Wanted: median below {MOST_SECONDS:.0f} s and peak below {MOST_MIB:.0f} MiB for each row: "
        + ("reached." if passed else "**missed**."), "",
        "| source and task | median s | smallest to largest | user s | peak MiB |", "| --- | ---: | ---: | ---: | ---: |", *rows]
    readme = [
        f"# Plan, {datetime.date.today()}", "", f"- {run([options.granulo, '--version']).strip()}, commit {commit()}",
        f"- {platform_and_cores()}, load average at the end {load().split()[0]}",
        f"- repeat: `benchmarks/plan/run.py --rounds {rounds}`; files in the page cache, nothing on a disk is measured"]
    raw = [(name, f"{value.wall_seconds:.4f}", f"{value.user_seconds:.4f}", f"{value.peak_mib:.1f}")
           for name, values in samples.items() for value in values]
    write_record(record_directory(options, "plan"), ["task", "seconds", "user_seconds", "peak_mib"], raw,
                 {"summary.md": summary, "README.md": readme})
    print("\n".join(summary))
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    main(measure)
