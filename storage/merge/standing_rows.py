"""The decision of engines by which one of a key's rows stands as it is, or none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.merge_function import NO_ROW, RowKinds, kinds_of
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import take_rows


@dataclass(frozen=True)
class StandingRows:
    """A `Decision`: the position in `table` of the row of each key that stands, -1 where none does."""

    table: pa.Table
    standing: Positions

    @cached_property
    def kinds(self) -> RowKinds:
        """The kind of each row that stands."""
        kinds: RowKinds = kinds_of(self.table).take(self.standing, mode="wrap")
        is_missing = self.standing < 0
        if is_missing.any():
            kinds[is_missing] = NO_ROW
        return kinds

    def rows(self, kept: Flags | None, columns: Sequence[str], executor: Executor | None) -> pa.Table:
        """The rows that stand, of the keys kept."""
        standing = self.standing if kept is None else self.standing[kept]
        is_missing = standing < 0
        if is_missing.any():
            standing = standing[~is_missing]
        return take_rows(self.table, standing, columns, executor)
