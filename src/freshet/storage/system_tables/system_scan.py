"""A read of a system table: columns, a filter and a limit, as a `TableScan` has them of a table.

What is read is decided when rows are asked for: `$files` of the snapshot that was chosen when the scan was made,
`$tags` as they are by then. A scan can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Final, SupportsIndex

import pyarrow as pa

from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.filters.predicate import Predicate
from freshet.storage.merge.gather import limited
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.shown import facts_html, note_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.scan.frame_outputs import FrameOutputs
from freshet.storage.scan.preview import COLUMNS, FILES_MAX, TOO_LARGE, first_rows, is_cheap_to_plan
from freshet.storage.scan.read_snapshot import explained
from freshet.storage.scan.split_reader import named_columns
from freshet.storage.scan.table_scan import decoders
from freshet.storage.system_tables.registry import definition_of

SNAPSHOTS_MAX: Final = 200
"""Of `$snapshots`, each of which is a file, where a notebook shows its first rows."""


class SystemScan(FrameOutputs):
    """One read of a system table; `SystemTable.scan` gives it."""

    def __init__(
        self,
        store: TableStore,
        noun: str,
        snapshot: Snapshot | None,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        limit: int | None = None,
    ) -> None:
        if limit is not None and (not isinstance(limit, SupportsIndex) or limit < 0):
            raise InvalidRequestError(f"limit is a number of rows and cannot be {limit!r}")
        self.snapshot = snapshot
        self._store = store
        self._noun = noun
        self._place = f"{store.name}${noun}"
        self._limit = limit
        self._source = definition_of(noun, store.name).source(store, snapshot)
        of_table = arrow_schema(self._source.fields)
        predicate = to_predicate(filter)
        self._filter: Predicate | None = None if predicate is None else predicate.bind(of_table)
        known = tuple(field.name for field in self._source.fields)
        self._columns = named_columns(known, columns, self._place)
        self.schema: pa.Schema = pa.schema([of_table.field(name) for name in self._columns])
        """Columns of the rows that come out."""

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The same columns with the types of the table format."""
        by_name = {field.name: field for field in self._source.fields}
        return tuple(by_name[name] for name in self._columns)

    def plan(self) -> list[Split]:
        """Parts that together hold every row that can match; one of all but `$audit_log` and `$ro`."""
        with explained(self._store, self.snapshot):
            return list(self._source.plan(self._filter))

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Rows of one part, in the calling thread; a limit counts within the part."""
        return limited(self._read(split), self._limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, part by part."""
        return limited((batch for part in self.plan() for batch in self._read(part, decoders())), self._limit)

    def count(self) -> int:
        """The number of rows."""
        counted = SystemScan(
            self._store, self._noun, self.snapshot, columns=self._columns[:1], filter=self._filter, limit=self._limit
        )
        return sum(batch.num_rows for batch in counted.to_batches())

    def __reduce__(self) -> tuple[Any, ...]:
        snapshot = None if self.snapshot is None else encode_snapshot(self.snapshot)
        return _reopened, (self._store, self._noun, snapshot, self._columns, self._filter, self._limit)

    def __repr__(self) -> str:
        return f"SystemScan({self._place!r})"

    def _html(self) -> str:
        """Reads the first rows where that is cheap (`preview`)."""
        title = f"Scan of {self._place}" + (f" at snapshot {self.snapshot.id}" if self.snapshot is not None else "")
        with explained(self._store, self.snapshot):
            if not self._is_cheap():
                return facts_html(title, (), note_html(TOO_LARGE))
            shown = self._columns[:COLUMNS]
            looked_at = frozenset() if self._filter is None else self._filter.columns()
            needed = tuple(dict.fromkeys([*shown, *sorted(looked_at)]))
            parts = self._source.plan(self._filter)
            if parts and len(parts[0].files) > FILES_MAX:
                return facts_html(title, (), note_html(TOO_LARGE))
            batches = (batch for part in parts for batch in self._source.batches(part, needed, None))
            schema = pa.schema([self.schema.field(name) for name in shown])
            rows = first_rows(batches, self._filter, schema, self._limit)
            return facts_html(title, (), rows.html(len(self._columns)))

    def _is_cheap(self) -> bool:
        if self.snapshot is not None:
            return is_cheap_to_plan(self._store, self.snapshot)
        return self._noun != "snapshots" or len(self._store.snapshots.list_ids()) <= SNAPSHOTS_MAX

    def _read(self, part: Split, executor: Executor | None = None) -> Iterator[pa.RecordBatch]:
        looked_at = frozenset() if self._filter is None else self._filter.columns()
        needed = tuple(dict.fromkeys([*self._columns, *sorted(looked_at)]))
        with explained(self._store, self.snapshot):
            for batch in self._source.batches(part, needed, self._filter, executor):
                kept = batch if self._filter is None else batch.filter(self._filter.to_arrow())
                if kept.num_rows:
                    yield pa.RecordBatch.from_arrays([kept.column(name) for name in self._columns], schema=self.schema)


def _reopened(
    store: TableStore,
    noun: str,
    encoded_snapshot: bytes | None,
    columns: tuple[str, ...],
    predicate: Predicate | None,
    limit: int | None,
) -> SystemScan:
    """A scan that was pickled; the snapshot is the one chosen then."""
    snapshot = None if encoded_snapshot is None else decode_snapshot(encoded_snapshot, store.location)
    return SystemScan(store, noun, snapshot, columns=columns, filter=predicate, limit=limit)
