"""How `python -m tests` divides the tests: each runs in one half, whatever is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.__main__ import HALVES, command, exit_code

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
"""


@pytest.mark.parametrize(
    ("asked", "plain", "with_parts"),
    [
        ([], ["plain", "slow"], ["judge", "slow_spark"]),
        (["-m", "not slow"], ["plain"], ["judge"]),
        (["-m", "not slow", "-m", "slow or judge"], ["slow"], ["judge", "slow_spark"]),
        (["-k", "slow"], ["slow"], ["slow_spark"]),
    ],
)
def test_each_test_runs_in_one_half(tmp_path: Path, asked: list[str], plain: list[str], with_parts: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    found = []
    for half in HALVES:
        listed = [*command(half, asked), "--collect-only", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "."]
        lines = subprocess.run(listed, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
        found.append([line.split("::test_")[1] for line in lines if "::" in line])
    assert found == [plain, with_parts]
    assert command(HALVES[0], asked)[0] == sys.executable


@pytest.mark.parametrize(
    ("codes", "together"), [((0, 0), 0), ((0, 1), 1), ((2, 0), 2), ((0, 5), 0), ((5, 5), 5), ((5, 1), 1), ((0, -9), -9)]
)
def test_the_exit_code_of_both(codes: tuple[int, int], together: int) -> None:
    assert exit_code(codes) == together
