"""Values by position, and which of them are null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.merge.aggregate.events import Flags, Positions


def valid_flags(values: pa.Array[Any]) -> Flags:
    """True for values that are not null."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    flags: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return flags


def gathered(values: pa.Array[Any], rows: Positions) -> pa.Array[Any]:
    """The values at these positions, NULL for -1."""
    missing = rows < 0
    return values.take(pa.array(rows, mask=missing if missing.any() else None))


def with_looped(values: pa.Array[Any], rows: Positions, looped: Positions, results: Sequence[Any]) -> pa.Array[Any]:
    """The values at `rows` (-1: NULL), one per key, where the keys `looped` have these results instead."""
    if not len(looped):
        return gathered(values, rows)
    rows = rows.copy()
    rows[looped] = len(values) + np.arange(len(looped))
    return gathered(pa.concat_arrays([values, pa.array(results, values.type)]), rows)
