"""`freshet resume` and `freshet resync`: a table that is set apart is brought up to the last batch of its pipeline.

    1. the ranges that were held back: from where it was set apart to the end of the last batch of the ledger
    2. one Spark job: they are read again, and all records but those of the table are left to the pipeline
    3. its commit, under the identity of that last batch; then the ledger says `resumed`
    4. the next batch of the pipeline takes it up

`resync` drops the table first and reads from the first offset that Kafka has. Died between any two steps: run it again.
The pipeline is stopped meanwhile. One that runs all the same, and has another batch before it sees `resumed`, sets the
table apart from that batch on: nothing is lost, and `resume` is needed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson
from pyspark.sql import SparkSession

from freshet.logstore.kafka.range_reader import OffsetRange
from freshet.pipeline.batch.arrow_batches import BATCH_BYTES
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.dead_letters import DeadLetterCommit, open_dead_letters
from freshet.pipeline.batch.direct_reads import refuse_unread
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.many_tables import ROUNDS_MAX
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.batch.task_result import TableFailedError, TaskResult, sum_results
from freshet.pipeline.batch.truncates import Truncates, last_truncates, refuse_unordered
from freshet.pipeline.checks.open_transactions import wait_for_ends
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_offsets import ends_of_batch
from freshet.pipeline.identity.checkpoint_owner import query_id_of
from freshet.pipeline.identity.open_checkpoint import open_checkpoint
from freshet.pipeline.sources.direct_frame import taken_directly
from freshet.pipeline.sources.raw_frame import read_offsets
from freshet.pipeline.spark.active_query import collected_binary
from freshet.pipeline.spark.batch_settings import batch_settings
from freshet.pipeline.sync.ledger import (
    APART,
    RESUMED,
    WHOLE,
    LedgerRow,
    Offsets,
    lost_batches_text,
    read_ledger,
    write_rows,
)
from freshet.pipeline.sync.many_job import ManyJob, range_frame, task_count
from freshet.pipeline.sync.renames import Renames
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitCheck, CommitTrace

_RESUMING: Final = " (resume)"


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was read for the table, and up to which batch it has come."""

    table: str
    batch: int
    read_count: int
    row_count: int
    dead_count: int


def held_back(config: SyncPipelineConfig, name: str, *, anew: bool) -> LedgerRow:
    """What the ledger says of the table. Raises `InvalidRequestError` where there is nothing to bring up."""
    catalog = target_catalog(config)
    if not catalog.has_table(config.ledger_name):
        raise InvalidRequestError(f"{config.name!r} has no ledger {config.ledger_name}: it has not run yet")
    rows = read_ledger(catalog.table(config.ledger_name))
    row = rows.get(name)
    if row is None or name == WHOLE:
        known = ", ".join(sorted(rows.keys() - {WHOLE})) or "none yet"
        raise InvalidRequestError(f"{config.name!r} writes no table {name}; its tables are: {known}")
    if rows.get(WHOLE, LedgerRow(WHOLE)).batch is None:
        raise InvalidRequestError(f"{config.name!r} has not finished a batch yet: start it, the table is taken up then")
    if not anew and row.state != APART:
        raise InvalidRequestError(f"table {name} is not set apart ({row.state}): the pipeline writes it")
    if not anew and row.batch is not None and not _is_same(config, row):
        raise InvalidRequestError(
            f"table {name} was dropped since batch {row.batch}, so the rows of the batches up to it are gone too: read "
            f"it anew with freshet resync FILE --table {name}"
        )
    missing = None if anew or row.batch is None else lost_batches_text(row, _last_commit(config, name), config)
    if missing is not None:
        raise InvalidRequestError(missing)
    return row


def _goes_to(config: SyncPipelineConfig, source: SourceTable, name: str) -> bool:
    route = route_of(config.sync, source)
    return isinstance(route, Route) and route.target == name


def _is_same(config: SyncPipelineConfig, row: LedgerRow) -> bool:
    """Whether the table is the one that the ledger knows."""
    catalog = target_catalog(config)
    if not catalog.has_table(row.table_name):
        return False
    return row.created_ms in (None, catalog.table(row.table_name).engine.created_ms())


