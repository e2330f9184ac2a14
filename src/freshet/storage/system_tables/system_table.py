"""System tables as people hold them, `catalog.table("shop.orders$files")`, `table.system("files")`; which there are.

One looks like a table that can be read and nothing else: whatever else a table can do is refused, with the name of the
table to do it with.

A read of it has columns, a filter and a limit, as a `TableScan` has them of a table. What is read is decided when rows
are asked for: `$files` of the snapshot that was chosen when the scan was made, `$tags` as they are by then. A scan can
be pickled.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Never, SupportsIndex

import pyarrow as pa

from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, UnsupportedFeatureError
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.filters.predicate import Predicate
from freshet.storage.merge.gather import limited
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven, answering_callers
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.shown import HtmlShown, facts_html, note_html, rows_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.scan.frame_outputs import FrameOutputs
from freshet.storage.scan.preview import COLUMNS, FILES_MAX, TOO_LARGE, first_rows, is_cheap_to_plan
from freshet.storage.scan.read_snapshot import explained, find_in
from freshet.storage.scan.split_reader import named_columns
from freshet.storage.scan.table_scan import decoders
from freshet.storage.system_tables.commits import COMMITS, COMPACTIONS
from freshet.storage.system_tables.definition import SystemTableDefinition
from freshet.storage.system_tables.files import BUCKETS, FILES, PARTITIONS
from freshet.storage.system_tables.metadata import BRANCHES, CONSUMERS, MANIFESTS, OPTIONS, SCHEMAS, SNAPSHOTS, TAGS
from freshet.storage.system_tables.table_rows import AUDIT_LOG, READ_OPTIMIZED

SNAPSHOTS_MAX: Final = 200
"""Of `$snapshots`, each of which is a file, where a notebook shows its first rows."""

SPLITTER: Final = "$"
"""Between the name of a table and that of one of its system tables."""

_BRANCH: Final = "branch_"
"""`orders$branch_b` is the table of a branch, no system table."""

SYSTEM_TABLES: Final = {
    each.noun: each
    for each in (
        SNAPSHOTS,
        SCHEMAS,
        OPTIONS,
        FILES,
        PARTITIONS,
        BUCKETS,
        TAGS,
        BRANCHES,
        CONSUMERS,
        MANIFESTS,
        COMMITS,
        COMPACTIONS,
        AUDIT_LOG,
        READ_OPTIMIZED,
    )
}

_OF_PAIMON: Final = frozenset(
    {
        "aggregation_fields",
        "binlog",
        "file_key_ranges",
        "row_tracking",
        "statistics",
        "table_indexes",
    }
)
"""System tables that Apache Paimon 2.0 has besides."""


def is_noun(text: str) -> bool:
    """Whether a system table, of Freshet or Apache Paimon, is called so."""
    return text.lower() in SYSTEM_TABLES or text.lower() in _OF_PAIMON


def definition_of(noun: str, table: str) -> SystemTableDefinition:
    """The system table of this name, in any case; `table` is whose it would be.

    Raises `UnsupportedFeatureError` for one that Apache Paimon has and Freshet has not, else `NotFoundError`.
    """
    known = ", ".join(f"${each}" for each in SYSTEM_TABLES)
    found = SYSTEM_TABLES.get(noun.lower())
    if found is not None:
        return found
    if noun.lower() in _OF_PAIMON:
        raise UnsupportedFeatureError(
            f"{table}${noun}: Freshet does not have this system table of Apache Paimon; it has {known}", table=table
        )
    raise NotFoundError(f"{table}${noun}: there is no system table of this name; there are {known}", table=table)


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


@answering_callers
class SystemTable(HtmlShown):
    """One system table of a table; it is read, never written."""

    def __init__(self, store: TableStore, noun: str) -> None:
        self._store = store
        self._definition = definition_of(noun, store.name)

    @property
    def name(self) -> str:
        """The table's name, `$` and the noun."""
        return f"{self._store.name}{SPLITTER}{self._definition.noun}"

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns as Arrow types; of `$audit_log` and `$ro` at the schema that the table was opened with."""
        return arrow_schema(self._definition.source(self._store, None).fields)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterGiven = None,  # noqa: A002  # the word every reader library uses
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: TimeGiven | None = None,
        limit: int | None = None,
    ) -> SystemScan:
        """Its rows; arguments are those of `Table.scan`, and nothing is read yet.

        `$files`, `$partitions`, `$buckets`, `$manifests`, `$audit_log` and `$ro` are of one snapshot, the latest or
        the one asked for; the others say what there is now, and refuse to be asked for a snapshot. Raises
        `InvalidRequestError` for that and for unknown columns, `NotFoundError` for a snapshot or tag that is not there.
        """
        store = self._store
        travel: dict[str, object] = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms}
        given = [name for name, value in travel.items() if value is not None]
        if not self._definition.travels:
            if given:
                of_snapshots = ", ".join(f"${each.noun}" for each in SYSTEM_TABLES.values() if each.travels)
                raise InvalidRequestError(
                    f"{self.name} says what there is now and is not one of a snapshot: leave {given[0]} out; those of "
                    f"a snapshot are {of_snapshots}",
                    table=self.name,
                )
            store.check_is_there()
            return SystemScan(store, self._definition.noun, None, columns=columns, filter=filter, limit=limit)
        snapshot = find_in(store, snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms)
        if given and snapshot is not None and snapshot.schema_id != store.schema.id:
            store = store.at_schema(snapshot.schema_id)
        return SystemScan(store, self._definition.noun, snapshot, columns=columns, filter=filter, limit=limit)

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r}, {self._definition.summary})"

    def _html(self) -> str:
        fields = self._definition.source(self._store, None).fields[:COLUMNS]
        rows = [(field.name, str(field.type)) for field in fields]
        facts = (("what", self._definition.summary), ("rows", "scan() gives them"))
        return facts_html(f"System table {self.name}", facts, rows_html(("column", "type"), rows))

    def __getattr__(self, name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidRequestError(
            f"{self.name} is a system table: it has a name, a schema and rows to scan, and is not written or changed "
            f"({name!r} was asked for); do that with {self._store.name}",
            table=self.name,
        )


def split_system_name(identifier: str) -> tuple[str, str] | None:
    """A table's name, `database.table`, and the noun behind the last `$` of an identifier; None where it is no system
    table's."""
    table, splitter, noun = identifier.rpartition(SPLITTER) if isinstance(identifier, str) else ("", "", "")
    is_whole = bool(splitter) and all(table.partition("."))
    return (table, noun) if is_whole and not noun.startswith(_BRANCH) else None
