"""A run with a share of the slow tests, or with few cases of some: which it has, and that other seeds have others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit import slow_share, slow_time
from tests.soak import counts

ROOT = Path(__file__).parents[1]
COUNT = 40
SLOW = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_slow(number): pass

@pytest.mark.slow
@pytest.mark.takes_its_share
def test_of_others(): pass

def test_quick(): pass
"""


FEW = """
import pytest

@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(20))
def test_long(number): pass

def test_quick(): pass
"""


def collected(folder: Path, share: str, seed: int) -> set[str]:
    (folder / "test_some.py").write_text(SLOW)
    (folder / "run_by_another.py").write_text("def test_b(): pass\n\ndef test_c(): pass\n")
    files = ["test_some.py", "run_by_another.py"]
    program = [sys.executable, "-m", "pytest", "-p", "tests.kit.slow_share", "--collect-only", "-q", "-c", "/dev/null"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), counts.SEED: str(seed), slow_share.SHARE: share}
    done = subprocess.run([*program, *files], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}


def test_other_seeds_run_other_tests_and_quick_ones_always_run(tmp_path: Path) -> None:
    everything = collected(tmp_path, "1", 1)
    runs = [collected(tmp_path, "0.5", seed) for seed in range(6)]
    assert len(everything) == COUNT + 4
    assert set.union(*runs) == everything
    assert all({"test_quick", "test_of_others"} <= run < everything for run in runs)
    assert collected(tmp_path, "0.5", 3) == runs[3]


def test_few_cases_are_quick_and_the_others_slow(tmp_path: Path) -> None:
    def chosen(seed: int, marks: str) -> set[str]:
        (tmp_path / "test_some.py").write_text(FEW)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n    few: few\n")
        program = [sys.executable, "-m", "pytest", "-p", "tests.kit.slow_share", "--collect-only", "-q", "-m", marks]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), counts.SEED: str(seed), slow_share.SHARE: "1"}
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

def test_quick(kept): pass
"""


@pytest.mark.parametrize(("until", "run", "left"), [("9e9", 24, 0), ("0", 6, 18), ("13", 12, 12)])
def test_slow_tests_run_until_their_time_is_over(tmp_path: Path, until: str, run: int, left: int) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(TIMED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n")
    (tmp_path / "conftest.py").write_text(
        "import time\n"
        "from tests.kit import slow_time\n"
        "class Clock:\n"
        "    asked = 0\n"
        "    def time(self):\n"
        "        Clock.asked += 1\n"
        "        return Clock.asked\n"
        "slow_time.time = Clock()\n"
    )
    program = [sys.executable, "-m", "pytest", "-p", "tests.kit.slow_share", "-p", "tests.kit.slow_time", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), counts.SEED: "1", slow_time.UNTIL: until}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"slow tests: {run} run, {left} left out" in done.stdout
    assert f"{run + 6} passed" in done.stdout


def test_processes_that_come_later_have_the_rest_of_the_time() -> None:
    before = time.time()
    given = [float(each[slow_time.UNTIL]) - before for each in slow_time.ends("10", 3, 5)]
    assert [round(each / 60) for each in given] == [5, 5, 5, 10, 10]
    assert slow_time.ends(None, 3, 5) == [{}] * 5
    for minutes in ("0", "-1", "ten"):
        with pytest.raises(ValueError, match=r"FRESHET_SLOW_MINUTES|could not convert"):
            slow_time.ends(minutes, 3, 5)


@pytest.mark.parametrize("share", ["0", "1.5", "half"])
def test_a_share_that_is_none_is_refused(share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slow_share.SHARE, share)
    with pytest.raises(ValueError, match="FRESHET_SLOW_SHARE .* at most 1"):
        slow_share.share()
