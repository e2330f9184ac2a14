"""What is written into a store comes out of it, and nothing that was changed does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.storage.lookup.store_file as store_file
from freshet.storage.lookup.lookup_store import BrokenStoreError
from freshet.storage.lookup.store_file import StoreEncoder, StoreFile
from tests.kit.hypothesis_profile import examples
from tests.storage.lookup.key_columns import VALUES, exact, key_tables, sorted_once

IDENTITY = {"file": "data-1.parquet", "rows": 3}


def _written(rows: pa.Table, piece_bytes: int = 1 << 20, batch_rows: int = 1 << 20, start: str = "") -> bytes:
    sink = pa.BufferOutputStream()
    encoder = StoreEncoder(sink, IDENTITY, rows.schema, piece_bytes, start)
    for batch in rows.to_batches(batch_rows):
        encoder.add(pa.Table.from_batches([batch]))
    encoder.finish()
    return bytes(sink.getvalue())


def _opened(content: bytes) -> StoreFile:
    return StoreFile.open(pa.py_buffer(content), IDENTITY)


@settings(max_examples=examples(150))
@given(
    data=st.data(),
    kinds=st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3),
    piece_bytes=st.sampled_from([1, 40, 1 << 20]),
    batch_rows=st.integers(1, 9),
)
def test_keys_of_all_types_against_a_dictionary(
    data: st.DataObject, kinds: list[pa.DataType], piece_bytes: int, batch_rows: int
) -> None:
    """Whatever the pieces."""
    stored = data.draw(key_tables(tuple(kinds)))
    some = data.draw(st.lists(st.integers(0, max(0, stored.num_rows - 1)), max_size=stored.num_rows))
    more = data.draw(key_tables(tuple(kinds), max_size=5))
    asked = sorted_once(pa.concat_tables([stored.take(pa.array(some, pa.int64())), more]))
    every = stored.append_column("v", pa.array([f"row {n}" for n in range(stored.num_rows)], pa.string()))
    every = every.append_column("n", pa.array([[n] for n in range(stored.num_rows)], pa.list_(pa.int64())))
    row_of = {key: row for row, key in enumerate(exact(stored))}
    expected = [row_of.get(key, -1) for key in exact(asked)]
    store = _opened(_written(every, piece_bytes, batch_rows))
    for _ in range(2):
        found = store.find(asked, ["n", "v", *stored.column_names])
        assert found.file_rows is not None
        assert found.file_rows.tolist() == expected
        rows = found.rows.select(["n", "v"]).to_pylist()
        assert [rows[at]["v"] if at >= 0 else None for at in found.positions] == [
            f"row {row}" if row >= 0 else None for row in expected
        ]
        assert [row["n"] for row in rows] == [[row] for row in expected if row >= 0]
        assert exact(found.rows.select(stored.column_names)) == [key for key in exact(asked) if key in row_of]
    presence = store.find(asked, None)
    assert presence.is_found.tolist() == [row >= 0 for row in expected]
    assert presence.rows.column_names == []


def test_a_store_is_used_where_it_is_mapped(tmp_path: Path) -> None:
    """Rows found are copies: they outlive the file."""
    path = tmp_path / "store"
    table = pa.table({"k": list(range(1000)), "v": [str(n) for n in range(1000)]})
    path.write_bytes(_written(table))
    before = pa.total_allocated_bytes()
    with pa.memory_map(str(path)) as mapped:
        found = StoreFile.open(mapped.read_buffer(), IDENTITY).find(pa.table({"k": [7, 999, 1000]}), ["v"])
    assert pa.total_allocated_bytes() - before < 2000
    path.unlink()
    assert found.rows["v"].to_pylist() == ["7", "999"]


TABLE = pa.table({"k": list(range(0, 60, 2)), "v": [f"text {n}" for n in range(30)]})
KEYS = pa.table({"k": [4, 5, 58]})
INTACT = _written(TABLE, piece_bytes=100, batch_rows=4)
DESCRIBED_BYTES = 200
"""In front of the rows of a stream."""


def _asked(content: bytes) -> list[Any]:
    found = _opened(content).find(KEYS, ["v"])
    return [found.positions.tolist(), found.rows["v"].to_pylist()]


@settings(max_examples=examples(300))
@given(at=st.integers(0, len(INTACT) - 1), mask=st.integers(1, 255))
def test_a_changed_byte_is_found_or_does_not_matter(at: int, mask: int) -> None:
    """What lies between streams is not read."""
    content = bytearray(INTACT)
    content[at] ^= mask
    try:
        answer = _asked(bytes(content))
    except BrokenStoreError:
        return
    assert answer == _asked(INTACT)


def test_a_small_store_has_one_stream_for_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    small = _opened(_written(TABLE))
    monkeypatch.setattr(store_file, "SMALL_BYTES", 0)
    large = _opened(_written(TABLE))
    streams = [{span.start for piece in each.pieces for span in piece.streams.values()} for each in (small, large)]
    assert [len(each) for each in streams] == [1, TABLE.num_columns]
    assert small.find(KEYS, ["v"]).rows.equals(large.find(KEYS, ["v"]).rows)


@pytest.mark.parametrize(
    ("written", "read", "is_checked"),
    [("this", "this", False), ("before", "this", True), ("", "", True), ("this", "", True), ("", "this", True)],
)
def test_a_large_store_is_not_checked_while_the_machine_runs_that_has_written_it(
    monkeypatch: pytest.MonkeyPatch, written: str, read: str, is_checked: bool
) -> None:
    monkeypatch.setattr(store_file, "SMALL_BYTES", 0)
    content = bytearray(_written(TABLE, start=written))
    assert StoreFile.open(pa.py_buffer(bytes(content)), IDENTITY, read).is_checked  # it is small
    monkeypatch.setattr(store_file, "CHECKED_BYTES_MAX", 100)
    content[content.index(b"text 2")] ^= 1
    store = StoreFile.open(pa.py_buffer(bytes(content)), IDENTITY, read)
    if is_checked:
        with pytest.raises(BrokenStoreError, match="column 'v' is damaged"):
            store.find(KEYS, ["v"])
    else:
        assert store.find(KEYS, ["v"]).is_found.tolist() == [True, False, True]


@pytest.mark.parametrize("damage", [b"\xff", b"\xff" * 8, b"\0" * 64])
def test_a_store_that_is_not_checked_is_known_as_broken_where_arrow_cannot_read_it(
    monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    """It has an answer, or is broken: no other error, which each lookup would meet again."""
    monkeypatch.setattr(store_file, "CHECKED_BYTES_MAX", 100)
    monkeypatch.setattr(store_file, "SMALL_BYTES", 0)
    content = _written(TABLE, start="this")
    [piece] = StoreFile.open(pa.py_buffer(content), IDENTITY, "this").pieces
    broken = 0
    for start in (piece.streams["k"].start, piece.streams["v"].start):
        for at in range(start, start + DESCRIBED_BYTES):
            changed = content[:at] + damage + content[at + len(damage) :]
            try:
                StoreFile.open(pa.py_buffer(changed), IDENTITY, "this").find(KEYS, ["v"])
            except BrokenStoreError:
                broken += 1
    assert broken


@settings(max_examples=examples(60))
@given(length=st.integers(0, len(INTACT) - 1), zeros=st.booleans())
def test_a_store_cut_short(length: int, zeros: bool) -> None:
    """As a crash of the machine leaves it: the end is missing, or all zeros."""
    content = INTACT[:length] + (b"\0" * (len(INTACT) - length) if zeros else b"")
    with pytest.raises(BrokenStoreError):
        _asked(content)


def test_a_store_of_something_else() -> None:
    with pytest.raises(BrokenStoreError, match="another file"):
        StoreFile.open(pa.py_buffer(INTACT), {**IDENTITY, "file": "data-2.parquet"})
    with pytest.raises(BrokenStoreError, match="no column 'w'"):
        _opened(INTACT).find(KEYS, ["w"])
    with pytest.raises(BrokenStoreError):
        _opened(Path(tempfile.__file__).read_bytes())
