"""What differs between two states of some keys: pure, on rows that are merged.

| key in | values | rows |
|---|---|---|
| the new state only | | +I |
| both | the same | none |
| both | not the same | -U of the old, +U of the new |
| the old state only | | -D |

Values are the same as for `changelog-producer.row-deduplicate`. Rows come in key order. Memory: both states.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.changelog.row_deduplicate import SameValues
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN


def difference(old: pa.Table, new: pa.Table, key_columns: tuple[str, ...]) -> tuple[pa.Table, npt.NDArray[np.int8]]:
    """Rows that differ and the code of the kind of each; both states have one schema, key order, and each key once."""
    both = pa.concat_tables([old, new])
    numbered = both.select(list(key_columns)).append_column(
        SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(both.num_rows, np.int64))
    )
    segments = sort_segments(numbered, RowOrder(key_columns), [old.num_rows, new.num_rows])
    kinds = np.where(segments.order < old.num_rows, RowKind.DELETE, RowKind.INSERT).astype(np.int8)
    first = segments.starts[~segments.lone]
    kinds[first], kinds[first + 1] = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
    compared = tuple(name for name in both.column_names if name not in key_columns)
    old_rows, new_rows = segments.order[first], segments.order[first + 1] - old.num_rows
    same = first[SameValues(compared).pairs(old, old_rows, new, new_rows)]
    kept = np.ones(both.num_rows, np.bool_)
    kept[same] = kept[same + 1] = False
    return both.take(pa.array(segments.order[kept])), kinds[kept]
