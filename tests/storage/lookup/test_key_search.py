"""Keys found by halving, against a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.lookup.key_search import SortedKeys, key_column, ranges_of
from tests.kit.hypothesis_profile import examples
from tests.storage.lookup.key_columns import VALUES, exact, key_tables, sorted_once


def _arrays(keys: pa.Table) -> list[pa.Array]:
    return [pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type) for c in keys.columns]


def _check(data: st.DataObject, kinds: tuple[pa.DataType, ...]) -> None:
    stored = data.draw(key_tables(kinds))
    more = data.draw(key_tables(kinds, max_size=5))
    some = data.draw(st.lists(st.integers(0, max(0, stored.num_rows - 1)), max_size=stored.num_rows))
    asked = sorted_once(pa.concat_tables([stored.take(pa.array(some, pa.int64())), more]))
    start = data.draw(st.integers(0, stored.num_rows))  # arrays that begin in the middle of their buffers
    stored = stored.slice(start)
    position_of = {key: at for at, key in enumerate(exact(stored))}
    expected = [position_of.get(key, -1) for key in exact(asked)]
    keys = SortedKeys.of(_arrays(stored))
    wanted = SortedKeys.of(_arrays(asked))
    assert keys.find(wanted).tolist() == expected
    if keys.count and wanted.count:
        in_order = exact(sorted_once(pa.concat_tables([stored, asked])))
        passed = [
            sum(place <= in_order.index(key) for place in map(in_order.index, position_of)) for key in exact(asked)
        ]
        assert keys.count_up_to(wanted).tolist() == passed


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_keys_of_each_type(kind: pa.DataType) -> None:
    @settings(max_examples=examples(40))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        _check(data, (kind,))

    run()


@settings(max_examples=examples(60))
@given(data=st.data(), kinds=st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=3))
def test_keys_of_several_columns(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    _check(data, tuple(kinds))


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_arrays_that_are_part_of_others(kind: pa.DataType) -> None:
    @settings(max_examples=examples(15))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        stored = data.draw(key_tables((kind,)))
        (array,) = _arrays(stored)
        start = data.draw(st.integers(0, len(array)))
        part = SortedKeys.of([array.slice(start)])
        assert part.find(SortedKeys.of([array])).tolist() == [-1] * start + list(range(len(array) - start))

    run()


def test_a_type_that_cannot_be_a_key() -> None:
    with pytest.raises(InvalidRequestError, match="list"):
        key_column(pa.array([[1]]))


def test_runs_of_owners() -> None:
    assert list(ranges_of(np.array([-1, -1, 0, 3, 3]))) == [(-1, 0, 2), (0, 2, 3), (3, 3, 5)]
    assert list(ranges_of(np.array([], np.int64))) == []
