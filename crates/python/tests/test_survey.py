"""Surveys, plans and comparisons as Python data, and the command that the wheel installs."""

import json
import os
import subprocess
import sys

import granulo
import pytest


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    for number in range(100):
        (tree / f"{number}.txt").write_bytes(b"x" * 10 * number)
    return tree


def test_a_survey_is_data_a_table_and_a_picture(tree, tmp_path):
    survey = granulo.survey(tree)
    assert (survey.files, survey.size_bytes, survey.warnings) == (100, 49500, [])
    assert survey["distributions"]["file_size"]["deciles"][4] == 490
    table = survey.to_arrow()
    assert table.column_names == ["low", "high", "count", "sum"] and sum(table["count"].to_pylist()) == 100
    assert sum(survey.to_arrow("name_length")["count"].to_pylist()) == 100
    page = survey._repr_html_()
    assert "<svg" in page and page.count("<rect") == len(table) and "49,500" not in page and "100" in page
    survey.save(tmp_path / "s.json")
    assert granulo.Survey.load(tmp_path / "s.json") == survey
    assert repr(survey) == "<granulo.Survey of 100 files, 48.3 KiB>"
    assert str(tree) not in json.dumps(granulo.survey(tree, anonymous=True))
    with pytest.raises(FileNotFoundError):
        granulo.survey(tree / "none")
    with pytest.raises(ValueError, match="at least one tree"):
        granulo.survey()


def test_a_plan_of_a_survey_a_file_and_a_published_table(tree, tmp_path):
    survey = granulo.survey(tree)
    plan = granulo.plan(survey, ["ext4", "zfs:vdev=raidz2,disks=10"], cutoffs=[500])
    assert plan["models"][0]["allocated_bytes"] == 99 * 4096
    assert plan.to_arrow()["model"].to_pylist() == [row["model"] for row in plan["models"]]
    assert "ext4" in plan._repr_html_()
    survey.save(tmp_path / "s.json")
    assert granulo.plan(tmp_path / "s.json", ["ext4"])["models"] == plan["models"][:1]
    assert len(granulo.plan("vu-2005")["models"]) == 8
    with pytest.raises(granulo.UsageError):
        granulo.plan(survey, ["no such layout"])
    with pytest.raises(TypeError, match="sequence of layouts"):
        granulo.plan(survey, "ext4")


def test_a_comparison(tree):
    survey = granulo.survey(tree)
    compared = granulo.compare("vu-1984", survey, "vu-2005", names=["then", "mine", "now"])
    assert [row["name"] for row in compared["sources"]] == ["then", "mine", "now"]
    assert compared.to_arrow().num_rows == 3 and "mine" in compared._repr_html_()
    assert granulo.compare(survey, survey).to_arrow()["by_files"].to_pylist() == [0.0]
    with pytest.raises(ValueError):
        granulo.compare(survey)


def run(*arguments):
    command = [sys.executable, "-m", "granulo._command", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_is_the_same_program(tree, tmp_path):
    done = run("survey", str(tree), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["counts"]["files"] == 100
    # Behind them is the commit, if it was built from a clone.
    assert run("--version").stdout.split()[:2] == ["granulo", granulo.__version__]
    assert run("no-such-command").returncode == 2
    assert run("survey", str(tree / "none")).returncode == 2
    store = tmp_path / "s"
    assert run("store", "init", str(store)).returncode == 0
    assert run("store", "import", str(store), str(tree)).returncode == 0
    assert len(granulo.Store(store)) == 100
    assert "files" in granulo.Store(store).status()


@pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK), reason="needs root and /dev/fuse")
def test_a_mount_in_the_background_is_served_by_another_interpreter(tree, tmp_path):
    store, point = tmp_path / "s", tmp_path / "m"
    point.mkdir()
    assert run("store", "init", store).returncode == 0 and run("store", "import", store, tree).returncode == 0
    done = run("mount", "--background", store, point)
    assert done.returncode == 0, done.stderr
    try:
        (name,) = {path.parent for path in point.rglob("7.txt")}
        assert (name / "7.txt").read_bytes() == b"x" * 70
    finally:
        assert run("unmount", point).returncode == 0
    assert not os.path.ismount(point)


def test_interrupting_a_survey(tree):
    program = """
import os, signal, threading, time, granulo
# Whoever runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        granulo.survey("/usr/lib")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "interrupted\n", done.stderr
