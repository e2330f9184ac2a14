"""What a caller asks of a stream, as one value; what the parts mean is said by `Table.stream`.

A position in the changes of a table, as a reader of snapshots alone keeps it, and as JSON; and the consumer by which
it keeps what follows from expiry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.changes.reader import ChangeSplitReader
from freshet.storage.changes.stream_start import StartRequest
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.moment import TimeGiven
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns

_LOG_STATE: Final = "log"
"""Positions of readers of a log have this key."""


_STATE_SUFFIX = ".state"


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
