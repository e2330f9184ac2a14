"""`Env` gives the real clock, ids, jitter and scratch space."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshet.storage.exceptions import StorageError
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


def test_a_missing_scratch_root_is_made_or_named(tmp_path: Path) -> None:
    folder = local_env(str(tmp_path / "a" / "b")).scratch_folder()
    assert Path(folder).parent == tmp_path / "a" / "b"
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="scratch folder in .*file"):
        local_env(str(tmp_path / "file")).scratch_folder()


def _leave_a_folder(root: Path) -> Path:
    """A process makes a scratch folder, puts something there and is killed."""
    code = (
        "import os, signal, sys\n"
        "from freshet.storage.io.env import local_env\n"
        "folder = local_env(sys.argv[1]).scratch_folder()\n"
        "open(os.path.join(folder, 'run'), 'wb').write(b'x' * 1000)\n"
        "print(folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr
    folder = Path(found.stdout.strip())
    assert (folder / "run").is_file(), "the kill left it"
    return folder


def test_the_next_process_that_needs_scratch_space_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    living = local_env(str(tmp_path)).scratch_folder()
    left = _leave_a_folder(tmp_path)
    (tmp_path / "freshet-notes").mkdir()
    mine = local_env(str(tmp_path)).scratch_folder()
    assert not left.exists()
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(living), os.path.basename(mine), "freshet-notes"])


def test_scratch_space_of_killed_processes_is_swept_on_request(tmp_path: Path) -> None:
    env = local_env(str(tmp_path))
    mine = env.scratch_folder()
    left = _leave_a_folder(tmp_path)
    assert env.sweep_scratch() == [str(left)]
    assert env.sweep_scratch() == []
    assert os.path.isdir(mine)
