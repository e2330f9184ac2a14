"""Logs in topics, as `storage.logs` asks for them: opened by a writer, by its tasks, by readers.

    register_log_system("kafka", lambda: TopicLogs(KafkaLogClient.of_options))

Opening a log for its user: the topic is made if it is not there and checked, its identity is the one that the snapshots
name, and a `recover` record in the control topic gives the epoch. The writer opened last has the largest epoch;
one that was opened before it may go on and does no harm: the snapshots decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.protocol.client import LogClient, LogProducer, TopicFacts
from freshet.logstore.protocol.control import CONTROL_SUFFIX, ControlKind, ControlRecord, claim_epoch, note
from freshet.logstore.protocol.topic import (
    TOPIC_OPTION,
    check_owner,
    check_topic,
    check_topic_options,
    ensure_topics,
    existing_topic,
    refuse_foreign,
    topic_warnings,
)
from freshet.logstore.reading.split_stream import LogSplitStream, isolation_for
from freshet.logstore.writing.publisher import TopicPublisher
from freshet.logstore.writing.writer import LogWriter, settings_of
from freshet.storage.logs.log_systems import LoggedTable, TableHistory, TaskLog
from freshet.storage.model.table_log import LogIdentity, LogProgress

TASK_CLIENTS_MAX = 8

TOPIC_CHECK_S = 5.0
"""How long tasks rely on what a topic was like: asking takes two answers of the brokers, 6 ms and much more on busy
machines. If the topic is deleted and created again meanwhile, the offsets of what is logged show it, or readers do."""

OpenClient = Callable[[Mapping[str, str]], LogClient]
"""Connects, by the options of a table."""


class TopicLog:
    """The log of one table, opened by its user."""

    def __init__(
        self, client: LogClient, table: LoggedTable, facts: TopicFacts, identity: LogIdentity, now_ms: int
    ) -> None:
        self._client = client
        self._table = table
        self._facts = facts
        self._producer = client.producer()
        self.identity = identity
        self.epoch = claim_epoch(self._producer, identity.topic, identity.commit_user, now_ms, table.table_id)
        check_owner(client, identity.topic, table=table.name, table_id=table.table_id, kind=ControlKind.RECOVER)
        self.warnings = topic_warnings(facts, snapshot_time_retained_ms=table.options.snapshot_time_retained_ms)
        self._attempt = 0

    def sink(self, schema_id: int) -> LogWriter:
        """Takes changes in the columns of a schema."""
        settings = settings_of(self._table, self._facts, self.identity, self.epoch, schema_id)
        # Attempts of one epoch must not be given twice: a writer of a new schema goes on far above the one before.
        self._attempt += 1 << 32
        return LogWriter(self._client.producer(), settings, attempt=self._attempt)

    def committed(self, batch: int, snapshot_id: int) -> None:
        """A hint for readers, which may be lost. The next batch does not wait for it."""
        record = ControlRecord(ControlKind.COMMIT, self.identity.commit_user, self.epoch, batch, snapshot_id)
        self._finish_notes()
        try:
            note(self._producer, self.identity.topic, record, 0)
        except LogUnavailableError:
            self._producer.discard()

    def close(self) -> None:
        """Lets go of connections."""
        self._finish_notes()
        self._client.close()

    def _finish_notes(self) -> None:
        """Takes the answer to the note before, which has usually come long since."""
        try:
            self._producer.flush()
        except LogUnavailableError:
            self._producer.discard()


class TopicLogs:
    """A log system over clients of one kind."""

    def __init__(self, open_client: OpenClient, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._open_client = open_client
        self._clock = clock
        self._task_clients: dict[frozenset[tuple[str, str]], tuple[LogClient, LogProducer]] = {}
        """Clients of the tasks of this process, by the options of their table: a connection takes longer than a small
        batch."""
        self._task_topics: dict[tuple[str, str, int], tuple[TopicFacts, float]] = {}
        """What tasks have found, by topic, its id and the buckets, and when."""

    def check_options(self, given: Mapping[str, str]) -> None:
        """Raises `InvalidRequestError` for options with which there can be no log."""
        check_topic_options(given)

    def open_log(self, table: LoggedTable, commit_user: str, progress: LogProgress | None, now_ms: int) -> TopicLog:
        """Opens the log of a table for its user."""
        client = self._open_client(table.options.given)
        name = _topic_name(table)
        known = progress is not None and progress.identity.topic == name
        _refuse_foreign(client, name, table, ControlKind.RECOVER, is_known=known)
        facts = ensure_topics(client, name, table.options.bucket, table=table.name)
        if known and progress is not None:
            start: Mapping[int, int] = progress.identity.start
        else:
            start = {number: bounds.end for number, bounds in client.bounds(name).items()}
        return TopicLog(client, table, facts, LogIdentity(name, facts.topic_id, commit_user, start), now_ms)

    def check(self, table: LoggedTable, progress: LogProgress | None, *, publishes: bool) -> None:
        """Raises what keeps the log of a table from its topic; makes and writes nothing."""
        client = self._open_client(table.options.given)
        try:
            name = _topic_name(table)
            kind = ControlKind.PUBLISHED if publishes else ControlKind.RECOVER
            known = progress is not None and progress.identity.topic == name
            _refuse_foreign(client, name, table, kind, is_known=known)
            facts = client.topic(name)
            if facts is not None:
                check_topic(facts, table.options.bucket, table=table.name)
        finally:
            client.close()

    def task_sink(self, table: LoggedTable, log: TaskLog) -> LogWriter:
        """The sink of a task that logs one attempt of one batch."""
        client, producer = self._task_client(table.options.given)
        facts = self._task_topic(client, table, log)
        settings = settings_of(table, facts, log.identity, log.epoch, table.schema_id)
        return LogWriter(producer, settings, attempt=log.attempt)

    def open_publisher(self, table: LoggedTable, histories: Callable[[int], TableHistory]) -> TopicPublisher:
        """Publishes the committed changes of a table, after those that the topic says are published."""
        client = self._open_client(table.options.given)
        name = _topic_name(table)
        if client.topic(name + CONTROL_SUFFIX) is None:  # else the publisher looks, once it is the only one
            _refuse_foreign(client, name, table, ControlKind.PUBLISHED, is_known=False)
        facts = ensure_topics(client, name, table.options.bucket, table=table.name)

        def check_ours(committed: LogClient) -> None:
            check_owner(committed, name, table=table.name, table_id=table.table_id, kind=ControlKind.PUBLISHED)

        publisher = TopicPublisher(client, client.committed(), table, facts, histories, check_ours)
        publisher.publish()
        return publisher

    def _task_topic(self, client: LogClient, table: LoggedTable, log: TaskLog) -> TopicFacts:
        """The topic that the driver has opened, checked not long ago."""
        key = (log.identity.topic, log.identity.topic_id, table.options.bucket)
        now = self._clock()
        known = self._task_topics.get(key)
        if known is not None and now < known[1] + TOPIC_CHECK_S:
            return known[0]
        facts = existing_topic(client, log.identity.topic, table.options.bucket, table=table.name)
        if facts.topic_id != log.identity.topic_id:
            raise LogConfigError(
                f"topic {log.identity.topic} of table {table.name} was deleted and created again while it was written; "
                "set another kafka.topic and start again",
                table=table.name,
                option=TOPIC_OPTION,
            )
        self._task_topics[key] = facts, now
        return facts

    def _task_client(self, options: Mapping[str, str]) -> tuple[LogClient, LogProducer]:
        """A process runs one task at a time; a few tables keep their connections."""
        key = frozenset((key, text) for key, text in options.items() if key.startswith("kafka."))
        found = self._task_clients.pop(key, None)
        if found is None:
            client = self._open_client(options)
            found = client, client.producer()
        self._task_clients[key] = found
        while len(self._task_clients) > TASK_CLIENTS_MAX:
            self._task_clients.pop(next(iter(self._task_clients)))[0].close()
        return found

    def split_stream(self, table: LoggedTable, history: TableHistory, isolation: str) -> LogSplitStream:
        """Reads snapshots, then the log."""
        return LogSplitStream(
            table, history, isolation_for(table, isolation), lambda: self._open_client(table.options.given)
        )


def _refuse_foreign(client: LogClient, name: str, table: LoggedTable, kind: ControlKind, *, is_known: bool) -> None:
    refuse_foreign(client, name, table=table.name, table_id=table.table_id, is_known=is_known, kind=kind)


def _topic_name(table: LoggedTable) -> str:
    name = table.options.given.get(TOPIC_OPTION, "").strip()
    if not name:
        raise LogConfigError(
            f"table {table.name}: its log needs the option {TOPIC_OPTION}", table=table.name, option=TOPIC_OPTION
        )
    return name
