"""What `granulo survey --ncdu` needs on disk: bytes of the result, and of scratch space while it is made."""

import contextlib
import os
import pathlib
import subprocess
import time

from harness import figure

POLL_SECONDS = 0.005


def scratch_bytes(process, scratch):
    """Bytes allocated to the unnamed files in `scratch` that the process has open."""
    total = 0
    for descriptor in pathlib.Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if os.readlink(descriptor).startswith(f"{scratch}/"):
                total += descriptor.stat().st_blocks * 512
    return total


def measure(bench, trees, granulo):
    """Bytes of the export of the large tree, and the most it had in scratch space; None if it failed."""
    result, scratch = bench.scratch / "export.json", bench.scratch / "export"
    scratch.mkdir(exist_ok=True)
    argv = [granulo, "survey", "--quiet", "--scratch", scratch, "--ncdu", result, trees.path("large")]
    most = 0
    try:
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=bench.environment) as child:
            while child.poll() is None:
                most = max(most, scratch_bytes(child.pid, scratch))
                time.sleep(POLL_SECONDS)
        return (result.stat().st_size, most) if child.returncode == 0 else None
    finally:
        result.unlink(missing_ok=True)
        scratch.rmdir()


def table(bench, trees, granulo):
    entries = trees.entry_count("large")
    space = measure(bench, trees, granulo)
    if space is None:
        return ["The export failed."]
    rows = zip(("result", "scratch space, at most"), space)
    return ["| of `granulo survey --ncdu`, large tree | bytes | an entry |", "| --- | ---: | ---: |",
            *(f"| {name} | {size:,} | {figure(size / entries, 1)} |" for name, size in rows)]
