"""The rounds of a batch over many tables, with doubles for the tables, the job and the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.fitting_round import FittingRounds, OpenBatch, Round
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.query.wire.task_result import TableFailedError, TaskResult

LEDGER, A, B = "lake.ledger", "lake.a", "lake.b"


@dataclass
class World:
    """Tables by name; table A fails for good in the round of this number."""

    fails_in: int
    names: list[str] = field(default_factory=lambda: [LEDGER, A, B])
    emptied: list[str] = field(default_factory=list)
    pinned: list[dict[str, bool]] = field(default_factory=list)
    """Of each round, which tables were pinned with a truncate."""
    judged: list[tuple[str, ...]] = field(default_factory=list)
    """What was said of emptied tables when a round was judged."""

    settled: int = 0
    """Rounds after whose job the plan of the batch was waited for."""

    taken: set[str] = field(default_factory=set)
    """Tables whose turns are taken."""

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        assert all(name > each for each in self.taken), "in the order of their locations"
        self.taken.add(name)
        yield
        self.taken.remove(name)

    def tables(self, *_: Any, is_planned: bool) -> list[Any]:
        return [
            SimpleNamespace(
                table=SimpleNamespace(
                    name=name, location=name, handle=SimpleNamespace(env=SimpleNamespace(is_remote=False))
                ),
                turn=partial(self.turn, name),
                has_committed=lambda _: SimpleNamespace(is_committed=False),
                pin=lambda *given, name=name: (name, given[-1]),
                truncate=lambda _, name=name: self.empty(name),
            )
            for name in self.names
        ]

    def job(self, _batch: Any, pins: Any, _ranges: Any, *, is_look: bool) -> tuple[TaskResult, int]:
        """Table B is truncated at offset 5, whatever its place is."""
        self.pinned.append({name: truncated is not None for name, truncated in pins.values()})
        if len(self.pinned) == self.fails_in:
            raise TableFailedError(self.names.index(A), OSError("damaged"))
        return TaskResult(truncated=(TruncatedAt(self.names.index(B), "t", 0, 5),)), 1

    def settle(self) -> None:
        self.settled += 1

    def empty(self, name: str) -> None:
        assert self.settled == len(self.pinned), "nothing is changed before the plan of the batch is there"
        self.emptied.append(name)

    def set_apart(self, index: int, *_: Any) -> bool:
        assert self.settled == len(self.pinned)
        del self.names[index]
        return True

    def run(self) -> tuple[Round, OpenBatch]:
        targets: Any = SimpleNamespace(
            round=self.tables, judged=lambda *_: None, set_apart=self.set_apart, has_ledger=True, rules=lambda: ()
        )
        check: Any = SimpleNamespace(check=lambda *given, rules: self.judged.append(given[-1]), discard=lambda *_: None)
        job: Any = SimpleNamespace(run=self.job, is_planned=False)
        query: Any = SimpleNamespace(offsets=lambda _: ('{"t": {"0": 9}}',))
        engine: Any = None
        of_engine = MicroBatch(3, engine, "q", query, settle=self.settle)
        batch = OpenBatch(of_engine, BatchIdentity(3, "q", None), Stopwatch())
        with ExitStack() as turns:
            done = FittingRounds(targets, job, check, "shop").fit(batch, turns, lambda _: False)
            assert done is not None
            assert self.taken == set(self.names), "those of the last round, until it is committed"
        assert not self.taken and self.settled == len(self.pinned)
        return done, batch


def test_a_truncate_is_applied_before_the_round_that_fits() -> None:
    world = World(fails_in=0)
    done, batch = world.run()
    assert world.emptied == [B] and [each[B] for each in world.pinned] == [False, True]
    assert batch.truncates == {2: TruncatedAt(2, "t", 0, 5)} and len(done.tables) == 3


def test_a_table_that_is_set_apart_behind_a_truncate_moves_the_others() -> None:
    """What is known of truncates names tables by their places: of others it would empty, pin or name the wrong one."""
    world = World(fails_in=2)
    done, batch = world.run()
    assert [table.table.name for table in done.tables] == [LEDGER, B]
    assert batch.truncates == {1: TruncatedAt(1, "t", 0, 5)} and world.pinned[-1] == {LEDGER: False, B: True}
    assert world.emptied == [B, B], "once more: it is empty"
    assert all(A not in text for texts in world.judged for text in texts)
