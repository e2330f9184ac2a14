"""Which changes of a bucket are of keys that leave it: pure, on the keys and kinds of the changes in their order.

| changes of a key | the key |
|---|---|
| -D · +I -D · -U +U -D | leaves: the last one takes it away |
| +I · -U +U · -D +I | is there at the end |

Of the changes of one snapshot a key may leave one partition and come into another one (`planner`). Whoever applies
first those of all keys that leave, then all others, has each key where it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN

_RETRACTS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


def rows_of_leaving_keys(changes: pa.Table, key_columns: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """True for each change of a key whose last change is a retract."""
    numbers = pa.array(np.arange(changes.num_rows))
    keys = changes.select(list(key_columns)).append_column("row", numbers)
    rows = keys.group_by(list(key_columns), use_threads=False).aggregate([("row", "list")])["row_list"]
    lists = rows.combine_chunks()
    offsets, of_keys = lists.offsets.to_numpy(), lists.values.to_numpy()
    kinds = changes.column(VALUE_KIND_COLUMN).to_numpy()
    leaves = np.isin(kinds[of_keys[offsets[1:] - 1]], _RETRACTS)
    found = np.zeros(changes.num_rows, np.bool_)
    found[of_keys] = np.repeat(leaves, np.diff(offsets))
    return found
