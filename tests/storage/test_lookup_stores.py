"""Stores of looked-up rows as a user meets them: the same table and changelog with them as without."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet.storage.lookup.cached_lookup as cached_lookup
from freshet import AddColumn, Catalog, Table
from freshet.storage.exceptions import RetryableError
from freshet.storage.io.env import Env
from freshet.storage.io.local_cache import NewFile
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.lookup.open_stores import forget_open_stores
from freshet.storage.metadata.live_files import delta_entries
from tests.kit.cache_roots import files_of_cache, lookup_stores
from tests.kit.quick import some_now
from tests.storage.lookup.lookup_tables import eager

PRODUCERS: dict[str, dict[str, str]] = {
    "deduplicate": {"changelog-producer": "lookup"},
    "sequence": {"changelog-producer": "lookup", "sequence.field": "s"},
    "sum": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "changelog-producer": "lookup"},
    "partial-update": {"merge-engine": "partial-update", "changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "first-row": {"merge-engine": "first-row", "changelog-producer": "lookup"},
}


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with eager():
        yield


def _table(folder: Path, **options: object) -> Table:
    return Catalog(str(folder)).create_table(
        "a.b",
        schema={"k": "STRING NOT NULL", "n": "INT NOT NULL", "s": "INT", "v": "BIGINT", "w": "STRING"},
        primary_keys=["k", "n"],
        options={"bucket": 2, "num-levels": 4, "lookup.cache-dir": str(folder / "cache"), **options},
    )


def _batch(chance: random.Random, takes_deletes: bool) -> list[dict[str, Any]]:
    return [
        {
            "k": f"customer-{chance.randrange(8)}",
            "n": chance.randrange(3),
            "s": chance.randrange(5),
            "v": chance.randrange(100),
            "w": chance.choice([None, "x", "y" * 50]),
            "_ROW_KIND": "-D" if takes_deletes and not chance.randrange(5) else "+I",
        }
        for _ in range(chance.randrange(1, 12))
    ]


def _large_batch(chance: random.Random, takes_deletes: bool) -> list[dict[str, Any]]:
    """Rows that no codec makes small, so that stores of RocksDB need less than mapped ones."""
    rows = (row for _ in range(12) for row in _batch(chance, takes_deletes))
    return [row | {"k": f"customer-{chance.randrange(60)}", "w": chance.randbytes(400).hex()} for row in rows]


def _stores(folder: Path) -> list[Path]:
    return files_of_cache(folder / "cache")


def _follow(
    table: Table,
    seed: int,
    *,
    restarts: bool,
    batch: Callable[[random.Random, bool], list[dict[str, Any]]] = _batch,
    after_commit: Callable[[], object] = lambda: None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Rows, changelog and how often a store answered, after some commits."""
    chance = random.Random(seed)
    asked = 0
    takes_deletes = table.options.merge_engine in ("deduplicate", "aggregation")
    for number in range(8):
        with table.writer("loader", parallelism=1) as writer:
            writer.write(batch(chance, takes_deletes))
            writer.commit(number)
            after_commit()
            asked += writer.lookup_metrics.counts().get("by_store", 0)
        if number == 4:
            table.compact(full=True)
        if restarts and number % 4 == 3:
            forget_open_stores(table.store.env)
    rows = table.scan().to_arrow().sort_by([("k", "ascending"), ("n", "ascending")]).to_pylist()
    changes = table.changelog(from_snapshot=1).to_arrow().to_pylist()
    return rows, changes, asked


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("kind", ["mapped", "rocksdb"])
def test_the_table_and_its_changelog_are_those_without_stores(
    tmp_path: Path, kind: str, producer: str, seed: int
) -> None:
    if kind == "rocksdb":
        pytest.importorskip("rocksdict", reason="the extra rocksdb")
    with_stores = _table(tmp_path / "with", **PRODUCERS[producer], **{"lookup.cache.store": kind})
    without = _table(tmp_path / "without", **PRODUCERS[producer], **{"lookup.cache-max-disk-size": "0"})
    rows, changes, asked = _follow(with_stores, seed, restarts=True)
    assert (rows, changes, 0) == _follow(without, seed, restarts=False)
    assert not _stores(tmp_path / "without")
    assert asked > 0


