"""Lookups through stores: the same answers as by reading, whatever happens to the stores."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import freshet.storage.lookup.lookup_cost as lookup_cost
import freshet.storage.lookup.store_cache as store_cache
from freshet.storage.exceptions import MissingFileError
from freshet.storage.files.data_file_paths import data_file_path
from freshet.storage.io.env import Env
from freshet.storage.io.local_cache import LocalCache
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.lookup import open_stores
from freshet.storage.lookup.cached_lookup import CachedLookup
from freshet.storage.lookup.kept_rows import rows_of_file
from freshet.storage.lookup.lookup_cost import FileCosts
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from tests.storage.lookup.lookup_tables import LookupTable, eager, even_rows, keys

ASKED = keys(0, 3, 4, 18, 30)
VALUES_FOUND = [None, None, "v2", None, None]


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with eager():
        yield


def _values(lookup: CachedLookup, file: DataFileMeta) -> list[Any]:
    return lookup.find(file, ASKED, ["v"]).by_key()["v"].to_pylist()


def _check(table: LookupTable, **counts: int) -> None:
    """A lookup gives what is stored; it counts so much besides the keys."""
    lookup = table.lookup()
    found = lookup.find(table.file, ASKED, ["v", "w"])
    assert found.rows.column_names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "v", "w"]
    assert found.rows["w"].to_pylist() == [0, 2, 9]
    assert found.by_key()["v"].to_pylist() == VALUES_FOUND
    assert lookup.metrics.counts() == {"keys": 5, "found": 3, **counts}


def test_each_lookup_names_the_row_in_the_file(tmp_path: Path) -> None:
    table = LookupTable(tmp_path)
    found = table.lookup().find(table.file, ASKED, None)
    assert found.file_rows is not None
    assert found.file_rows.tolist() == [0, -1, 2, 9, -1]


# ------------------------------------------------------------------------------------------ stores that are no good


def _spoiled(path: Path, how: str, other: Path) -> None:
    content = path.read_bytes()
    spoiled = {
        "empty": b"",
        "cut short": content[: len(content) // 2],
        "one byte": content[:100] + bytes([content[100] ^ 1]) + content[101:],
        "zeros": bytes(len(content)),
        "of another file": other.read_bytes(),
        "no store": b"PAR1" * 100,
    }[how]
    path.unlink()
    path.write_bytes(spoiled)


@pytest.mark.parametrize("how", ["empty", "cut short", "one byte", "zeros", "of another file", "no store"])
def test_a_broken_store_is_thrown_away_and_built_again(tmp_path: Path, how: str) -> None:
    table, other = LookupTable(tmp_path / "a"), LookupTable(tmp_path / "b", even_rows(20))
    _check(table, by_store=1, stores_built=1)
    other.lookup().find(other.file, ASKED, ["v"])
    (path,) = table.stores
    _spoiled(path, how, other.stores[0])
    table.restart()
    lookup = table.lookup()
    assert _values(lookup, table.file) == VALUES_FOUND
    assert lookup.metrics.counts()["stores_broken"] == 1
    assert _values(lookup, table.file) == VALUES_FOUND
    assert lookup.metrics.counts()["stores_built"] == 1
    assert lookup.metrics.counts()["by_store"] >= 1
    table.restart()
    _check(table, by_store=1)


def test_a_data_file_that_is_gone_is_an_error_with_a_cache_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = LookupTable(tmp_path)
    table.placed.env.file_io.delete(data_file_path(table.placed.store, EMPTY_ROW, 0, table.file))
    with pytest.raises(MissingFileError):
        _values(table.lookup(), table.file)
    assert not table.stores
    assert not caplog.records


# ----------------------------------------------------------------------------------------------------- no room


def _assert_reads_with_one_warning(table: LookupTable, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        _check(table, by_reading=1)
    (record,) = caplog.records
    assert "lookup.cache-dir" in record.getMessage()
    assert str(table.cache.parent) in record.getMessage()


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also not by root: it is no folder."""
    table = LookupTable(tmp_path)
    table.cache.parent.write_text("a file")
    _assert_reads_with_one_warning(table, caplog)


