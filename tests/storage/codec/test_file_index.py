"""File indexes, byte by byte: the container, bloom filters, and the hashes of values."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.bloom_filter import BloomFilter, BloomFilterBuilder, mixed, value_hashes, xxh64
from freshet.storage.codec.file_index import decode_file_index, encode_file_index
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ScalarType, parse_data_type

XXH64 = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"0123456789abcdef0123456789abcdef0123456789": None,
}


def scalar(text: str) -> ScalarType:
    found = parse_data_type(text)
    assert isinstance(found, ScalarType)
    return found


@pytest.mark.parametrize(("text", "wanted"), [(text, wanted) for text, wanted in XXH64.items() if wanted is not None])
def test_xxh64_of_known_texts(text: bytes, wanted: int) -> None:
    rows = np.frombuffer(text, np.uint8).reshape(1, len(text))
    assert int(xxh64(rows)[0]) == wanted


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_hashes_of_many_texts_are_those_of_each(texts: list[bytes]) -> None:
    data_type = scalar("BYTES")
    together = value_hashes(pa.array(texts, pa.binary()), data_type).tolist()
    alone = [int(value_hashes(pa.array([text], pa.binary()), data_type)[0]) for text in texts]
    assert together == alone


def wang(number: int) -> int:
    """Thomas Wang's mix in Java's long arithmetic."""

    def wrap(value: int) -> int:
        return (value + 2**63) % 2**64 - 2**63

    key = wrap(~number + (number << 21))
    key ^= key >> 24
    key = wrap(wrap(key + (key << 3)) + (key << 8))
    key ^= key >> 14
    key = wrap(wrap(key + (key << 2)) + (key << 4))
    key ^= key >> 28
    return wrap(key + (key << 31))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_numbers_are_mixed_as_java_does(numbers: list[int]) -> None:
    assert mixed(np.array(numbers, np.int64)).view(np.int64).tolist() == [wang(number) for number in numbers]


def test_every_nan_has_one_hash() -> None:
    """The processor makes NaN with a sign, filters ask for NaN without."""
    nans = np.array([np.nan, -np.nan, np.inf - np.inf]).astype(np.float64)
    nans[1] = np.uint64(0xFFF8000000000000).view(np.float64)
    for text, kind in (("DOUBLE", np.float64), ("FLOAT", np.float32)):
        assert len(set(value_hashes(pa.array(nans.astype(kind)), scalar(text)).tolist())) == 1


def test_instants_are_milliseconds_up_to_precision_3_and_microseconds_beyond() -> None:
    moment = datetime.datetime(2026, 11, 24, 12, 0, 0, 123456)
    micros = int(moment.replace(tzinfo=datetime.UTC).timestamp() * 1_000_000)
    for text, number in (
        ("TIMESTAMP(0)", micros // 1_000_000 * 1000),
        ("TIMESTAMP(3)", micros // 1000),
        ("TIMESTAMP(6)", micros),
        ("TIMESTAMP(9)", micros),
    ):
        kind = arrow_type(scalar(text))
        array = pa.array([moment], pa.timestamp("us")).cast(kind, safe=False)
        assert value_hashes(array, scalar(text)).view(np.int64).tolist() == [wang(number)]


@given(st.lists(st.integers(-50, 50)), st.integers(1, 100), st.floats(0.001, 0.9))
def test_a_bloom_filter_has_what_was_added(numbers: list[int], items: int, fpp: float) -> None:
    builder = BloomFilterBuilder(items, fpp)
    builder.add(mixed(np.array(numbers, np.int64)))
    found = BloomFilter.decode(builder.encode())
    assert found.may_have(mixed(np.array(numbers, np.int64))).all()
    assert not BloomFilter.decode(BloomFilterBuilder(items, fpp).encode()).may_have(mixed(np.arange(9))).any()


def test_a_bloom_filter_tells_most_others_apart() -> None:
    builder = BloomFilterBuilder(10_000, 0.01)
    builder.add(mixed(np.arange(10_000)))
    others = BloomFilter.decode(builder.encode()).may_have(mixed(np.arange(10_000, 110_000)))
    assert 0.002 < others.mean() < 0.02


def test_the_size_of_a_filter_follows_from_items_and_fpp() -> None:
    encoded = BloomFilterBuilder().encode()
    assert (len(encoded) - 4, int.from_bytes(encoded[:4], "big")) == (599_067, 3)


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.dictionaries(st.sampled_from(["bloom-filter", "bitmap", "other"]), st.none() | st.binary(max_size=20)),
        max_size=4,
    )
)
def test_containers_are_read_as_they_are_written(columns: dict[str, dict[str, bytes | None]]) -> None:
    assert decode_file_index(encode_file_index(columns)) == columns


def test_damaged_containers_are_said_to_be() -> None:
    whole = encode_file_index({"a": {"bitmap": b"12345"}})
    for end in range(len(whole) - 5):
        with pytest.raises(CorruptDataError):
            decode_file_index(whole[:end])
    with pytest.raises(CorruptDataError):
        decode_file_index(b"\1" + whole[1:])
    with pytest.raises(UnsupportedFeatureError, match="version 2"):
        decode_file_index(whole[:8] + b"\0\0\0\2" + whole[12:])
