"""A reader of a table's log for each isolation, whose changes must fit on each other and come to the table's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from freshet import Table
from tests.kit.changelog_files import changelog
from tests.logstore.caught_up import CaughtUp

ISOLATIONS = ("committed", "speculative")


class BothReaders(AbstractContextManager["BothReaders"]):
    """They begin with the first snapshot of a table whose key is one column, and have all of them when they end."""

    def __init__(self, table: Table) -> None:
        self._table = table
        [self._key] = table.schema.primary_keys
        self._streams = {name: CaughtUp(table, name, from_snapshot=1, with_snapshot_id=True) for name in ISOLATIONS}
        self._rows: dict[str, dict[Any, Mapping[str, Any]]] = {name: {} for name in ISOLATIONS}
        self._committed: Counter[tuple[Any, ...]] = Counter()

    def read(self) -> None:
        """Takes what came since. What goes was there as it goes, and what comes was not."""
        for name, stream in self._streams.items():
            rows = self._rows[name]
            for batch in stream.batches():
                for row in batch.to_pylist():
                    snapshot, kind = row.pop("_SNAPSHOT_ID"), row.pop("_ROW_KIND")
                    if kind in ("-U", "-D"):
                        assert rows.pop(row[self._key]) == row, name
                    else:
                        assert row[self._key] not in rows, name
                        rows[row[self._key]] = row
                    if name == "committed":
                        self._committed[snapshot, kind, *row.values()] += 1

    def check(self) -> None:
        """Both have come to the rows of the table, the committed one by the changes in its files, each once."""
        self.read()
        held = {row[self._key]: row for row in self._table.scan().to_arrow().to_pylist()}
        assert self._rows == dict.fromkeys(ISOLATIONS, held)
        wanted = Counter(
            (snapshot, each.kind, *each.values.values())
            for snapshot, changes in changelog(self._table).items()
            for each in changes
        )
        assert self._committed == wanted

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams.values():
            stream.close()

    def __enter__(self) -> Self:
        return self