def test_a_rocksdb_store_in_a_folder_that_cannot_be_written_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The binding of RocksDB writes a file whenever it opens a database, also one that is only read."""
    table = LookupTable(tmp_path, **{"cache.store": "rocksdb"})
    _check(table, by_store=1, stores_built=1)
    table.restart()

    def refused(*_: object, **__: object) -> None:
        raise OSError("Read-only file system (os error 30)")

    with monkeypatch.context() as patch:
        patch.setattr("rocksdict.Rdict", refused)
        _check(table, by_reading=1)
    table.restart()
    _check(table, by_store=1)


def test_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LocalCache, "free_bytes", lambda self: 100)
    table = LookupTable(tmp_path)
    _assert_reads_with_one_warning(table, caplog)
    assert not table.stores


class _Clock(Env):
    """A clock that the test sets."""

    def __init__(self) -> None:
        super().__init__(LocalFileIO())
        self.ms = super().now_ms()

    def now_ms(self) -> int:
        return self.ms


def test_it_is_tried_again_when_some_time_has_passed(tmp_path: Path) -> None:
    env = _Clock()
    table = LookupTable(tmp_path, env=env)
    table.cache.parent.write_text("a file")
    _check(table, by_reading=1)
    table.cache.parent.unlink()
    _check(table, by_reading=1)
    env.ms += store_cache.RETRY_MS
    _check(table, by_store=1, stores_built=1)


def test_no_stores_at_all(tmp_path: Path) -> None:
    table = LookupTable(tmp_path, cache_max_disk_size="0")
    _check(table, by_reading=1)
    assert not table.stores


# ------------------------------------------------------------------------------------------------------- letting go


def _three_files(folder: Path, env: Env, **options: str) -> tuple[LookupTable, list[DataFileMeta]]:
    table = LookupTable(folder, even_rows(10), env=env, **options)
    for start in (100, 200):
        table.place([{**row, "k": row["k"] + start} for row in even_rows(10)])
    return table, table.files


def test_what_was_used_longest_ago_gives_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = _Clock()
    table, (first, second, third) = _three_files(tmp_path, env, **{"cache.store": "mapped"})
    lookup = table.lookup()
    lookup.find(first, ASKED, None)
    size = table.stores[0].stat().st_size
    env.ms += 1000
    lookup.find(second, ASKED, None)
    env.ms += store_cache.NOTE_MS + 1000
    lookup.find(first, ASKED, None)  # so that it is the second that is older
    env.ms += store_cache.BUSY_MS
    limit = f"{size + FileCosts(third.row_count, third.file_size_bytes).store_bytes} b"
    bounded = table.lookup(cache_max_disk_size=limit)
    bounded.find(third, ASKED, None)
    assert bounded.metrics.counts()["stores_evicted"] == 1
    assert sorted(name.name.split(".")[0] for name in table.stores) == sorted(
        file.file_name.split(".")[0] for file in (first, third)
    )
    # Both are in use: nothing is taken from others.
    again = table.lookup(cache_max_disk_size=limit)
    again.find(first, ASKED, None)
    again.find(second, ASKED, None)
    assert again.metrics.counts() == {"keys": 10, "found": 3, "by_store": 1, "by_reading": 1}


def test_what_nobody_asked_for_long_is_removed(tmp_path: Path) -> None:
    env = _Clock()
    table, (first, second, third) = _three_files(tmp_path, env, cache_file_retention="10 min")
    for file in (first, second):
        table.lookup().find(file, ASKED, None)
    for _ in range(4):
        env.ms += 3 * 60 * 1000
        table.lookup().find(first, ASKED, None)
    lookup = table.lookup()
    lookup.find(third, ASKED, None)
    assert lookup.metrics.counts()["stores_evicted"] == 1
    assert len(table.stores) == 2
    assert not any(second.file_name in path.name for path in table.stores)


def test_stores_of_files_that_left_the_bucket_are_removed(tmp_path: Path) -> None:
    table, (first, second, third) = _three_files(tmp_path, _Clock())
    lookup = table.lookup()
    for file in (first, second):
        lookup.find(file, ASKED, None)
    lookup.stores.keep_only([second, third])
    assert [second.file_name in path.name for path in table.stores] == [True]
    assert lookup.metrics.counts()["stores_evicted"] == 1
    lookup.find(first, ASKED, None)  # a reader that still has the file builds it again
    assert lookup.metrics.counts()["stores_built"] == 3


def test_stores_that_another_process_has_removed_are_let_go(tmp_path: Path) -> None:
    table, (first, second, third) = _three_files(tmp_path, _Clock())
    for file in (first, second):
        table.lookup().find(file, ASKED, None)
    for path in table.stores:
        if first.file_name in path.name:
            path.unlink()
    before = len(open_stores.stores_of(table.lookup().stores.table.env).open)
    table.lookup().stores.keep_only([second, third])
    assert (before, len(open_stores.stores_of(table.lookup().stores.table.env).open)) == (2, 1)


def _made_ahead(table: LookupTable, file: DataFileMeta, env: _Clock | None = None) -> None:
    """As the compaction does that writes the file."""
    stores = table.lookup().stores
    kept = stores.begin(file.file_name, file.file_size_bytes)
    assert kept is not None
    for rows in rows_of_file(stores.table, EMPTY_ROW, 0, file):
        kept.add(rows)
        if env is not None:
            env.ms += store_cache.BUSY_MS + 1
    kept.finish()


def test_a_store_made_ahead_of_its_file_is_left_for_a_while(tmp_path: Path) -> None:
    env = _Clock()
    table, (first, second, third) = _three_files(tmp_path, env)
    table.lookup().find(first, ASKED, None)
    _made_ahead(table, third)
    lookup = table.lookup()
    lookup.stores.keep_only([first, second])
    assert [third.file_name in path.name for path in table.stores].count(True) == 1
    lookup.find(third, ASKED, None)
    assert lookup.metrics.counts().get("stores_built", 0) == 0
    lookup.stores.keep_only([first, second])  # it was used here: now it has left the bucket
    assert [first.file_name in path.name for path in table.stores] == [True]
    _made_ahead(table, second)
    env.ms += store_cache.BUSY_MS + 1
    table.lookup().stores.keep_only([first])  # its file never came
    assert [first.file_name in path.name for path in table.stores] == [True]


def test_a_store_that_nobody_opened_goes_once_its_file_was_in_the_bucket(tmp_path: Path) -> None:
    table, (first, second, _) = _three_files(tmp_path, _Clock())
    _made_ahead(table, second)
    table.lookup().stores.keep_only([first, second])
    assert len(table.stores) == 1
    table.lookup().stores.keep_only([first])
    assert not table.stores


def test_a_store_that_was_long_in_the_making_is_left_for_a_while_too(tmp_path: Path) -> None:
    env = _Clock()
    table, (first, second, third) = _three_files(tmp_path, env)
    table.lookup().find(first, ASKED, None)
    _made_ahead(table, third, env)
    table.lookup().stores.keep_only([first, second])
    assert [third.file_name in path.name for path in table.stores].count(True) == 1


def test_nothing_stays_of_a_store_whose_file_was_given_up(tmp_path: Path) -> None:
    table = LookupTable(tmp_path)
    stores = table.lookup().stores
    kept = stores.begin("data-x.parquet", 1000)
    assert kept is not None
    for rows in rows_of_file(stores.table, EMPTY_ROW, 0, table.file):
        kept.add(rows)
    assert len(table.stores) == 1
    kept.abort()
    assert not table.stores
    kept.abort()


def test_a_large_store_that_nobody_asked_for_takes_no_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = _Clock()
    table, (first, second, _) = _three_files(tmp_path, env, **{"cache.store": "mapped"})
    table.lookup().find(first, ASKED, None)
    size, needed = table.stores[0].stat().st_size, FileCosts(1, second.file_size_bytes).store_bytes
    env.ms += 2 * store_cache.BUSY_MS + open_stores.SPARE_MS
    limited = table.lookup(cache_max_disk_size=f"{size + needed - 1} b").stores
    monkeypatch.setattr(store_cache, "UNASKED_BYTES_MAX", 0)
    assert limited.begin(second.file_name, second.file_size_bytes) is None
    monkeypatch.setattr(LocalCache, "free_bytes", lambda self: size + 2 * needed - 1)
    assert table.lookup().stores.begin(second.file_name, second.file_size_bytes) is None
    assert len(table.stores) == 1
    monkeypatch.setattr(LocalCache, "free_bytes", lambda self: size + 2 * needed)
    kept = table.lookup().stores.begin(second.file_name, second.file_size_bytes)
    assert kept is not None
    kept.abort()
    monkeypatch.setattr(store_cache, "UNASKED_BYTES_MAX", 1 << 30)
    evicting = limited.begin(second.file_name, second.file_size_bytes)  # a small one is as good as asked for
    assert evicting is not None
    evicting.abort()
    assert not table.stores


# --------------------------------------------------------------------------------------------- in the background


@pytest.fixture
def _never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_cost, "AT_ONCE_S", -1.0)


def _check_reads(table: LookupTable) -> None:
    """A lookup that reads; the store may be there before it is over."""
    lookup = table.lookup()
    assert _values(lookup, table.file) == VALUES_FOUND
    assert lookup.metrics.counts()["by_reading"] == 1


@pytest.mark.usefixtures("_never_at_once")
@pytest.mark.parametrize("kind", ["mapped", "rocksdb"])
def test_the_store_of_a_large_file_is_made_while_lookups_read_it(tmp_path: Path, kind: str) -> None:
    env = Env(LocalFileIO())
    table = LookupTable(tmp_path, env=env, **{"cache.store": kind})
    _check_reads(table)
    env.finish_gradual()
    _check(table, by_store=1)


class _Waiting(_Clock):
    """Gradual work waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Callable[[], Iterator[None]]] = []

    def run_gradually(self, name: str, steps: Callable[[], Iterator[None]]) -> None:
        self.given.append(steps)

    def do_all(self) -> None:
        for steps in self.given:
            for _ in steps():
                self.ms += 1000


