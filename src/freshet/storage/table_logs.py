"""The log of a table, `TableEngine.log`: opened for those who write it, published to, read from.

Either changes are logged before their commit (`log.consistency=eventual`), or committed changes are published after it
(`transactional`); readers of the latter follow snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import (
    PUBLISHER_CONSUMER,
    WITHOUT_LOG,
    ChangeSink,
    LoggedSplitStream,
    LoggedTable,
    LogProvider,
    LogPublisher,
    TableLog,
    TaskLog,
    log_system,
)
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.options.choices import OnLakeOnly

if TYPE_CHECKING:
    from freshet.storage.changes.log_history import LogHistory
    from freshet.storage.changes.stream_request import StreamRequest

_NOBODY: Final = "nobody"
"""A commit user for callers that only read."""


class TableLogs:
    """The log of one table; whatever needs one raises `InvalidRequestError` where the table has none of that kind."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._options = store.options
        self._name = store.name

    def open_publisher(self) -> LogPublisher:
        """Publishes the committed changes of the table, whichever user commits them; for drivers of task writers.

        What is committed and was not published is published at once. Raises `InvalidRequestError` for a topic that
        does not fit, `RetryableError` where the brokers do not answer.
        """

        def history(schema_id: int) -> LogHistory:
            from freshet.storage.changes.log_history import LogHistory
            from freshet.storage.changes.stream_request import StreamRequest

            store = self._store if schema_id == self._store.schema.id else self._store.at_schema(schema_id)
            return LogHistory(store, StreamRequest(consumer_id=PUBLISHER_CONSUMER))

        if not self._options.publishes_changes:
            raise InvalidRequestError(
                f"table {self._name} publishes nothing; set log.system=kafka and log.consistency=transactional",
                table=self._name,
                option="log.consistency",
            )
        return self._system.open_publisher(self.logged_table, history)

    def open(self, commit_user: str) -> TableLog:
        """The log for the one user who writes it, checked; for drivers of task writers.

        Raises `InvalidRequestError` for a table without a log, a topic that does not fit and a second user.
        """
        system = self._system
        if self._options.publishes_changes:
            raise InvalidRequestError(
                f"table {self._name} has log.consistency=transactional: tasks log nothing, changes are published after "
                "their commit (Table.engine.log.open_publisher)",
                table=self._name,
                option="log.consistency",
            )
        progress = Committer(self._store, commit_user).log_progress()
        log = system.open_log(self.logged_table, commit_user, progress, self._store.env.now_ms())
        Committer(self._store, commit_user, log=log.identity).log_progress()
        return log

    def check(self) -> None:
        """Looks whether the log of the table can go where its options say; makes and writes nothing.

        Raises `InvalidRequestError` where it cannot, such as into a topic with records of others, and for a table
        without a log; `RetryableError` where no broker answers.
        """
        progress = Committer(self._store, _NOBODY).log_progress()
        self._system.check(self.logged_table, progress, publishes=self._options.publishes_changes)

    def task_sink(self, log: TaskLog | None) -> ChangeSink | None:
        """The sink of a task, by what its driver says of the log; None for a table without a log."""
        self.check_logs(log is not None)
        if log is None:
            return None
        return self._system.task_sink(self.logged_table, log)

    def check_logs(self, is_logged: bool) -> None:
        """Raises `InvalidRequestError` for a writer that does not log, of a table whose changes are logged."""
        if self._options.logs_changes and not is_logged:
            raise InvalidRequestError(
                f"table {self._name} has a log (log.system={self._options.log_system}), and this writer does not write "
                "it: readers of the log would miss its changes. Start a pipeline or writer again that was open when "
                "the log was set; a program of your own writes with Table.writer, or gives the log of "
                "Table.engine.log.open",
                table=self._name,
                option="log.system",
            )

    def user(self) -> str | None:
        """The commit user who writes the log, by the snapshots; None where nothing was logged yet into the topic
        of the options."""
        progress = Committer(self._store, _NOBODY).log_progress() if self._options.logs_changes else None
        if progress is None or progress.identity.topic != self._options.given.get("kafka.topic", "").strip():
            return None
        return progress.identity.commit_user

    def options_without(self) -> Mapping[str, str]:
        """Options with which commits are not logged; refused where readers of the log would stop at such a commit."""
        if self._options.logs_changes and self._options.log_on_lake_only is OnLakeOnly.FAIL:
            raise InvalidRequestError(
                f"table {self._name} has log.on-lake-only=fail: readers of its log would stop at a commit that is not "
                "logged. Set log.on-lake-only=apply, with which they read such commits from their files",
                table=self._name,
                option="log.on-lake-only",
            )
        return {**self._store.dynamic_options, **WITHOUT_LOG}

    def is_read(self, isolation: str | None, log_state: Mapping[str, object] | None = None) -> bool:
        """Whether a reader who asks for this isolation reads the log, and not snapshots alone.

        Raises `InvalidRequestError` for what readers of published changes cannot have.
        """
        if isolation is None or not self._options.publishes_changes:
            return isolation is not None
        if isolation.lower() not in ("none", "committed"):
            raise InvalidRequestError(
                f"table {self._name} has log.consistency=transactional: changes are published after their commit, so "
                f"there is nothing to read before it; isolation is committed, not {isolation!r}. For speculative "
                "readers set log.consistency=eventual and another kafka.topic",
                table=self._name,
                option="log.read.isolation",
            )
        if log_state is not None:
            raise InvalidRequestError(
                f"table {self._name} has log.consistency=transactional: its readers follow snapshots and have no "
                "log_state; go on by a consumer_id",
                table=self._name,
            )
        return False

    def split_stream(self, request: StreamRequest, isolation: str) -> LoggedSplitStream:
        """Reads snapshots, then the log."""
        from freshet.storage.changes.log_history import LogHistory

        system = self._system
        return system.split_stream(self.logged_table, LogHistory(self._store, request), isolation)

    @property
    def _system(self) -> LogProvider:
        return log_system(self._options, self._name)

    @property
    def logged_table(self) -> LoggedTable:
        """The table as a log system sees it."""
        return LoggedTable(
            self._name,
            self._store.schema.id,
            self._options,
            tuple(self._store.schema.primary_keys),
            str(self._store.schemas.created_ms()),
        )
