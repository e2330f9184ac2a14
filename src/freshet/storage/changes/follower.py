"""Follows the commits of a table: what comes next, planned; it neither reads rows nor waits.

    step = follower.step()     the next snapshot's changes as splits, or None while there is none
    step.next_id               where the next step goes on, and where another follower may be started

Each step makes sure that the history it goes on with is the one it came from:

| found | then |
|---|---|
| the next snapshot, or its copy among the changelogs | its changes are planned |
| neither, and the latest is the one before | None |
| neither, and later ones are there | `OvertakenError`: expired before it was read; says what is left |
| before the first: no table, or another one of its name | `NotFoundError`: it was dropped |
| another snapshot in place of the last one, or a latest below it | `OvertakenError`: the table was rolled back |

Source: MERGING.md §7.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.changes.change_source import ChangeRules
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.changes.stream_start import StreamStart
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import ChangeSplit
from freshet.storage.scan.pruning import ScanFilter


@dataclass(frozen=True, slots=True)
class Step:
    """What one snapshot gives. Without splits it has no changes that can match."""

    snapshot: Snapshot
    splits: tuple[ChangeSplit, ...]
    next_id: int


class Follower:
    """Goes from snapshot to snapshot."""

    def __init__(self, store: TableStore, start: StreamStart, scan_filter: ScanFilter | None = None) -> None:
        self._store = store
        self._planner = ChangePlanner(store, scan_filter)
        self._rules = ChangeRules.of(store.options)
        self._history = ChangeHistory(store)
        self._state = start.state
        self._last: Snapshot | None = None
        self.next_id = start.next_id
        """The snapshot whose changes come next, after those of the state with which it begins."""

    def step(self) -> Step | None:
        """The next snapshot's changes; None when it was not committed yet."""
        state, self._state = self._state, None
        if state is not None:
            with self._history.explained(state):
                splits = self._planner.state(state)
            return self._stepped(state, splits)
        snapshot = self._history.find(self.next_id)
        if self._last is not None:
            self._history.check_not_replaced(self._last)
        else:  # no snapshot was read that could tell this table from a later one of its name
            self._store.check_is_there()
        if snapshot is None:
            latest = self._history.latest_id()
            if latest + 1 == self.next_id:
                return None
            snapshot = self._history.still_there(self.next_id)  # committed a moment ago, or gone
        delay_ms = self._store.options.streaming_read_delay_ms
        if delay_ms and snapshot.time_ms > self._store.env.now_ms() - delay_ms:  # without, no clock is asked
            return None
        with self._history.explained(snapshot):
            splits = self._planner.plan(snapshot, self._rules.source(snapshot))
        return self._stepped(snapshot, splits)

    def _stepped(self, snapshot: Snapshot, splits: list[ChangeSplit]) -> Step:
        self._last = snapshot
        self.next_id = snapshot.id + 1
        return Step(snapshot, tuple(splits), self.next_id)
