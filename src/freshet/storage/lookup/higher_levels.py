"""Completes the keys that level 0 brings, in a compaction of a table that needs lookup, with what is stored above.

For each key of a round of merging that has no row at level 1 or above among the inputs:

| engine | found above the output level | the key goes on with |
|---|---|---|
| first-row | yes | nothing: the first row is there already |
| first-row | no | its rows |
| any other | in one level or several | its rows and the one of the lowest level |
| any other | no | its rows |

With deletion vectors the rows found are marked as they are found (`unmarked_rows.NotedRows`): what the key goes on with
takes their place. Where the newest row of level 0 is the result whatever is above, nothing but the position is read
(`needs_rows`).

So that afterwards the old row is always the one of the lowest level at or above 1 among a key's rows.

What is found holds while the files looked at are live: a commit of the compaction must not pass one that replaced
them, for this may have brought in rows of level 0 that were not seen here (`files_looked_into`,
`model.commit_message`).

Source: MERGING.md §4.3, §4.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.lookup.run_lookup import RunLookup
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import Flags, KeySegments, RowOrder, sort_segments
from freshet.storage.merge.merge_function import retracts, stored_columns
from freshet.storage.merge.row_levels import levels_of, with_rows
from freshet.storage.merge.sorted_runs import LevelRun
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions


class LiveRows(Protocol):
    """Leaves out rows that have expired: they count as not found."""

    def live(self, rows: pa.Table) -> pa.Table:
        """The others."""
        ...


@dataclass(frozen=True, slots=True)
class HigherLevels:
    """The runs of a bucket above the output level, lowest first."""

    lookup: RunLookup
    order: RowOrder
    options: CoreOptions
    runs: tuple[LevelRun, ...]
    needs_rows: bool = True
    marks: Mapping[str, Bitmap32] | None = None
    """Rows found so far that are to be marked, by name of their file; None where none are marked."""
    expiry: LiveRows | None = None

    def complete(self, segments: KeySegments) -> KeySegments:
        """The keys as they go on; rows have the column of levels."""
        if not self.runs or not len(segments.starts):
            return segments
        asks = np.maximum.reduceat(levels_of(segments.rows)[segments.order], segments.starts) <= 0
        if not asks.any():
            return segments
        keys = take_rows(segments.rows, segments.order[segments.starts[asks]], self.order.key_columns)
        if self.options.merge_engine is MergeEngine.FIRST_ROW:
            return self._without_known(segments, asks, keys)
        if not self.needs_rows:
            self.lookup.find_lowest(self.runs, keys, None)
            return segments
        return self._with_found(segments, keys)

    def files_looked_into(self, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """Files that may hold keys of these: those that the result depends on."""
        sort_key = self.lookup.comparator.sort_key
        low, high = min(sort_key(file.min_key) for file in files), max(sort_key(file.max_key) for file in files)
        return self.lookup.overlapping((file for run in self.runs for file in run.run.files), low, high)

    def _without_known(self, segments: KeySegments, asks: Flags, keys: pa.Table) -> KeySegments:
        found = self.lookup.find_lowest(self.runs, keys, None)
        if found is None:
            return segments
        gone = np.zeros(len(asks), np.bool_)
        gone[asks] = found.is_found
        if not self.options.ignore_delete:
            # A retract must come to the engine, which refuses it.
            gone &= ~np.logical_or.reduceat(retracts(segments.rows)[segments.order], segments.starts)
        return with_rows(segments, np.repeat(~gone, segments.counts))

    def _with_found(self, segments: KeySegments, keys: pa.Table) -> KeySegments:
        system = (SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN)
        columns = [name for name in stored_columns(segments.rows) if name not in system]
        found = self.lookup.find_lowest(self.runs, keys, columns)
        if found is None:
            return segments
        rows = found.rows if self.expiry is None else self.expiry.live(found.rows)
        rows = rows.select(segments.rows.column_names)
        return sort_segments(pa.concat_tables([rows, segments.rows]), self.order)
