"""Follows the commits of a table: what comes after a position, planned; it neither reads rows nor waits.

Each step makes sure that the history it goes on with is the one it came from:

| found | then |
|---|---|
| the next snapshot, or its copy among the changelogs | its changes are planned |
| neither, and the latest is the one before | None |
| neither, and later ones are there | `OvertakenError`: expired before it was read; says what is left |
| before the first: no table, or another one of its name | `NotFoundError`: it was dropped |
| another snapshot in place of the last one, or a latest below it | `OvertakenError`: the table was rolled back |
| rows appended while the table had no changelog producer, which its changelog lacks | `InvalidRequestError` |
| changes that do not go on where those of another producer ended | `InvalidRequestError` |

Source: MERGING.md §7.2.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from freshet.storage.changes.change_source import ChangeRules, ChangeSource
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.changes.producer_change import ProducerChanges, is_missing_changelog, missing_changelog_error
from freshet.storage.changes.stream_request import StreamPosition
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.snapshot_walk import SnapshotStep, SnapshotWalk
from freshet.storage.model.split import ChangeSplit
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.scan.pruning import ScanFilter

_LOG: Final = logging.getLogger(__name__)


class Follower(SnapshotWalk[StreamPosition, ChangeSplit]):
    """Goes from snapshot to snapshot; what it has planned is kept until it is forgotten."""

    def __init__(
        self,
        store: TableStore,
        scan_filter: ScanFilter | None = None,
        columns: Sequence[str] | None = None,
        *,
        reads_upserts: bool = False,
    ) -> None:
        """`columns` are those that are read, by default all; `reads_upserts` as in `ProducerChanges`."""
        super().__init__(store.location)
        self._store = store
        self._planner = ChangePlanner(store, scan_filter)
        self._rules = ChangeRules.of(store.options)
        self._history = ChangeHistory(store)
        self._schemas = LaterSchemas(store, store.schema.column_names if columns is None else columns)
        self._producers = ProducerChanges(store, reads_upserts=reads_upserts)
        self._passed_over = PassedOver(store)
        self._last: Snapshot | None = None
        """The snapshot that was read last."""
        self._state_id: int | None = None
        """The snapshot whose rows were read first, as the options of this reader say."""
        self._steps: dict[tuple[int, bool], tuple[Snapshot, SnapshotStep[StreamPosition, ChangeSplit]]] = {}
        """By snapshot, and whether it is its rows."""

    def planned(self, position: StreamPosition) -> SnapshotStep[StreamPosition, ChangeSplit] | None:
        """The next snapshot's changes, or rows; None when it was not committed yet."""
        key = (position.snapshot_id, position.is_state)
        if key not in self._steps:
            snapshot = self._history.first_rows(position.snapshot_id) if position.is_state else self._next(position)
            if snapshot is None:
                return None
            if not position.is_state:
                self._check_told(snapshot)
                self._check_goes_on(snapshot)
                self._schemas.notice(snapshot.schema_id)
                self._passed_over.notice(snapshot, self._rules)
            with self._history.explained(snapshot):
                splits = (
                    self._planner.state(snapshot)
                    if position.is_state
                    else self._planner.plan(snapshot, self._rules.source(snapshot))
                )
            self._last = snapshot
            self._state_id = snapshot.id if position.is_state else self._state_id
            after = StreamPosition(snapshot.id + 1, before_ms=snapshot.time_ms)
            self._steps[key] = snapshot, SnapshotStep(tuple(splits), after)
        return self._steps[key][1]

    def within(
        self, position: StreamPosition, step: SnapshotStep[StreamPosition, ChangeSplit], taken: int
    ) -> StreamPosition:
        """After the first splits of a snapshot."""
        return replace(position, taken=taken, of=len(step.pieces), of_ms=step.time_ms)

    def left_text(self) -> str:
        """What is left of the history; `NotFoundError` where the table was dropped."""
        self._store.check_is_there()
        return self._history.left_text()

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One of those planned, or as it is on disk; `OvertakenError` where it is gone."""
        for key in ((snapshot_id, False), (snapshot_id, True)):
            if key in self._steps:
                return self._steps[key][0]
        return self._history.still_there(snapshot_id)

    def forget(self, snapshot_id: int) -> None:
        """Lets go of snapshots before this one."""
        self._steps = {key: step for key, step in self._steps.items() if key[0] >= snapshot_id}

    def _check_told(self, snapshot: Snapshot) -> None:
        """Raises where a reader of the changelog would pass over the rows of this commit in silence."""
        if not is_missing_changelog(self._store, self._rules, snapshot):
            return
        raise missing_changelog_error(
            self._store,
            f"snapshot {snapshot.id} was",
            "Set changelog-producer to lookup, full-compaction or input, and begin anew with the rows of the table: "
            "without the consumer or checkpoint of this reader, scan.mode latest-full",
        )

    def _check_goes_on(self, snapshot: Snapshot) -> None:
        """Raises where another producer tells changes again that this reader has, or never tells them."""
        before = self._last
        if before is None or before.id + 1 != snapshot.id or not self._rules.has_changelog:
            return
        self._producers.check(self._store.schema.id if before.id == self._state_id else before.schema_id, snapshot)

    def _next(self, position: StreamPosition) -> Snapshot | None:
        snapshot_id = position.snapshot_id
        if self._last is None or self._last.id + 1 != snapshot_id:
            self._last = self._before(position)
        snapshots = self._store.snapshots
        if snapshot_id == 1 and snapshots.has_nothing():
            self._store.check_is_there()
            return None
        snapshot = snapshots.find(snapshot_id)
        if snapshot is None and self._last is not None and snapshots.find(self._last.id) == self._last:
            return None  # two requests: ids have no gap, and the last one is still there
        snapshot = snapshot or self._store.changelogs.find(snapshot_id)
        if self._last is not None:
            self._history.check_not_replaced(self._last)
        else:  # no snapshot was read that could distinguish this table from a later one of its name
            self._store.check_is_there()
        if snapshot is None:
            if self._history.latest_id() + 1 == snapshot_id:
                return None
            snapshot = self._history.still_there(snapshot_id)  # committed a moment ago, or gone
        delay_ms = self._store.options.streaming_read_delay_ms
        if delay_ms and snapshot.time_ms > self._store.env.now_ms() - delay_ms:  # without, no clock is asked
            return None
        return snapshot

    def _before(self, position: StreamPosition) -> Snapshot | None:
        """The snapshot before a position, where it is there: a position that was read from a checkpoint may be of a
        history that a rollback has replaced."""
        if position.before_ms is None:
            return None
        before = self._history.find(position.snapshot_id - 1)
        known = before or self._history.expired(position.snapshot_id - 1)
        if known is not None and known.time_ms != position.before_ms:
            raise self.other_history(known.id, "has read")
        return before


class PassedOver:
    """What a stream says, once, when it passes over an overwrite, as its options have it: from there on what is made of
    the changes is not what the table holds."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._is_said = False

    def notice(self, snapshot: Snapshot, rules: ChangeRules) -> None:
        """A snapshot is read next, by these rules."""
        is_overwrite = snapshot.commit_kind is CommitKind.OVERWRITE and not snapshot.is_rescale
        if self._is_said or not is_overwrite or rules.source(snapshot) is not ChangeSource.NOTHING:
            return
        self._is_said = True
        _LOG.warning(
            "table %s: a stream passes over snapshot %d, an OVERWRITE by %s, and over those that follow: rows that "
            "they take away or add are not told, so what was made of the changes differs from the table from here on. "
            "Read the table anew: without the consumer or checkpoint, scan.mode latest-full%s",
            self._store.name,
            snapshot.id,
            snapshot.commit_user,
            _option_text(rules),
        )


