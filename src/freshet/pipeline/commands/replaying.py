"""What `freshet dead-letters --replay` does: records of the dead-letter table go through their pipeline once more.

A replay is one unit, whatever it dies of: `replay_unit` says how where a file has one table, `sync.letter_replay`
where it has many. Both take the letters that are live at a snapshot of their table, and note in a history that they
have begun to commit. Letters that were replayed leave their table (`replayed`); those that fail again are in it once,
with their new reason, and the next replay takes them too.

A table with a log (`log.system`) is written without it: readers of the log read what the replay changes from its files
(`log.on-lake-only`), and a table that has `fail` there is refused.

The driver reads names of pipelines and topics alone; Spark's workers read the records, split by split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.begun_replay import QUERY_ID, BegunReplays, replay_user
from freshet.pipeline.batch.one_table import one_table_run
from freshet.pipeline.batch.table_setup import refuse_other_table
from freshet.pipeline.commands.replay_choice import SharedTopic, shared_topics
from freshet.pipeline.commands.replay_unit import ReplayUnit
from freshet.pipeline.commands.replayed import letter_names, remove_replayed
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import MaxDeadLetters, PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError
from freshet.pipeline.running.runner import spark_settings
from freshet.pipeline.sources.record_frame import RECORD_SCHEMA, raw_record_frame, read_record_frame
from freshet.pipeline.spark.session import session_of_a_command
from freshet.pipeline.sync.letter_replay import LetterReplay, ReplayIdentity, unfinished_replay
from freshet.storage.exceptions import NotFoundError
from freshet.storage.table import Table, TableScan
from freshet.storage.table_engine import Split

_COLUMNS: Final = {
    "raw_key": "key",
    "raw_value": "value",
    "topic": "topic",
    "kafka_partition": "partition",
    "log_offset": "offset",
    "record_time": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """Dead letters to be tried again, where they lie, and under which identity. Travels to the workers."""

    scan: TableScan
    splits: tuple[Split, ...]
    pipelines: tuple[str, ...]
    topics: Mapping[str | None, int]
    """Number of records by topic."""
    snapshot_id: int
    """Of the dead letters."""
    commit_user: str
    identifier: int
    """Of the commits of rows."""
    after: int | None
    """The number of the replay that was the last one to begin when the snapshot was chosen."""

    def records(self, split: Split, topics: AbstractSet[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of one split, of these topics, in batches of `RECORD_SCHEMA`."""
        for batch in self.scan.read_split(split):
            rows = pa.Table.from_batches([batch])
            wanted: Any = pc.is_in(rows["pipeline"], pa.array(self.pipelines))
            if topics is not None:
                wanted = pc.and_(wanted, pc.is_in(rows["topic"], pa.array(sorted(topics), pa.string())))
            rows = rows.filter(wanted).select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values()))
            yield from rows.cast(RECORD_SCHEMA).to_batches()


@dataclass(frozen=True, slots=True)
class SplitReader:
    """Reads splits in Spark's workers: their numbers in, their records out."""

    replay: Replay
    topics: frozenset[str] | None
    index: int = 0
    """Of the source that takes the records."""
    shared: Mapping[str, SharedTopic] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split = self.replay.splits[number]
                if self.topics is None or self.topics - self.shared.keys():
                    yield from self.replay.records(split, None if self.topics is None else self._own)
                for topic in sorted(self._own_shared):
                    for records in self.replay.records(split, {topic}):
                        yield self.shared[topic].taken_by(self.index, records)

    @property
    def _own(self) -> frozenset[str]:
        return (self.topics or frozenset()) - self.shared.keys()

    @property
    def _own_shared(self) -> frozenset[str]:
        return (self.topics or frozenset()) & self.shared.keys()


def replay_dead_letters(config: PipelineConfig, *, everything: bool) -> BatchReport | None:
    """Tries the dead letters of a pipeline again; None where there are none.

    With `everything` also those of which it is not known whether an earlier replay has taken them.
    """
    if isinstance(config, SyncPipelineConfig):
        of_many = plan_replay_of_many(config, everything=everything)
        if of_many is None:
            return None
        with _session(config) as spark:
            return run_replay_of_many(spark, config, of_many)
    replay = plan_replay(config, everything=everything)
    if replay is None:
        return None
    with _session(config) as spark:
        return run_replay(spark, config, replay)


def _session(config: PipelineConfig) -> AbstractContextManager[SparkSession]:
    return session_of_a_command(f"{config.name} replay", settings=spark_settings([config]))


