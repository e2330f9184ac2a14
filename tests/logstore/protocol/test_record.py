"""Headers and values: they are read back, cut at whole pairs, and refused where they are not ours."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.logstore.exceptions import LogConfigError, LogLostError
from freshet.logstore.protocol.record import (
    KIND_FIELD,
    Attempt,
    RecordHeader,
    decode_header,
    decode_value,
    encode_header,
    encode_values,
    rolled_hash,
    user_hash,
)
from freshet.logstore.reading.rows import equal_rows
from freshet.storage.model.row_kind import RowKind

NUMBERS = st.integers(0, 2**62)
SCHEMA = pa.schema([KIND_FIELD, pa.field("k", pa.int64()), pa.field("v", pa.string())])


@given(
    st.builds(
        RecordHeader,
        st.binary(min_size=8, max_size=8),
        st.builds(Attempt, NUMBERS, NUMBERS),
        NUMBERS,
        st.tuples(st.binary(max_size=300), st.integers(0, 2**31 - 1)),
        NUMBERS,
        st.integers(0, 2**31 - 1),
        NUMBERS,
        st.binary(min_size=8, max_size=8),
        st.integers(0, 2),
    )
)
def test_headers_are_read_back(header: RecordHeader) -> None:
    assert decode_header(encode_header(header)) == header


@pytest.mark.parametrize("data", [b"", b"\x02" + bytes(80), b"\x01\x09" + bytes(80), b"control 1"])
def test_other_headers_are_refused(data: bytes) -> None:
    with pytest.raises(LogLostError, match="header that this version does not know"):
        decode_header(data)


def rows(kinds: list[int], width: int = 10) -> pa.Table:
    values = [f"{number:0{width}}" for number in range(len(kinds))]
    return pa.Table.from_arrays(
        [pa.array(kinds, pa.int8()), pa.array(range(len(kinds))), pa.array(values)], schema=SCHEMA
    )


@given(st.lists(st.sampled_from(["I", "U", "D"]), max_size=60), st.integers(1, 4000))
def test_records_hold_all_rows_and_part_no_pair(changes: list[str], size_bytes: int) -> None:
    kinds = [kind for change in changes for kind in {"I": [0], "U": [1, 2], "D": [3]}[change]]
    table = rows(kinds)
    parts = list(encode_values(table, size_bytes=size_bytes, size_bytes_max=1_000_000))
    decoded = [decode_value(value, SCHEMA) for _, value in parts]
    assert pa.Table.from_batches(decoded, SCHEMA).equals(table)
    assert [count for count, _ in parts] == [batch.num_rows for batch in decoded]
    assert all(batch.column(0)[-1].as_py() != RowKind.UPDATE_BEFORE for batch in decoded)


def test_records_are_halved_until_they_fit_and_a_row_that_cannot_is_named() -> None:
    table = rows([0] * 100, width=100)
    parts = list(encode_values(table, size_bytes=10**6, size_bytes_max=4_000))
    assert len(parts) > 3 and all(len(value) <= 4_000 for _, value in parts)
    with pytest.raises(LogConfigError, match=r"takes \d+ bytes in the log, and a record may have 300") as caught:
        list(encode_values(table, size_bytes=10**6, size_bytes_max=300))
    assert caught.value.option == "kafka.message.max.bytes"


def test_a_value_that_is_not_rows_is_an_error() -> None:
    with pytest.raises(LogLostError, match="does not hold rows of this table"):
        decode_value(b"{}", SCHEMA)


def test_equal_rows_finds_the_first_difference() -> None:
    schema = pa.schema([pa.field("a", pa.float64()), pa.field("b", pa.list_(pa.int32()))])
    left = pa.RecordBatch.from_arrays(
        [pa.array([1.0, float("nan"), None, 2.0]), pa.array([[1], None, [], [2]], pa.list_(pa.int32()))], schema=schema
    )
    assert equal_rows(left, left.slice(0)) == 4
    for place in range(4):
        other = left.column(0).to_pylist()
        other[place] = 7.5
        changed = left.set_column(0, "a", pa.array(other, pa.float64()))
        assert equal_rows(left, changed) == place


def test_hashes_depend_on_everything_before() -> None:
    assert user_hash("a") != user_hash("b") and len(user_hash("a")) == 8
    assert rolled_hash(rolled_hash(bytes(8), b"x"), b"y") != rolled_hash(rolled_hash(bytes(8), b"y"), b"x")
