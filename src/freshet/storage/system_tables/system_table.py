"""A system table, as people hold it: `catalog.table("shop.orders$files")`, or `table.system("files")`.

It looks like a table that can be read and nothing else: whatever else a table can do is refused, with the name of the
table to do it with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Never

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import FilterGiven
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.moment import TimeGiven
from freshet.storage.model.shown import HtmlShown, facts_html, rows_html
from freshet.storage.scan.preview import COLUMNS
from freshet.storage.scan.read_snapshot import find_in
from freshet.storage.system_tables.registry import SYSTEM_TABLES, definition_of
from freshet.storage.system_tables.system_scan import SystemScan

SPLITTER: Final = "$"
"""Between the name of a table and that of one of its system tables."""

_BRANCH: Final = "branch_"
"""`orders$branch_b` is the table of a branch, no system table."""


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
