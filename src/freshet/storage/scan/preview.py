"""The first rows of a scan, as a notebook shows them: few, and cheap to come by whatever the size of the table.

| bound | |
|---|---|
| rows shown, columns shown | `ROWS`, `COLUMNS` |
| rows looked at for those that pass the filter | `LOOKED_AT_MAX` |
| manifests read to plan a scan that is not planned yet, in bytes | `METADATA_BYTES_MAX` |
| files that are merged for one row | `FILES_MAX` |

Where a bound is met the rows are left out, or those that were found are shown; a line says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.live_files import data_manifests
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.shown import note_html, rows_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.scan.split_reader import SplitReader

ROWS: Final = 10
COLUMNS: Final = 30
LOOKED_AT_MAX: Final = 20_000
METADATA_BYTES_MAX: Final = 4 * 1024 * 1024
FILES_MAX: Final = 50

_MEMORY_BYTES: Final = 1024 * 1024
"""Of rows that are merged: small rounds, of which the first is enough."""

TOO_LARGE: Final = "its first rows are not shown, since that would take long; .to_arrow() reads all of them"


class FirstRows(Frozen):
    """Rows that were found; whether they are all, and how many were looked at."""

    rows: pa.Table
    looked_at: int
    is_all: bool

    def html(self, columns: int) -> str:
        """A table, and what to know of it; `columns` is how many there are in all."""
        header = self.rows.column_names
        values = [[_value(scalar) for scalar in column] for column in self.rows.columns]
        table = rows_html(header, list(zip(*values, strict=True)))
        if self.is_all:
            what = "no rows" if self.rows.num_rows == 0 else f"all rows: {self.rows.num_rows}"
        elif self.rows.num_rows < ROWS and self.looked_at >= LOOKED_AT_MAX:
            what = f"of the first {self.looked_at:,} rows {self.rows.num_rows} pass the filter; .to_arrow() reads on"
        else:
            what = f"the first {self.rows.num_rows} rows; .to_arrow() reads all"
        rest = "" if columns <= len(header) else f"; {len(header)} of {columns} columns"
        return f"{table}{note_html(what + rest)}"


def is_cheap_to_plan(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether the manifests of a snapshot are read in no time."""
    lists = (snapshot.base_manifest_list_size or 0) + (snapshot.delta_manifest_list_size or 0)
    if lists > METADATA_BYTES_MAX:
        return False
    manifests = data_manifests(store.manifests, snapshot)
    return sum(manifest.file_size_bytes for manifest in manifests) <= METADATA_BYTES_MAX


def rows_of_scan(reader: SplitReader, splits: Sequence[Split], limit: int | None) -> str:
    """The first rows of a scan that is planned, as HTML."""
    narrow = list(takewhile(lambda split: split.raw_convertible or len(split.files) <= FILES_MAX, splits))
    if splits and not narrow:
        return note_html(TOO_LARGE)
    predicate = None if reader.scan_filter is None else reader.scan_filter.predicate
    shown = reader.columns[:COLUMNS]
    looked_at = set(shown) | (frozenset() if predicate is None else predicate.columns())
    needed = tuple(name for name in reader.store.schema.column_names if name in looked_at)
    # The filter is applied here, row by row that was looked at: inside it would read on until one passes.
    plain = replace(reader, columns=needed, scan_filter=None, memory_bytes=_MEMORY_BYTES)
    batches = (batch for split in narrow for batch in plain.read(split))
    schema = pa.schema([reader.schema.field(name) for name in shown])
    found = first_rows(batches, predicate, schema, limit)
    return replace(found, is_all=found.is_all and len(narrow) == len(splits)).html(len(reader.columns))


def first_rows(
    batches: Iterable[pa.RecordBatch], predicate: Predicate | None, schema: pa.Schema, limit: int | None
) -> FirstRows:
    """The first rows that pass a filter, in these columns; reads no further than it must."""
    wanted = ROWS if limit is None else min(ROWS, limit)
    found: list[pa.RecordBatch] = []
    count = looked_at = 0
    is_all = False
    source: Iterator[pa.RecordBatch] = iter(batches)
    while count <= wanted and looked_at < LOOKED_AT_MAX:  # one more than wanted says that there are more
        batch = next(source, None)
        if batch is None:
            is_all = True
            break
        looked_at += batch.num_rows
        kept = batch if predicate is None else batch.filter(predicate.to_arrow())
        found.append(pa.RecordBatch.from_arrays([kept.column(name) for name in schema.names], schema=schema))
        count += kept.num_rows
    rows = pa.Table.from_batches(found, schema).slice(0, wanted)
    close = getattr(source, "close", None)
    if close is not None:
        close()
    return FirstRows(rows, looked_at, (is_all and count <= wanted) or (limit is not None and wanted == limit <= count))


def _value(scalar: pa.Scalar[pa.DataType]) -> object:
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError):  # a time that no calendar of Python has: as it is stored
        return str(getattr(scalar, "value", "cannot be shown"))
    return value if value is None or isinstance(value, int | float) else str(value)
