"""What every kind of lookup store does: the answers of reading, whatever happens to the store or its disk."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.storage.lookup.rocks_store as rocks_store
import freshet.storage.lookup.store_cache as store_cache
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import local_env
from freshet.storage.io.local_cache import LocalCache
from freshet.storage.lookup import open_stores
from freshet.storage.lookup.key_search import key_bytes
from freshet.storage.lookup.lookup_cost import FileCosts
from freshet.storage.lookup.rocks_store import decode_rows, encode_rows
from tests.kit.hypothesis_profile import examples
from tests.kit.small_disk import file_size_limit
from tests.storage.lookup.key_columns import VALUES, exact, key_tables, sorted_once
from tests.storage.lookup.lookup_tables import LookupTable, eager, even_rows, keys
from tests.storage.lookup.test_cached_lookup import ASKED, BUILDER, VALUES_FOUND, _check

pytest.importorskip("rocksdict", reason="the extra rocksdb")

KINDS = ("mapped", "rocksdb")
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with eager():
        yield


def _table(folder: Path, kind: str, rows: Any = None, **given: Any) -> LookupTable:
    return LookupTable(folder, rows, **{"cache.store": kind}, **given)


def _kinds_there(table: LookupTable) -> list[str]:
    return sorted({path.suffix for path in table.cache.glob("*/*/*") if not path.name.startswith(".")})


@kinds
def test_a_store_is_built_once_and_found_again_after_a_restart(tmp_path: Path, kind: str) -> None:
    table = _table(tmp_path, kind)
    _check(table, by_store=1, stores_built=1)
    assert _kinds_there(table) == [{"mapped": ".rows", "rocksdb": ".rocks"}[kind]]
    there = table.stores
    _check(table, by_store=1)
    table.restart()
    _check(table, by_store=1)
    assert table.stores == there
    found = table.lookup().find(table.file, ASKED, None)
    assert found.file_rows is not None
    assert found.file_rows.tolist() == [0, -1, 2, 9, -1]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "piece"), [("mapped", 1), ("mapped", 1 << 20), ("rocksdb", 3)])
def test_answers_are_those_of_reading(monkeypatch: pytest.MonkeyPatch, kind: str, piece: int) -> None:
    monkeypatch.setattr(rocks_store, "PIECE_ROWS", piece)
    monkeypatch.setattr(store_cache, "PIECE_BYTES_MIN", piece)
    monkeypatch.setattr(store_cache, "PIECE_BYTES_MAX", piece)
    # Dates and timestamps are drawn from far outside what a data file can hold.
    scalars = [of for of in VALUES if not pa.types.is_temporal(of) or pa.types.is_time(of)]

    @settings(max_examples=examples(15))
    @given(data=st.data(), of=st.lists(st.sampled_from(scalars), min_size=1, max_size=2), presence=st.booleans())
    def run(data: st.DataObject, of: list[pa.DataType], presence: bool) -> None:
        stored = data.draw(key_tables(tuple(of)).filter(lambda table: table.num_rows > 0))
        some = data.draw(st.lists(st.integers(0, stored.num_rows - 1)))
        more = data.draw(key_tables(tuple(of)))
        asked = sorted_once(pa.concat_tables([stored.take(pa.array(some, pa.int64())), more]))
        key_fields = [
            pa.field(name, of_key, nullable=False) for name, of_key in zip(stored.column_names, of, strict=True)
        ]
        schema = pa.schema([*key_fields, ("v", pa.list_(pa.int64()))])
        values = pa.array([[n] if n % 3 else None for n in range(stored.num_rows)], pa.list_(pa.int64()))
        with tempfile.TemporaryDirectory() as folder:
            table = _table(Path(folder), kind, pa.table([*stored.columns, values], schema=schema), columns=schema)
            lookup, asked = table.lookup(), asked.cast(pa.schema(key_fields))
            columns = None if presence else ["v", *stored.column_names]
            found, read = lookup.find(table.file, asked, columns), table.reading().find(table.file, asked, columns)
            assert lookup.metrics.counts().get("by_store", 0) == 1
            assert found.is_found.tolist() == read.is_found.tolist()
            assert found.file_rows is not None
            if read.file_rows is not None:
                assert found.file_rows.tolist() == read.file_rows.tolist()
            if columns is not None:
                assert found.positions.tolist() == read.positions.tolist()
                assert found.rows.schema.equals(read.rows.schema)
                assert found.rows["v"].to_pylist() == read.rows["v"].to_pylist()
                assert exact(found.rows.select(stored.column_names)) == exact(read.rows.select(stored.column_names))

    run()


@pytest.mark.hypothesis
@settings(max_examples=examples(100))
@given(data=st.data(), of=st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
def test_bytes_of_keys_are_ordered_as_the_keys(data: st.DataObject, of: list[pa.DataType]) -> None:
    table = data.draw(key_tables(tuple(of)))
    if table.num_rows:
        encoded = key_bytes([pa.concat_arrays(column.chunks) for column in table.columns])
        assert encoded == sorted(set(encoded))
        assert all(encoded)


NESTED = {
    pa.bool_(): st.booleans(),
    pa.int16(): st.integers(-9, 9),
    pa.string(): st.text("aé\0", max_size=4),
    pa.binary(): st.binary(max_size=3),
    pa.list_(pa.string()): st.lists(st.one_of(st.none(), st.text("ab", max_size=2)), max_size=3),
    pa.map_(pa.int32(), pa.list_(pa.bool_())): st.lists(
        st.tuples(st.integers(0, 9), st.one_of(st.none(), st.lists(st.booleans(), max_size=2))), max_size=2
    ),
    pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))]): st.fixed_dictionaries(
        {
            "x": st.one_of(st.none(), st.integers(0, 9)),
            "y": st.one_of(st.none(), st.lists(st.fixed_dictionaries({"z": st.text("a", max_size=2)}), max_size=2)),
        }
    ),
}


@pytest.mark.hypothesis
@settings(max_examples=examples(60))
@given(data=st.data(), of=st.lists(st.sampled_from(list(NESTED)), min_size=1, max_size=4))
def test_rows_of_all_shapes_come_out_of_bytes(data: st.DataObject, of: list[pa.DataType]) -> None:
    count = data.draw(st.integers(0, 8))
    lists = [data.draw(st.lists(st.one_of(st.none(), NESTED[kind]), min_size=count, max_size=count)) for kind in of]
    schema = pa.schema([(f"c{n}", kind) for n, kind in enumerate(of)])
    rows = pa.RecordBatch.from_arrays([pa.array(v, k) for v, k in zip(lists, of, strict=True)], schema=schema)
    rows = rows.slice(data.draw(st.integers(0, count)))
    columns = data.draw(st.lists(st.sampled_from(schema.names), unique=True))
    found, numbers = decode_rows(encode_rows(rows, 5), schema, columns)
    found.validate(full=True)
    assert numbers.tolist() == list(range(5, 5 + rows.num_rows))
    assert [found[name].to_pylist() for name in columns] == [rows.column(name).to_pylist() for name in columns]


# ------------------------------------------------------------------------------------------------- faults of RocksDB


def _folder(table: LookupTable) -> Path:
    (folder,) = table.cache.glob("*/*/*.rocks")
    return folder


def _damaged(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def run(folder: Path, other: Path) -> None:
        for path in folder.glob(name):
            path.write_bytes(change(path.read_bytes()))

    return run


def _replaced(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def _a_table_file_less(folder: Path, other: Path) -> None:
    next(iter(folder.glob("*.sst"))).unlink()


DAMAGE: dict[str, Callable[[Path, Path], None]] = {
    "data zeros": _damaged("*.sst", lambda data: bytes(len(data))),
    "data cut short": _damaged("*.sst", lambda data: data[: len(data) // 2]),
    "manifest zeros": _damaged("MANIFEST*", lambda data: bytes(len(data))),
    "manifest empty": _damaged("MANIFEST*", lambda data: b""),
    "current empty": _damaged("CURRENT", lambda data: b""),
    "table file lost": _a_table_file_less,
    "of another file": _replaced,
    "all files empty": _damaged("*", lambda data: b""),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_database_is_thrown_away_and_built_again(tmp_path: Path, how: str) -> None:
    table, other = _table(tmp_path / "a", "rocksdb"), _table(tmp_path / "b", "rocksdb", even_rows(20))
    _check(table, by_store=1, stores_built=1)
    other.lookup().find(other.file, ASKED, ["v"])
    table.restart()
    DAMAGE[how](_folder(table), _folder(other))
    lookup = table.lookup()
    assert lookup.find(table.file, ASKED, ["v"]).by_key()["v"].to_pylist() == VALUES_FOUND
    assert lookup.metrics.counts()["stores_broken"] == 1
    lookup.find(table.file, ASKED, ["v"])
    assert lookup.metrics.counts()["stores_built"] == 1
    table.restart()
    _check(table, by_store=1)


@pytest.mark.dear("every byte of a store")
def test_a_changed_byte_anywhere_is_found_or_does_not_matter(tmp_path: Path) -> None:
    table = _table(tmp_path, "rocksdb", even_rows(200))
    table.lookup().find(table.file, ASKED, ["v"])
    (path,) = _folder(table).glob("*.sst")
    intact = path.read_bytes()
    asked = keys(*range(0, 400, 3))
    wanted = table.reading().find(table.file, asked, ["v"]).by_key()["v"].to_pylist()
    broken = 0
    for at in np.linspace(0, len(intact) - 1, 40).astype(int).tolist():
        table.restart()
        (path,) = _folder(table).glob("*.sst")
        content = bytearray(path.read_bytes())
        content[at % len(content)] ^= 0x55
        path.write_bytes(bytes(content))
        lookup = table.lookup()
        assert lookup.find(table.file, asked, ["v"]).by_key()["v"].to_pylist() == wanted
        lookup.find(table.file, asked, ["v"])
        broken += lookup.metrics.counts().get("stores_broken", 0)
        shutil.rmtree(_folder(table), ignore_errors=True)
        table.restart()
        table.lookup().find(table.file, asked, ["v"])
    assert broken


def test_a_database_deleted_while_it_is_open(tmp_path: Path) -> None:
    table = _table(tmp_path, "rocksdb")
    _check(table, by_store=1, stores_built=1)
    shutil.rmtree(table.cache)
    _check(table, by_store=1)
    table.restart()
    _check(table, by_store=1, stores_built=1)


def test_stores_that_are_opened_share_one_cache_of_blocks(tmp_path: Path) -> None:
    table = _table(tmp_path, "rocksdb", even_rows(100_000))
    table.lookup().find(table.file, ASKED, ["v"])
    asked = keys(*range(0, 200_000, 20))
    used = []
    for mega_bytes in (1, 8):
        table.restart()
        rocks_store._block_cache(0)  # lets go of what building has left there
        table.lookup(cache_max_memory_size=f"{mega_bytes} mb").find(table.file, asked, ["v"])
        used.append(rocks_store._block_cache(mega_bytes << 20).get_usage())
    assert 0 < used[0] <= 1 << 20 < used[1] <= 8 << 20


HOLDER = """
import sys
from rocksdict import Options, Rdict
database = Rdict(sys.argv[1], Options(raw_mode=True))
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_database_that_another_process_has_locked_is_read(tmp_path: Path) -> None:
    table = _table(tmp_path, "rocksdb")
    _check(table, by_store=1, stores_built=1)
    table.restart()
    command = [sys.executable, "-c", HOLDER, str(_folder(table))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        _check(table, by_store=1)
        holder.communicate("go\n", timeout=600)
    table.restart()
    _check(table, by_store=1)


@kinds
@pytest.mark.parametrize("limit", [0, 1000])
def test_a_disk_that_is_full_halfway(tmp_path: Path, kind: str, limit: int, caplog: pytest.LogCaptureFixture) -> None:
    table = _table(tmp_path, kind)
    caplog.set_level(logging.WARNING)
    with file_size_limit(limit):
        for _ in range(3):
            _check(table, by_reading=1)
    (record,) = caplog.records
    assert str(table.cache) in record.getMessage()
    assert not table.stores


@pytest.mark.few(1)
@kinds
def test_processes_that_build_one_store_at_once_all_succeed(tmp_path: Path, kind: str) -> None:
    count = 20_000
    rows = pa.table({"k": range(0, 2 * count, 2), "v": ["text"] * count, "w": pa.array(range(count), pa.int32())})
    table = _table(tmp_path, kind, rows, env=local_env())
    command = [sys.executable, "-c", BUILDER, table.placed.location]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=600)[0].split() for process in processes]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
    wanted = [key // 2 for key in range(0, 2 * count, 7) if key % 2 == 0]
    assert answers == [[str(len(wanted)), str(sum(wanted))]] * 3
    assert len(list(table.cache.glob("*/*/*"))) == 1
    found = table.lookup().find(table.file, keys(0, 4, 39_998), ["w"])
    assert found.rows["w"].to_pylist() == [0, 2, 19_999]


@kinds
def test_a_forked_child_uses_stores_of_its_parent(tmp_path: Path, kind: str) -> None:
    table = _table(tmp_path, kind)
    _check(table, by_store=1, stores_built=1)
    pid = os.fork()
    if not pid:
        code = 1
        with suppress(BaseException):
            _check(table, by_store=1)
            code = 0
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


# -------------------------------------------------------------------------------------------------------------- auto


def test_auto_is_mapped_until_the_limit_and_rocksdb_beyond(tmp_path: Path) -> None:
    table = _table(tmp_path, "auto", even_rows(50_000))
    second = table.place([{**row, "k": row["k"] + 200_000} for row in even_rows(50_000)])
    first = next(file for file in table.files if file != second)
    table.lookup().find(first, ASKED, None)
    (mapped,) = table.stores
    table.restart()
    packed = FileCosts(second.row_count, second.file_size_bytes, is_packed=True).store_bytes
    limit = f"{mapped.stat().st_size + packed} b"
    lookup = table.lookup(cache_max_disk_size=limit)
    for file in (first, second, first, second):
        found = lookup.find(file, keys(8, 200_008), ["v"]).by_key()["v"].to_pylist()
        assert [value for value in found if value is not None] == ["v4"]
    assert lookup.metrics.counts() == {"keys": 8, "found": 4, "by_store": 4, "stores_built": 1}
    assert _kinds_there(table) == [".rocks", ".rows"]
    assert sum(path.stat().st_size for path in table.stores) < 2 * mapped.stat().st_size


def test_auto_is_rocksdb_where_the_disk_has_no_room_for_mapped_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(tmp_path, "auto", even_rows(100_000))
    costs = [FileCosts(table.file.row_count, table.file.file_size_bytes, is_packed) for is_packed in (False, True)]
    assert costs[0].store_bytes > costs[1].store_bytes
    free = open_stores.FREE_SHARE * costs[1].store_bytes
    monkeypatch.setattr(LocalCache, "free_bytes", lambda self: free)
    lookup = table.lookup()
    lookup.find(table.file, ASKED, ["v"])
    assert lookup.metrics.counts()["by_store"] == 1
    assert _kinds_there(table) == [".rocks"]


def test_mapped_stores_of_before_are_used_by_auto(tmp_path: Path) -> None:
    table = _table(tmp_path, "mapped")
    _check(table, by_store=1, stores_built=1)
    table.restart()
    lookup = table.lookup(**{"cache.store": "auto", "cache_max_disk_size": "1 b"})
    assert lookup.find(table.file, ASKED, ["v"]).by_key()["v"].to_pylist() == VALUES_FOUND
    assert lookup.metrics.counts()["by_store"] == 1
    assert "stores_built" not in lookup.metrics.counts()


def test_without_rocksdict_auto_is_mapped_and_rocksdb_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_cache, "is_rocksdb_installed", lambda: False)
    table = _table(tmp_path, "auto")
    _check(table, by_store=1, stores_built=1)
    assert _kinds_there(table) == [".rows"]
    with pytest.raises(InvalidRequestError, match=r"freshet-lake\[rocksdb\]"):
        table.lookup(**{"cache.store": "rocksdb"}).find(table.file, ASKED, None)
