"""Logs by the value of `log.system`: what a table asks of one, and who provides it.

    register_log_system("kafka", provider)      the front door does this (`registry`)
    log_system(options, table)                  the system of a table

`storage` knows no log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.readers import LoggedSplitStream, TableHistory
from freshet.storage.logs.registry import PROVIDERS
from freshet.storage.logs.writers import ChangeSink, LogPublisher, TableLog, TaskLog
from freshet.storage.model.table_log import LogProgress
from freshet.storage.options.core import CoreOptions


class LoggedTable(Frozen):
    """What a log system must know of a table."""

    name: str
    schema_id: int
    options: CoreOptions
    primary_keys: tuple[str, ...] = ()
    table_id: str = ""
    """Distinguishes tables, whatever they are called."""


class LogProvider(Protocol):
    """A log system."""

    def check_options(self, given: Mapping[str, str]) -> None:
        """Raises `InvalidRequestError`, naming the option, for options of its own that are missing or wrong; asks no
        other process."""

    def open_log(self, table: LoggedTable, commit_user: str, progress: LogProgress | None, now_ms: int) -> TableLog:
        """Opens the log for its user, making what is not there; `progress` is how far the log is, by the table."""

    def check(self, table: LoggedTable, progress: LogProgress | None, *, publishes: bool) -> None:
        """Raises `InvalidRequestError` for what keeps the log from where it is to go; makes and writes nothing.
        `publishes`: changes are published after their commit."""

    def task_sink(self, table: LoggedTable, log: TaskLog) -> ChangeSink:
        """The sink of a task."""

    def open_publisher(self, table: LoggedTable, histories: Callable[[int], TableHistory]) -> LogPublisher:
        """A publisher of the table, which takes the place of the one before; `histories` gives the changes in the
        columns of a schema."""

    def split_stream(self, table: LoggedTable, history: TableHistory, isolation: str) -> LoggedSplitStream:
        """Reads snapshots, then the log."""


def log_system(options: CoreOptions, table: str) -> LogProvider:
    """The system that the options name; `InvalidRequestError` where they name none, or one that is not registered."""
    if not options.logs_changes and not options.publishes_changes:
        raise InvalidRequestError(
            f"table {table} has no log; set log.system=kafka, kafka.bootstrap.servers and kafka.topic",
            table=table,
            option="log.system",
        )
    refuse_uncommitted_json(options, table)
    return provider_of(options, table)


def provider_of(options: CoreOptions, table: str | None = None) -> LogProvider:
    """The system of a table that has a log; `InvalidRequestError` where it is not registered."""
    if options.log_system not in PROVIDERS:
        raise InvalidRequestError(
            f"{f'table {table}: ' if table else ''}log.system={options.log_system} is not provided here; import "
            "freshet, which does",
            table=table,
            option="log.system",
        )
    provider: LogProvider = PROVIDERS[options.log_system]()
    return provider


def refuse_uncommitted_json(options: CoreOptions, table: str | None = None) -> None:
    """Raises `InvalidRequestError` for a format of other consumers in a log of which only readers of ours know what
    counts; tables that earlier versions made have such logs."""
    if options.logs_changes and options.log_format != "arrow":
        raise InvalidRequestError(
            f"{f'table {table}: ' if table else ''}log.format={options.log_format} is for consumers that know nothing "
            "of Freshet, and with log.consistency=eventual they would read records of attempts that were never "
            "committed; set log.consistency=transactional and kafka.topic to a new name, or log.format=arrow, which "
            "is for readers of Freshet, and remove log.key.format",
            table=table,
            option="log.format",
        )
