"""hll_sketch and theta_sketch: MERGING.md §2.6.1. That the bytes are Paimon's is tested in tests/contract."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from datasketches import hll_sketch, tgt_hll_type, update_theta_sketch

from freshet.storage.codec.sketches import read_hll, read_theta
from freshet.storage.merge.aggregate.events import AggregationError, Event
from freshet.storage.merge.aggregate.serialized import SerializedUnion
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.storage.merge.aggregate.fold_reference import added, column_events, reduced

BYTES = parse_data_type("BYTES")
HLL = SerializedUnion(ColumnAggregate(AggregateFunction.HLL_SKETCH), "v", BYTES)
THETA = SerializedUnion(ColumnAggregate(AggregateFunction.THETA_SKETCH), "v", BYTES)


def hll(first: int, count: int, lg_k: int = 12) -> bytes:
    sketch = hll_sketch(lg_k, tgt_hll_type.HLL_8)
    for value in range(first, first + count):
        sketch.update(value)
    return sketch.serialize_compact()


def theta(first: int, count: int, lg_k: int = 12) -> bytes:
    sketch = update_theta_sketch(lg_k)
    for value in range(first, first + count):
        sketch.update(value)
    return sketch.compact().serialize()


@pytest.mark.parametrize(("function", "make", "read"), [(HLL, hll, read_hll), (THETA, theta, read_theta)])
def test_unions_count_what_is_distinct(function: Any, make: Any, read: Any) -> None:
    keys = [
        added(make(0, 300), make(200, 300), None),
        added(None, make(0, 5)),
        added(None, None),
        [(Event.ADD, make(0, 100)), (Event.SET, make(0, 7)), (Event.ADD_LATE, make(5, 4))],
        added(make(0, 50_000), make(25_000, 50_000)),
    ]
    events = column_events(keys, pa.binary())
    result = function.reduce(events)
    values = result.values.to_pylist()
    counts = [None if data is None else read(data).get_estimate() for data in values[:4]]
    assert counts == [pytest.approx(500, rel=0.01), pytest.approx(5), None, pytest.approx(9)]
    assert read(values[4]).get_estimate() == pytest.approx(75_000, rel=0.06)
    assert values[1] == make(0, 5)
    assert result.scalar_keys.tolist() == [True, False, False, True, True]


def test_precision_of_hll_follows_the_newer_sketch() -> None:
    keys = [added(hll(0, 5, 10), hll(5, 5, 8)), [(Event.ADD, hll(0, 5, 10)), (Event.ADD_LATE, hll(5, 5, 8))]]
    assert [read_hll(data).lg_config_k for data in reduced(HLL, keys, pa.binary())] == [8, 10]


@pytest.mark.parametrize(("function", "good"), [(HLL, hll(0, 3)), (THETA, theta(0, 3))])
def test_what_is_no_sketch_is_refused_with_its_position(function: Any, good: bytes) -> None:
    for bad in (b"", b"abc", good[:-1], b"\xff" * 60):
        with pytest.raises(AggregationError, match="is not an? (HLL|theta) sketch") as caught:
            function.reduce(column_events([added(good, good), added(good, bad)], pa.binary()))
        assert caught.value.event == 3
