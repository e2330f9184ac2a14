"""The workers of this machine as the engine of a query (`query.driver.engine`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from freshet._frozen import Frozen
from freshet.pipeline.local.workers import WorkerPool, settled
from freshet.pipeline.query.driver.engine import EngineError
from freshet.pipeline.query.wire.batch_pin import Handed, TaskPlace

T = TypeVar("T")


class _ItemCall(Frozen):
    """A call for one item, in its place."""

    work: Callable[[Any, TaskPlace], bytes]
    item: Any
    place: TaskPlace

    def __call__(self, worker: int) -> bytes:
        return self.work(self.item, self.place)


class LocalEngine:
    """An `Engine`; may be shared by the queries of a process. A worker runs one task of a batch, with all that falls to
    it, so there are as many tasks as workers."""

    def __init__(self, pool: WorkerPool, *, parallelism: int | None = None) -> None:
        """`parallelism` is that of the pool, unless a test wants more tasks than it has workers."""
        self.pool = pool
        self._parallelism = parallelism or max(1, pool.workers)

    @property
    def parallelism(self) -> int:
        """`Engine.parallelism`."""
        return self._parallelism

    @property
    def tasks_max(self) -> int:
        """`Engine.tasks_max`."""
        return self._parallelism

    def each(
        self, work: Callable[[T, TaskPlace], bytes], items: Sequence[T], *, group: str | None = None
    ) -> list[bytes]:
        """`Engine.each`."""
        calls = [_ItemCall(work, item, self.place(Handed(), number)) for number, item in enumerate(items)]
        futures = [self.pool.submit(call, group=group) for call in calls]
        try:
            return settled(futures)
        except Exception as error:
            if group is None or isinstance(error, EngineError):
                raise
            raise EngineError(str(error)) from error

    def cancel(self, group: str) -> None:
        """`Engine.cancel`."""
        self.pool.cancel(group)

    def place(self, handed: Handed, number: int = 0) -> TaskPlace:
        """The place of another attempt at a task."""
        return TaskPlace(handed, number, self.pool.attempt())
