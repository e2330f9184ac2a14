"""Reads splits of changes: rows with their kind and the snapshot that made the change.

    columns asked for, then _ROW_KIND ('+I' '-U' '+U' '-D'), then _SNAPSHOT_ID where it is asked for

A filter is applied to each row by itself: of an update that moves a row into or out of the filter only the half that
matches comes out (the +U without its -U, or the -U alone). Row groups without a matching row are not read.

Memory: a page per column and a batch; states that are merged take what a scan takes, states that are compared are held
whole, split by split, and so are the keys of a split of which only those that leave, or stay, are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.changelog.producer import SameValues
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead, data_files_ahead
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN, RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.split import ChangeSplit, Split
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import SplitReader

_TEXTS: Final = pa.array(KIND_TEXTS, pa.string())


@dataclass(frozen=True)
class ChangeSplitReader:
    """Reads splits of one table with one projection and filter. May be shared by threads."""

    store: TableStore
    columns: tuple[str, ...]
    scan_filter: ScanFilter | None = None
    with_snapshot_id: bool = True

    def __post_init__(self) -> None:
        for name in (ROW_KIND_COLUMN, *((SNAPSHOT_ID_COLUMN,) if self.with_snapshot_id else ())):
            if name in self.columns:
                raise InvalidRequestError(
                    f"table {self.store.location} has a column {name}, which is the name of a column that comes with "
                    "every change; read the other columns only, or rename it",
                    column=name,
                    table=self.store.location,
                )

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the batches that come out."""
        table = arrow_schema(self.store.schema)
        fields = [table.field(name) for name in self.columns]
        fields.append(pa.field(ROW_KIND_COLUMN, pa.string(), nullable=False))
        if self.with_snapshot_id:
            fields.append(pa.field(SNAPSHOT_ID_COLUMN, pa.int64(), nullable=False))
        return pa.schema(fields)

    def read(self, split: ChangeSplit, executor: Executor | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the split in their order; an executor decodes the files of states ahead."""
        if split.is_compared:
            yield from self._difference(split)
            return
        if split.removed is not None:
            yield from self._state(split.removed, RowKind.DELETE, split.snapshot_id, executor)
        if split.added is not None:
            yield from self._state(split.added, RowKind.INSERT, split.snapshot_id, executor)
        wanted = None if split.leaving is None else self._wanted_rows(split, leaving=split.leaving)
        with data_files_ahead(self.store, ((split.partition, split.bucket, file) for file in split.files)):
            start = 0
            for file in split.files:
                yield from self._file(split, file, None if wanted is None else wanted[start : start + file.row_count])
                start += file.row_count

    def _difference(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        reader = SplitReader(self.store, self.store.schema.column_names)
        old, new = (
            pa.Table.from_batches([] if state is None else reader.read(state), reader.schema)
            for state in (split.removed, split.added)
        )
        rows, kinds = difference(old, new, self.store.schema.trimmed_primary_keys)
        if split.leaving is not None:
            wanted = (kinds == RowKind.DELETE) == split.leaving
            rows, kinds = rows.filter(pa.array(wanted)), kinds[wanted]
        rows = rows.append_column(VALUE_KIND_COLUMN, pa.array(kinds))
        if self.scan_filter is not None:
            rows = rows.filter(self.scan_filter.predicate.to_arrow())
        for batch in rows.to_batches():
            if batch.num_rows:
                yield self._finished(batch, pc.take(_TEXTS, batch.column(VALUE_KIND_COLUMN)), split.snapshot_id)

    @cached_property
    def _states(self) -> SplitReader:
        return SplitReader(self.store, self.columns, self.scan_filter)

    def _state(
        self, state: Split, kind: RowKind, snapshot_id: int, executor: Executor | None
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._states.read(state, executor):
            yield self._finished(batch, pa.repeat(_TEXTS[int(kind)], batch.num_rows), snapshot_id)

    def _wanted_rows(self, split: ChangeSplit, *, leaving: bool) -> npt.NDArray[np.bool_]:
        """True for each row of the files whose key leaves, or for those whose key does not."""
        keys = self.store.schema.trimmed_primary_keys
        sources = ((self.store, split.partition, split.bucket, file) for file in split.files)
        batches = [
            batch.select([*keys, VALUE_KIND_COLUMN])
            for source in sources
            for batch in DataFileRead(*source, keys, None, system_columns=True).batches()
        ]
        wanted: npt.NDArray[np.bool_] = rows_of_leaving_keys(pa.Table.from_batches(batches), keys) == leaving
        return wanted

    def _file(
        self, split: ChangeSplit, file: DataFileMeta, wanted: npt.NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        pushed = self.scan_filter.file_part if self.scan_filter and wanted is None else None
        is_keyed = self.store.schema.has_primary_key
        source = (self.store, split.partition, split.bucket, file)
        start = 0
        for batch in DataFileRead(*source, self._states.needed, pushed, system_columns=is_keyed).batches():
            if wanted is not None:
                stop = start + batch.num_rows
                batch, start = batch.filter(pa.array(wanted[start:stop])), stop
            if self.scan_filter is not None:
                batch = batch.filter(self.scan_filter.predicate.to_arrow())
            if not batch.num_rows:
                continue
            kinds = batch.column(VALUE_KIND_COLUMN) if is_keyed else None
            texts = pa.repeat(_TEXTS[0], batch.num_rows) if kinds is None else pc.take(_TEXTS, kinds)
            yield self._finished(batch, texts, split.snapshot_id)

    def _finished(self, batch: pa.RecordBatch, kinds: Any, snapshot_id: int) -> pa.RecordBatch:
        arrays = [*(batch.column(name) for name in self.columns), kinds]
        if self.with_snapshot_id:
            arrays.append(pa.repeat(pa.scalar(snapshot_id, pa.int64()), batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def difference(old: pa.Table, new: pa.Table, key_columns: tuple[str, ...]) -> tuple[pa.Table, npt.NDArray[np.int8]]:
    """Rows that differ between two states of some keys, in key order, and the code of the kind of each.

    | key in | values | rows |
    |---|---|---|
    | the new state only | | +I |
    | both | the same | none |
    | both | not the same | -U of the old, +U of the new |
    | the old state only | | -D |

    Both states have one schema, key order, and each key once. Values are the same as for
    `changelog-producer.row-deduplicate`.
    """
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


_RETRACTS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


def rows_of_leaving_keys(changes: pa.Table, key_columns: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """True for each change of a key that leaves the bucket: its last change is a retract.

    | changes of a key | the key |
    |---|---|
    | -D · +I -D · -U +U -D | leaves: the last one takes it away |
    | +I · -U +U · -D +I | is there at the end |

    Of the changes of one snapshot a key may leave one partition and come into another one (`planner`). Whoever applies
    first those of all keys that leave, then all others, has each key where it is.
    """
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
