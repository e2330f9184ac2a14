"""Finds keys in the sorted runs of one bucket: in one run, or in the lowest of several levels that has them.

A run is cut by the key ranges of its files, which the manifest has: each file is asked for the keys within its range,
and files that no key can be in are not opened.

In a compaction of a table that needs lookup the keys that level 0 brings are completed with what is stored above
(`HigherLevels`). For each key of a round of merging that has no row at level 1 or above among the inputs:

| engine | found above the output level | the key goes on with |
|---|---|---|
| first-row | yes | nothing: the first row is there already |
| first-row | no | its rows |
| any other | in one level or several | its rows and the one of the lowest level |
| any other | no | its rows |

With deletion vectors the rows found are marked as they are found (`file_lookup.NotedRows`): what the key goes on with
takes their place. Where the newest row of level 0 is the result whatever is above, nothing but the position is read
(`needs_rows`).

So that afterwards the old row is always the one of the lowest level at or above 1 among a key's rows.

What is found holds while the files looked at are live: a commit of the compaction must not pass one that replaced
them, for this may have brought in rows of level 0 that were not seen here (`files_looked_into`,
`model.commit_message`).

Source: MERGING.md §4.3, §4.4.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.files.column_bounds import plain_value
from freshet.storage.lookup.file_lookup import FileLookup, FoundRows
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import Flags, KeyComparator, KeySegments, RowOrder, sort_segments
from freshet.storage.merge.merge_function import retracts, stored_columns
from freshet.storage.merge.row_levels import levels_of, with_level, with_rows
from freshet.storage.merge.sorted_runs import LevelRun, SortedRun
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataType
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions

FEW_KEYS: Final = 64
"""For so many keys the range of a file is found by comparing some of them, even if it is the only file."""


class RunLookup(Frozen):
    """Lookups in the runs of one bucket. Keys are sorted by `key_columns`, each once."""

    files: FileLookup
    key_columns: tuple[str, ...]
    key_types: tuple[DataType, ...]
    comparator: KeyComparator

    def find(self, run: SortedRun, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows | None:
        """What a run has of the keys; None if nothing. Rows are in key order, retracts included."""
        positions = np.full(keys.num_rows, -1, np.int64)
        parts: list[pa.Table] = []
        count = 0
        for file, start, end in self.files_of_keys(run.files, keys):
            found = self.files.find(file, keys.slice(start, end - start), columns)
            is_found = found.is_found
            if is_found.any():
                positions[start:end][is_found] = found.positions[is_found] + count
                parts.append(found.rows)
                count += found.rows.num_rows
        return FoundRows(pa.concat_tables(parts), positions) if parts else None

    def find_lowest(self, runs: Iterable[LevelRun], keys: pa.Table, columns: Sequence[str] | None) -> FoundRows | None:
        """What the lowest level that has it holds of each key; None if no level has any.

        `runs` come lowest level first. Rows have the column `_LEVEL` behind the others; those of one level are in key
        order. With None for columns there are no rows, only positions.
        """
        positions = np.full(keys.num_rows, -1, np.int64)
        parts: list[pa.Table] = []
        count = 0
        for run in runs:
            missing = np.flatnonzero(positions < 0)
            if not len(missing):
                break
            found = self.find(run.run, take_rows(keys, missing), columns)
            if found is not None:
                is_found = found.is_found
                positions[missing[is_found]] = found.positions[is_found] + count
                parts.append(found.rows if columns is None else with_level(found.rows, run.level))
                count += found.rows.num_rows
        return FoundRows(pa.concat_tables(parts), positions) if parts else None

    def overlapping(self, files: Iterable[DataFileMeta], low: Any, high: Any) -> list[DataFileMeta]:
        """The files whose key range meets [low, high], both as `KeyComparator` makes them."""
        return files_in_range(self.comparator, files, low, high)

    def files_of_keys(self, files: Iterable[DataFileMeta], keys: pa.Table) -> list[tuple[DataFileMeta, int, int]]:
        """The files that some key may be in, each with the range [start, end) of the keys within its key range.

        A file that is the only one is asked for all keys, unless they are few: to find the range would cost more than
        to ask. Four keys in 3000 dynamic buckets, any of which may have them, took 12 s when each file was asked.
        """
        if not keys.num_rows:
            return []
        known: dict[int, Any] = {}

        def key_at(row: int) -> Any:
            if row not in known:
                values: list[Any] = [plain_value(keys.column(name)[row]) for name in self.key_columns]
                known[row] = self.comparator.sort_key(encode_row(values, self.key_types))
            return known[row]

        sort_key, rows = self.comparator.sort_key, range(keys.num_rows)
        near = self.overlapping(files, key_at(0), key_at(keys.num_rows - 1))
        if len(near) == 1 and keys.num_rows > FEW_KEYS:
            return [(near[0], 0, keys.num_rows)]
        parts = []
        for file in near:
            start = bisect_left(rows, sort_key(file.min_key), key=key_at)
            end = bisect_right(rows, sort_key(file.max_key), key=key_at)
            if start < end:
                parts.append((file, start, end))
        return parts


def files_in_range(comparator: KeyComparator, files: Iterable[DataFileMeta], low: Any, high: Any) -> list[DataFileMeta]:
    """The files whose key range meets [low, high], both as the comparator makes them."""
    sort_key = comparator.sort_key
    return [file for file in files if sort_key(file.max_key) >= low and sort_key(file.min_key) <= high]


class LiveRows(Protocol):
    """Leaves out rows that have expired: they count as not found."""

    def live(self, rows: pa.Table) -> pa.Table:
        """The others."""
        ...


class HigherLevels(Frozen):
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
