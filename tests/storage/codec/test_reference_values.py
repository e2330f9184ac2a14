"""Bytes, hashes, buckets and partition folders against those that Apache Paimon 2.0.0 made of the same values."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.codec.binary_row_arrays import encode_rows, row_hashes
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.codec.partition_path import partition_path
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot, parse_data_type
from tests.storage.codec.murmur_oracle import murmur_hash, row_body

GOLDEN = Path(__file__).parents[2] / "golden" / "reference_values.tsv"
EPOCH = datetime.date(1970, 1, 1)


def lines(kind: str) -> Iterator[list[str]]:
    for line in GOLDEN.read_text().splitlines():
        fields = line.split("\t")
        if fields[0] == kind:
            yield fields[1:]


def value_of(text: str, data_type: DataType) -> Any:
    assert isinstance(data_type, ScalarType)
    if text == "~":
        return None
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return text == "true"
        case TypeRoot.FLOAT:
            return struct.unpack(">f", bytes.fromhex(text))[0]
        case TypeRoot.DOUBLE:
            return struct.unpack(">d", bytes.fromhex(text))[0]
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return bytes.fromhex(text).decode()
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return bytes.fromhex(text)
        case TypeRoot.DECIMAL:
            number = int(text)
            return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -(data_type.scale or 0)))
        case TypeRoot.DATE:
            day = int(text)
            return EPOCH + datetime.timedelta(day) if -719162 <= day <= 2932896 else day
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            millis, nanos = map(int, text.split("."))
            precision = data_type.precision or 0
            unit = 10**9 if precision == 0 else 10**6 if precision <= 3 else 10**3 if precision <= 6 else 1
            return (millis * 10**6 + nanos) // unit
        case _:
            return int(text)


ROWS = list(lines("row"))
PATHS = list(lines("path"))


def test_the_golden_file_is_whole() -> None:
    assert len(ROWS) == 400
    assert len(PATHS) > 300


@pytest.mark.parametrize("fields", ROWS, ids=lambda fields: fields[2][:24] + fields[0])
def test_row(fields: list[str]) -> None:
    type_text, value_text, encoded, row_hash, bucket, hive_bucket = fields
    types = [parse_data_type(text) for text in type_text.split("|")]
    values = [value_of(text, data_type) for text, data_type in zip(value_text.split("|"), types, strict=True)]
    row = bytes.fromhex(encoded)
    assert str(decode_row(row, types)) == str(tuple(values))
    if "NaN" not in value_text and not has_odd_nan(values, types):
        assert encode_row(values, types).hex() == encoded
    assert murmur_hash(row_body(row)) == int(row_hash)
    arrays = [column(text, data_type) for text, data_type in zip(value_text.split("|"), types, strict=True)]
    assert encode_rows(arrays, types)[0].hex() == encoded
    assert row_hashes(arrays, types).tolist() == [int(row_hash)]
    assert bucket_ids(arrays, types, 37).tolist() == [int(bucket)]
    if hive_bucket != "-":
        assert bucket_ids(arrays, types, 1000003, "hive").tolist() == [int(hive_bucket)]


def has_odd_nan(values: list[Any], types: list[DataType]) -> bool:
    """Python makes one NaN of many when it turns a FLOAT into its own float."""
    return any(value != value for value in values)


def column(text: str, data_type: DataType) -> pa.Array[Any]:
    if text != "~" and data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return pa.Array.from_buffers(arrow_type(data_type), 1, [None, pa.py_buffer(bytes.fromhex(text)[::-1])])
    return pa.array([value_of(text, data_type)], arrow_type(data_type))


@pytest.mark.parametrize("fields", PATHS, ids=lambda fields: f"{fields[0]}={fields[1][:24]}")
def test_partition_folder(fields: list[str]) -> None:
    type_text, value_text, legacy, modern = fields
    data_type = parse_data_type(type_text)
    row = encode_row([value_of(value_text, data_type)], [data_type])
    assert partition_path(row, ("p",), (data_type,)) + "/" == plain(legacy)
    if modern != "-":
        assert partition_path(row, ("p",), (data_type,), legacy=False) + "/" == plain(modern)


def plain(text: str) -> str:
    """Undoes \\uXXXX, two of which may be one character."""
    return text.encode("ascii").decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
