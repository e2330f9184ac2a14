"""Background compaction of a streaming query, in its own application: a thread of the driver takes compaction units of
all tables of the query, a worker runs each, the thread commits it.

    batches      with rounds.open(table).batch(table) as limit: …      `table_rounds`
                 rounds.go_on(engine)        after a batch: starts the thread, or wakes it
    the thread   a pass: every table that has something due has one unit compacted, those with most before the others;
                 then the next pass. It ends when nothing has been due for `IDLE_S`, or at `close`

Units are calls in one worker, in a pool of their own (`POOL`), one after the other, so they take one core at most; an
application that has but one leaves the compactions to its batches. The commit user is that of the stream and
`-compact`.

Units are chosen and committed between two batches. A query whose batches follow each other without a pause has but one
such moment a batch, so small units of several tables are taken together (`HAND_MAX`, `HAND_BYTES`), and are committed
together once the last of them has run.

| a unit | then |
|---|---|
| whose inputs another commit has changed | is dropped, its files are removed, the bucket is looked at again |
| that fails | is not committed; each batch reports the error until a unit of the table succeeds. Other tables go on |
| that runs when its table is set apart | goes on to its end: it changes no rows |
| that runs when the query is stopped | `close` waits for it, `STOP_WAIT_S` at most; then its job is cancelled |

Source: storage/maintenance/background_compaction.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from freshet.pipeline.config.sections import CompactionConfig
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS
from freshet.pipeline.exceptions import brief_reason
from freshet.pipeline.query.driver.engine import Engine, EngineError
from freshet.pipeline.query.driver.table_rounds import BackgroundReport, TableRounds, TakenUnit
from freshet.storage.table import Table

if TYPE_CHECKING:
    from freshet.storage.table_engine import CommitMessage

T = TypeVar("T")

POOL: Final = "freshet-compaction"

IDLE_S: Final = 10.0
STOP_WAIT_S: Final = 15.0
CORES_MIN: Final = 2
HAND_MAX: Final = 8
HAND_BYTES: Final = 64 * 1024 * 1024
"""Of the tables whose units are taken together."""

ONE_CORE: Final = "the application has one core; batches compact the table themselves"


class BackgroundRounds:
    """The compaction rounds of one query in all of its tables; batches come from one thread."""

    def __init__(self, commit_user: str, *, budget_ms: int) -> None:
        self._user = commit_user
        self._budget_ms = budget_ms
        self._group = f"{POOL}-{uuid4()}"
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._tables: list[TableRounds] = []
        self._thread: threading.Thread | None = None
        self._engine: Engine | None = None

    def open(self, table: Table) -> TableRounds:
        """Takes a table in. Raises `InvalidRequestError` where its compactions must stay in its batches."""
        rounds = TableRounds(table, self._user, budget_ms=self._budget_ms)
        with self._lock:
            self._tables.append(rounds)
        return rounds

    def leave(self, rounds: TableRounds) -> None:
        """The query writes this table no longer."""
        rounds.leave()
        with self._lock:
            self._tables = [each for each in self._tables if each is not rounds]

    def go_on(self, engine: Engine) -> None:
        """A batch is over."""
        self._engine = engine
        if engine.parallelism < CORES_MIN:
            for number, each in enumerate(self._joined()):
                each.refuse(ONE_CORE, is_told=not number)
            return
        with self._lock:
            self._wake.set()
            if (self._thread is None or not self._thread.is_alive()) and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, args=(engine,), name=f"freshet-compaction-{self._user}", daemon=True
                )
                self._thread.start()

    def report(self) -> BackgroundReport | None:
        """What was done in all tables since this was last asked; None where there are none."""
        return joined_report([(each.name, each.report()) for each in self._joined()])

    def close(self) -> None:
        """Ends the rounds: waits for the unit that runs, then cancels it; nothing is left running."""
        self._stop.set()
        self._wake.set()
        thread, engine = self._thread, self._engine
        if thread is None or engine is None:
            return
        thread.join(STOP_WAIT_S)
        if thread.is_alive():
            engine.cancel(self._group)
            thread.join(STOP_WAIT_S)

    def _joined(self) -> Sequence[TableRounds]:
        with self._lock:
            return tuple(self._tables)

    def _run(self, engine: Engine) -> None:
        while not self._has_ended():
            self._wake.clear()
            while not self._stop.is_set() and (due := self._due()):
                for hand in hands_of(due):
                    self._play(engine, hand)

    def _has_ended(self) -> bool:
        """True when there is to be no other pass; a batch that comes after that starts another thread."""
        retries = [each.retry_at_s for each in self._joined() if each.retry_at_s is not None]
        self._wake.wait(max(0.0, min(retries) - time.monotonic()) if retries else IDLE_S)
        with self._lock:
            if (self._wake.is_set() or retries) and not self._stop.is_set():
                return False
            self._thread = None
            return True

    def _due(self) -> list[tuple[int, TableRounds]]:
        """The tables that have something to compact, those with most first, and how many bytes."""
        found = [(self._attempt(each, each.due_bytes) or 0, each) for each in self._joined()]
        return sorted((each for each in found if each[0]), key=lambda each: -each[0])

    def _play(self, engine: Engine, hand: Sequence[TableRounds]) -> None:
        """Compacts a unit of each of these tables."""
        from freshet.storage.maintenance.background_compaction import alone_together

        with alone_together([each.compaction for each in hand]):
            found = [(rounds, self._attempt(rounds, rounds.take)) for rounds in hand]
        taken = [(rounds, each) for rounds, each in found if each is not None]
        try:
            made = [(rounds, each, self._run_unit(engine, rounds, each)) for rounds, each in taken]
            done = [(rounds, each, messages) for rounds, each, messages in made if messages is not None]
            with alone_together([rounds.compaction for rounds, _, _ in done]):
                for rounds, each, messages in done:
                    self._attempt(rounds, partial(rounds.put, each, messages))
        finally:
            for rounds, each in taken:
                rounds.release(each)

    def _run_unit(self, engine: Engine, rounds: TableRounds, taken: TakenUnit) -> Sequence[CommitMessage] | None:
        """What a unit made; None where it failed, or the query has been stopped."""
        if self._stop.is_set():
            return None
        return self._attempt(rounds, partial(taken.run, engine, self._group))

    def _attempt(self, rounds: TableRounds, call: Callable[[], T]) -> T | None:
        """What a call for one table gives; None where that failed, of which its batches are told."""
        try:
            return call()
        except (*REPEATING_ERRORS, OSError, MemoryError, EngineError) as error:
            if not self._stop.is_set():
                rounds.fail(brief_reason(error))
            return None


def own_rounds(commit_user: str, compaction: CompactionConfig | None) -> BackgroundRounds | None:
    """The rounds that a pipeline file asks for; None where batches are to compact."""
    if compaction is None or not compaction.background:
        return None
    return BackgroundRounds(commit_user, budget_ms=compaction.budget_ms)


def hands_of(due: Iterable[tuple[int, TableRounds]]) -> Iterator[list[TableRounds]]:
    """The tables, in this order, in groups whose units are taken together."""
    hand: list[TableRounds] = []
    hand_bytes = 0
    for due_bytes, rounds in due:
        if hand and (len(hand) == HAND_MAX or hand_bytes + due_bytes > HAND_BYTES):
            yield hand
            hand, hand_bytes = [], 0
        hand.append(rounds)
        hand_bytes += due_bytes
    if hand:
        yield hand


def joined_report(found: Sequence[tuple[str, BackgroundReport]]) -> BackgroundReport | None:
    """What was done for all tables of a query, by their names; None where none has background compaction."""
    if len(found) < 2:
        return found[0][1] if found else None
    failures = [(name, each.failure) for name, each in found if each.failure is not None]
    return BackgroundReport(
        sum(each.units for _, each in found),
        sum(each.aborted for _, each in found),
        sum(each.input_bytes for _, each in found),
        _failure_text(failures) if failures else None,
    )


def _failure_text(failures: Sequence[tuple[str, str]]) -> str:
    (name, first), *others = failures
    also = f" ({len(others)} other {'tables fail' if len(others) > 1 else 'table fails'} too)" if others else ""
    return f"table {name}: {first}{also}"
