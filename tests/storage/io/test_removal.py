"""Removals of files of a table: which of them count, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.removal import Removal


@pytest.mark.parametrize(
    ("names", "in_turn", "deleted", "failed", "left"),
    [
        (["a/1", "b/2"], False, 2, 0, ["link/3", "link/4"]),
        (["a/1", "link/3", "b/2", "link/4"], False, 2, 2, ["link/3", "link/4"]),
        (["a/1", "link/3", "b/2"], True, 1, 1, ["b/2", "link/3", "link/4"]),
        (["link/3", "a/1"], True, 0, 1, ["a/1", "b/2", "link/3", "link/4"]),
        (["a/1", "never"], True, 1, 0, ["b/2", "link/3", "link/4"]),
    ],
)
def test_what_lies_behind_a_link_has_failed(
    names: list[str], in_turn: bool, deleted: int, failed: int, left: list[str], tmp_path: Path
) -> None:
    table = tmp_path / "t"
    (tmp_path / "outside").mkdir()
    table.mkdir()
    (table / "link").symlink_to(tmp_path / "outside")
    for name in ("a/1", "b/2", "link/3", "link/4"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).touch()
    found = Removal(LocalFileIO(), str(table)).delete_all([f"{table}/{name}" for name in names], in_turn=in_turn)
    assert (found.deleted_count, found.failed_count) == (deleted, failed)
    assert isinstance(found.cause, InvalidRequestError) is bool(failed)
    assert [name for name in ("a/1", "b/2", "link/3", "link/4") if (table / name).exists()] == left