def _last_commit(config: SyncPipelineConfig, name: str) -> CommitTrace | None:
    """The last commit of the pipeline to a table that is there."""
    return target_catalog(config).table(name).engine.committer(config.name).last_commit()


def resume_table(
    spark: SparkSession,
    config: SyncPipelineConfig,
    name: str,
    *,
    anew: bool,
    say: Callable[[str], None] = lambda text: None,
) -> Resumed:
    """Brings the table up to the last batch of the ledger; see the module. Raises `InvalidRequestError` first where
    there is nothing to do, `LogTruncatedError` where Kafka does not have the records any more."""
    row = held_back(config, name, anew=anew)
    catalog = target_catalog(config)
    ledger = catalog.table(config.ledger_name)
    if anew:
        row = replace(
            row, state=APART, since_batch=0, since_offsets="{}", cause="it is read anew", batch=None, created_ms=None,
            renames=None if row.renames is None else Renames.of(row.renames).forgotten().to_text(),
        ).with_sources(source for source in row.source_tables if _goes_to(config, source, name))  # fmt: skip
        write_rows(ledger, config.name, [row])
        catalog.drop_table(name, if_exists=True)
    number = read_ledger(ledger)[WHOLE].batch
    assert number is not None
    ends = ends_of_batch(open_checkpoint(spark, config.checkpoint), number, 0)
    if ends is None:
        raise InvalidRequestError(
            f"checkpoint {config.checkpoint} does not say where batch {number} ended, which the ledger has last: it is "
            "not the checkpoint of this pipeline, or an older one"
        )
    run = _Resume(spark, config, name, ledger, row, takes_losses=anew)
    ranges = ranges_between(_starts(spark, config, row), ends)
    wait_for_ends(config.sync.source, {(each.topic, each.partition): each.end for each in ranges}, name, say)
    result, table = run.write(number, ranges, ends)
    ledger = catalog.table(config.ledger_name)
    done = replace(
        row,
        renames=read_ledger(ledger)[name].renames,  # more may have come
        state=RESUMED,
        batch=number,
        since_batch=number + 1,
        since_offsets=orjson.dumps(ends).decode(),
        cause=None,
        schema_id=None if table is None else table.schema.id,
        created_ms=None if table is None else table.engine.created_ms(),
    )
    write_rows(ledger, config.name, [done])
    return Resumed(name, number, result.read_count, result.row_count, result.dead_count)


def _starts(spark: SparkSession, config: SyncPipelineConfig, row: LedgerRow) -> Offsets:
    """Where its records have to be read from. The table may hold the batch that it was set apart in, whose driver died
    before the ledger had it, or what an earlier try has committed: that is not read again."""
    catalog = target_catalog(config)
    if row.since_batch is None or not catalog.has_table(row.table_name):
        return row.since
    last = _last_commit(config, row.table_name)
    if last is None or last.identifier < row.since_batch:
        return row.since
    ends = ends_of_batch(open_checkpoint(spark, config.checkpoint), last.identifier, 0)
    if ends is None:
        raise InvalidRequestError(
            f"table {row.table_name} holds batch {last.identifier}, and checkpoint {config.checkpoint} does not say "
            f"any more where that ended: read the table anew with freshet resync FILE --table {row.table_name}"
        )
    return ends


def ranges_between(starts: Offsets, ends: Mapping[str, Mapping[str, int]]) -> tuple[OffsetRange, ...]:
    """What lies between the two; a partition that only the later one knows began at 0."""
    found = []
    for topic, partitions in sorted(ends.items()):
        for partition, end in sorted(partitions.items(), key=lambda each: int(each[0])):
            start = starts.get(topic, {}).get(partition, 0)
            if start < end:
                found.append(OffsetRange(topic, int(partition), start, end))
    return tuple(found)


