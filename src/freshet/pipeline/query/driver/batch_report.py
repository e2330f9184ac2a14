"""What became of one micro-batch, and of it in each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet._frozen import Frozen, field
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.wire.task_result import TaskResult


class TableReport(Frozen):
    """What the commit of a batch did in one table; `level0` are the level-0 files of each bucket that it wrote."""

    snapshot_ids: tuple[int, ...]
    already_committed: bool
    level0: Sequence[int]
    rewrite_count: int
    rewritten_bytes: int


class BatchReport(Frozen):
    """What became of one micro-batch, over all its tables. `times_ms` are the driver's steps; those of the tasks are in
    `result`.

    `snapshot_ids` are the new snapshots; none when the batch was committed already (`is_replay`).
    """

    pipeline: str
    micro_batch_id: int
    result: TaskResult = field(default_factory=TaskResult)
    read_count: int = 0
    snapshot_ids: tuple[int, ...] = ()
    is_replay: bool = False
    level0_count: int = 0
    """Level-0 files of the buckets that the batch wrote."""
    level0_max: int = 0
    """Most level-0 files of one bucket."""
    rewrite_count: int = 0
    """How often files were written again because another writer had committed rows with their numbers."""
    rewritten_bytes: int = 0
    task_count: int = 0
    left_out: tuple[str, ...] = ()
    """Columns of the table that the pipeline file leaves out, though records of the batch carry a field of the name."""
    background: BackgroundReport | None = None
    """What background compaction did since the batch before; None where there is none."""
    times_ms: Mapping[str, float] = field(default_factory=dict)
    broken: Mapping[str, int] = field(default_factory=dict)
    """Records that break a rule of `expect`, by what the rule is called."""
    table_events: tuple[str, ...] = ()
    """What became of tables: created, altered, emptied, set apart; and fields that cannot be columns of them."""

    @classmethod
    def of_tables(
        cls,
        pipeline: str,
        micro_batch_id: int,
        result: TaskResult,
        tables: Sequence[TableReport],
        *,
        task_count: int,
        left_out: tuple[str, ...],
        times_ms: Mapping[str, float],
    ) -> BatchReport:
        """The report of a batch that was committed to these tables."""
        level0 = [count for table in tables for count in table.level0]
        return cls(
            pipeline=pipeline,
            micro_batch_id=micro_batch_id,
            result=result,
            read_count=result.read_count,
            snapshot_ids=tuple(snapshot_id for table in tables for snapshot_id in table.snapshot_ids),
            is_replay=bool(tables) and all(table.already_committed for table in tables),
            level0_count=sum(level0),
            level0_max=max(level0, default=0),
            rewrite_count=sum(table.rewrite_count for table in tables),
            rewritten_bytes=sum(table.rewritten_bytes for table in tables),
            task_count=task_count,
            left_out=left_out,
            times_ms=times_ms,
        )
