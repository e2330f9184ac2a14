"""How `python -m tests` divides the tests: each runs in one part, whatever is asked for."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import __main__
from tests.__main__ import FOLDER_PREFIX, NOTHING_COLLECTED, PARTS, command, environment, exit_code, temporary_folder
from tests.kit.hypothesis_profile import ALL_EXAMPLES, examples
from tests.kit.marked_files import names_any

REPOSITORY = Path(__file__).parents[1]
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.judge
def test_judge(): pass

@pytest.mark.spark
@pytest.mark.slow
def test_slow_spark(): pass

@pytest.mark.judge
@pytest.mark.kafka
def test_two(): pass
"""


def test_each_test_runs_in_one_part(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    asked = ["-m", "slow or judge", "--collect-only", "-q", "-c", "/dev/null", "."]
    found = []
    for part in PARTS:
        listed = subprocess.run(
            command(part, asked),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert listed.returncode in (0, NOTHING_COLLECTED), listed.stdout
        found.append([line.split("::test_")[1] for line in listed.stdout.splitlines() if "::" in line])
    assert found == [[], ["slow"], ["judge"], [], ["slow_spark", "two"]]


@pytest.mark.parametrize("asked", [[], ["-m", "slow"], ["-m", "slow", "-m", "not slow", "-k", "x", "tests/storage"]])
def test_what_is_asked_for_narrows_every_part(asked: list[str]) -> None:
    for part in PARTS:
        python, *_, marks = command(part, asked)[:5]
        assert python == sys.executable
        expected = {0: "", 2: "(slow) and ", 7: "(not slow) and "}[len(asked)]
        assert marks == (f"{expected}({part.marks})" if expected else part.marks)
        assert command(part, asked)[9:] == asked[4:]


@pytest.mark.parametrize(
    ("codes", "together"), [((0, 0), 0), ((0, 1), 1), ((2, 0), 2), ((0, 5), 0), ((5, 5), 5), ((5, 1), 1), ((0, -9), -9)]
)
def test_the_exit_code_of_all(codes: tuple[int, int], together: int) -> None:
    assert exit_code(codes) == together


def test_files_without_the_markers_of_a_part_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "test_spark.py").write_text("import pytest\npytestmark = pytest.mark.spark")
    (tmp_path / "test_none.py").write_text("'''spark, and pytest.mark.slow'''")
    found = {
        part.name: [path.name for path in sorted(tmp_path.iterdir()) if names_any(path, part.words)] for part in PARTS
    }
    assert [found[part.name] for part in PARTS] == [[], [], [], ["test_spark.py"], ["test_spark.py"]]
    assert PARTS[0].words == PARTS[1].words == (), "all files"


def test_bytecode_is_kept_whoever_asks_for_none(tmp_path: Path) -> None:
    given = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "x"}
    kept = {"HOME": "x", "PYTHONFAULTHANDLER": "1"}
    assert environment(given, None) == kept
    assert environment(given, tmp_path) == {**kept, "TMPDIR": str(tmp_path)}


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


@pytest.mark.parametrize(("count", "few"), [(100, 25), (25, 6), (6, 3), (2, 2)])
def test_quick_runs_draw_a_quarter_of_the_examples(count: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL_EXAMPLES, raising=False)
    assert examples(count) == few
    monkeypatch.setenv(ALL_EXAMPLES, "1")
    assert examples(count) == count