class _Seen:
    """What stores there are below a folder, after each commit: their bytes, and their kinds."""

    def __init__(self, folder: Path) -> None:
        self.sizes: list[int] = []
        self.kinds: list[set[str]] = []
        self._folder = folder

    def look(self) -> None:
        files = _stores(self._folder)
        self.sizes.append(sum(path.stat().st_size for path in files))
        parts = {part for path in files for part in path.relative_to(self._folder).parts}
        self.kinds.append({suffix for suffix in (".rows", ".rocks") if any(part.endswith(suffix) for part in parts)})


@pytest.mark.few(1)
@pytest.mark.parametrize("producer", some_now(PRODUCERS, stride=3, first=2))
def test_auto_goes_over_to_rocksdb_in_the_middle_and_nobody_sees_it(tmp_path: Path, producer: str) -> None:
    """The limit holds some of the mapped stores that the table would have."""
    pytest.importorskip("rocksdict", reason="the extra rocksdb")

    def follow(name: str, **options: str) -> tuple[tuple[Any, Any, int], _Seen]:
        seen = _Seen(tmp_path / name)
        table = _table(tmp_path / name, **PRODUCERS[producer], **options)
        return _follow(table, 5, restarts=True, batch=_large_batch, after_commit=seen.look), seen

    (rows, changes, _), _ = follow("without", **{"lookup.cache-max-disk-size": "0"})
    _, mapped = follow("mapped", **{"lookup.cache.store": "mapped"})
    assert rows and mapped.kinds[-1] == {".rows"}
    for percent in (60, 80, 70, 50, 40, 30, 20):
        limit = max(mapped.sizes) * percent // 100
        options = {"lookup.cache.store": "auto", "lookup.cache-max-disk-size": f"{limit} b"}
        (*found, asked), seen = follow(f"auto {percent}", **options)
        assert found == [rows, changes] and asked > 0
        if {".rows", ".rocks"} in seen.kinds:
            return
    pytest.fail("no limit forces some stores over, and not all")


def test_a_table_with_another_schema_has_other_stores(tmp_path: Path) -> None:
    table = _table(tmp_path)
    with table.writer("loader") as writer:
        writer.write([{"k": "a", "n": n, "s": 0, "v": n, "w": "x"} for n in range(10)])
        writer.commit()
    keys = pa.table({"k": ["a"], "n": pa.array([3], pa.int32())})
    keys = keys.cast(pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]))
    assert table.lookup(keys, ["v"]).rows.to_pylist() == [{"v": 3}]
    before = _stores(tmp_path)
    assert len(before) == 1
    table.alter(AddColumn("x", "STRING"))
    altered = Catalog(str(tmp_path)).table("a.b")
    assert altered.lookup(keys, ["v", "x"]).rows.to_pylist() == [{"v": 3, "x": None}]
    assert len(_stores(tmp_path)) == 2
    assert table.lookup(keys, ["v"]).rows.to_pylist() == [{"v": 3}]


def test_a_table_that_was_dropped_and_made_anew_finds_nothing_of_the_old_one(tmp_path: Path) -> None:
    keys = pa.table({"k": pa.array(["a"]), "n": pa.array([3], pa.int32())})
    keys = keys.cast(pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]))
    for value in (1, 2):
        table = _table(tmp_path)
        with table.writer("loader") as writer:
            writer.write([{"k": "a", "n": 3, "s": 0, "v": value, "w": "x"}])
            writer.commit()
        assert table.lookup(keys, ["v"]).rows.to_pylist() == [{"v": value}]
        Catalog(str(tmp_path)).drop_table("a.b")


