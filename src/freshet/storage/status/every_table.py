"""Every table of a catalog, looked at: how it is, what is wrong with it, what a report shows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar

from freshet.storage.exceptions import CorruptDataError, NotFoundError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.status.examination import examined
from freshet.storage.status.finding import Finding, cannot_be_read
from freshet.storage.status.findings import findings
from freshet.storage.status.observe import observed
from freshet.storage.status.report import COMMITS_LEAST, COMMITS_MAX, ReportedTable, reported
from freshet.storage.status.table_status import TableStatus

T = TypeVar("T")


class EveryTable:
    """The tables of one catalog; one that cannot be read does not hide the others, one that is dropped meanwhile is
    left out."""

    def __init__(self, names: Callable[[], Sequence[str]], opened: Callable[[str], TableStore], env: Env) -> None:
        """`names` gives those of all tables, `opened` the table of a name."""
        self._names, self._opened, self._env = names, opened, env

    def statuses(self, detailed: int) -> list[TableStatus]:
        """`Catalog.status`."""
        found = sorted(self._statuses(self._names(), detail=False), key=attrgetter("urgency"))
        first = self._statuses([each.name for each in found[:detailed]], detail=True)
        return sorted([*first, *found[detailed:]], key=attrgetter("urgency"))

    def findings(self, warehouse: str) -> list[Finding]:
        """`Catalog.doctor`."""
        found = self._of_each(
            self._names(),
            lambda store: findings(examined(store), warehouse),
            lambda name, error: [cannot_be_read(name, error, warehouse)],
        )
        return sorted((finding for each in found for finding in each), key=attrgetter("severity.rank"))

    def reports(self, warehouse: str, table: str | None, detailed: int) -> list[ReportedTable]:
        """`Catalog.report`."""
        looked_at = 0

        def look(store: TableStore) -> ReportedTable:
            nonlocal looked_at
            made = reported(store, warehouse, max(COMMITS_LEAST, COMMITS_MAX - looked_at))
            looked_at += 0 if made.history is None else len(made.history.commits)
            return made

        def unreadable(name: str, error: StorageError) -> ReportedTable:
            return ReportedTable(self._unreadable(name, error), (cannot_be_read(name, error, warehouse),))

        if table is not None:
            return [self._looked(table, look)]
        glances = self.statuses(0)
        found = self._of_each([each.name for each in glances[:detailed]], look, unreadable)
        return sorted([*found, *map(ReportedTable, glances[detailed:])], key=attrgetter("status.urgency"))

    def _statuses(self, names: Sequence[str], *, detail: bool) -> list[TableStatus]:
        return self._of_each(names, lambda store: observed(store, detail=detail), self._unreadable)

    def _unreadable(self, name: str, error: StorageError) -> TableStatus:
        return TableStatus.unreadable(name, self._env.now_ms(), error)

    def _of_each(
        self, names: Sequence[str], look: Callable[[TableStore], T], unreadable: Callable[[str, StorageError], T]
    ) -> list[T]:
        def looked(name: str) -> list[T]:
            try:
                return [self._looked(name, look)]
            except StorageError as error:
                is_gone = isinstance(error, NotFoundError) and not isinstance(error, CorruptDataError)
                return [] if is_gone else [unreadable(name, error)]

        looks = [partial(looked, name) for name in names]
        found = self._env.for_tables(looks) if self._env.is_remote else [each() for each in looks]
        return [each for few in found for each in few]

    def _looked(self, name: str, look: Callable[[TableStore], T]) -> T:
        store = self._opened(name)
        with store.naming_dropped_table():
            return look(store)
