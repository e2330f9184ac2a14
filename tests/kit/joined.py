"""A merge engine for tests that shows what it merged: the texts of a key's rows, in their order, joined by `+`.

Its result depends on every row, on their order and on how often they are merged, so nothing is hidden that a real
engine might hide. A key that is merged and not passed comes out in brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.merge.chosen_row import ChosenRows
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import Decision, MergeFunction, RowKinds


@dataclass(frozen=True, slots=True)
class Joined(MergeFunction):
    """Over one text column; key, kind and sequence number are those of the newest row."""

    column: str = "v"
    passes_lone_rows: bool = True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        texts = segments.rows.column(self.column).to_pylist()
        ends = [*segments.starts[1:].tolist(), len(segments.order)]
        joined = []
        for start, end, is_lone in zip(segments.starts.tolist(), ends, segments.lone.tolist(), strict=False):
            seen = "+".join(str(texts[row]) for row in segments.order[start:end])
            joined.append(seen if is_lone and self.passes_lone_rows else f"({seen})")
        return JoinedRows(ChosenRows(segments.rows, segments.last_rows), self.column, joined)


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The newest rows, with their joined texts."""

    newest: ChosenRows
    column: str
    texts: list[str]

    @property
    def kinds(self) -> RowKinds:
        return self.newest.kinds

    def rows(self, kept: Flags | None, columns: Sequence[str], executor: Executor | None) -> pa.Table:
        rows = self.newest.rows(kept, columns, executor)
        if self.column not in columns:
            return rows
        texts = np.array(self.texts, object)
        at = rows.column_names.index(self.column)
        return rows.set_column(at, rows.schema.field(at), pa.array(texts if kept is None else texts[kept], pa.string()))
