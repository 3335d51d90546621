#!/usr/bin/env python3
"""How fast `granulo generate` makes a tree, beside a plain loop of openat, write and close; and how near it comes to its sources.

Speed: the loop (plain.c) makes the same tree as granulo: the same directories, names and sizes in the same order, from a list that is read
before its clock starts. It writes one buffer of random bytes over and over; granulo makes every byte anew, deals out sizes and names, and
is timed without its plan and without the survey that follows. Each in turn in every round, on a tree that is removed afterwards,
everything written back before the next one starts. Distances: one tree of each source, sizes set and nothing written, surveyed back.

Python standard library and a C compiler. Writes a dated record: README.md (host, command line), raw.csv (every sample), distances.json
(what granulo said), summary.md (the tables).
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import (GRANULO, Failure, commit, load, main, platform_and_cores, record_directory, run, timed,  # noqa: E402
                     write_record)

HERE = Path(__file__).resolve().parent
SPEED_SOURCE = "vu-1984"
BY_FILES, BY_BYTES = 0.01, 0.02
MOST_FILES = 1_000_000


def generate(options, source, tree, files, *more):
    """What granulo says of a tree that it makes; 1 is its status where the tree is too far from the source."""
    command = [options.granulo, "generate", source, tree, "--files", files, "--json", "--quiet", *more]
    done = timed(command, allowed=(0, 1), keep_output=True)
    document = json.loads(done.output)
    if not document["complete"]:
        raise Failure(f"{source}: the tree was not finished")
    return document, done.peak_mib


def write_list(tree, path):
    """The tree as plain.c takes it, directory by directory."""
    with open(path, "w") as out:
        for directory, directories, files in os.walk(tree):
            below = os.path.relpath(directory, tree)
            out.writelines(f"D {os.path.normpath(os.path.join(below, name))}\n" for name in directories)
            out.write(f"C {below}\n")
            out.writelines(f"F {os.lstat(os.path.join(directory, name)).st_size} {name}\n" for name in files)


def remove(tree):
    shutil.rmtree(tree)
    os.sync()


def speed(options, scratch, files, rounds):
    """Samples by content and way: seconds, seconds to write back, peak MiB; and the number of bytes."""
    plain = scratch / "plain"
    run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-o", plain, HERE / "plain.c"])
    tree, names = scratch / "tree", scratch / "list"
    document, _ = generate(options, SPEED_SOURCE, tree, files, "--metadata-only")
    write_list(tree, names)
    remove(tree)
    made = []
    for content, of_granulo, of_plain in [("random", ["--content", "random"], []), ("none", ["--metadata-only"], ["--none"])]:
        ways = {"plain loop": None, "granulo, 1 thread": 1, f"granulo, {os.cpu_count()} threads": os.cpu_count()}
        for round_number in range(rounds):
            for way, threads in ways.items():
                if threads is None:
                    tree.mkdir()
                    done = timed([plain, *of_plain, names, tree], keep_output=True)
                    found, peak_mib = json.loads(done.output), done.peak_mib
                    sizes = (found["files"], found["bytes"])
                    seconds, sync = found["seconds"], found["sync_seconds"]
                else:
                    found, peak_mib = generate(options, SPEED_SOURCE, tree, files, *of_granulo, "--threads", threads)
                    sizes = (found["made"]["files"], found["made"]["size_bytes"])
                    seconds, sync = found["made"]["elapsed_seconds"], found["made"]["sync_seconds"]
                if sizes != (files, document["plan"]["size_bytes"]):
                    raise Failure(f"{way} made {sizes[0]} files of {sizes[1]} bytes")
                made.append((content, way, round_number, seconds, sync, peak_mib))
                remove(tree)
    return made, document


def speed_table(made, files, size_bytes):
    rows = ["| content | way | files/s | smallest to largest | of the loop | with writing back | MiB/s with it | peak MiB |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for content in dict.fromkeys(sample[0] for sample in made):
        loop = None
        for way in dict.fromkeys(sample[1] for sample in made):
            samples = [sample for sample in made if sample[:2] == (content, way)]
            rates = [files / sample[3] for sample in samples]
            together = statistics.median(sample[3] + sample[4] for sample in samples)
            median = statistics.median(rates)
            loop = loop or median
            written = f"{size_bytes / together / (1 << 20):.0f}" if content != "none" else "–"
            rows.append(f"| {content} | {way} | {median:,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {median / loop:.2f} "
                        f"| {files / together:,.0f} | {written} | {max(sample[5] for sample in samples):.0f} |")
    return rows


def distances(options, scratch, files):
    """What granulo says of one tree of each source; and of a larger one where so few files cannot come near."""
    survey, tree = scratch / "survey.json", scratch / "tree"
    timed([options.granulo, "survey", options.tree, "-o", survey, "--quiet"])
    sources = {"vu-1984": "vu-1984", "vu-2005": "vu-2005", "web-2005": "web-2005", str(options.tree): survey,
               options.profile: options.profile}
    said = []
    for name, source in sources.items():
        wanted = [files]
        while wanted:
            document, peak_mib = generate(options, source, tree, wanted.pop(), "--metadata-only")
            remove(tree)
            said.append((name, document, peak_mib))
            bounds = document["bounds"]
            # The number that granulo names is the least that can do; a quarter more does.
            enough = int(bounds["files_for_bytes"] * 1.25)
            if not options.quick and document["plan"]["files"] == files < enough <= MOST_FILES and bounds["met"] is False:
                wanted.append(enough)
    return said


def distance_tables(said):
    """The rows, and whether every source comes as near as wanted where so many files can."""
    rows = ["| source | files | by files | by bytes | not below | within | seconds | peak MiB |",
            "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |"]
    others = ["| source | files | measure | by count |", "| --- | ---: | --- | ---: |"]
    passed = True
    for name, document, peak_mib in said:
        files, bounds, made = document["plan"]["files"], document["bounds"], document["made"]
        sizes = document["distances"][0]["reached"]
        can = bounds["least_by_bytes"] <= BY_BYTES
        near = sizes["by_count"] <= BY_FILES and (sizes["by_sum"] <= BY_BYTES or not can)
        passed &= near
        word = "yes" if near and can else f"takes {bounds['files_for_bytes']:,} files" if near else "**no**"
        rows.append(f"| {name} | {files:,} | {sizes['by_count']:.5f} | {sizes['by_sum']:.5f} | {bounds['least_by_bytes']:.5f} "
                    f"| {word} | {made['elapsed_seconds']:.1f} | {peak_mib:.0f} |")
        others += [f"| {name} | {files:,} | {row['measure']} | {row['reached']['by_count']:.5f} |" for row in document["distances"][1:]]
    return rows, others, passed


def measure():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--granulo", type=Path, default=GRANULO)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", type=Path, default=Path("/usr"), help="the tree that is surveyed to be like (default /usr)")
    parser.add_argument("--profile", default="geriatrix-agrawal", help="the profile of Geriatrix (default %(default)s)")
    parser.add_argument("--scratch", type=Path, help="where trees are made (default $TMPDIR): its file system is what is measured")
    parser.add_argument("--out", type=Path, help="where the record goes (default benchmarks/runs/DATE-generate)")
    parser.add_argument("--quick", action="store_true", help="5,000 files, one round, no judgement; record in target/bench-generate-quick")
    options = parser.parse_args()
    files, rounds = (5000, 1) if options.quick else (options.files, options.rounds)
    load_before = load().split()[0]
    with tempfile.TemporaryDirectory(prefix="granulo-bench-generate-", dir=options.scratch) as directory:
        scratch = Path(directory)
        made, document = speed(options, scratch, files, rounds)
        said = distances(options, scratch, files)
    room, size_bytes = document["plan"]["room"], document["plan"]["size_bytes"]
    rows, others, passed = distance_tables(said)
    judged = "no judgement of so few files" if options.quick else "reached" if passed else "**missed**"
    summary = [
        "# granulo generate", "", "## Speed", "",
        f"{SPEED_SOURCE}, {files:,} files of {size_bytes:,} bytes in {document['plan']['directories']:,} directories, on {room['file_system']} "
        f"with blocks of {room['block_bytes']:,} bytes; {rounds} rounds, interleaved; medians. Files a second are without writing back.", "",
        *speed_table(made, files, size_bytes), "",
        "## Distances", "",
        f"Kolmogorov-Smirnov distances of the sizes, surveyed back from the disk. Wanted: at most {BY_FILES} by files and {BY_BYTES} by bytes, "
        f"unless no tree of so many files can be so near (\"not below\"): {judged}.", "", *rows, "",
        "What else the sources know:", "", *others]
    readme = [
        f"# Generate, {datetime.date.today()}", "", f"- {run([options.granulo, '--version']).strip()}, commit {commit()}",
        f"- {platform_and_cores()}, load average {load_before} before and {load().split()[0]} after",
        f"- trees on {room['file_system']}, {room['size_bytes'] >> 30} GiB, {room['available_bytes'] >> 30} GiB available before",
        f"- repeat: `benchmarks/generate/run.py --files {files} --rounds {rounds} --tree {options.tree} --profile {options.profile}`"]
    raw = [(content, way, number, f"{seconds:.6f}", f"{sync:.6f}", f"{peak:.1f}") for content, way, number, seconds, sync, peak in made]
    kept = [{"source": name, **{part: document[part] for part in ("plan", "made", "distances", "bounds")}} for name, document, _ in said]
    write_record(record_directory(options, "generate"), ["content", "way", "round", "seconds", "sync_seconds", "peak_mib"], raw,
                 {"summary.md": summary, "README.md": readme, "distances.json": json.dumps(kept, indent=1) + "\n"})
    print("\n".join(summary))
    return 0 if passed or options.quick else 1


if __name__ == "__main__":
    main(measure)
