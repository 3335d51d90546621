"""What the benchmarks share: the description of the machine, caches, file systems in images, the time of a child, and the record of a run.

A benchmark keeps its protocol and its tables; what two of them need is here. A record is a directory with README.md (machine, versions, command
line), raw.csv (the samples) and summary.md (the tables).

Python 3.11 or later, standard library only.
"""

import contextlib
import csv
import ctypes
import dataclasses
import datetime
import mmap
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
GRANULO = REPOSITORY / "target/release/granulo"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Default options, but nothing is left for a kernel thread to initialise while we measure.
MKFS = {
    "ext4": ["mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
UNMOUNT_TRIES, UNMOUNT_PAUSE_SECONDS = 40, 0.25


class Failure(Exception):
    """Ends the run with a message instead of a traceback."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def main(measure):
    """Ends the program with the status that `measure` returns. A signal raises KeyboardInterrupt in it, so that it cleans up."""
    program = Path(sys.argv[0]).name

    def stop(signum, _frame):
        raise KeyboardInterrupt(signal.Signals(signum).name)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        sys.exit(measure())
    except (Failure, subprocess.CalledProcessError) as failure:
        say(f"{program}: {failure}")
        sys.exit(2)
    except KeyboardInterrupt:
        say(f"{program}: interrupted; nothing was recorded, mounts and images of this run are gone")
        sys.exit(130)


# ---- programs -------------------------------------------------------------------------------------------------------


def administrator():
    """mount and mke2fs live where an ordinary PATH may not lead."""
    return {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin", "LC_ALL": "C"}


def run(argv, **options):
    """Runs a command that must succeed; returns its standard output."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=administrator(), **options)
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Failure(f"{argv[0]} failed with status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclasses.dataclass
class Timing:
    """What a command needed, and what it printed if that was kept."""

    wall_seconds: float
    user_seconds: float
    peak_mib: float
    output: str = ""


def timed(argv, allowed=(0,), keep_output=False):
    """Runs a command that has to end with one of the allowed statuses."""
    argv = [str(a) for a in argv]
    with tempfile.TemporaryFile("w+") if keep_output else open(os.devnull, "w") as out:
        start = time.monotonic()
        process = subprocess.Popen(argv, stdout=out, stderr=None if keep_output else out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in allowed:
            raise Failure(f"{' '.join(argv)} ended with {process.returncode}")
        output = ""
        if keep_output:
            out.seek(0)
            output = out.read()
    return Timing(seconds, usage.ru_utime, usage.ru_maxrss / 1024, output)


def versions(asked):
    """First telling line of what each program prints about its version, by its name."""
    found = {}
    for name, argv in asked.items():
        found[name] = "missing"
        if argv[0] is None:
            continue
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            output = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=30,
                                    env=administrator()).stdout
            line = next((line for line in output.splitlines() if line.strip()), "unknown")
            found[name] = re.sub(r"\s+", " ", line).strip()
    return found


# ---- the machine ----------------------------------------------------------------------------------------------------


def first_line(path, default="unknown"):
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return default


def memory_bytes(field):
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * KIB
    return 0


def found_in(path, pattern, default="unknown"):
    """The first group of a pattern in a file."""
    with contextlib.suppress(OSError):
        if found := re.search(pattern, Path(path).read_text()):
            return found.group(1)
    return default


def load(averages=None):
    return " ".join(f"{average:.2f}" for average in averages or os.getloadavg())


def system():
    release = found_in("/etc/os-release", r'PRETTY_NAME="?([^"\n]*)')
    return f"{release}, Linux {os.uname().release} {os.uname().machine}"


def processor():
    model = found_in("/proc/cpuinfo", r"model name\s*: (.*)", platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} cores for this run"


def platform_and_cores():
    return f"{platform.platform()}, {os.cpu_count()} cores"


def commit():
    with contextlib.suppress(Failure):
        return run(["git", "-C", REPOSITORY, "describe", "--always", "--dirty", "--exclude", "*"]).strip()
    return "unknown"


def date_and_minutes(begun):
    """When a run began, and how long it has taken."""
    return f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(begun))}, {(time.time() - begun) / 60:.0f} minutes"


def fill_level(path):
    space = shutil.disk_usage(path)
    return f"{100 * space.used // space.total} % full of {space.total / GIB:.0f} GiB"


def mount_of(path):
    """The line of /proc/mounts, in its fields, of the file system that holds a path."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(errors="surrogateescape").splitlines()]
    return max((m for m in mounts if f"{path}/".startswith(m[1].rstrip("/") + "/")), key=lambda m: len(m[1]))


# ---- caches and file systems ----------------------------------------------------------------------------------------


def can_drop_caches():
    return os.geteuid() == 0 and os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_caches():
    """Writes everything back; drops page cache, dentries and inodes if this process may."""
    os.sync()
    if can_drop_caches():
        Path("/proc/sys/vm/drop_caches").write_text("3\n")


def touch_memory(size_bytes):
    """Makes the kernel own this much memory, then frees it.

    A virtual machine may have given free memory back to its host, and getting it again costs seconds a GiB, which
    would be charged to whichever program comes next. A child does it, so that this process stays small.
    """
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            area = mmap.mmap(-1, int(size_bytes))
            ctypes.memset((ctypes.c_char * int(size_bytes)).from_buffer(area), 1, int(size_bytes))
        os._exit(0)
    os.waitpid(child, 0)


def store_bench(features=(), is_quick=False):
    """Builds store-bench and returns the program. For a smoke test it is not optimised."""
    home = REPOSITORY / "benchmarks/store"
    release = [] if is_quick else ["--release"]
    subprocess.run(["cargo", "build", "--locked", *release, "--manifest-path", home / "Cargo.toml", *features], check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", home / "target")) / ("debug" if is_quick else "release") / "store-bench"


def private_mounts():
    """Moves this process into a mount namespace of its own: what it mounts ends with it, however it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, ms_rec, ms_private = 0x20000, 0x4000, 0x40000
    if libc.unshare(clone_newns) != 0 or libc.mount(b"none", b"/", None, ms_rec | ms_private, None) != 0:
        say("note: no private mount namespace; mounts are visible to others while this runs")


def make_image(image, kind, size_bytes):
    """A file system in a sparse file."""
    image.unlink(missing_ok=True)
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    run([*MKFS[kind], image])


def attach_loop(image):
    """A loop device with direct I/O, so that the image's own pages are not a second cache below the one that is dropped."""
    return run(["losetup", "--find", "--show", "--direct-io=on", image]).strip()


def mount(source, root, kind, options):
    root.mkdir(exist_ok=True)
    run(["mount", "-t", kind, "-o", options, source, root])


def unmount(root, device=None):
    """Unmounts what is mounted at `root` and below, at last lazily, and detaches its loop device."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": administrator()}
    for _ in range(UNMOUNT_TRIES):
        subprocess.run(["umount", "--recursive", str(root)], **quiet)
        if not os.path.ismount(root):
            break
        time.sleep(UNMOUNT_PAUSE_SECONDS)
    else:
        subprocess.run(["umount", "--lazy", "--recursive", str(root)], **quiet)
    if device:
        subprocess.run(["losetup", "--detach", device], **quiet)


# ---- figures and tables ---------------------------------------------------------------------------------------------


def figure(value, digits=3):
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(a, b):
    return a / b if a is not None and b else None


def median_and_range(values, digits=2):
    """Two cells of a table: the median, and the smallest to the largest."""
    return f"{figure(statistics.median(values), digits)} | {figure(min(values), digits)} to {figure(max(values), digits)}"


def spread(values, scale=1.0, digits=2):
    """One cell: the median, and the range if there are several values."""
    values = [value * scale for value in values]
    if len(values) < 2:
        return figure(values[0] if values else None, digits)
    return f"{figure(statistics.median(values), digits)} ({figure(min(values), digits)} to {figure(max(values), digits)})"


def table(head, rows):
    """Lines of a table whose first column is text, with an empty one behind it."""
    return ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1), *("| " + " | ".join(row) + " |" for row in rows), ""]


# ---- the record -----------------------------------------------------------------------------------------------------


def record_directory(options, name):
    """Where the record goes: what `--out` says, or a dated directory; that of a smoke test is thrown away with `target`."""
    quick, dated = f"target/bench-{name}-quick", f"benchmarks/runs/{datetime.date.today()}-{name}"
    return options.out or REPOSITORY / (quick if options.quick else dated)


def readme(title, script, facts, command_lines):
    """The first lines of a README.md: facts about machine and run, and how it was started."""
    return [f"# {title}", "",
            f"One run of `{script}`; docs/BENCHMARKS.md describes the protocol. summary.md has the tables, raw.csv every sample.", "",
            "| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in facts.items()), "",
            "Command line, from the root of the repository:", "", "```", *(f"{script} {line}".rstrip() for line in command_lines), "```", ""]


def versions_section(title, found):
    return ["## Versions", "", f"| {title} | version |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in found.items()), ""]


def write_atomically(path, text):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_record(directory, columns, rows, texts):
    """Writes raw.csv and texts by their names; lines of a text become one."""
    directory.mkdir(parents=True, exist_ok=True)
    raw = directory / "raw.csv.tmp"
    with open(raw, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    os.replace(raw, directory / "raw.csv")
    for name, text in texts.items():
        write_atomically(directory / name, text if isinstance(text, str) else "\n".join(text).rstrip() + "\n")
