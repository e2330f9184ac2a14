"""The `Jobs` of the local engine: its `LocalJob` of sources that hold what is to be read, whatever the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.local.job import LocalJob
from freshet.pipeline.local.source import Piece
from freshet.pipeline.local.workers import LocalEngine
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.jobs import RecordParts, decoded_table
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, RecordWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.table import TableHandle


class _PartPiece(Frozen):
    """A part of the records, as a `Piece`."""

    parts: RecordParts
    number: int
    work: KeptValue[BatchWork]
    index: int
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """`Piece.run`."""
        yield from RecordWork(self.work, self.index).run(self.parts.read(self.number), place)


class _HeldRanges(Frozen):
    """A `RangeSource` that has the same in every batch."""

    client: DirectClient
    held: Sequence[OffsetRange]

    def ranges(self, start: str | None, end: str) -> Sequence[OffsetRange]:
        """`RangeSource.ranges`."""
        return self.held


class _HeldParts(Frozen):
    """A `PieceSource` that has the same in every batch."""

    parts: RecordParts

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """`PieceSource.pieces`."""
        return [_PartPiece(self.parts, number, work, index) for number in range(self.parts.count)]


class LocalJobs:
    """The `Jobs` of some workers."""

    def __init__(self, engine: LocalEngine, open_folder: Callable[[str], CheckpointFolder]) -> None:
        """`open_folder` opens the folder of a checkpoint, by its path or URI."""
        self.engine = engine
        self._open_folder = open_folder

    def folder(self, checkpoint: str) -> CheckpointFolder:
        """`Jobs.folder`."""
        return self._open_folder(checkpoint)

    def of_ranges(
        self, work: Work, name: str, config: SyncPipelineConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
    ) -> LocalJob:
        """`Jobs.of_ranges`."""
        direct = DirectReads.of(config)
        assert direct is not None, "`checks.local_engine` refuses what only Spark reads"
        (client,) = direct.clients
        client = replace(client, takes_losses=client.takes_losses or takes_losses)
        return LocalJob(work, [_HeldRanges(client, ranges)], name)

    def of_parts(self, work: Work, name: str, parts: RecordParts) -> LocalJob:
        """`Jobs.of_parts`."""
        return LocalJob(work, [_HeldParts(parts)], name)

    def into_table(
        self, config: PipelineConfig, commit: TableCommit, letters: TableHandle, parts: Sequence[RecordParts]
    ) -> tuple[OneTable, LocalJob]:
        """`Jobs.into_table`."""
        works, target = decoded_table(config, commit, self.engine, letters)
        return target, LocalJob(works, [_HeldParts(each) for each in parts], commit.table.name)
