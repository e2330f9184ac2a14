"""Rows of records that have several: their place in the record, and what counts for a record as a whole.

`records` are the indexes of the records that the rows are of, ascending; the rows of a record are next to one another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.images import RowIndexes


def places_of(records: RowIndexes) -> RowIndexes:
    """The place of each row in its record, from 0."""
    rows = np.arange(len(records))
    is_first = np.ones(len(records), bool)
    is_first[1:] = records[1:] != records[:-1]
    places: RowIndexes = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    return places


def is_alone(records: RowIndexes) -> Mask:
    """The rows that are the only one of their record."""
    differs = records[1:] != records[:-1]
    alone = np.ones(len(records), bool)
    alone[1:] &= differs
    alone[:-1] &= differs
    return alone


def of_whole_records(records: RowIndexes, rows: Mask) -> Mask:
    """All rows of the records of which one is marked."""
    return np.isin(records, records[rows]) if rows.any() else rows


def ranks_of(records: RowIndexes, order: Any) -> Any:
    """The rank of each row among those of its record, by `order`; here the rows may come in any sequence."""
    by_place = np.lexsort((order, records))
    ranks = np.empty(len(records), np.int32)
    ranks[by_place] = places_of(records[by_place])
    return ranks
