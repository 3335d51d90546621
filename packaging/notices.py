#!/usr/bin/env python3
"""Writes packaging/THIRD-PARTY.md: the licences of what a binary of granulo contains, from cargo and web/vendor.

With --check, fails if the file does not name exactly the packages that the lock file has.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "packaging" / "THIRD-PARTY.md"
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT")


def packages() -> list[dict]:
    """The packages that are linked into the binary on Linux, without granulo's own."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-musl"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    by_id = {package["id"]: package for package in metadata["packages"]}
    waiting = [package["id"] for package in metadata["packages"] if package["name"] == "granulo"]
    seen = set()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        for dependency in nodes[here]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    found = [by_id[one] for one in seen if by_id[one]["source"] is not None]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def heading(package: dict) -> str:
    """The heading of a package in the file."""
    return f"## {package['name']} {package['version']}"


def texts(package: dict) -> list[tuple[str, str]]:
    """The licence texts in the package."""
    directory = Path(package["manifest_path"]).parent
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name.upper().startswith(NAMES))
    return [(path.name, path.read_text(errors="replace").strip()) for path in files]


def main() -> int:
    """Writes or checks the file."""
    found = packages()
    if sys.argv[1:] == ["--check"]:
        headings = [line for line in OUT.read_text().splitlines() if line.startswith("## ")]
        expected = [heading(package) for package in found]
        wrong = set(headings[1:]) ^ set(expected)
        if wrong:
            print("THIRD-PARTY.md is not that of the lock file; run packaging/notices.py:", *sorted(wrong), sep="\n")
        return 1 if wrong else 0
    lines = [
        "# Third-party software in granulo",
        "",
        "granulo is under the MIT licence. Its binary contains the packages below, and its pages what `web/vendor` has.",
        "Written by `packaging/notices.py`.",
        "",
        "## The pages",
        "",
        "Apache ECharts (Apache-2.0) with zrender (BSD-3-Clause) and tslib (0BSD), see `web/vendor/README.md`.",
        "",
    ]
    kept: dict[str, str] = {}
    for package in found:
        lines += [heading(package), "", f"{package['license'] or 'see the text'} · <{package['repository'] or package['homepage']}>", ""]
        for name, text in texts(package):
            # The same text is printed once.
            if text in kept:
                lines += [f"{name}: as of {kept[text]}.", ""]
                continue
            kept[text] = f"{package['name']} {package['version']}"
            lines += [f"{name}:", "", *("    " + line if line else "" for line in text.splitlines()), ""]
    OUT.write_text("\n".join(line.rstrip() for line in lines))
    print(f"{len(found)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
