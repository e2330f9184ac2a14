"""Rows of a batch that a truncate of the same batch has taken away."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.outcomes import OFFSET, TOPIC, TruncatedAt

TRUNCATED_AWAY: Final = "before a truncate"
"""Why rows are skipped that a truncate of the same batch took away."""


def is_kept(outcomes: pa.RecordBatch, truncated: TruncatedAt) -> Any:
    """Which outcomes come after the truncate."""
    is_before = pc.and_(
        pc.equal(outcomes.column(TOPIC), truncated.topic), pc.less(outcomes.column(OFFSET), truncated.offset)
    )
    return pc.invert(pc.fill_null(is_before, False))
