"""The changes of a table as a source of the local engine; its offsets are those of Spark's source (`sources`)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from freshet.pipeline.checks.table_sources import open_source
from freshet.pipeline.config.frame_options import PlannedStream, stream_options
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.local.source import Piece, Source
from freshet.pipeline.query.driver.change_batches import FIRST, ChangeBatches
from freshet.pipeline.query.driver.engine import Engine
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.row_works import RowWorks, SelectedRows, selected_rows
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.task_plan import TaskPlan
from freshet.pipeline.query.driver.work import TableWorks
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.change_rows import ChangesPiece
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.changes.stream import SplitStream
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit

PIECE_ROWS: Final = 20_000
"""Fewer rows are not worth another worker."""
_SOURCE_BITS: Final = 20
"""Pieces of a batch are numbered from the number of their source on."""


def table_source(config: PipelineConfig, index: int) -> TableSource:
    """The source of this number in a file. Raises `NotFoundError` where its table is not there, `ConfigurationError`
    naming the entry of `select` that is wrong."""
    source = config.sources[index].table
    assert source is not None, "the source is a table"
    options, table = stream_options(source.given), open_source(config, source)
    assert options is not None
    stream = options.stream(table)
    return TableSource(table, stream, options.limit, selected_rows(config, index, stream))


def followed_table(
    config: PipelineConfig, commit: TableCommit, engine: Engine, sources: Sequence[Source]
) -> tuple[TableWorks, OneTable]:
    """The work on rows of these sources, which are all tables, and the table that they go into."""
    selected = [each.selected for each in sources if isinstance(each, TableSource)]
    tasks = TaskPlan(engine.tasks_max, engine.parallelism)
    return RowWorks(commit, config, tasks, selected), OneTable(commit)


class TableSource:
    """A `Source`."""

    def __init__(self, table: Table, stream: PlannedStream, limit: StreamLimit, selected: SelectedRows) -> None:
        self.selected = selected
        """What its columns fill."""
        self._stream = stream
        self._kept: KeptValue[PlannedStream] = KeptValue(stream)
        self._batches = ChangeBatches(stream, limit)
        self._is_remote = table.handle.env.is_remote

    def first(self) -> str | None:
        """`Source.first`."""
        return json.dumps(FIRST)

    def latest(self, start: str | None) -> str | None:
        """`Source.latest`: what a consumer has not read does not expire from the first look on."""
        offset = _parsed(start)
        begin = self._batches.begin(offset)
        if offset == FIRST:
            self._stream.handed_over(begin)
        # The text is that of PySpark, which dumps the same document with the same function.
        return json.dumps(self._batches.latest(offset, begin))

    def bound(self) -> None:
        """`Source.bound`."""
        self._batches.bound()

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """`PieceSource.pieces`: groups that follow one another stay together, since what one has of a key comes
        before what a later one has."""
        groups = self._batches.groups(_parsed(start), _parsed(end))
        sizes = [_row_count(group) for group in groups]
        share = max(PIECE_ROWS, math.ceil(sum(sizes) / max(1, count)))
        pieces: list[list[Any]] = []
        size = 0
        for group, rows in zip(groups, sizes, strict=True):
            if not pieces or size >= share:
                pieces.append([])
                size = 0
            pieces[-1].append(group)
            size += rows
        first = index << _SOURCE_BITS
        return [
            ChangesPiece(self._kept, tuple(groups), first + number, work, index) for number, groups in enumerate(pieces)
        ]

    def done(self, end: str) -> None:
        """`Source.done`: the consumer moves on."""
        self._stream.handed_over(self._batches.begin(_parsed(end)))

    def lag(self, end: str) -> int | None:
        """`Source.lag`: a table does not say how many changes there are."""
        return None

    def wait(self, start: str | None, timeout_s: float) -> bool:
        """`Source.wait`. A log calls; snapshots are looked for, those of a store only by `latest`."""
        position, begun_s = self._batches.begin(_parsed(start)), time.monotonic()
        self._stream.wait(position, timeout_s)
        if isinstance(self._stream, SplitStream):
            return not self._is_remote and self._stream.latest().snapshot_id > position.snapshot_id
        return time.monotonic() - begun_s < timeout_s

    def close(self) -> None:
        """`Source.close`."""
        self._stream.close()


def _parsed(offset: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = FIRST if offset is None else json.loads(offset)
    return found


def _row_count(group: Any) -> int:
    """The rows of a group at most: of a table with a log it has its pieces, else it is them."""
    return sum(piece.size.rows for piece in getattr(group, "pieces", group))
