"""rbm32 and rbm64: MERGING.md §2.6.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from freshet.storage.codec.roaring_bitmaps import Bitmap64, read_bitmap32, write_bitmap32
from freshet.storage.merge.aggregate.events import AggregationError, Event
from freshet.storage.merge.aggregate.serialized import SerializedUnion
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.hypothesis_profile import examples
from tests.storage.merge.aggregate.fold_reference import Fold, added, column_events, keys_of, reduced

BYTES = parse_data_type("BYTES")
RBM32 = SerializedUnion(ColumnAggregate(AggregateFunction.RBM32), "v", BYTES)
RBM64 = SerializedUnion(ColumnAggregate(AggregateFunction.RBM64), "v", BYTES)


def b32(numbers: Any) -> bytes:
    return write_bitmap32(BitMap(numbers))


def b64(numbers: Any) -> bytes:
    return Bitmap64.of(np.array(list(numbers), np.uint64)).write()


def read64(data: bytes) -> set[int]:
    return set(Bitmap64.read(data).numbers().tolist())


def test_unions_and_values_alone() -> None:
    plain = BitMap([1, 2, 3, 4]).serialize()  # without runs, as no union would write it
    events = column_events([added(b32([1]), None, b32([5])), added(None, plain), added(None)], pa.binary())
    result = RBM32.reduce(events)
    assert set(read_bitmap32(result.values[0].as_py())) == {1, 5}
    assert result.values.to_pylist()[1:] == [plain, None]
    assert result.scalar_keys.tolist() == [True, False, False]


@pytest.mark.parametrize("function", [RBM32, RBM64])
def test_what_is_no_bitmap_is_refused_with_its_position(function: Any) -> None:
    good = b32([1]) if function is RBM32 else b64([1])
    for bad in (b"", good[:-1], b"\x05" + good[1:], b"abc" * 20):
        with pytest.raises(AggregationError, match="bit roaring bitmap") as caught:
            function.reduce(column_events([added(good, good), added(good, bad)], pa.binary()))
        assert caught.value.event == 3


def test_layout_of_64_bits() -> None:
    assert b64([]).hex() == "00"
    assert b64([1, 1 << 63]).hex() == (
        "01" "0200000000000000"  # two leaves
        "00" "0200" "00" "00008000"  # a node for up to 4 children: bytes 0x00 and 0x80
        "04" "0000" "00" "000000000000" "0000000000000000"
        "04" "0000" "00" "800000000000" "0100000000000000"
        "01000000" "fe" "02000000"
        "01" "02" "01000000" "0100"
        "01" "02" "01000000" "0000"
        "0200000000000000" "00000000" "01000000"
    )  # fmt: skip


numbers64 = st.sets(
    st.integers(0, 40) | st.integers(0, (1 << 64) - 1) | st.integers(0, 300).map(lambda at: at << 40), max_size=80
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(numbers64, min_size=1, max_size=4), st.integers(0, 1 << 63), st.integers(0, 80_000), st.integers(1, 20))
def test_64_bits_united_there_and_back(sets: list[set[int]], first: int, count: int, step: int) -> None:
    spread = set(range(first, first + count, step))
    bitmap = Bitmap64.of(np.array(sorted(spread), np.uint64))
    for numbers in sets:
        bitmap |= Bitmap64.read(b64(numbers))
    expected = spread.union(*sets)
    data = bitmap.write()
    assert read64(data) == expected
    again = Bitmap64.read(data)
    assert again.write() == data
    again |= bitmap
    assert set(again.numbers().tolist()) == expected
    if step == 1:
        assert len(data) < 1000 + 60 * sum(map(len, sets))  # runs, not bits


@settings(max_examples=examples(40), deadline=None)
@given(keys_of(st.sets(st.integers(0, 9)), Event.ADD, Event.ADD_LATE, Event.SET))
def test_as_the_reference_fold(keys: Any) -> None:
    def add(acc: set[int] | None, x: set[int] | None) -> set[int] | None:
        return x if acc is None else acc if x is None else acc | x

    expected = [Fold(add).result(key) for key in keys]
    for function, write, read in ((RBM32, b32, read_bitmap32), (RBM64, b64, read64)):
        stored = [[(event, None if x is None else write(x)) for event, x in key] for key in keys]
        result = reduced(function, stored, pa.binary(), padding=b"?")
        assert [None if data is None else set(read(data)) for data in result] == expected
