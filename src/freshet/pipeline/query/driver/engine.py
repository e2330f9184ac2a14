"""The engine of a query, as its driver knows it: what plans batches, runs tasks and keeps the checkpoint.

    Engine       the workers: how many tasks run at once, and calls that run in them
    PlannedQuery the query that a batch belongs to: its checkpoint, and what each batch reads
    MicroBatch   one batch as the engine has planned it
    Job          the one job of a query's batches: records ─ decoder ─ (task, table, bytes) ─ tasks ─ results

`spark` and `local` implement them. The contract that both keep is `tests/pipeline/query/test_engine_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from freshet._frozen import Frozen
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.checkpoint_offsets import offsets_by_topic
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.query.wire.task_result import TaskResult

T = TypeVar("T")

Offsets = Mapping[str, Mapping[str, int]]
"""Topic, partition, offset."""


class EngineError(Exception):
    """A call in the workers failed for good; the text says of what."""


class Engine(Protocol):
    """The workers of an engine."""

    @property
    def parallelism(self) -> int:
        """Tasks that run at the same time."""

    @property
    def tasks_max(self) -> int:
        """Tasks that a batch has at most."""

    def each(
        self, work: Callable[[T, TaskPlace], bytes], items: Sequence[T], *, group: str | None = None
    ) -> list[bytes]:
        """What `work`, a value that travels, gives for each item in a worker. The calls of a `group` run beside the
        batches, in a pool of their own, and end at `cancel`. A call that fails for good raises `EngineError`."""

    def cancel(self, group: str) -> None:
        """Ends the calls of a group that run."""


class PlannedQuery(Protocol):
    """A query that runs, as its engine has planned it."""

    @property
    def run_id(self) -> str:
        """The id of this run, another one after each start."""

    @property
    def folder(self) -> CheckpointFolder:
        """The checkpoint."""

    def output_mode(self) -> str:
        """`Append`, `Update` or `Complete`."""

    def offsets(self, micro_batch_id: int) -> tuple[str | None, ...] | None:
        """The JSON of each source's offset at the end of a batch; None where none is written down."""

    def ignores_missing_files(self) -> bool:
        """Whether files that are gone are passed over."""

    def takes_names_for_patterns(self) -> bool:
        """Whether the engine reads other files where the name of one looks like a pattern."""


def _is_settled() -> None:
    """For a batch whose plan was there before it."""


class MicroBatch(Frozen):
    """One batch of a query, or rows that are written like one.

    `query` is None outside of a query that runs. `frame` is what the engine keeps of the batch. `settle` returns once
    the plan of the batch survives a crash: the job may run until then, but nothing it found changes a table.
    """

    number: int
    engine: Engine
    query_id: str | None = None
    query: PlannedQuery | None = None
    frame: Any = None
    settle: Callable[[], None] = _is_settled

    def offsets(self) -> tuple[str | None, ...]:
        """The JSON of each source's offset at its end; none outside of a query."""
        return (None if self.query is None else self.query.offsets(self.number)) or ()

    def starts(self, ranges: Ranges | None) -> Offsets:
        """Where its records begin, as far as its plan says: at the end of the batch before, or at the first offset of
        each range."""
        before = self.query.offsets(self.number - 1) if self.query is not None and self.number else None
        starts: dict[str, dict[str, int]] = {}
        for each in before or ():
            for topic, offsets in offsets_by_topic(each).items():
                starts.setdefault(topic, {}).update(offsets)
        for of in (ranges or {}).values():
            for part in of:
                partition = starts.setdefault(part.topic, {})
                partition[str(part.partition)] = min(part.start, partition.get(str(part.partition), part.start))
        return starts


class Job(Protocol):
    """The one job of a query's batches."""

    @property
    def is_planned(self) -> bool:
        """Whether the query has its tasks in its own plan, so that it cannot follow every change of a schema."""

    def ranges(self, batch: MicroBatch) -> Ranges | None:
        """What the workers read themselves of the batch; None where the engine's own source does."""

    def planned_ranges(self, batch: MicroBatch) -> Ranges | None:
        """What the plan of the batch reads of Kafka, whoever reads it; None where a source is not Kafka."""

    def first_look(self, batch: MicroBatch, ranges: Ranges | None) -> Ranges | None:
        """Some of the records, from which tables are described that nobody knows yet; None where few are read, or none
        of such tables. `ranges` are as `ranges` gave them; where there are none, the look is at other sources."""

    def run(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: Ranges | None, *, is_look: bool = False
    ) -> tuple[TaskResult, int]:
        """The result of all tasks, and how many there are at most; `ranges` as `ranges` or `first_look` gave them.

        All is computed anew at each call. Raises `TableFailedError` where the work on a table failed for good.
        """

    def keep_state(self, batch: MicroBatch) -> None:
        """Lets the engine keep the state of a batch that is committed already."""
