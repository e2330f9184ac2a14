"""`freshet resume` and `freshet resync`: a table that is set apart is brought up to the last batch of its pipeline.

    1. the ranges that were held back: from where it was set apart to the end of the last batch of the ledger
    2. one job: they are read again, and all records but those of the table are left to the pipeline
    3. its commit, under the identity of that last batch; then the ledger says `resumed`
    4. the next batch of the pipeline takes it up

`resync` drops the table first and reads from the first offset that Kafka has. Died between any two steps: run it again.
The pipeline is stopped meanwhile. One that runs all the same, and has another batch before it sees `resumed`, sets the
table apart from that batch on: nothing is lost, and `resume` is needed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.checks.open_transactions import wait_for_ends
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.checkpoint_offsets import ends_of_batch
from freshet.pipeline.identity.checkpoint_owner import query_id_of
from freshet.pipeline.query.driver.batch_check import BatchCheck
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit, open_dead_letters
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.fitting_round import FittingRounds, OpenBatch
from freshet.pipeline.query.driver.jobs import Jobs
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.query.wire.task_result import TaskResult
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
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.sync_tables import SyncTables, task_count
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitCheck, CommitTrace

_RESUMING: Final = " (resume)"


class Resumed(Frozen):
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


def goes_to(config: SyncPipelineConfig, source: SourceTable, name: str) -> bool:
    """Whether the rows of a source table go to the table of this name."""
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
    jobs: Jobs,
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
        ).with_sources(source for source in row.source_tables if goes_to(config, source, name))  # fmt: skip
        write_rows(ledger, config.name, [row])
        catalog.drop_table(name, if_exists=True)
    number = read_ledger(ledger)[WHOLE].batch
    assert number is not None
    checkpoint = jobs.folder(config.checkpoint)
    ends = ends_of_batch(checkpoint, number, 0)
    if ends is None:
        raise InvalidRequestError(
            f"checkpoint {config.checkpoint} does not say where batch {number} ended, which the ledger has last: it is "
            "not the checkpoint of this pipeline, or an older one"
        )
    ranges = ranges_between(_starts(checkpoint, config, row), ends)
    wait_for_ends(config.sync.source, {(each.topic, each.partition): each.end for each in ranges}, name, say)
    identity = BatchIdentity(number, query_id_of(checkpoint), None)
    result, table = _brought_up(jobs, config, row, ranges, identity, ends, takes_losses=anew)
    ledger = catalog.table(config.ledger_name)
    done = replace(
        row,
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


def _starts(checkpoint: CheckpointFolder, config: SyncPipelineConfig, row: LedgerRow) -> Offsets:
    """Where its records have to be read from. The table may hold the batch that it was set apart in, whose driver died
    before the ledger had it, or what an earlier try has committed: that is not read again."""
    catalog = target_catalog(config)
    if row.since_batch is None or not catalog.has_table(row.table_name):
        return row.since
    last = _last_commit(config, row.table_name)
    if last is None or last.identifier < row.since_batch:
        return row.since
    ends = ends_of_batch(checkpoint, last.identifier, 0)
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


def _brought_up(
    jobs: Jobs,
    config: SyncPipelineConfig,
    row: LedgerRow,
    ranges: Sequence[OffsetRange],
    identity: BatchIdentity,
    ends: Mapping[str, Mapping[str, int]],
    *,
    takes_losses: bool,
) -> tuple[TaskResult, Table | None]:
    """Reads the ranges and commits the rows of the table under the identity of this batch; gives the table too."""
    catalog, user = target_catalog(config), f"{config.name}{_RESUMING} {row.table_name}"
    dead_letters = open_dead_letters(catalog, config.dead_letter_table)
    letters, ledger = DeadLetterCommit(dead_letters, user), catalog.table(config.ledger_name)
    tables = SyncTables(config, ledger, dead_letters, task_count(jobs.engine), only=row.table_name)
    tables.take_only(row)
    check = BatchCheck([tables.lead], letters, MaxDeadLetters(share=1.0), commit_user=user, pipeline=config.name)
    job = jobs.of_ranges(tables, row.table_name, config, ranges, takes_losses=takes_losses)
    rounds = FittingRounds(tables, job, check, config.name, is_beside=True)
    of_engine = MicroBatch(identity.micro_batch_id, jobs.engine)
    batch = OpenBatch(
        of_engine, identity, Stopwatch(), ranges=job.ranges(of_engine), ends=[orjson.dumps(ends).decode()]
    )

    def is_done(checks: Sequence[CommitCheck]) -> bool:
        """Whether an earlier try has committed it."""
        return not ranges or (len(checks) > 1 and checks[1].is_committed)

    with ExitStack() as turns:
        done = rounds.fit(batch, turns, is_done)
    if done is not None:
        rounds.judge(batch, done)
        letters.commit(identity, done.result.dead_letter_messages)
        if len(done.tables) > 1:
            # What a rollback takes back meanwhile lies before the ranges: a commit would hide that it is gone.
            done.tables[1].commit(identity, done.result.messages.get(1, ()), None, batch.clock, done.checks[1])
    written = tables.round(batch.number, {})
    return TaskResult() if done is None else done.result, written[1].table if len(written) > 1 else None
