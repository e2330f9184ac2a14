"""Finds, above the output level of a compaction, what is stored of the keys that level 0 brings.

For each key of a round of merging that has no row at level 1 or above among the inputs:

| engine | found above | the key goes on with |
|---|---|---|
| first-row | yes | nothing: the first row stands already |
| first-row | no | its rows |
| any other | in one level or several | its rows and the one of the lowest level |
| any other | no | its rows |

This is a semi-join of sorted streams. The keys of a round are few and in order, a level is one run in order: files and
row groups outside of the keys' range are left out; of the others the key columns are read batch by batch and matched
with the keys of the same range; then the row groups in which keys were found are read whole. Held at a time: a batch of
one file, the keys of the round, the rows found. Nothing is remembered from one round to the next.

Cost: reading the keys of level 1 and above within the range, whatever the number of keys asked: with keys at random,
all of the bucket's. A cache of lookups by key is what makes few keys in large buckets cheap; there is none yet.

What is found holds while the files looked at are live: a commit of the compaction must not pass one that replaced
them, for this may have brought in rows of level 0 that were not seen here (`files_beside`, `model.commit_message`).

Source: LSM semantics §4.3, §4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.files.append_reader import read_append_file
from freshet.storage.files.column_bounds import plain_value
from freshet.storage.files.key_value_reader import read_key_value_file
from freshet.storage.merge.key_order import Flags, KeyComparator, KeySegments, RowOrder, sort_segments
from freshet.storage.merge.lookup_levels import levels_of, with_level, with_rows
from freshet.storage.merge.merge_function import retracts
from freshet.storage.merge.merge_reader import RunBuffer
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import take_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN
from freshet.storage.model.sorted_run import LevelRun
from freshet.storage.options.core import MergeEngine
from freshet.storage.predicate import Predicate, col

KEY_BATCH_ROWS: Final = 64 * 1024
"""Keys read at a time."""

ROW_BATCH_ROWS: Final = 8 * 1024
"""Whole rows read at a time."""

STRETCHES_MAX: Final = 64
"""Stretches of found keys by which row groups are chosen: each costs a comparison per row group."""


@dataclass(frozen=True, slots=True)
class HigherLevels:
    """The runs of a bucket above a level, lowest first."""

    store: TableStore
    partition: bytes
    bucket: int
    order: RowOrder
    comparator: KeyComparator
    runs: tuple[LevelRun, ...]
    use_threads: bool = False

    def complete(self, segments: KeySegments) -> KeySegments:
        """The keys as they go on; rows have the column of levels."""
        if not self.runs or not len(segments.starts):
            return segments
        asks = np.maximum.reduceat(levels_of(segments.rows)[segments.order], segments.starts) <= 0
        if not asks.any():
            return segments
        keys = take_rows(segments.rows, segments.order[segments.starts[asks]], self.order.key_columns)
        if self.store.options.merge_engine is MergeEngine.FIRST_ROW:
            return self._without_known(segments, asks, keys)
        return self._with_found(segments, keys)

    def files_beside(self, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """Files that may hold keys of these: those that the result depends on."""
        sort_key = self.comparator.sort_key
        low, high = min(sort_key(file.min_key) for file in files), max(sort_key(file.max_key) for file in files)
        return self._overlapping((file for run in self.runs for file in run.run.files), low, high)

    def _without_known(self, segments: KeySegments, asks: Flags, keys: pa.Table) -> KeySegments:
        known = np.zeros(keys.num_rows, np.bool_)
        for run in self.runs:
            known[~known] |= self._places(run, keys.filter(pa.array(~known))) > 0
        gone = np.zeros(len(asks), np.bool_)
        gone[asks] = known
        if not self.store.options.ignore_delete:
            # A retract must come to the engine, which refuses it.
            gone &= ~np.logical_or.reduceat(retracts(segments.rows)[segments.order], segments.starts)
        counts = np.diff(segments.starts, append=len(segments.order))
        return with_rows(segments, np.repeat(~gone, counts))

    def _with_found(self, segments: KeySegments, keys: pa.Table) -> KeySegments:
        found: list[pa.Table] = []
        for run in self.runs:
            places = self._places(run, keys)
            is_found = places > 0
            if is_found.any():
                rows = self._rows(run, keys.filter(pa.array(is_found)), places[is_found])
                found.append(with_level(rows, run.level).select(segments.rows.column_names))
                keys = keys.filter(pa.array(~is_found))
            if not keys.num_rows:
                break
        if not found:
            return segments
        return sort_segments(pa.concat_tables([*found, segments.rows]), self.order)

    def _places(self, run: LevelRun, keys: pa.Table) -> Positions:
        """For each key 0 if the run does not have it, else the number, from 1, of the batch that has."""
        places = np.zeros(keys.num_rows, np.int64)
        if keys.num_rows:
            pruned_by = _within(keys, self.order.key_columns[0], [(0, keys.num_rows - 1)])
            for number, (positions, _) in enumerate(self._joined(run, keys, pruned_by, whole_rows=False), 1):
                places[positions] = number
        return places

    def _rows(self, run: LevelRun, keys: pa.Table, places: Positions) -> pa.Table:
        """The rows of keys that the run has, in these places."""
        pruned_by = _within(keys, self.order.key_columns[0], _stretches(places))
        return pa.Table.from_batches(
            [rows for _, rows in self._joined(run, keys, pruned_by, whole_rows=True) if rows.num_rows]
        )

    def _joined(
        self, run: LevelRun, keys: pa.Table, pruned_by: Predicate | None, *, whole_rows: bool
    ) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """Batch by batch: positions of the keys that are in it, and their rows (or their key columns)."""
        waiting = RunBuffer(keys.to_batches(), self.order.key_columns)
        waiting.fill(keys.num_rows)
        passed = 0
        for file in self._files(run, keys):
            for batch in self._read(file, pruned_by, whole_rows):
                part = waiting.cut(waiting.key(batch, batch.num_rows - 1), strictly=False) if batch.num_rows else []
                if part:
                    asked = pa.Table.from_batches(part)
                    in_keys, in_batch = self._matches(asked, batch)
                    yield in_keys + passed, batch.take(pa.array(in_batch))
                    passed += asked.num_rows
                if not waiting.row_count:
                    return

    def _read(self, file: DataFileMeta, pruned_by: Predicate | None, whole_rows: bool) -> Iterator[pa.RecordBatch]:
        read = read_key_value_file if whole_rows else read_append_file
        return read(
            self.store,
            self.partition,
            self.bucket,
            file,
            self.store.schema.column_names if whole_rows else self.order.key_columns,
            pruned_by,
            batch_rows=ROW_BATCH_ROWS if whole_rows else KEY_BATCH_ROWS,
            use_threads=self.use_threads,
        )

    def _matches(self, keys: pa.Table, batch: pa.RecordBatch) -> tuple[Positions, Positions]:
        """Positions of equal keys; both sides are in order and hold each key once."""
        names = list(self.order.key_columns)
        both = pa.concat_tables([keys.select(names), pa.Table.from_batches([batch.select(names)])])
        both = both.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(both.num_rows, np.int64)))
        segments = sort_segments(both, RowOrder(self.order.key_columns), [keys.num_rows, batch.num_rows])
        shared = segments.starts[~segments.lone]
        return segments.order[shared], segments.order[shared + 1] - keys.num_rows

    def _files(self, run: LevelRun, keys: pa.Table) -> list[DataFileMeta]:
        """Files of the run that overlap the range of the keys."""
        sort_key = self.comparator.sort_key
        low, high = sort_key(self._serialized(keys, 0)), sort_key(self._serialized(keys, keys.num_rows - 1))
        return self._overlapping(run.run.files, low, high)

    def _overlapping(self, files: Iterable[DataFileMeta], low: Any, high: Any) -> list[DataFileMeta]:
        sort_key = self.comparator.sort_key
        return [file for file in files if sort_key(file.max_key) >= low and sort_key(file.min_key) <= high]

    def _serialized(self, keys: pa.Table, row: int) -> bytes:
        values: list[Any] = [plain_value(keys.column(name)[row]) for name in self.order.key_columns]
        return encode_row(values, self.store.key_types)


def _stretches(places: Positions) -> list[tuple[int, int]]:
    """First and last position of keys that are in the same place or, where there are many, in places side by side."""
    parts = (places - 1) * STRETCHES_MAX // max(STRETCHES_MAX, int(places[-1]))
    ends = np.flatnonzero(np.diff(parts))
    return list(zip([0, *(ends + 1).tolist()], [*ends.tolist(), len(places) - 1], strict=True))


def _within(keys: pa.Table, column: str, stretches: Sequence[tuple[int, int]]) -> Predicate | None:
    """True for all rows whose first key column lies between those of two keys of a stretch; None where not known."""
    if not _can_prune(keys.schema.field(column).type):
        return None
    values = keys.column(column)
    parts: list[Predicate] = [
        (col(column) >= values[first].as_py()) & (col(column) <= values[last].as_py()) for first, last in stretches
    ]
    return reduce(or_, parts)


def _can_prune(kind: pa.DataType) -> bool:
    """Types whose values filters compare just as keys are ordered, in Python without loss."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind))