@pytest.mark.usefixtures("_never_at_once")
def test_the_file_whose_reading_has_cost_most_gets_its_store_first(tmp_path: Path) -> None:
    env = _Waiting()
    table, (first, second, third) = _three_files(tmp_path, env)
    for file, times in ((first, 1), (second, 3), (third, 2)):
        for _ in range(times):
            table.lookup().find(file, ASKED, None)
    env.do_all()
    made = sorted(table.stores, key=lambda path: path.stat().st_mtime_ns)
    order = [path.name.split(".")[0] for path in made]
    assert order == [file.file_name.split(".")[0] for file in (second, third, first)]


@pytest.mark.usefixtures("_never_at_once")
def test_stores_of_files_that_left_the_bucket_are_no_longer_wanted(tmp_path: Path) -> None:
    env = _Waiting()
    table, (first, second, _) = _three_files(tmp_path, env)
    for file in (first, second):
        table.lookup().find(file, ASKED, None)
    table.lookup().stores.keep_only([second])
    env.do_all()
    assert [second.file_name in path.name for path in table.stores] == [True]


@pytest.mark.usefixtures("_never_at_once")
def test_a_store_that_another_process_is_making_is_left_to_it(tmp_path: Path) -> None:
    env = Env(LocalFileIO())
    table = LookupTable(tmp_path, env=env)
    stores = table.lookup().stores
    folder, _, base = stores._stem(table.file).rpartition("/")
    with LocalCache(str(table.cache.parent), store_cache.FOLDER).locked(f"{folder}/.{base}") as is_held:
        assert is_held
        _check_reads(table)
        env.finish_gradual()
        assert [path.suffix for path in table.stores] == [".lock"]
    _check_reads(table)
    env.finish_gradual()
    _check(table, by_store=1)


