"""A run with little time for slow tests, or with few cases of some: which it has, and that other seeds have others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.__main__ import NOTHING_COLLECTED
from tests.kit import slow_time
from tests.kit.slow_time import SlowTime
from tests.soak import counts

pytestmark = pytest.mark.dear("pytest runs in processes of its own")

ROOT = Path(__file__).parents[1]
ALONE = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""For a pytest without installed plugins: Hypothesis alone takes half of its time to start."""
FEW = """
import pytest

@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(20))
def test_long(number): pass

def test_quick(): pass
"""


def test_few_cases_are_quick_and_the_others_slow(tmp_path: Path) -> None:
    def chosen(seed: int, marks: str) -> set[str]:
        (tmp_path / "test_some.py").write_text(FEW)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n    few: few\n")
        program = [sys.executable, "-m", "pytest", "-p", "tests.kit.few_cases", "--collect-only", "-q", "-m", marks]
        environment = {**os.environ, **ALONE, counts.SEED: str(seed)}
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}

    quick, slow = chosen(1, "not slow"), chosen(1, "slow")
    assert len(quick) == 4 and "test_quick" in quick and len(slow) == 17 and not quick & slow
    assert chosen(1, "not slow") == quick != chosen(2, "not slow")


TIMED = """
import time
import pytest

@pytest.fixture(scope="module", params=range(3))
def kept(request):
    yield request.param

@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_slow(number, kept): time.sleep(0.02)

@pytest.mark.slow
@pytest.mark.always("a judge")
def test_judge(): pass

def test_quick(kept): pass
"""
CLOCK = """
import time
from tests.kit import slow_time

class Clock:
    asked = 0
    def time(self):
        Clock.asked += 1
        return Clock.asked

slow_time.time = Clock()
"""


def timed(folder: Path, minutes: str, seed: int = 1, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run on whose clock a second passes for each slow test."""
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(TIMED)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n    always: always\n    soak: soak\n")
    (folder / "conftest.py").write_text(CLOCK)
    plugins = ["-p", "tests.kit.soak_runs", "-p", "tests.kit.slow_time"]
    program = [sys.executable, "-m", arguments[0] if arguments else "pytest", *plugins, "-v", *arguments[1:]]
    environment = {**os.environ, **ALONE, counts.SEED: str(seed), slow_time.MINUTES: minutes}
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("minutes", "run", "left"), [("99", 24, 0), ("0.001", 0, 24), ("0.2", 11, 13)])
def test_slow_tests_run_until_their_time_is_over(tmp_path: Path, minutes: str, run: int, left: int) -> None:
    done = timed(tmp_path, minutes)
    assert done.returncode == 0, done.stdout
    assert f"slow tests: {run} drawn, {left} left out" in done.stdout
    assert f"{run + 8} passed" in done.stdout, "those that are quick, or always run"


def test_other_seeds_draw_other_tests_of_every_file(tmp_path: Path) -> None:
    def drawn(seed: int) -> list[str]:
        return re.findall(r"(test_.\.py::test_slow.*) PASSED", timed(tmp_path, "0.2", seed).stdout)

    runs = [drawn(seed) for seed in range(2)]
    assert len(set().union(*runs)) > len(runs[0]) == 11
    assert all({name[:9] for name in run} == {"test_a.py", "test_b.py"} for run in runs)
    assert drawn(1) == runs[1]


def test_a_run_that_draws_too_few_fails(tmp_path: Path) -> None:
    few = timed(tmp_path, "0.2", 1, "tests")
    assert few.returncode == 0, few.stdout
    assert "slow tests: 11 drawn, 13 left out" in few.stdout, "the sum of the processes"
    none = timed(tmp_path, "1", 1, "tests", "-k", "never")
    assert none.returncode == NOTHING_COLLECTED
    slow = SlowTime(slow_time.MINUTES, "12")
    slow.drawn, slow.left_out = slow.floor() - 1, 1
    assert slow.is_below_its_floor()
    slow.left_out = 0
    assert not slow.is_below_its_floor(), "there are no more"


def test_what_always_runs_has_its_tests() -> None:
    found = set[str]()
    for path in (ROOT / "tests").rglob("*.py"):
        for call in re.findall(r"mark\.always\(([^)]*)\)", path.read_text(encoding="utf-8")):
            found.update(re.findall(r'"([^"]+)"', call))
    assert found - {"a judge"} == slow_time.ALWAYS


def test_processes_that_come_later_have_the_rest_of_the_time() -> None:
    before = time.time()
    run = SlowTime(slow_time.MINUTES, "10")
    assert [round((each - before) / 60) for each in run.ends(5, 3)] == [5, 5, 5, 10, 10]
    assert [round((each - before) / 60) for each in run.ends(2, 3)] == [10, 10]
    for minutes in ("0", "-1", "ten"):
        with pytest.raises(ValueError, match=r"FRESHET_SLOW_MINUTES is .* a number of minutes above 0"):
            SlowTime(slow_time.MINUTES, minutes)
