"""What `freshet dead-letters --replay` does: records of the dead-letter table go through their pipeline once more.

Commits are made under the user `<pipeline>-replay`, with the dead-letter table's latest snapshot as identifier, so a
call that is repeated does nothing twice: it takes the dead letters that were committed after the last replay. Records
that fail again are dead letters again, of that user, and the next replay takes them too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from freshet.pipeline.batch.micro_batch import BatchReport, MicroBatchWriter
from freshet.pipeline.batch.table_setup import refuse_other_table
from freshet.pipeline.config.model import MaxDeadLetters, PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError
from freshet.pipeline.runner import spark_settings
from freshet.pipeline.spark.record_frame import RECORD_SCHEMA, record_frame
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError
from freshet.storage.table import Table

REPLAY_SUFFIX: Final = "-replay"
QUERY_ID: Final = "freshet-replay"

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
    """Records to be tried again, and under which identity."""

    records: pa.Table
    commit_user: str
    identifier: int


def replay_dead_letters(config: PipelineConfig, *, everything: bool) -> BatchReport | None:
    """Tries the dead letters of a pipeline again; None where there are none since the last replay.

    With `everything`, those that an earlier replay has taken are taken again.
    """
    replay = plan_replay(config, everything=everything)
    if replay is None:
        return None
    with session_of_a_command(f"{config.name} replay", settings=spark_settings([config])) as spark:
        return carry_out(spark, config, replay)


def carry_out(spark: SparkSession, config: PipelineConfig, replay: Replay) -> BatchReport:
    """Puts the records through the pipeline and commits what becomes of them."""
    catalog = Catalog(config.table.warehouse)
    frames = [record_frame(spark, records, config, index) for index, records in _by_source(config, replay.records)]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    writer = MicroBatchWriter(
        catalog.table(config.table.name),
        replay.commit_user,
        decoded=config.table.table_schema,
        dead_letters=catalog.table(config.dead_letter_table),
        max_dead_letters=MaxDeadLetters(share=1.0),
        options=config.table.write_options,
    )
    return writer.write(whole, replay.identifier, QUERY_ID)


def plan_replay(config: PipelineConfig, *, everything: bool) -> Replay | None:
    """The records to try again; None where there are none. Raises `InvalidRequestError` where it cannot be told."""
    refuse_other_table(config.table)
    catalog = Catalog(config.table.warehouse)
    return _plan(
        config, catalog.table(config.table.name), catalog.table(config.dead_letter_table), everything=everything
    )


def _plan(config: PipelineConfig, table: Table, dead: Table, *, everything: bool) -> Replay | None:
    latest = dead.latest_snapshot()
    if latest is None:
        return None
    user = f"{config.name}{REPLAY_SUFFIX}"
    before: int | None = None
    if everything:
        user = f"{user}-{uuid4()}"
    else:
        check = table.committer(user, QUERY_ID).has_committed(latest.id)
        if check.is_committed:
            return None
        before = None if check.last is None else check.last.identifier
    known = set() if before is None else _files_at(dead, before)
    scan = dead.scan([*_COLUMNS, "pipeline"], snapshot_id=latest.id)
    found: set[str] = set()
    batches: list[pa.RecordBatch] = []
    for split in scan.plan():
        found |= {file.file_name for file in split.files}
        fresh = tuple(file for file in split.files if file.file_name not in known)
        if fresh:
            batches += scan.read_split(replace(split, files=fresh))
    if not known <= found:
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since the last replay, so the dead letters that are new "
            "cannot be told from those replayed already; --all takes all of them"
        )
    rows = pa.Table.from_batches(batches, scan.schema)
    rows = rows.filter(pc.is_in(rows["pipeline"], pa.array([config.name, f"{config.name}{REPLAY_SUFFIX}"])))
    if not rows.num_rows:
        return None
    return Replay(rows.select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values())), user, latest.id)


def _files_at(dead: Table, snapshot_id: int) -> set[str]:
    try:
        return {entry.file.file_name for entry in dead.files(snapshot_id=snapshot_id)}
    except NotFoundError as error:
        raise InvalidRequestError(
            f"table {dead.name}: snapshot {snapshot_id}, up to which the last replay went, has expired, so the dead "
            "letters that are new cannot be told from those replayed already; --all takes all of them"
        ) from error


def _by_source(config: PipelineConfig, records: pa.Table) -> list[tuple[int, pa.Table]]:
    """The records of each source, in the types that frames want; a record's topic says which source it came from."""
    records = records.cast(RECORD_SCHEMA)
    if len(config.sources) == 1:
        return [(0, records)]
    parts = []
    left = records
    for index, source in enumerate(config.sources):
        topics = pa.array(sorted(subscribed_topics(source)), pa.string())
        mine = pc.fill_null(pc.is_in(left["topic"], topics), False)
        if pc.any(mine).as_py():
            parts.append((index, left.filter(mine)))
        left = left.filter(pc.invert(mine))
    if left.num_rows:
        topics = ", ".join(map(str, pc.unique(left["topic"]).to_pylist()[:5]))
        raise ConfigurationError(
            f"{config.name}: {left.num_rows} dead letters are of {topics}, which no source of the file names; replay "
            "them with a file whose only source reads them"
        )
    return parts
