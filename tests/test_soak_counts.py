"""Which runs have the tests of `make soak`, how much of each count they run, and how one is repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import counts
from tests.soak.counts import Count, chance_of

pytestmark = pytest.mark.dear("pytest runs in processes of its own")

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest
from tests.soak.counts import seed

@pytest.mark.soak
def test_long(): assert seed() == 5

def test_short(): pass
"""


@pytest.mark.parametrize(
    ("share", "expected"), [(None, [1000, 10, 3, 1]), ("0.1", [100, 1, 1, 1]), ("0.25", [250, 2, 1, 1])]
)
def test_a_share_of_each_count_and_never_nothing(
    share: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(counts.SHARE, raising=False)
    if share is not None:
        monkeypatch.setenv(counts.SHARE, share)
    assert [Count(full, "things").now() for full in (1000, 10, 3, 1)] == expected


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "nan", "", "a tenth"])
def test_a_share_that_is_none_is_refused(share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(counts.SHARE, share)
    with pytest.raises(ValueError, match="FRESHET_SOAK_SHARE .* at most 1"):
        Count(10, "things").now()


def test_the_seed_decides_what_chance_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    def draws() -> list[float]:
        return [chance_of("readers", 1).random(), chance_of("readers", 2).random(), chance_of("writers", 1).random()]

    monkeypatch.setenv(counts.SEED, "7")
    first = draws()
    assert draws() == first and len(set(first)) == 3
    monkeypatch.setenv(counts.SEED, "8")
    assert not set(draws()) & set(first)
    monkeypatch.setenv(counts.SEED, "seven")
    with pytest.raises(ValueError, match="FRESHET_SOAK_SEED .* whole number"):
        chance_of("readers")


@pytest.mark.parametrize(("marks", "has_long"), [("", False), ("not slow", False), ("(soak) and (not spark)", True)])
def test_only_who_asks_for_the_long_tests_gets_them(tmp_path: Path, marks: str, has_long: bool) -> None:
    """The seed is in the first lines, for runs that are ended, and in the last."""
    (tmp_path / "test_some.py").write_text(TESTS)
    program = [sys.executable, "-m", "pytest", "-p", "tests.kit.soak_runs", "-m", marks, "-v", "-c", "/dev/null", "."]
    variables = {counts.SEED: "5", counts.SHARE: "0.1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert ("test_long PASSED" in done.stdout) == has_long
    assert ("test_short PASSED" in done.stdout) == ("soak" not in marks)
    assert done.stdout.count("soak: FRESHET_SOAK_SEED=5 FRESHET_SOAK_SHARE=0.1") == (2 if has_long else 0)


def test_each_run_has_a_seed_of_its_own() -> None:
    assert len({counts.new_seed() for _ in range(3)}) == 3
