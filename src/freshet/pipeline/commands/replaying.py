"""What `freshet dead-letters --replay` does: records of the dead-letter table go through their pipeline once more.

A replay is one unit, whatever it dies of: `replayed` says how where a file has one table, `sync.letter_replay`
where it has many. Both take the letters that are live at a snapshot of their table, and note in a history that they
have begun to commit. Letters that were replayed leave their table (`replayed`); those that fail again are in it once,
with their new reason, and the next replay takes them too.

A table with a log (`log.system`) is written without it: readers of the log read what the replay changes from its files
(`log.on-lake-only`), and a table that has `fail` there is refused.

A letter holds its topic, not its source. Sources that share a topic distinguish its tables by `only`: a record goes to
the first of them that takes the table it names, and to the first of them all where none does. So it goes to one alone,
and a letter that fails again is there once.

The driver reads names of pipelines and topics alone; the workers read the records, split by split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen, field
from freshet.pipeline.commands.engine_jobs import OpenJobs
from freshet.pipeline.commands.replayed import ReplayUnit, letter_names, remove_replayed
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.formats import Format
from freshet.pipeline.config.model import MaxDeadLetters, PipelineConfig, SourceConfig
from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.change import RawRecord, Skipped
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.planning import registry_settings
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.source_table import SourceTable, part_names, table_of
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.jobs import Jobs
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.replay_journal import QUERY_ID, ReplayJournal, replay_user
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_setup import refuse_other_table
from freshet.pipeline.sync.letter_replay import LetterReplay, ReplayIdentity, unfinished_replay
from freshet.storage.exceptions import NotFoundError
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.table import Table
from freshet.storage.table_engine import Split

_COLUMNS: Final = {
    "raw_key": raw_records.KEY,
    "raw_value": raw_records.VALUE,
    "topic": raw_records.TOPIC,
    "kafka_partition": raw_records.KAFKA_PARTITION,
    "log_offset": raw_records.OFFSET,
    "record_time": raw_records.TIMESTAMP,
}


class Replay(Frozen):
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
        """The records of one split, of these topics, in batches of `raw_records.RAW_SCHEMA`."""
        for batch in self.scan.read_split(split):
            rows = pa.Table.from_batches([batch])
            wanted: Any = pc.is_in(rows["pipeline"], pa.array(self.pipelines))
            if topics is not None:
                wanted = pc.and_(wanted, pc.is_in(rows["topic"], pa.array(sorted(topics), pa.string())))
            rows = rows.filter(wanted).select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values()))
            rows = rows.append_column(raw_records.OLD_KEY, pa.nulls(rows.num_rows, pa.binary()))
            rows = rows.append_column(raw_records.RANK, pa.repeat(0, rows.num_rows))
            yield from rows.cast(raw_records.RAW_SCHEMA).to_batches()


class LetterParts(Frozen):
    """The records of one source, as `RecordParts`: a part is a split."""

    replay: Replay
    topics: frozenset[str] | None
    """None for all."""
    index: int = 0
    """Of the source that takes the records."""
    shared: Mapping[str, SharedTopic] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """`RecordParts.count`."""
        return len(self.replay.splits) if self.topics is None or self.topics else 0

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """`RecordParts.read`."""
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


def replay_dead_letters(config: PipelineConfig, open_jobs: OpenJobs, *, everything: bool) -> BatchReport | None:
    """Tries the dead letters of a pipeline again; None where there are none.

    With `everything` also those of which it is not known whether an earlier replay has taken them.
    """
    if isinstance(config, SyncPipelineConfig):
        of_many = plan_replay_of_many(config, everything=everything)
        if of_many is None:
            return None
        with open_jobs(config, "replay") as jobs:
            return run_replay_of_many(jobs, config, of_many)
    replay = plan_replay(config, everything=everything)
    if replay is None:
        return None
    with open_jobs(config, "replay") as jobs:
        return run_replay(jobs, config, replay)


def run_replay(jobs: Jobs, config: PipelineConfig, replay: Replay) -> BatchReport:
    """Puts the records through the pipeline and commits what becomes of them."""
    catalog = target_catalog(config)
    shared = shared_topics(config)
    by_source = dict(_by_source(config, replay.topics, shared))
    parts = [
        LetterParts(replay, by_source.get(index, frozenset()), index, shared) for index in range(len(config.sources))
    ]
    dead = catalog.table(config.dead_letter_table)
    table = _unlogged(config, catalog.table(config.table.name))
    unit = ReplayUnit(config.name, table, dead)
    commit = TableCommit(
        table, replay.commit_user, decoded=config.table.table_schema, options=table.engine.dynamic_options
    )
    target, job = jobs.into_table(config, commit, dead.handle, parts)
    run = QueryRun(
        target,
        job,
        replay.commit_user,
        Accepts(MaxDeadLetters(share=1.0)),
        pipeline=config.name,
        dead_letters=unit.letters(replay.snapshot_id, replay.identifier, after=replay.after),
    )
    report = run.write(MicroBatch(replay.identifier, jobs.engine, QUERY_ID))
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
    last = ReplayJournal(ledger, config.name).last()
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


def run_replay_of_many(jobs: Jobs, config: SyncPipelineConfig, replay: Replay) -> BatchReport:
    """The same as `run_replay` for a file with `sync`."""
    catalog = target_catalog(config)
    dead = catalog.table(config.dead_letter_table)
    identity = ReplayIdentity(replay.snapshot_id, replay.commit_user, replay.after)
    letters = LetterReplay(config, catalog.table(config.ledger_name), dead, identity)
    report = letters.write(jobs, LetterParts(replay, None))
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


class SharedTopic(Frozen):
    """The sources that read one topic: their indexes, formats, tables and registries, in the order of the file."""

    indexes: tuple[int, ...]
    formats: tuple[Format | None, ...]
    only: tuple[OnlyTables | None, ...]
    registries: tuple[RegistrySettings | None, ...]
    topic: str

    def taken_by(self, index: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch that the source of this index takes."""
        pairs = zip(batch.column(raw_records.KEY).to_pylist(), batch.column(raw_records.VALUE).to_pylist(), strict=True)
        mask = np.fromiter(
            (self._chosen(RawRecord(*pair, topic=self.topic)) == index for pair in pairs), bool, batch.num_rows
        )
        return batch.filter(pa.array(mask))

    def _chosen(self, record: RawRecord) -> int:
        sources = zip(self.indexes, self.formats, self.only, self.registries, strict=True)
        for index, format_name, only, registry in sources:
            table = None if only is None or only.is_any else _table(format_name, record, registry)
            if table is not None and only is not None and only.takes(*table):
                return index
        return self.indexes[0]


def shared_topics(config: PipelineConfig) -> dict[str, SharedTopic]:
    """The topics that several sources of a pipeline name, at least one of them with `only`."""
    readers: dict[str, list[tuple[int, SourceConfig]]] = {}
    for index, source in enumerate(config.sources):
        for topic in subscribed_topics(source):
            readers.setdefault(topic, []).append((index, source))
    return {
        topic: SharedTopic(
            tuple(index for index, _ in found),
            tuple(source.format for _, source in found),
            tuple(source.only for _, source in found),
            tuple(registry_settings(source) for _, source in found),
            topic,
        )
        for topic, found in readers.items()
        if len(found) > 1 and any(source.only is not None for _, source in found)
    }


def _table(format_name: Format | None, record: RawRecord, registry: RegistrySettings | None) -> SourceTable | None:
    assert format_name is not None, "only `only` asks, which goes with some formats alone"
    reading = read_record(format_name, record, registry=registry)
    return None if isinstance(reading, Skipped) else table_of(reading.source, part_names(format_name))
