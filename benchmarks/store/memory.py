#!/usr/bin/env python3
"""What every command of a store needs of memory, with many small objects.

    python3 benchmarks/store/memory.py target/release/granulo DIRECTORY [--objects 1000000]

Makes a store of two mirrored devices below DIRECTORY, which must not exist, and prints a line of CSV for each command: the peak of its process
(maximum resident set size, as the kernel counts it; pages of the program itself are in it, the page cache is not), its CPU time and its duration.
"""

import argparse
import os
import subprocess
import threading
import time
from pathlib import Path

CONTENT = b"c" * 100
BLOCK_BYTES = 512


def name(number):
    """A hundred objects to a directory, a hundred directories to one above."""
    return b"%04d/%02d/%02d" % (number // 10_000, number // 100 % 100, number % 100)


def archive(objects, out):
    """Writes a tar archive of the objects."""
    header = bytearray(BLOCK_BYTES)
    header[100:108], header[108:116], header[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    header[124:136], header[136:148] = b"%011o\0" % len(CONTENT), b"%011o\0" % 1_700_000_000
    header[156:157], header[257:265] = b"0", b"ustar\x0000"
    body = CONTENT.ljust(BLOCK_BYTES, b"\0")
    piece = bytearray()
    for number in range(objects):
        path = name(number)
        header[: len(path)] = path
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        piece += header + body
        if len(piece) > 1 << 20:
            out.write(piece)
            piece.clear()
    out.write(piece + bytes(2 * BLOCK_BYTES))


def measure(program, label, arguments, feed=None, codes=(0,)):
    """Runs a command of the store and prints its line."""
    began = time.monotonic()
    stdin = subprocess.PIPE if feed else subprocess.DEVNULL
    command = [program, "store", *map(str, arguments)]
    child = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = []
    listener = threading.Thread(target=lambda: said.append(child.stderr.read()))
    listener.start()
    if feed:
        feed(child.stdin)
        child.stdin.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    listener.join()
    if child.returncode not in codes:
        raise SystemExit(f"{label} ended with {child.returncode}: {said[0].decode()}")
    cpu, wall = usage.ru_utime + usage.ru_stime, time.monotonic() - began
    print(f"{label},{usage.ru_maxrss / 1024:.1f},{cpu:.2f},{wall:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--objects", type=int, default=1_000_000)
    options = parser.parse_args()
    options.directory.mkdir()
    store, tree, one = (options.directory / part for part in ("store", "tree", "one"))
    fast, new = [options.directory / part for part in ("a", "b")], options.directory / "new"
    one.write_bytes(CONTENT)

    def run(label, *arguments, **more):
        measure(options.program, label, arguments, **more)

    print("command,peak_mib,cpu_seconds,wall_seconds")
    run("init", "init", store, "--fast", fast[0], "--fast", fast[1])
    run("import -", "import", "-q", store, "-", feed=lambda out: archive(options.objects, out))
    run("status", "status", store)
    run("status --count", "status", "--count", store)
    run("ls", "ls", store, "0000/00")
    run("ls -R", "ls", "-R", store)
    run("ls -R -l", "ls", "-R", "-l", store)
    run("ls -R --json", "ls", "-R", "--json", store)
    run("get", "get", store, "0000/00/00")
    run("stat", "stat", store, "0000/00/00")
    run("load", "load", store)
    run("load --group", "load", store, "--group", "0000")
    run("check", "check", store)
    run("check --deep", "check", "--deep", store)
    run("export", "export", "-q", store, tree)
    run("import", "import", "-q", store, tree, "--prefix", "again")
    run("import, nothing new", "import", "-q", store, tree, "--prefix", "again")
    run("put", "put", store, "0000/00/00", one)
    run("rm", "rm", store, "0000/00/01")
    run("scrub", "scrub", store)
    run("repair", "repair", store)
    run("rebalance", "rebalance", store)
    run("rebuild", "rebuild", store, "--device", "1", "--onto", new)
    run("check --rebuild-index", "check", "--rebuild-index", store)
    run("rm -r", "rm", "-r", store, "again")
    run("compact", "compact", store)
    run("compact --all", "compact", "--all", store)
    for device in fast[0], new:
        (device / "index").rename(device / "index-away")
    run("ls -R, no index", "ls", "-R", store)
    run("load, no index", "load", store)
    run("rm, no index", "rm", store, "0000/00/02")
    run("rm -r /", "rm", "-r", store, "/")
    run("compact, all gone", "compact", store)


if __name__ == "__main__":
    main()