def _option_text(rules: ChangeRules) -> str:
    if not rules.has_primary_key:
        return ""  # with `streaming-read-append-overwrite` rows that were only copied come again, and none leaves
    if rules.producer in (ChangelogProducer.NONE, ChangelogProducer.INPUT):
        return ". With streaming-read-overwrite=true streams follow overwrites"
    return ""


class LaterSchemas:
    """What a stream of some columns says, once, when it meets commits of a later schema than the one it reads: its
    columns stay. Values that its types cannot hold are refused where they are read (`casts/evolution`)."""

    def __init__(self, store: TableStore, columns: Sequence[str]) -> None:
        self._store = store
        self._columns = tuple(columns)
        self._seen_id = store.schema.id
        self._said = ""

    def notice(self, schema_id: int) -> None:
        """A commit of this schema is read next."""
        if schema_id <= self._seen_id:
            return
        own, now = self._store.schema, self._store.schemas.schema(schema_id)
        self._seen_id = schema_id
        kept = {field.id for field in now.fields}
        known = {field.id for field in own.fields}
        gone = [name for name in self._columns if own.by_name[name].id not in kept]
        come = [field.name for field in now.fields if field.id not in known]
        parts = [
            f"{_named(gone)} dropped, NULL from here on" if gone else "",
            f"{_named(come)} added, not read" if come else "",
        ]
        text = "; ".join(filter(None, parts))
        if text and text != self._said:
            self._said = text
            _LOG.warning(
                "table %s was altered (schema %d) while a stream reads it as of schema %d: %s. Open the stream again "
                "to read the columns of now; it goes on where it stopped",
                self._store.name,
                schema_id,
                own.id,
                text,
            )


def _named(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(names)
