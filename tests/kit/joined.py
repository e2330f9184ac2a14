"""A merge engine for tests that tells what it saw: the texts of a key's rows, in their order, joined by `+`.

Its result depends on every row, on their order and on how often they are merged, so nothing is hidden that a real
engine might hide. A key that is merged and not passed comes out in brackets.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import KeySegments
from freshet.storage.merge.lookup_levels import stored_columns
from freshet.storage.merge.merge_function import MergeFunction, retracts
from freshet.storage.merge.take import take_rows


@dataclass(frozen=True, slots=True)
class Joined(MergeFunction):
    """Over one text column; key, kind and sequence number are those of the newest row."""

    column: str = "v"
    passes_lone_rows: bool = True

    def merge(
        self,
        segments: KeySegments,
        *,
        drop_delete: bool,
        columns: tuple[str, ...] | None = None,
        executor: Executor | None = None,
    ) -> pa.Table:
        texts = segments.rows.column(self.column).to_pylist()
        ends = [*segments.starts[1:].tolist(), len(segments.order)]
        joined = []
        for start, end, is_lone in zip(segments.starts.tolist(), ends, segments.lone.tolist(), strict=False):
            seen = "+".join(str(texts[row]) for row in segments.order[start:end])
            joined.append(seen if is_lone and self.passes_lone_rows else f"({seen})")
        names = list(columns or stored_columns(segments.rows))
        newest = take_rows(segments.rows, segments.last_rows)
        if self.column in names:
            at = newest.column_names.index(self.column)
            newest = newest.set_column(at, newest.schema.field(at), pa.array(joined, pa.string()))
        if drop_delete:
            newest = newest.filter(pa.array(~np.asarray(retracts(newest))))
        return newest.select(names)
