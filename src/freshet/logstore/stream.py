"""Follows the log of a table: the rows of a snapshot, then every change, committed or as soon as it is logged.

    stream = LogStream(table, history, request, open_client)
    for batch in stream: ...          the columns asked for, then _ROW_KIND
    stream.state                      where another stream may go on, as JSON; everything before it was handed out

| found | then |
|---|---|
| a snapshot that settles a batch | what was handed out becomes what it names (`decide.settle`) |
| a snapshot that changes rows and was not logged | `log.on-lake-only`: fail, apply (from its files), skip |
| records, in speculative isolation | shown (`decide.show_records`) |
| retention has taken what is needed | `log.on-truncated`: fail, or hop (the changes of that snapshot from its files) |
| another topic of the name than the snapshots say | `LogConfigError` |

Waking up: data and control records are waited for together; snapshots are looked at when a control record says so, and
whenever nothing came. The state moves on when the caller has come back for more after the last batch of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from freshet.logstore.client import Fetched, LogClient, OffsetBounds, TopicPartition
from freshet.logstore.control import control_topic, end_of_control
from freshet.logstore.decide import (
    Step,
    headroom,
    is_settling,
    opened,
    passed_over,
    settle,
    show_records,
    taken_back,
)
from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.isolation import Isolation, isolation_for
from freshet.logstore.reader_state import ReaderState, state_at, state_from_json, state_to_json
from freshet.logstore.rows import LogRows
from freshet.logstore.shaping import shaped_rows
from freshet.logstore.snapshot_log import checked_topic, lake_only_error, progress_at
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import LoggedTable
from freshet.storage.logs.readers import LogStreamRequest, TableHistory
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogProgress, log_of

TOPIC_LOOK_S: Final = 10.0
"""A reader that has waited so long for more looks whether the topic is still there: a consumer waits for one that was
deleted for ever, without a word."""

SCAN_MODES: Final = ("latest-full", "latest", "from-snapshot", "from-snapshot-full", "from-timestamp")


class LogStream(Iterator[pa.RecordBatch]):
    """Batches of changes; belongs to one thread."""

    def __init__(
        self,
        table: LoggedTable,
        history: TableHistory,
        request: LogStreamRequest,
        open_client: Callable[[], LogClient],
    ) -> None:
        self._isolation = isolation_for(table, request.isolation)
        if request.max_wait_s is not None and not request.max_wait_s >= 0:
            raise InvalidRequestError(
                f"max_wait_s is a number of seconds from 0 on, or None, not {request.max_wait_s!r}"
            )
        _check_start(request)
        self._table = table
        self._history = history
        self._request = request
        self._on_lake_only = table.options.get("log.on-lake-only", "apply").lower()
        self._hops = table.options.get("log.on-truncated", "fail").lower() == "hop"
        self._client, self._rows = open_client(), LogRows(open_client(), history.log_schema)
        self._control: int | None = None
        self._unseen_s = 0.0
        self._was_missing = False
        self._state, self._first = self._start()
        self._is_begun = self._first is None
        self._check_topic(self._state)
        self._batches = self._run()

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return self._history.schema

    @property
    def state(self) -> dict[str, Any] | None:
        """Where another stream may go on (`LogStreamRequest.state`), as JSON holds it; None, which begins anew, while
        the rows to begin with were not handed out in full."""
        return state_to_json(self._state) if self._is_begun else None

    @property
    def progress(self) -> ReaderState:
        """The committed watermark (`batch`, `snapshot_id`), and how far the log was read."""
        return self._state

    def headroom(self) -> dict[int, int]:
        """By partition: how many offsets retention may still take before this reader loses changes."""
        if not self._state.has_log:
            return {}
        bounds = self._client.bounds(self._state.topic)
        return headroom(self._state, {number: each.first for number, each in bounds.items()})

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Ends the stream and lets go of connections."""
        self._batches.close()
        self._client.close()
        self._rows.close()

    def _run(self) -> Generator[pa.RecordBatch, None, None]:
        if self._first is not None:
            yield from self._history.state(self._first)
            self._is_begun = True
        waited_s = 0.0
        while True:
            before = self._state
            yield from self._look()
            wait_s = self._request.poll_s if self._state == before else 0.0
            if self._request.max_wait_s is not None:
                wait_s = min(wait_s, max(0.0, self._request.max_wait_s - waited_s))
            fetched = self._fetch(wait_s)
            yield from self._show(fetched)
            if self._state != before:
                waited_s = 0.0
                continue
            if fetched:  # of a batch beyond the open one, which comes again at once until that is settled
                self._history.wait(wait_s)
            waited_s += wait_s
            self._look_at_topic(wait_s)
            if self._request.max_wait_s is not None and waited_s >= self._request.max_wait_s:
                return

    # ------------------------------------------------------------------------------------------------ the beginning

    def _start(self) -> tuple[ReaderState, Snapshot | None]:
        """The state to begin with, and the snapshot whose rows come first."""
        request = self._request
        if request.state is not None:
            return state_from_json(request.state), None
        mode = request.scan_mode or _implied_mode(request)
        if mode in ("latest-full", "latest"):
            at = self._history.latest()
        elif mode == "from-snapshot-full":
            at = self._needed(request.from_snapshot or 0)
        else:
            first = request.from_snapshot
            if mode == "from-timestamp":
                first = self._history.first_at_or_after(request.from_timestamp_ms or 0)
            at = self._before(first or 1)
        if at is None:
            return ReaderState(0), None
        return state_at(at.id, progress_at(self._history, at)), at if mode.endswith("-full") else None

    def _before(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot before the one whose changes come first; None before the first one."""
        found = self._history.find(snapshot_id - 1) if snapshot_id > 1 else None
        if found is None and snapshot_id > 1:
            latest = self._history.latest()
            last = "there is none yet" if latest is None else f"the latest is {latest.id}"
            raise InvalidRequestError(
                f"table {self._table.name}: the changes of snapshot {snapshot_id} are asked for, and {last}; begin at "
                "a snapshot that is there or is the next one, or with scan_mode='latest'"
            )
        return found

    def _needed(self, snapshot_id: int) -> Snapshot:
        found = self._history.find(snapshot_id)
        if found is None:
            raise InvalidRequestError(f"table {self._table.name}: snapshot {snapshot_id} was not committed yet")
        return found

    def _check_topic(self, state: ReaderState) -> None:
        """Raises `LogConfigError` for another topic of the name, `LogTruncatedError` where retention was faster."""
        if not state.has_log:
            return
        checked_topic(self._client, state, table=self._table.name)
        bounds = self._client.bounds(state.topic)
        if not self._hops:
            self._check_bounds(state, bounds)

    def _look_at_topic(self, waited_s: float) -> None:
        """Raises `LogConfigError` when a reader that waits has found its topic gone twice, or to be another one."""
        self._unseen_s += waited_s
        if not self._state.has_log or self._unseen_s < TOPIC_LOOK_S:
            return
        self._unseen_s = 0.0
        try:
            is_missing = self._client.topic(self._state.topic) is None
            if not is_missing or self._was_missing:
                checked_topic(self._client, self._state, table=self._table.name)
        except LogUnavailableError:
            return  # brokers that are away are waited for
        self._was_missing = is_missing  # one that has just started may not know its topics yet

    def _check_bounds(self, state: ReaderState, bounds: Mapping[int, OffsetBounds]) -> None:
        for number, offset in state.settled.items():
            if not bounds[number].first <= offset <= bounds[number].end:
                raise LogTruncatedError(
                    f"table {self._table.name}: topic {state.topic} partition {number} has offsets "
                    f"{bounds[number].first} to {bounds[number].end}, and the log after snapshot "
                    f"{state.snapshot_id} begins at {offset}. Begin at a newer snapshot "
                    "(scan_mode='latest-full'), read on from the files (log.on-truncated=hop), and "
                    "raise retention.ms of the topic",
                    table=self._table.name,
                )

    # ------------------------------------------------------------------------------------------------ snapshots

    def _look(self) -> Iterator[pa.RecordBatch]:
        """Takes the snapshots that came since."""
        while (snapshot := self._history.find(self._state.snapshot_id + 1)) is not None:
            progress = log_of(snapshot.properties, snapshot.id)
            if progress is not None and is_settling(self._state, progress):
                yield from self._settle(snapshot, progress)
            elif self._history.has_changes(snapshot):
                yield from self._lake_only(snapshot)
            else:
                self._state = replace(self._state, snapshot_id=snapshot.id)

    def _settle(self, snapshot: Snapshot, progress: LogProgress) -> Iterator[pa.RecordBatch]:
        is_new = progress.generation != self._state.generation
        try:
            step = settle(self._state, snapshot.id, progress, self._rows)
            self._check_reach(step)
        except LogTruncatedError:
            if not self._hops or self._state.lanes:
                raise
            yield from self._history.changes(snapshot)
            self._state = passed_over(self._state, snapshot.id, progress)
            return
        if is_new:
            self._check_topic(step.state)
        yield from self._hand_out(step)

    def _check_reach(self, step: Step) -> None:
        """Asks before the first row whether all of them are still there, so that a hop comes instead of all."""
        if self._hops and step.ranges:
            bounds = self._client.bounds(step.state.topic)
            for wanted in step.ranges:
                if wanted.topic == step.state.topic and wanted.start_offset < bounds[wanted.lane[1]].first:
                    raise LogTruncatedError(f"topic {wanted.topic} begins after offset {wanted.start_offset}")

    def _lake_only(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        if self._on_lake_only == "fail":
            raise lake_only_error(snapshot, table=self._table.name, begin="scan_mode='latest-full'")
        yield from self._hand_out(taken_back(self._state, self._ends()))
        if self._on_lake_only == "apply":
            yield from self._history.changes(snapshot)
        self._state = replace(self._state, snapshot_id=snapshot.id)

    def _ends(self) -> Mapping[int, int]:
        """How far the log has come, for a reader that shows it before it is settled."""
        if self._isolation is not Isolation.SPECULATIVE or not self._state.has_log:
            return {}
        return {number: each.end for number, each in self._client.bounds(self._state.topic).items()}

    # ------------------------------------------------------------------------------------------------ records

    def _fetch(self, wait_s: float) -> Mapping[TopicPartition, Fetched]:
        """Data and control records that came since, or after waiting so long; nothing where there is no log yet."""
        if not self._state.has_log:
            self._history.wait(wait_s)
            return {}
        control = control_topic(self._state.topic)
        if self._control is None:
            self._control = end_of_control(self._client, self._state.topic)
        wanted = {control: self._control}
        if self._isolation is Isolation.SPECULATIVE:
            topic = self._state.topic
            wanted |= {TopicPartition(topic, number): offset for number, offset in self._state.positions.items()}
        try:
            fetched = dict(self._client.fetch(wanted, wait_s=wait_s))
        except LogTruncatedError:
            if not self._hops:
                raise
            ends = {number: each.end for number, each in self._client.bounds(self._state.topic).items()}
            self._state = replace(self._state, positions=ends)
            return {}
        notes = fetched.pop(control, None)
        if notes is not None:
            self._control = notes.next_offset
        return fetched

    def _show(self, fetched: Mapping[TopicPartition, Fetched]) -> Iterator[pa.RecordBatch]:
        for topic_partition, each in fetched.items():
            if topic_partition.topic != self._state.topic:  # another log has begun meanwhile
                continue
            self._rows.remember(topic_partition, self._state.positions[topic_partition.partition], each)
            step = show_records(self._state, topic_partition.partition, each.records, each.next_offset, self._rows)
            while True:
                yield from self._hand_out(step)
                if step.stops_at is None:
                    break
                yield from self._look()
                before, self._state = self._state, opened(self._state, step.stops_at)
                if before == self._state or topic_partition.topic != self._state.topic:
                    break
                step = show_records(self._state, topic_partition.partition, each.records, each.next_offset, self._rows)

    def _hand_out(self, step: Step) -> Iterator[pa.RecordBatch]:
        yield from shaped_rows(self._rows, self._history, step.ranges)
        self._state = step.state


def _implied_mode(request: LogStreamRequest) -> str:
    if request.from_timestamp_ms is not None:
        return "from-timestamp"
    return "latest-full" if request.from_snapshot is None else "from-snapshot"


def _check_start(request: LogStreamRequest) -> None:
    mode = request.scan_mode or _implied_mode(request)
    if mode not in SCAN_MODES:
        raise InvalidRequestError(
            f"with an isolation, scan_mode is one of {', '.join(SCAN_MODES)}, not {mode!r}", option="scan.mode"
        )
    given = {"from_snapshot": request.from_snapshot, "from_timestamp": request.from_timestamp_ms}
    needed = {
        "from-snapshot": "from_snapshot",
        "from-snapshot-full": "from_snapshot",
        "from-timestamp": "from_timestamp",
    }
    for name, value in given.items():
        if (value is not None) != (needed.get(mode) == name):
            verb = "needs" if value is None else "does not take"
            raise InvalidRequestError(f"scan_mode={mode} {verb} {name}", option="scan.mode")