class _Resume:
    """One run: the job, its commits."""

    def __init__(
        self,
        spark: SparkSession,
        config: SyncPipelineConfig,
        name: str,
        ledger: Table,
        row: LedgerRow,
        *,
        takes_losses: bool,
    ) -> None:
        self._spark, self._config, self._name = spark, config, name
        source = config.sync.source.model_copy(update={"read": "auto"})
        direct = taken_directly(config.model_copy(update={"sources": (source,)}))
        self._client = None
        """None where only Spark's source knows the options of the brokers."""
        if direct is not None:
            (client,) = direct.clients
            self._client = replace(client, takes_losses=client.takes_losses or takes_losses)
        self._takes_losses = takes_losses
        dead_letters = open_dead_letters(target_catalog(config), config.dead_letter_table)
        self._dead_letters = DeadLetterCommit(dead_letters, f"{config.name}{_RESUMING} {name}")
        self._tables = SyncTables(config, ledger, dead_letters, task_count(spark), only=name)
        self._tables.take_only(row)

    def write(
        self, number: int, ranges: tuple[OffsetRange, ...], ends: Mapping[str, Mapping[str, int]]
    ) -> tuple[TaskResult, Table | None]:
        """Reads the ranges and commits the rows of the table under the identity of this batch."""
        query_id = query_id_of(open_checkpoint(self._spark, self._config.checkpoint))
        batch = BatchIdentity(number, query_id, None)
        result = TaskResult()
        truncates: Truncates = {}
        for _ in range(ROUNDS_MAX):
            tables = self._tables.round(number, {})
            own = CommitCheck(is_committed=False, last=None, latest=tables[0].table.latest_snapshot())
            checks = [own, *(table.has_committed(batch) for table in tables[1:])]
            if not ranges or (len(tables) > 1 and checks[1].is_committed):
                break  # an earlier try has committed it
            context = self._spark.sparkContext
            pins = {
                index: table.pin(number, None, context, check, truncates.get(index))
                for index, (table, check) in enumerate(zip(tables, checks, strict=True))
            }
            result = self._job(ranges, pins)
            found = last_truncates(result.truncated)
            if not result.seen and found == truncates:
                self._commit(result, tables, checks, batch, ranges)
                break
            for index, messages in result.messages.items():
                tables[index].discard(messages)
            if result.seen:
                self._tables.follow(result.seen, number, {})
                continue
            refuse_unordered(found, [orjson.dumps(ends).decode()], is_alone=False)
            for index in found:
                tables[index].truncate(batch)
            truncates = found
        else:
            raise PipelineFailedError(f"table {self._name} still does not fit its records", pipeline=self._config.name)
        tables = self._tables.round(number, {})
        return result, tables[1].table if len(tables) > 1 else None

    def _job(self, ranges: tuple[OffsetRange, ...], pins: Mapping[int, BatchPin]) -> TaskResult:
        job = ManyJob(self._tables.kept_plan, self._tables.task)
        with batch_settings(self._spark, size_bytes=BATCH_BYTES):
            if self._client is None:
                frame = read_offsets(self._spark, self._config.sync.source, ranges, takes_losses=self._takes_losses)
            else:
                frame = range_frame(self._spark, self._client, ranges, self._tables.kept_plan())
            rows, _ = job.tasks(frame, pins)
            try:
                return sum_results(collected_binary(rows))
            except TableFailedError as error:
                raise error.cause from None

    def _commit(
        self,
        result: TaskResult,
        tables: tuple[TableCommit, ...],
        checks: Sequence[CommitCheck],
        batch: BatchIdentity,
        ranges: tuple[OffsetRange, ...],
    ) -> None:
        if self._client is not None:
            refuse_unread(result, {0: ranges}, pipeline=self._config.name, micro_batch_id=batch.micro_batch_id)
        if result.read_count != result.record_count:
            raise PipelineFailedError(
                f"{result.read_count} records entered, and {result.record_count} are accounted for; nothing was "
                "committed. This is a bug of Freshet: please report it",
                pipeline=self._config.name,
            )
        self._dead_letters.commit(batch, result.dead_letter_messages)
        if len(tables) > 1:
            # Batches that a rollback takes back meanwhile lie before the ranges: a commit would hide that they are
            # gone.
            tables[1].commit(batch, result.messages.get(1, ()), None, LapClock(), checks[1])