@pytest.mark.usefixtures("_never_at_once")
def test_a_data_file_that_goes_while_its_store_is_made(tmp_path: Path) -> None:
    env = Env(LocalFileIO())
    table = LookupTable(tmp_path, env=env)
    file = table.file
    env.file_io.delete(data_file_path(table.placed.store, EMPTY_ROW, 0, file))
    table.lookup().stores.build_later(file)
    env.finish_gradual()
    assert not table.stores


def test_a_store_evicted_while_it_is_mapped_stays_readable(tmp_path: Path) -> None:
    table = LookupTable(tmp_path)
    lookup = table.lookup()
    _values(lookup, table.file)
    store = lookup.stores.find(table.file)
    assert store is not None
    table.stores[0].unlink()
    assert store.find(ASKED, ["v"]).by_key()["v"].to_pylist() == VALUES_FOUND
    _check(table, by_store=1)


def test_unfinished_stores_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    env = _Clock()
    table, (first, second, third) = _three_files(tmp_path, env)
    table.lookup().find(first, ASKED, None)
    left = table.stores[0].with_name(f".data-x.rows.{'0a' * 16}")
    left.write_bytes(b"half")
    table.lookup().find(second, ASKED, None)
    assert left.exists()  # another process may be writing it
    env.ms += 2 * 60 * 60 * 1000
    table.lookup().find(third, ASKED, None)
    assert not left.exists()


# ------------------------------------------------------------------------------------------------- other processes

BUILDER = """
import sys, pyarrow as pa
from freshet.storage.io.env import local_env
from freshet.storage.lookup.cached_lookup import bucket_lookup
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.data_file import EMPTY_ROW
store = open_table_store(local_env(), sys.argv[1])
lookup = bucket_lookup(store, EMPTY_ROW, 0)
(file,) = store.live.at(store.snapshots.latest()).files_of(EMPTY_ROW, 0)
keys = pa.table({"k": list(range(0, 200_000, 7))}).cast(pa.schema([pa.field("k", pa.int64(), nullable=False)]))
print("ready", flush=True)
sys.stdin.readline()
built = lookup.stores.build(file)
assert built is not None
found = built.find(keys, ["w"])
print(int(found.is_found.sum()), sum(found.rows["w"].to_pylist()), flush=True)
"""


def test_a_default_folder_that_another_user_prepared_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = Env(LocalFileIO(), str(tmp_path / "scratch"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / f"freshet-lookup-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    table = LookupTable(tmp_path, env=env)
    lookup = table.lookup(cache_dir="")
    assert _values(lookup, table.file) == VALUES_FOUND
    assert lookup.metrics.counts()["by_reading"] == 1
    assert not list((tmp_path / "elsewhere").iterdir())
    assert "link" in caplog.text