def run_replay(spark: SparkSession, config: PipelineConfig, replay: Replay) -> BatchReport:
    """Puts the records through the pipeline and commits what becomes of them."""
    catalog = target_catalog(config)
    shared = shared_topics(config)
    frames = [
        read_record_frame(spark, len(replay.splits), SplitReader(replay, topics, index, shared), config, index)
        for index, topics in _by_source(config, replay.topics, shared)
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    dead = catalog.table(config.dead_letter_table)
    table = _unlogged(config, catalog.table(config.table.name))
    unit = ReplayUnit(config.name, table, dead)
    writer = one_table_run(
        table,
        replay.commit_user,
        pipeline=config.name,
        decoded=config.table.table_schema,
        dead_letters=dead,
        letter_commit=unit.letters(replay.snapshot_id, replay.identifier, after=replay.after),
        max_dead_letters=MaxDeadLetters(share=1.0),
        options=table.engine.dynamic_options,
    )
    report = writer.write(whole, replay.identifier, QUERY_ID)
    unit.finish(replay.snapshot_id, replay.identifier, is_known=report.is_replay)
    return report


def plan_replay_of_many(config: SyncPipelineConfig, *, everything: bool) -> Replay | None:
    """The same for a file with `sync`: where an earlier replay has begun to commit and is not done, its records once
    more, unless `everything` is taken."""
    catalog = target_catalog(config)
    if not catalog.has_table(config.ledger_name):
        raise InvalidRequestError(f"{config.name!r} has no ledger {config.ledger_name}: it has not run yet")
    if not catalog.has_table(config.dead_letter_table):
        return None
    ledger, dead = catalog.table(config.ledger_name), catalog.table(config.dead_letter_table)
    last = BegunReplays(ledger, config.name).last()
    begun = None if everything else unfinished_replay(config, ledger)
    if begun is None:
        after = None if last is None else last.number
        return _plan_of_many(config, ledger, dead, after=after, everything=everything)
    try:
        return _of_snapshot(config, dead, begun.snapshot_id, begun.commit_user, begun.snapshot_id, begun.after)
    except NotFoundError as error:
        raise InvalidRequestError(
            f"table {dead.name}: snapshot {begun.snapshot_id}, whose letters an interrupted replay was applying, has "
            "expired; --all takes all letters that are there, also those that were applied"
        ) from error


def run_replay_of_many(spark: SparkSession, config: SyncPipelineConfig, replay: Replay) -> BatchReport:
    """The same as `run_replay` for a file with `sync`."""
    catalog = target_catalog(config)
    dead = catalog.table(config.dead_letter_table)
    identity = ReplayIdentity(replay.snapshot_id, replay.commit_user, replay.after)
    frame = raw_record_frame(spark, len(replay.splits), SplitReader(replay, None))
    report = LetterReplay(config, catalog.table(config.ledger_name), dead, identity).write(frame)
    remove_replayed(dead, replay.snapshot_id, config.name)
    return report


def plan_replay(config: PipelineConfig, *, everything: bool) -> Replay | None:
    """The records to try again; None where there are none. Raises `InvalidRequestError` where they are not known."""
    refuse_other_table(config)
    catalog = target_catalog(config)
    table = _unlogged(config, catalog.table(config.table.name))
    dead = catalog.table(config.dead_letter_table)
    unit = ReplayUnit(config.name, table, dead)
    after = unit.settle(everything=everything)
    latest = dead.latest_snapshot()
    if latest is None:
        return None
    number = unit.next_number(latest.id)
    return _of_snapshot(config, dead, latest.id, replay_user(config.name), number, after)


def _unlogged(config: PipelineConfig, table: Table) -> Table:
    """A log has one user, the pipeline: what a replay commits, readers of the log take from the files."""
    options = config.table.own_options
    return (table.with_options(options) if options else table).without_log()


def _plan_of_many(
    config: SyncPipelineConfig, ledger: Table, dead: Table, *, after: int | None, everything: bool
) -> Replay | None:
    user = replay_user(config.name)
    if everything:
        user = f"{user}-{uuid4()}"
    else:
        last = ledger.engine.committer(user, QUERY_ID).last_commit()
        if last is not None:
            remove_replayed(dead, last.identifier, config.name)
    latest = dead.latest_snapshot()
    return None if latest is None else _of_snapshot(config, dead, latest.id, user, latest.id, after)


def _of_snapshot(
    config: PipelineConfig, dead: Table, snapshot_id: int, user: str, number: int, after: int | None
) -> Replay | None:
    """The records that were outstanding at a snapshot of the dead letters."""
    scan = dead.scan([*_COLUMNS, "pipeline"], snapshot_id=snapshot_id)
    splits = tuple(scan.plan())
    pipelines = letter_names(config.name)
    topics = _topics(dead.scan(["pipeline", "topic"], snapshot_id=snapshot_id), splits, pipelines)
    return Replay(scan, splits, pipelines, topics, snapshot_id, user, number, after) if topics else None


def _topics(scan: TableScan, splits: Sequence[Split], pipelines: Sequence[str]) -> Counter[str | None]:
    """The records by topic, batch by batch: of a dead letter these two columns are the least."""
    counts: Counter[str | None] = Counter()
    for split in splits:
        for batch in scan.read_split(split):
            mine = batch.filter(pc.is_in(batch.column("pipeline"), pa.array(pipelines)))
            found: Any = pc.value_counts(mine.column("topic"))
            counts.update({entry["values"]: entry["counts"] for entry in found.to_pylist()})
    return counts


def _by_source(
    config: PipelineConfig, topics: Mapping[str | None, int], shared: Mapping[str, SharedTopic]
) -> list[tuple[int, frozenset[str] | None]]:
    """The topics of each source that has records, None for all; a record's topic says which source it came from.

    A shared topic is read for each of its sources, which share out its records.
    """
    if len(config.sources) == 1:
        return [(0, None)]
    parts: list[tuple[int, frozenset[str] | None]] = []
    left = dict(topics)
    for index, source in enumerate(config.sources):
        own = subscribed_topics(source)
        mine = frozenset(name for name in {*left, *(shared.keys() & topics.keys())} if name is not None and name in own)
        if mine:
            parts.append((index, mine))
        left = {name: count for name, count in left.items() if name not in mine}
    if left:
        raise ConfigurationError(
            f"{config.name}: {sum(left.values())} dead letters are of {', '.join(map(str, list(left)[:5]))}, which no "
            "source of the file names; replay them with a file whose only source reads them"
        )
    return parts
