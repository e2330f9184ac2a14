"""How `python -m tests` divides the tests: each runs in one part, whatever is asked for."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import __main__
from tests.__main__ import FOLDER_PREFIX, LOCAL, NOTHING_COLLECTED, PARTS, STORAGE, exit_code, prepare, temporary_folder
from tests.kit.hypothesis_profile import ALL_EXAMPLES, examples
from tests.soak import counts

pytestmark = pytest.mark.dear("pytest runs in processes of its own")

REPOSITORY = Path(__file__).parents[1]
TESTS = """
import os, sys, time
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.judge
def test_judge(): print("said by the judge"); assert "DONE" not in os.environ

@pytest.mark.spark
@pytest.mark.slow
def test_slow_spark(): pass

@pytest.mark.judge
@pytest.mark.kafka
def test_two(): pass

@pytest.mark.kafka
@pytest.mark.integration
def test_one(): sys.exit(1) if "ENDS" in os.environ else None
"""
INI = "[pytest]\nmarkers =\n    slow: \n    judge: \n    spark: \n    kafka: \n    integration: \n    soak: \n"


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(INI)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    command = [sys.executable, "-m", "tests", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_each_test_runs_in_one_part(tmp_path: Path) -> None:
    done = run(tmp_path, "-q", "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"PASSED test_some.py::test_(.*)", done.stdout)
    assert names == ["slow_spark", "two", "plain", "slow", "judge", "one"]
    parts = re.findall(r"tests (.*): exit code (.*) after \d+ s", done.stdout)
    assert sorted(parts) == sorted((part, "0") for part in PARTS if part not in (STORAGE, LOCAL))


def test_what_is_asked_for_narrows_every_part(tmp_path: Path) -> None:
    done = run(tmp_path, "-q", "-rA", "-m", "slow or judge", "-k", "not two")
    assert re.findall(r"PASSED test_some.py::test_(.*)", done.stdout) == ["slow_spark", "slow", "judge"]
    nothing = run(tmp_path, "-k", "nothing")
    assert nothing.returncode == NOTHING_COLLECTED and "exit code" not in nothing.stdout
    assert run(tmp_path, "--no-such-option").returncode == pytest.ExitCode.USAGE_ERROR


def test_a_failure_is_told_with_its_output_and_runs_again(tmp_path: Path) -> None:
    failed = run(tmp_path, "-q", DONE="1")
    assert failed.returncode == pytest.ExitCode.TESTS_FAILED
    assert failed.stdout.count("\nsaid by the judge\n") == 1
    again = run(tmp_path, "-q", "-rA", "--last-failed")
    assert again.returncode == 0 and re.findall(r"PASSED test_some.py::test_(.*)", again.stdout) == ["judge"]


def test_files_that_start_threads_or_cannot_be_read_run_nothing(tmp_path: Path) -> None:
    program = "import threading, time\nthreading.Thread(target=time.sleep, args=[1]).start()"
    (tmp_path / "test_thread.py").write_text(program)
    started = run(tmp_path)
    assert started.returncode == pytest.ExitCode.USAGE_ERROR and "start no threads" in started.stderr
    (tmp_path / "test_thread.py").write_text("import nowhere")
    unread = run(tmp_path)
    assert unread.returncode == pytest.ExitCode.INTERRUPTED and "No module named 'nowhere'" in unread.stdout


@pytest.mark.parametrize(
    ("codes", "together"), [((0, 0), 0), ((0, 1), 1), ((2, 0), 2), ((0, 5), 0), ((5, 5), 5), ((5, 1), 1), ((0, -9), -9)]
)
def test_the_exit_code_of_all(codes: tuple[int, int], together: int) -> None:
    assert exit_code(codes) == together


def test_bytecode_is_kept_whoever_asks_for_none(tmp_path: Path) -> None:
    given = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "x", counts.SEED: "1"}
    kept = {"HOME": "x", "PYTHONFAULTHANDLER": "1", counts.SEED: "1"}
    prepare(given, None)
    assert given == kept
    prepare(given, tmp_path)
    assert given == {**kept, "TMPDIR": str(tmp_path)}


def test_files_lie_in_memory_only_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "MEMORY_MIN_BYTES", 1)
    ended, other = tmp_path / f"{FOLDER_PREFIX}999999999", tmp_path / "somebody's"
    for folder in (ended, other):
        folder.mkdir()
    made = temporary_folder({}, tmp_path)
    assert made is not None and made.is_dir()
    assert sorted(tmp_path.iterdir()) == sorted([made, other])
    assert temporary_folder({"TMPDIR": "/mine"}, tmp_path) is None
    assert temporary_folder({}, tmp_path / "nowhere") is None
    monkeypatch.setattr(__main__, "MEMORY_MIN_BYTES", 1 << 62)
    assert temporary_folder({}, tmp_path) is None


def _properties_inside(path: Path) -> Iterator[tuple[str, str]]:
    """(name, decorators) of the test functions in which a property is run that draws fewer examples in quick runs."""
    for function in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            inner = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
            if any("examples(" in ast.unparse(each) for node in inner for each in node.decorator_list):
                yield f"{path.name}::{function.name}", " ".join(map(ast.unparse, function.decorator_list))


def test_properties_inside_of_tests_are_found_by_the_marker() -> None:
    """Hypothesis marks what it decorates itself; all examples are drawn of what has its marker."""
    found = [each for path in sorted(Path(__file__).parent.rglob("test_*.py")) for each in _properties_inside(path)]
    assert len(found) > 5
    assert [name for name, marks in found if "mark.hypothesis" not in marks] == []


@pytest.mark.parametrize(("count", "few"), [(100, 10), (40, 4), (25, 3), (2, 2)])
def test_quick_runs_draw_a_tenth_of_the_examples(count: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL_EXAMPLES, raising=False)
    assert examples(count) == few
    monkeypatch.setenv(ALL_EXAMPLES, "1")
    assert examples(count) == count
