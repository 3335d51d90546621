"""The examples run: both scripts, with torch and as if it were not installed, and the cells of the notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"
WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], None, "__main__")
"""

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are in the repository only")


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shares_right(printed):
    """The share of images that were classified rightly, by source."""
    lines = [line for line in printed.splitlines() if "right in the last one" in line]
    return {line.split(":")[0]: float(line.split()[-6].rstrip("%")) for line in lines}


def test_images_with_numpy():
    printed = run("-c", WITHOUT_TORCH, EXAMPLES / "images.py", "--images", 600)
    assert "torch is not installed" in printed
    assert all(share > 80 for share in shares_right(printed).values()) and len(shares_right(printed)) == 2


def test_images_with_torch():
    pytest.importorskip("torch", reason="torch is not installed: python3-torch")
    printed = run("-W", "ignore", EXAMPLES / "images.py", "--images", 600)
    assert "two workers of torch" in printed
    assert all(share > 80 for share in shares_right(printed).values()) and len(shares_right(printed)) == 2


@pytest.mark.parametrize("arguments", [["--texts", 700], [EXAMPLES.parents[1] / "docs"]])
def test_corpus(arguments):
    printed = run(EXAMPLES / "corpus.py", *arguments)
    assert "was read once" in printed and 0 < float(printed.split()[-4]) < 8


def test_notebook(monkeypatch):
    monkeypatch.setenv("TREE", os.fspath(EXAMPLES.parents[1] / "docs"))
    cells = json.loads((EXAMPLES / "files_to_store.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    names = {"__name__": "__main__"}
    for number, source in enumerate(code):
        exec(compile(source, f"cell {number}", "exec"), names)
    assert names["survey"].files == len(names["listing"])
