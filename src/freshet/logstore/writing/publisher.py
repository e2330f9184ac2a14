"""Publishes what a table has committed (`log.consistency=transactional`): for consumers that know nothing of us.

    publisher = TopicPublisher(…)       takes over from the publisher before
    publisher.publish()                 after every commit: what is there and was not published

The changes of a snapshot are read from its files and sent in one Kafka transaction, together with a `published` record
in the control topic that names the snapshot. Consumers with `isolation.level=read_committed` so see each committed
change once, in the order of the snapshots, and nothing else:

| what happens | then |
|---|---|
| a crash between commit and publication | the next publisher finds the snapshot above the one that the record names |
| a crash, or brokers lost, within a transaction | it is aborted, with its `published` record |
| a crash after the transaction, or its answer lost | the record is there; the next publisher goes on behind it |
| another publisher meanwhile, or a zombie | it takes the transactions over; the one fenced reads the record again |

`start` comes before the record is read: the publisher before can commit nothing after that. A failure is logged and
does not affect commits; a consumer keeps from expiry what was not published, from the last published snapshot on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.protocol.client import LogClient, LogTransactions, TopicFacts
from freshet.logstore.protocol.control import (
    ControlKind,
    ControlRecord,
    control_topic,
    is_of_others,
    last_published,
    note,
)
from freshet.logstore.protocol.topic import topic_warnings
from freshet.logstore.writing.writer import LogWriter, settings_of
from freshet.storage.exceptions import RetryableError, StorageError
from freshet.storage.logs.log_systems import LoggedTable, TableHistory
from freshet.storage.model.row_kind import KIND_TEXTS, ROW_KIND_COLUMN, RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogIdentity

USER: Final = "freshet-publisher"
"""In the records instead of a commit user: snapshots of all users are published."""

_LOG: Final = logging.getLogger(__name__)
_KINDS: Final = pa.array(KIND_TEXTS, pa.string())
_GONE: Final = pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE], pa.int8())


def transaction_groups(after: int, latest: int, has_changes: Callable[[int], bool]) -> Iterator[range]:
    """The snapshots of each transaction: one that has changes, with those before it that have none."""
    first = after + 1
    for snapshot_id in range(first, latest + 1):
        if has_changes(snapshot_id) or snapshot_id == latest:
            yield range(first, snapshot_id + 1)
            first = snapshot_id + 1


def whole_updates(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a bucket, cut so that no -U is separated from what follows it; `_ROW_KIND` is a text."""
    held: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if held is not None:
            rows = pa.concat_tables([held, rows])
        ends_open = rows.num_rows > 0 and rows.column(ROW_KIND_COLUMN)[-1].as_py() == RowKind.UPDATE_BEFORE.text
        held = rows.slice(rows.num_rows - 1) if ends_open else None
        yield rows.slice(0, rows.num_rows - 1) if ends_open else rows
    if held is not None:
        yield held


def log_rows(rows: pa.Table, *, has_before_images: bool) -> pa.Table:
    """`_ROW_KIND` as codes, then the columns of the table; without -U where those are not logged."""
    codes = pc.index_in(rows.column(ROW_KIND_COLUMN), _KINDS).cast(pa.int8())
    others = rows.drop_columns([ROW_KIND_COLUMN])
    found = others.add_column(0, pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False), codes)
    return found if has_before_images else found.filter(pc.not_equal(codes, int(RowKind.UPDATE_BEFORE)))


