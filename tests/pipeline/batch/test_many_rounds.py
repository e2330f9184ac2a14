"""The rounds of a batch over many tables, with doubles for the tables, the job and the query; no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.many_rounds import ManyRounds, _Batch
from freshet.pipeline.batch.task_result import TableFailedError, TaskResult
from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.storage.io.env import Helpers

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

    taken: set[str] = field(default_factory=set)
    """Tables whose turns are taken."""

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        assert all(name > each for each in self.taken), "in the order of their locations"
        self.taken.add(name)
        yield
        self.taken.remove(name)

    def tables(self, *_: Any) -> list[Any]:
        return [
            SimpleNamespace(
                table=SimpleNamespace(
                    name=name, location=name, handle=SimpleNamespace(env=SimpleNamespace(is_remote=False))
                ),
                turn=partial(self.turn, name),
                has_committed=lambda _: SimpleNamespace(is_committed=False),
                pin=lambda *given, name=name: (name, given[-1]),
                truncate=lambda _, name=name: self.emptied.append(name),
            )
            for name in self.names
        ]

    def job(self, _frame: Any, _number: int, pins: Any, *_: Any) -> tuple[TaskResult, int]:
        """Table B is truncated at offset 5, whatever its place is."""
        self.pinned.append({name: truncated is not None for name, truncated in pins.values()})
        if len(self.pinned) == self.fails_in:
            raise TableFailedError(self.names.index(A), OSError("damaged"))
        return TaskResult(truncated=(TruncatedAt(self.names.index(B), "t", 0, 5),)), 1

    def set_apart(self, index: int, *_: Any) -> bool:
        del self.names[index]
        return True

    def run(self) -> Any:
        many = SimpleNamespace(round=self.tables, judged=lambda *_: None, set_apart=self.set_apart)
        check = SimpleNamespace(check=lambda *given: self.judged.append(given[-1]), discard=lambda *_: None)
        session = SimpleNamespace(sparkContext=None)
        rounds = ManyRounds(many, SimpleNamespace(run=self.job), check, None, "shop")  # type: ignore[arg-type]
        query = SimpleNamespace(offsets=lambda _: ('{"t": {"0": 9}}',))
        identity = SimpleNamespace(micro_batch_id=3)
        frame: Any = SimpleNamespace(sparkSession=session)
        batch = _Batch(frame, identity, query, {}, None, None, LapClock())  # type: ignore[arg-type]
        with ExitStack() as turns:
            done = rounds._fitting_round(batch, turns)
            assert self.taken == set(self.names), "those of the last round, until it is committed"
        assert not self.taken
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


def test_a_table_that_cannot_be_committed_does_not_keep_the_others_from_it() -> None:
    """The ledger lacks the batch then, and a replay finds what it is to finish."""
    committed: list[str] = []

    def commit(name: str) -> None:
        if name == A:
            raise OSError("no space")
        committed.append(name)

    def table(name: str) -> Any:
        env = SimpleNamespace(for_tables=Helpers(2).together)
        facts = SimpleNamespace(name=name, handle=SimpleNamespace(env=env))
        return SimpleNamespace(table=facts, commit=lambda *_: commit(name))

    many = SimpleNamespace(rows=lambda *_: committed.append(LEDGER))
    rounds = ManyRounds(many, None, None, None, "shop")  # type: ignore[arg-type]
    checks = [SimpleNamespace(is_committed=False)] * 3
    done = SimpleNamespace(
        tables=[table(name) for name in (LEDGER, A, B)],
        checks=checks,
        result=SimpleNamespace(messages={1: (), 2: ()}),
    )
    batch: Any = SimpleNamespace(identity=SimpleNamespace(), clock=LapClock(), truncates={})
    with pytest.raises(OSError, match="no space"):
        rounds._commit(batch, done)  # type: ignore[arg-type]
    assert committed == [B]
