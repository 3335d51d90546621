"""The ``granulo`` command that the wheel installs: the same program as the binary, in this process."""

from __future__ import annotations

import signal
import sys

from . import _granulo


def main() -> int:
    """Runs the command with the arguments of this process; returns its exit status."""
    # As any program in Rust: ^C ends it, and a closed pipe is an error of writing.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _granulo.command(["granulo", *sys.argv[1:]], [sys.executable, "-m", "granulo._command"])


if __name__ == "__main__":
    sys.exit(main())