class TopicPublisher:
    """The publisher of one table into one topic; belongs to one writer, and is not safe for use by several threads at
    once."""

    def __init__(
        self,
        client: LogClient,
        committed: LogClient,
        table: LoggedTable,
        facts: TopicFacts,
        histories: Callable[[int], TableHistory],
        check_owner: Callable[[LogClient], None],
    ) -> None:
        """`committed` is the client that sees what is committed; `histories` gives the changes in the columns of a
        schema, and keeps them from expiry; `check_owner` raises where the topic is not this table's to publish to.

        Raises `LogConfigError` where the topic cannot go on with this table, `LogUnavailableError` where the brokers
        do not answer.
        """
        self._client = client
        self._committed = committed
        self._table = table
        self._facts = facts
        self._history = lru_cache(maxsize=4)(histories)
        self._check_owner = check_owner
        self.warnings = topic_warnings(facts, snapshot_time_retained_ms=0)
        self._writers: dict[int, LogWriter] = {}
        self._transactions: LogTransactions | None = self._take_over()
        self._check_not_rolled_back()
        if self.lag:
            self._snapshot(self._published.snapshot_id + 1)

    @property
    def lag(self) -> int:
        """How many snapshots are committed and not published."""
        latest = self._newest.latest()
        return max(0, (0 if latest is None else latest.id) - self._published.snapshot_id)

    def publish(self) -> None:
        """Publishes what is committed and was not; what keeps it from that is logged, and tried again the next time."""
        try:
            try:
                self._publish(self._transactions or self._take_over())
            except LogUnavailableError:
                if self._transactions is None:
                    raise
                # Another one has taken over, perhaps for its last commit; or the brokers were away for long.
                self._give_up()
                self._publish(self._take_over())
        except (StorageError, OSError) as error:
            self._give_up()
            _LOG.warning(
                "table %s: what is committed after snapshot %d is not yet published to topic %s: %s; it is tried again "
                "with the next commit, and stays in the table until then",
                self._table.name,
                self._published.snapshot_id,
                self._facts.name,
                error,
            )
        except BaseException:
            # Interrupted: it is unknown whether the transaction was committed, so the next try asks the topic.
            self._transactions = None
            raise

    def close(self) -> None:
        """Tries once more where something is left, and lets go of connections."""
        if self.lag:
            self.publish()
        self._transactions = None
        self._committed.close()
        self._client.close()

    @property
    def _newest(self) -> TableHistory:
        return self._history(self._table.schema_id)

    def _take_over(self) -> LogTransactions:
        """The only publisher from here on; goes on after what the topic says is published."""
        transactions = self._client.transactions(f"freshet.{self._facts.name}.{self._table.table_id}")
        transactions.start()
        self._writers = {}
        # Not earlier: a transaction that the publisher before left open hides what is behind it until `start`.
        self._check_owner(self._committed)
        found = last_published(self._committed, self._facts.name, self._table.table_id)
        if found is None:
            found = self._first(transactions)
            self._check_owner(self._committed)  # another table may have begun at the same time
        elif found.topic_id != self._topic_id():
            raise self._config_error("was deleted and created again, so what was published before is gone")
        self._published = found
        self._newest.handed_over(max(1, found.snapshot_id), is_state=False)
        self._transactions = transactions
        return transactions

    def _topic_id(self) -> str | None:
        """The id of the topic as it is now: a publisher takes over again after a failure, which may have been the end
        of the topic that it began with."""
        facts = self._client.topic(self._facts.name)
        return None if facts is None else facts.topic_id

    def _first(self, transactions: LogTransactions) -> ControlRecord:
        """Begins with the changes after the snapshots that are there now."""
        if any(bounds.end for bounds in self._client.bounds(self._facts.name).values()):
            raise self._config_error("has records of which it is not known what they are")
        if is_of_others(self._committed, self._facts.name):
            control = control_topic(self._facts.name).topic
            raise self._config_error(f"has a control topic, {control}, of another program")
        latest = self._newest.latest()
        if latest is not None:
            self.warnings.append(
                f"topic {self._facts.name} begins with the changes after snapshot {latest.id}: rows that were in the "
                "table before are not in it, so its consumers need a first copy of the table at that snapshot"
            )
        transactions.begin()
        return self._finish(transactions, latest)

    def _publish(self, transactions: LogTransactions) -> None:
        self._check_not_rolled_back()
        latest = self._newest.latest()
        if latest is None:
            return
        for ids in transaction_groups(self._published.snapshot_id, latest.id, self._has_changes):
            snapshot = self._snapshot(ids[-1])
            transactions.begin()
            self._send(transactions, snapshot)
            self._published = self._finish(transactions, snapshot)
            self._newest.handed_over(snapshot.id, is_state=False)

    def _send(self, transactions: LogTransactions, snapshot: Snapshot) -> None:
        history = self._history(snapshot.schema_id)
        if not history.has_changes(snapshot):
            return
        writer = self._writer(transactions, snapshot.schema_id)
        writer.begin(snapshot.id, snapshot.time_ms)
        for split in history.change_splits(snapshot):
            for rows in whole_updates(history.read_split(split)):
                logged = log_rows(rows, has_before_images=self._table.options.logs_before_images)
                self._check_deletes(logged, snapshot)
                writer.log(split.partition, split.bucket, logged)
        writer.finish()

    def _finish(self, transactions: LogTransactions, snapshot: Snapshot | None) -> ControlRecord:
        record = ControlRecord(
            ControlKind.PUBLISHED,
            USER,
            snapshot_id=0 if snapshot is None else snapshot.id,
            table=self._table.table_id,
            topic_id=self._facts.topic_id,
            time_ms=-1 if snapshot is None else snapshot.time_ms,
        )
        note(transactions, self._facts.name, record, max(0, record.time_ms))
        transactions.commit()
        return record

    def _give_up(self) -> None:
        """The next try begins with what the topic says: whether the last transaction was committed may be unknown."""
        if self._transactions is not None:
            with contextlib.suppress(LogUnavailableError):
                self._transactions.abort()
        self._transactions = None

    def _writer(self, transactions: LogTransactions, schema_id: int) -> LogWriter:
        if schema_id not in self._writers:
            identity = LogIdentity(self._facts.name, self._facts.topic_id, USER, {})
            settings = settings_of(self._table, self._facts, identity, 0, schema_id)
            self._writers[schema_id] = LogWriter(transactions, settings)
        return self._writers[schema_id]

    def _snapshot(self, snapshot_id: int) -> Snapshot:
        try:
            found = self._newest.find(snapshot_id)
        except RetryableError as error:
            raise self._config_error(
                f"has the changes up to snapshot {self._published.snapshot_id}, and those of snapshot {snapshot_id} "
                "have expired unpublished"
            ) from error
        assert found is not None, "it is not newer than the newest"
        return found

    def _has_changes(self, snapshot_id: int) -> bool:
        snapshot = self._snapshot(snapshot_id)
        return self._history(snapshot.schema_id).has_changes(snapshot)

    def _check_not_rolled_back(self) -> None:
        published = self._published
        if not self._newest.is_same(published.snapshot_id, None if published.time_ms < 0 else published.time_ms):
            raise self._config_error(
                f"has the changes up to snapshot {published.snapshot_id}, and since then the table was rolled back: "
                "what was published cannot be retracted"
            )

    def _check_deletes(self, rows: pa.Table, snapshot: Snapshot) -> None:
        """A record of log.format=json names a deleted row by its key alone."""
        is_emitted = self._table.primary_keys or self._table.options.log_format != "json"
        if not is_emitted and pc.any(pc.is_in(rows.column(0), _GONE)).as_py():
            raise LogConfigError(
                f"snapshot {snapshot.id} of table {self._table.name} deletes rows, which log.format=json cannot "
                "express for a table without a primary key; set log.format=debezium-json",
                table=self._table.name,
                option="log.format",
            )

    def _config_error(self, what: str) -> LogConfigError:
        return LogConfigError(
            f"table {self._table.name}: topic {self._facts.name} {what}; set kafka.topic to a new name, which begins "
            "with the changes after the latest snapshot",
            table=self._table.name,
            option="kafka.topic",
        )
