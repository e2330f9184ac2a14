"""Which rows count in tables that need lookup: level 0 and the lowest level above, also when nothing else is merged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.merge.chosen_row import Deduplicate
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.merge.merge_reader import merge_section
from freshet.storage.merge.row_levels import LEVEL_FIELD, LookupLevels, with_level, with_rows
from tests.kit.joined import Joined
from tests.kit.notation import kv_table

ORDER = RowOrder(("k",))


def leveled(text: str, levels: list[int]) -> pa.Table:
    return kv_table(text).append_column(LEVEL_FIELD, pa.array(levels, pa.int8()))


def seen(text: str, levels: list[int], *, passes_lone_rows: bool = True) -> list[str]:
    function = LookupLevels(Joined(passes_lone_rows=passes_lone_rows))
    return function.merge(sort_segments(leveled(text, levels), ORDER)).rows["v"].to_pylist()


def test_only_the_lowest_level_above_0_counts() -> None:
    assert seen("1, 0, +I, c3 | 1, 1, +I, c2 | 1, 2, +I, c1 | 1, 3, +I, new", [3, 2, 1, 0]) == ["(c1+new)"]
    assert seen("1, 0, +I, c | 1, 1, +I, a | 1, 2, +I, b", [4, 0, -1]) == ["(c+a+b)"]


def test_a_key_of_which_stale_rows_were_left_out_is_merged_and_a_lone_one_passes() -> None:
    assert seen("1, 0, +I, old | 1, 1, +I, x | 2, 2, +I, y", [2, 1, 1]) == ["(x)", "y"]
    assert seen("2, 2, +I, y", [1], passes_lone_rows=False) == ["(y)"]


def test_the_order_is_by_sequence_not_by_level() -> None:
    assert seen("1, 9, +I, high | 1, 1, +I, late", [2, 0]) == ["(late+high)"]


def test_the_level_leads_nowhere_else() -> None:
    rows = leveled("1, 1, +I, a | 1, 2, +I, b", [1, 0])
    function = LookupLevels(Deduplicate())
    assert LEVEL_FIELD.name not in function.merge(sort_segments(rows, ORDER)).rows.column_names
    (batch,) = merge_section([rows.slice(0, 1).to_batches()], ORDER, function, drop_delete=False)
    assert batch.schema.names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "v"]


def test_rows_without_their_levels_are_not_merged_by_mistake() -> None:
    with pytest.raises(KeyError, match="_LEVEL"):
        LookupLevels(Joined()).merge(sort_segments(kv_table("1, 1, +I, a | 1, 2, +I, b"), ORDER))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), max_size=30))
def test_it_agrees_with_the_rule_as_it_is_spoken(rows: list[tuple[int, int]]) -> None:
    # A key is once in each level above 0.
    kept = [row for at, row in enumerate(rows) if row[1] <= 0 or row not in rows[:at]]
    if not kept:
        return
    text = " | ".join(f"{key}, {at}, +I, r{at}" for at, (key, _) in enumerate(kept))
    expected = []
    for key in sorted({key for key, _ in kept}):
        mine = [(at, level) for at, (found, level) in enumerate(kept) if found == key]
        lowest = min((level for _, level in mine if level > 0), default=0)
        names = "+".join(f"r{at}" for at, level in mine if level <= 0 or level == lowest)
        expected.append(names if len(mine) == 1 else f"({names})")
    assert seen(text, [level for _, level in kept]) == expected


def test_with_rows_drops_keys_that_lose_all() -> None:
    segments = sort_segments(kv_table("1, 0, +I, a | 1, 1, +I, b | 2, 2, +I, c | 3, 3, +I, d | 3, 4, +I, e"), ORDER)
    left = with_rows(segments, np.array([False, False, True, False, True]))
    assert left.order.tolist() == [2, 4]
    assert left.starts.tolist() == [0, 1]
    assert left.lone.tolist() == [True, False]
    assert with_rows(segments, np.zeros(5, np.bool_)).starts.tolist() == []


def test_with_level_keeps_the_rows() -> None:
    (batch,) = kv_table("1, 0, +I, a").to_batches()
    assert with_level(batch, 4).to_pylist() == [{**batch.to_pylist()[0], "_LEVEL": 4}]
