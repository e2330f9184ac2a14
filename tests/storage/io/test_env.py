"""`Env` gives the real clock, ids, jitter and scratch space."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import Env, local_env
from freshet.storage.io.local_file_io import LocalFileIO


class FixedClock(Env):
    """An environment at a given instant."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(LocalFileIO())
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def test_now_is_the_wall_clock() -> None:
    before = time.time() * 1000
    assert before - 1 <= local_env().now_ms() <= time.time() * 1000 + 1


@pytest.mark.parametrize(
    ("zone", "now_ms", "shift_hours"),
    [
        ("Europe/Berlin", 1_700_000_000_000, 1),
        ("Europe/Berlin", 1_690_000_000_000, 2),
        ("America/New_York", 1_700_000_000_000, -5),
        ("UTC", 1_700_000_000_000, 0),
    ],
)
def test_creation_time_is_the_local_wall_clock_as_if_it_were_utc(
    zone: str, now_ms: int, shift_hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert FixedClock(now_ms).creation_time_ms() == now_ms + shift_hours * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_ids_are_unique_and_jitter_lies_in_the_unit_interval() -> None:
    env = local_env()
    assert len({env.new_uuid() for _ in range(100)}) == 100
    assert all(0 <= env.jitter() < 1 for _ in range(100))


def test_scratch_folders_are_new_and_removed_with_their_contents(tmp_path: Path) -> None:
    env = local_env(str(tmp_path))
    first, second = env.scratch_folder(), env.scratch_folder()
    assert first != second
    (Path(first) / "spill").write_bytes(b"x")
    env.release_scratch(first)
    assert os.listdir(tmp_path) == [os.path.basename(second)]


def test_a_missing_scratch_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="scratch folder in .*gone"):
        local_env(str(tmp_path / "gone")).scratch_folder()
