"""Building an index: what is said meanwhile, threads that end with it, and entries that have expired."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.storage.exceptions import RetryableError
from freshet.storage.io.env import Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.place_index import index_build
from freshet.storage.place_index.index_build import BuildProgress, LoggedBuild
from freshet.storage.place_index.index_database import ALL_KEYS, BrokenIndexError, IndexDatabase, KeyShare
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.table import Table
from tests.storage.place_index.test_broken_indexes import count_builds
from tests.storage.write.test_moving_rows import COLUMNS, create, found, given_rows, write

HOUR_MS = 3_600_000


def seen_rows(monkeypatch: pytest.MonkeyPatch) -> list[BuildProgress]:
    seen: list[BuildProgress] = []
    told = LoggedBuild.__call__

    def noted(build: LoggedBuild, progress: BuildProgress) -> None:
        seen.append(progress)
        told(build, progress)

    monkeypatch.setattr(LoggedBuild, "__call__", noted)
    return seen


@pytest.mark.parametrize("share", [ALL_KEYS, KeyShare(1, 3)])
def test_a_build_that_takes_long_says_how_far_it_is(
    share: KeyShare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_build, "PIECE_KEYS", 100)
    monkeypatch.setattr(index_build, "FIRST_REPORT_S", 0.0)
    monkeypatch.setattr(index_build, "REPORT_EVERY_S", 0.0)
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "400"})
    for start in range(0, 1000, 250):
        write(table, *((key, "abc"[key % 3], start, "+I") for key in range(start // 2, start // 2 + 500)))
    shutil.rmtree(tmp_path / "index")
    seen = seen_rows(monkeypatch)
    caplog.clear()
    index = ShareIndex(table.store, table.store.snapshots.latest(), share)
    index.close()
    total = sum(entry.file.row_count for entry in table.files())
    assert {progress.rows_total for progress in seen} == {total}
    done = [progress.rows_done for progress in seen]
    assert done == sorted(done)
    assert done[-1] == total, "rows that merging leaves out, and keys of other shares, are done as well"
    name = table.location if share == ALL_KEYS else f"{table.location}, share 2 of 3"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines[-2] == f"{name}: the index of its keys is built: {total} of {total} rows were read (100 %)"
    assert lines[-1].startswith(f"{name}: built the index of {sum(index.counts.values())} keys in ")


def test_a_build_that_is_quick_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = create(tmp_path)
    write(table, (1, "a", 1, "+I"))
    shutil.rmtree(tmp_path / "index")
    with caplog.at_level(logging.INFO, logger="freshet"):
        write(table, (1, "b", 1, "+I"))
    assert [record.levelno for record in caplog.records if "built the index" in record.getMessage()] == [logging.INFO]


def test_nothing_is_read_any_more_when_a_build_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "PIECE_KEYS", 100)
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "100"})
    write(table, *((key, "abc"[key % 3], 0, "+I") for key in range(2000)))
    shutil.rmtree(tmp_path / "index")
    seen = seen_rows(monkeypatch)

    def full(database: IndexDatabase, *_: object) -> None:
        raise BrokenIndexError(f"{database.folder}: no room")

    monkeypatch.setattr(IndexDatabase, "load", full)
    with pytest.raises(RetryableError, match="no room"):
        ShareIndex(table.store, table.store.snapshots.latest())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("freshet-index")]
    assert seen[-1].rows_done < seen[-1].rows_total


class Clock(Env):
    """Stands still until it is set."""

    def __init__(self) -> None:
        super().__init__(LocalFileIO())
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


def expiring(path: Path) -> tuple[Table, Clock]:
    """A table whose index lets go of keys after an hour."""
    clock = Clock()
    options = {"cross-partition-upsert.index-dir": str(path / "index"), "cross-partition-upsert.index-ttl": "1 h"}
    table = Catalog(str(path / "lake"), env=clock).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], partition_keys=["p"], options=options
    )
    return table, clock


@pytest.mark.parametrize("is_built", [True, False])
def test_keys_that_were_not_written_for_long_count_as_new(is_built: bool, tmp_path: Path) -> None:
    """Also where the index is built: files that are older are left out."""
    table, clock = expiring(tmp_path)
    write(table, (1, "a", 1, "+I"), (2, "a", 1, "+I"))
    clock.ms += HOUR_MS // 2
    write(table, (3, "b", 1, "+I"))
    clock.ms += HOUR_MS // 2 + 60_000
    if is_built:
        shutil.rmtree(tmp_path / "index")
    write(table, (1, "c", 2, "+I"), (3, "c", 2, "+I"))
    rows = sorted((row["k"], row["p"]) for row in table.scan().to_arrow().to_pylist())
    assert rows == [(1, "a"), (1, "c"), (2, "a"), (3, "c")], "key 1 is in two partitions: the price of the option"
    if is_built:
        index = ShareIndex(table.store, table.store.snapshots.latest())
        assert sum(index.counts.values()) == 2, "nothing of key 2 was read"
        index.close()


def test_an_index_with_another_ttl_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = expiring(tmp_path)
    write(table, (1, "a", 1, "+I"))
    clock.ms += HOUR_MS + 60_000
    builds = count_builds(monkeypatch)
    write(table, (2, "a", 1, "+I"))
    assert not builds
    longer = table.with_options({"cross-partition-upsert.index-ttl": "2 h"})
    with longer.writer("w") as writer:
        writer.write(given_rows([(1, "b", 2, "+I")]))
        writer.commit()
    assert builds == [ALL_KEYS]
    assert found(table) == {1: ("b", 2), 2: ("a", 1)}, "what the former index had let go of is known again"
