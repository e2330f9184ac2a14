"""Which keys of two sorted sides are equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN


def key_join(left: pa.Table, right: pa.Table, key_columns: tuple[str, ...]) -> tuple[Positions, Positions]:
    """Positions of the equal keys on both sides; each side is in key order and holds each key once."""
    names = list(key_columns)
    both = pa.concat_tables([left.select(names), right.select(names)])
    both = both.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(both.num_rows, np.int64)))
    segments = sort_segments(both, RowOrder(key_columns), [left.num_rows, right.num_rows])
    shared = segments.starts[~segments.lone]
    return segments.order[shared], segments.order[shared + 1] - left.num_rows