class _Opened(LocalFileIO):
    """Keeps the names of data files that are opened for reading."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def open_input(self, path: str) -> pa.NativeFile:
        self.names.append(path.rsplit("/", 1)[-1])
        return super().open_input(path)


@pytest.mark.few(2)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_small_batches_read_none_of_the_files_they_look_keys_up_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: str
) -> None:
    """Files of some rows have their stores from the beginning; level 0 is compacted as it was flushed."""
    files = _Opened()
    location = _table(tmp_path, **{"num-levels": 6, **PRODUCERS[producer]}).location
    table = Table.open(location, env=Env(files))
    chance = random.Random(7)
    monkeypatch.setattr(cached_lookup, "ROWS_MIN", 1024)
    with table.writer("loader", parallelism=1) as writer:
        for number in range(6):
            files.names.clear()
            writer.write(_batch(chance, takes_deletes=False))
            append, _ = writer.commit(number).snapshots
            flushed = {entry.file.file_name for entry in delta_entries(table.store.manifests, append)}
            assert flushed
            assert not flushed & set(files.names)
        counts = writer.lookup_metrics.counts()
    assert all(entry.file.level > 0 for entry in table.files())
    assert counts["by_store"] > 0
    assert "by_reading" not in counts
    assert counts["stores_kept"] > 0


def test_stores_made_as_files_are_written_keep_within_their_room(tmp_path: Path) -> None:
    room = 60 * 1024
    table = _table(tmp_path, **PRODUCERS["sequence"], **{"num-levels": 6, "lookup.cache-max-disk-size": "60 kb"})
    chance = random.Random(3)
    with table.writer("loader", parallelism=1) as writer:
        for number in range(12):
            writer.write(_batch(chance, takes_deletes=False))
            writer.commit(number)
            assert sum(path.stat().st_size for path in _stores(tmp_path)) <= room
        assert writer.lookup_metrics.counts()["stores_kept"] > 0


@pytest.mark.parametrize("kind", ["mapped", "rocksdb"])
def test_a_compaction_makes_the_stores_of_all_its_files_as_it_writes_them(tmp_path: Path, kind: str) -> None:
    """Also where it rolls: a machine that compacts need not build them when batches come."""
    if kind == "rocksdb":
        pytest.importorskip("rocksdict", reason="the extra rocksdb")
    options = {**PRODUCERS["deduplicate"], "bucket": 1, "target-file-size": "100 kb", "lookup.cache.store": kind}
    table = _table(tmp_path, **options)
    rows = [{"k": f"customer-{n}", "n": n, "s": n, "v": n * 7919 % 100_003, "w": str(n * 7919)} for n in range(40_000)]
    with table.with_options({"write-only": "true"}).writer("loader") as writer:
        for start in range(2):
            writer.write(rows[start::2])
            writer.commit()
    table.compact(full=True)
    files = [entry.file for entry in table.files()]
    assert len(files) > 2
    stores = {path.name for path in lookup_stores(tmp_path / "cache").glob("*/*/*")}
    suffix = {"mapped": ".rows", "rocksdb": ".rocks"}[kind]
    assert stores == {f"{file.file_name}.{table.store.schema.id}{suffix}" for file in files}
    with table.writer("loader", parallelism=1) as writer:
        writer.write([{**rows[n], "w": "new"} for n in range(0, 40_000, 1000)])
        writer.commit()
        counts = writer.lookup_metrics.counts()
    assert counts["found"] == 40
    assert "stores_built" not in counts
    assert "by_reading" not in counts
    changes = table.changelog(from_snapshot=table.snapshots()[-1].id).to_arrow()
    assert sorted(changes["w"].to_pylist()) == sorted(["new"] * 40 + [rows[n]["w"] for n in range(0, 40_000, 1000)])


def test_a_compaction_goes_on_where_the_disk_of_the_stores_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Halfway through a store: nothing of it stays, and the compaction does."""
    table = _table(tmp_path, **PRODUCERS["deduplicate"], **{"bucket": 1, "lookup.cache.store": "mapped"})
    with table.with_options({"write-only": "true"}).writer("loader") as writer:
        for start in range(2):
            writer.write([{"k": f"c{n}", "n": n, "s": n, "v": n, "w": "x"} for n in range(start, 4000, 2)])
            writer.commit()

    def fails_behind_the_first(self: NewFile, data: Any) -> None:
        if self.sink.tell() > 1000:
            raise RetryableError("no space left on device")
        self.sink.write(data)

    monkeypatch.setattr(NewFile, "write", fails_behind_the_first)
    table.compact(full=True)
    assert table.scan().count() == 4000
    assert not _stores(tmp_path)
    assert [record.levelname for record in caplog.records if "lookup.cache-dir" in record.getMessage()] == ["WARNING"]
