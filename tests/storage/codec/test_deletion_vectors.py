"""Index files of deletion vectors, byte for byte, and what damage of them looks like."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from freshet.storage.exceptions import CorruptDataError
from freshet.storage.metadata.deletion_vector_store import read_vector, write_vectors
from freshet.storage.model.manifest import DeletionVectorRange

# Whole files that Apache Paimon 2.0.0 wrote.
ROWS_1_2 = bytes.fromhex("01000000185e43f2d03a30000001000000000001001000000001000200c3366892")
ROW_1_WIDE = bytes.fromhex("0100000022d1d339640100000000000000000000003a3000000100000000000000100000000100eebd85f4")


@pytest.mark.parametrize(
    ("data", "rows", "wide", "length"), [(ROWS_1_2, [1, 2], False, 24), (ROW_1_WIDE, [1], True, 42)]
)
def test_files_of_paimon(data: bytes, rows: list[int], wide: bool, length: int) -> None:
    place = DeletionVectorRange("data-1.parquet", 1, length, len(rows))
    assert write_vectors({"data-1.parquet": BitMap(rows)}, is_64_bit=wide) == (data, (place,))
    assert list(read_vector(data, place, "index-1")) == rows
    assert list(read_vector(data, replace(place, cardinality=None), "index-1")) == rows


def test_a_file_without_vectors_is_its_version() -> None:
    assert write_vectors({}, is_64_bit=False) == (b"\1", ())


rows_of_a_file = st.one_of(
    st.sets(st.integers(0, 2**32 - 1), max_size=30),
    st.builds(lambda first, count: set(range(first, first + count)), st.integers(0, 2**17), st.integers(1, 9000)),
    st.builds(lambda step: set(range(0, 200_000, step)), st.integers(2, 9)),
)


@given(vectors=st.dictionaries(st.text(max_size=9), rows_of_a_file, max_size=4), wide=st.booleans())
def test_vectors_come_back(vectors: dict[str, set[int]], wide: bool) -> None:
    data, places = write_vectors({name: BitMap(rows) for name, rows in vectors.items()}, is_64_bit=wide)
    assert [place.data_file_name for place in places] == list(vectors)
    for place in places:
        rows = vectors[place.data_file_name]
        assert place.cardinality == len(rows)
        assert set(read_vector(data, place, "index-1")) == rows


def wide_file(bitmap: bytes) -> tuple[bytes, DeletionVectorRange]:
    body = bytes.fromhex("d1d33964") + bitmap
    data = b"\1" + struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
    return data, DeletionVectorRange("d", 1, len(data) - 1)


def test_wide_bitmaps_with_several_high_words() -> None:
    empty = BitMap().serialize()
    bitmap = struct.pack("<qi", 2, 0) + BitMap([3, 70_000]).serialize() + struct.pack("<i", 1) + empty
    assert list(read_vector(*wide_file(bitmap), "index-1")) == [3, 70_000]
    with pytest.raises(CorruptDataError, match="holds 4294967301, which has more than 32 bits"):
        read_vector(*wide_file(BitMap64([3, 2**32 + 5]).serialize()), "index-1")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"\2" + data[1:], "begins with 02"),
        (lambda data: b"", "begins with nothing"),
        (lambda data: data[:-1], "ends at byte 32"),
        (lambda data: data[:9], "ends at byte 9"),
        (lambda data: data[:5] + b"\0" + data[6:], "magic number is 0043f2d0"),
        (lambda data: data[:4] + b"\x17" + data[5:], "has 23 bytes where the index manifest says 24"),
        (lambda data: data[:-5] + b"\3" + data[-4:], "checksum does not match"),
        (lambda data: data[:-4] + bytes(4), "checksum does not match"),
    ],
)
def test_damage_is_named(damage: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(CorruptDataError, match=message) as caught:
        read_vector(damage(ROWS_1_2), DeletionVectorRange("data-1.parquet", 1, 24, 2), "/t/index/index-1")
    assert caught.value.path == "/t/index/index-1"


def test_a_vector_of_another_size_than_the_manifest_says() -> None:
    with pytest.raises(CorruptDataError, match=r"data-1.parquet is damaged: it has 2 rows .* says 3"):
        read_vector(ROWS_1_2, DeletionVectorRange("data-1.parquet", 1, 24, 3), "index-1")
    with pytest.raises(CorruptDataError, match="magic"):
        read_vector(ROWS_1_2, DeletionVectorRange("data-1.parquet", 9, 24, 2), "index-1")
