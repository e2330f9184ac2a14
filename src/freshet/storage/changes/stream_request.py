"""What a caller asks of a stream, as one value; what the parts mean is said by `Table.stream`.

Where the stream begins: a decision over the history of the table, made when the stream is made.

| scan mode | begins with | goes on with the changes of |
|---|---|---|
| latest-full (or full) | the rows of the latest snapshot | the one after it |
| latest | nothing | the next one that is committed |
| compacted-full | the rows of the newest compaction (a full one, where those are made), else the latest | after it |
| from-snapshot | nothing | the snapshot named |
| from-snapshot-full | the rows of the snapshot named, or of the oldest that is there | the one after it |
| from-timestamp | nothing | the first committed at or after the time |
| none given | | from-timestamp or from-snapshot if one is given, else latest-full |

A consumer that is known goes on where it stopped, whatever the mode (`consumer.ignore-progress`).

A table without snapshots gives nothing to begin with, so the first snapshot to come is the beginning. A mode that
begins with nothing but changes fails when they have expired; Apache Paimon begins with the oldest that are there.

A position in the changes of a table, as a reader of snapshots alone keeps it, and as JSON; and the consumer by which
it keeps what follows from expiry.

Source: MERGING.md §7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.changes.history import KEEP_LONGER, ChangeHistory, check_id, start_id
from freshet.storage.changes.reader import ChangeSplitReader
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns

_LOG_STATE: Final = "log"
"""Positions of readers of a log have this key."""
_STATE_SUFFIX = ".state"


class ScanMode(StrEnum):
    """What a stream begins with."""

    LATEST_FULL = "latest-full"
    LATEST = "latest"
    COMPACTED_FULL = "compacted-full"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_TIMESTAMP = "from-timestamp"


_NEEDS_SNAPSHOT = (ScanMode.FROM_SNAPSHOT, ScanMode.FROM_SNAPSHOT_FULL)


class StreamStart(Frozen):
    """`state` is the snapshot whose rows come first, None for none; `next_id` is the first whose changes come."""

    next_id: int
    state: Snapshot | None = None


class StartRequest(Frozen):
    """What a caller asks for, checked as far as that needs no table."""

    mode: ScanMode
    from_snapshot: int | None = None
    from_timestamp: TimeGiven | None = None

    @staticmethod
    def of(mode: str | None, from_snapshot: int | None, from_timestamp: TimeGiven | None) -> StartRequest:
        """Raises `InvalidRequestError` for an unknown mode, or one that does not go with the rest."""
        check_id("from_snapshot", from_snapshot)
        if mode is None:
            by_start = ScanMode.FROM_SNAPSHOT if from_snapshot is not None else ScanMode.LATEST_FULL
            known = ScanMode.FROM_TIMESTAMP if from_timestamp is not None else by_start
        else:
            known = _scan_mode(mode)
        if (from_snapshot is not None) != (known in _NEEDS_SNAPSHOT):
            need = "needs" if known in _NEEDS_SNAPSHOT else "does not take"
            raise InvalidRequestError(f"scan_mode={known} {need} from_snapshot", option="scan.mode")
        if (from_timestamp is not None) != (known is ScanMode.FROM_TIMESTAMP):
            need = "needs" if known is ScanMode.FROM_TIMESTAMP else "does not take"
            raise InvalidRequestError(f"scan_mode={known} {need} from_timestamp", option="scan.mode")
        return StartRequest(known, from_snapshot, from_timestamp)

    def start(self, store: TableStore, history: ChangeHistory) -> StreamStart | None:
        """Where to begin; None while the table has no snapshot that it could begin with."""
        latest = history.latest_id()
        match self.mode:
            case ScanMode.LATEST:
                return StreamStart(latest + 1)
            case ScanMode.FROM_SNAPSHOT | ScanMode.FROM_TIMESTAMP:
                return StreamStart(start_id(history, latest, self.from_snapshot, self.from_timestamp))
        state = self._state(store, history)
        return None if state is None else StreamStart(state.id + 1, state)

    def _state(self, store: TableStore, history: ChangeHistory) -> Snapshot | None:
        if self.mode is ScanMode.COMPACTED_FULL:
            return newest_compacted(store.snapshots, store.options)
        latest = store.snapshots.latest()
        if latest is None or self.from_snapshot is None:
            return latest
        if self.from_snapshot > latest.id:
            raise NotFoundError(f"snapshot {self.from_snapshot} was not committed yet: {history.left_text()}")
        earliest = store.snapshots.earliest()
        return earliest if earliest and earliest.id > self.from_snapshot else store.snapshots.fresh(self.from_snapshot)


def stream_start(
    store: TableStore, history: ChangeHistory, request: StartRequest, consumer_id: str | None
) -> StreamStart | None:
    """Where the consumer stopped, else where the scan mode begins; None as `StartRequest.start` says."""
    position = None if consumer_id is None else store.consumers.position(consumer_id)
    if position is None or consumer_id is None or store.options.consumer_ignore_progress:
        return request.start(store, history)
    return _resumed_start(history, consumer_id, position)


def _resumed_start(history: ChangeHistory, consumer_id: str, position: int) -> StreamStart:
    """A consumer goes on where it stopped; `NotFoundError` when what it wants next has expired or was rolled back."""
    earliest, latest = history.earliest_id() or 1, history.latest_id()
    remedy = (
        "read the table in full, then go on from the snapshot that was read: reset_consumer says which one is next, "
        "delete_consumer lets the scan mode decide"
    )
    if position < earliest:
        raise NotFoundError(
            f"consumer {consumer_id!r} wants the changes of snapshot {position} next, which have expired: "
            f"{history.left_text()}. {KEEP_LONGER}; {remedy}"
        )
    if position > latest + 1:
        raise NotFoundError(
            f"consumer {consumer_id!r} wants snapshot {position} next, which was not committed yet: "
            f"{history.left_text()}; the table was rolled back or created anew: {remedy}"
        )
    return StreamStart(position)


def newest_compacted(snapshots: SnapshotStore, options: CoreOptions) -> Snapshot | None:
    """The newest snapshot that a compaction made, the latest if there is none.

    Where full compactions are made at certain commits, only those count.
    """
    wanted = _is_compaction(options)
    latest = None
    for snapshot in snapshots.newest_first(snapshots.latest()):
        latest = latest or snapshot
        if wanted(snapshot):
            return snapshot
    return latest


def _is_compaction(options: CoreOptions) -> Callable[[Snapshot], bool]:
    commits = options.full_compaction_delta_commits
    if commits is None:
        return lambda snapshot: snapshot.commit_kind is CommitKind.COMPACT
    return lambda snapshot: (
        snapshot.commit_kind is CommitKind.COMPACT
        and (snapshot.commit_identifier % commits == 0 or snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER)
    )


def _scan_mode(text: str) -> ScanMode:
    try:
        return ScanMode("latest-full" if text == "full" else str(text).lower())
    except ValueError:
        raise InvalidRequestError(
            f"scan_mode is one of {', '.join(ScanMode)}, not {text!r}", option="scan.mode"
        ) from None


class StreamRequest(Frozen):
    """Checked against a table when its stream is opened."""

    columns: Sequence[str] | None = None
    filter: FilterGiven = None  # the word every reader library uses
    scan_mode: str | None = None
    from_snapshot: int | None = None
    from_timestamp: TimeGiven | None = None
    consumer_id: str | None = None
    with_snapshot_id: bool = False
    upserts: bool = False
    isolation: str | None = None
    """`none` (snapshots alone), `committed` or `speculative` (snapshots, then the log); None is `committed` for a table
    with a log and `none` for others."""

    @property
    def is_speculative(self) -> bool:
        """True where rows come that belong to no snapshot yet."""
        return (self.isolation or "").lower() == "speculative"

    @property
    def start(self) -> StartRequest:
        """Where it begins; raises `InvalidRequestError` for what does not go together."""
        return StartRequest.of(self.scan_mode, self.from_snapshot, self.from_timestamp)

    def reader(self, store: TableStore) -> ChangeSplitReader:
        """Reads the changes of a table in the columns asked for; raises where the table was dropped."""
        store.check_is_there()
        scan_filter = ScanFilter.bind(store.schema, to_predicate(self.filter))
        return ChangeSplitReader(store, check_columns(store, self.columns), scan_filter, self.with_snapshot_id)


class StreamPosition(Frozen):
    """Everything before a snapshot was taken, and of the snapshot the first `taken` of `of` splits.

    `is_state` says that it is the rows of the snapshot with which the stream begins, not its changes. `before_ms` is
    the commit time of the snapshot before, where it was there, `of_ms` that of the snapshot whose rows come first, or
    which was read in part: they distinguish a history from another one of the same ids.
    """

    snapshot_id: int
    is_state: bool = False
    taken: int = 0
    of: int = 0
    before_ms: int | None = None
    of_ms: int | None = None

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""
        return self.snapshot_id

    def to_document(self) -> dict[str, Any]:
        """The position for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StreamPosition:
        """The inverse; `InvalidRequestError` for what is no position, or one of a reader of the log."""
        if _LOG_STATE in document:
            raise InvalidRequestError(
                "the checkpoint was made by a reader of the log, which has its place there: go on with "
                "log.read.isolation=committed or speculative, or begin with a new checkpoint",
                option="log.read.isolation",
            )
        try:
            return cls(**document)
        except TypeError as error:
            raise InvalidRequestError(f"{dict(document)!r} is no position in the changes of a table: {error}") from None


@dataclass(slots=True)
class ConsumerProgress:
    """What a reader in pieces keeps from expiry: the snapshots from its position on, by a consumer; without a consumer
    id nothing.

    | the reader is | the consumer | its pin, `<id>.state` |
    |---|---|---|
    | within the rows of the snapshot it begins with | as it was: rows that were not read come first | that snapshot |
    | before the changes of a snapshot | that snapshot | none |
    """

    store: TableStore
    consumer_id: str | None
    _written: tuple[int, bool] | None = field(default=None, init=False)

    def moved(self, next_id: int, *, is_state: bool) -> None:
        """What lies before this snapshot will not be asked for again; `is_state`: its rows are still being read."""
        if self.consumer_id is None or self._written == (next_id, is_state):
            return
        self.store.check_is_there()  # or the file would bring the folder of a dropped table back
        pin = self.consumer_id + _STATE_SUFFIX
        self.store.consumers.reset(pin if is_state else self.consumer_id, next_id)
        if not is_state and (self._written is None or self._written[1]):
            self.store.consumers.delete(pin)
        self._written = (next_id, is_state)
