"""Background compaction of one table of a streaming query: what its batches and the thread of the query share.

    batches      with rounds.batch(table) as limit: …        the limit goes to the tasks that write
                 rounds.note(buckets); rounds.report()
    the thread   due_bytes, take, run and put a unit (`background_rounds`)

While units of the table fail, its batches compact as if there were no rounds. The thread tries again after `RETRY_S`,
then after twice as long each time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from freshet._frozen import Frozen
from freshet.pipeline.query.driver.engine import Engine
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table, TableHandle
from freshet.storage.table_engine import CommitMessage, decode_commit_messages, encode_commit_messages

if TYPE_CHECKING:
    from freshet.storage.maintenance.background_compaction import BackgroundUnit
    from freshet.storage.write.commit_compaction import CompactionLimit

_LOG: Final = logging.getLogger(__name__)

USER_SUFFIX: Final = "-compact"
RETRY_S: Final = 5.0
RETRY_MAX_S: Final = 300.0


class BackgroundReport(Frozen):
    """What background compaction did since the batch before. `failure` is why it does not go on at the moment."""

    units: int = 0
    aborted: int = 0
    input_bytes: int = 0
    failure: str | None = None


class UnitTask(Frozen):
    """The work of a unit in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, unit: BackgroundUnit, place: TaskPlace) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_background_unit(unit))


class TakenUnit(Frozen):
    """A unit, and the table as it was when the unit was taken: the query may follow a change while it runs."""

    unit: BackgroundUnit
    table: TableHandle

    def run(self, engine: Engine, group: str) -> Sequence[CommitMessage]:
        """Compacts in one task."""
        (encoded,) = engine.each(UnitTask(self.table), [self.unit], group=group)
        return decode_commit_messages(encoded)


class TableRounds:
    """The compaction rounds of one query in one table; batches come from one thread."""

    def __init__(self, table: Table, commit_user: str, *, budget_ms: int) -> None:
        """Raises `InvalidRequestError` where the compactions of this table must stay in its batches."""
        self.compaction = table.engine.background_compaction(commit_user + USER_SUFFIX)
        self._table = table
        self._user = commit_user
        self._budget_ms = budget_ms
        self._lock = threading.Lock()
        self._units = self._aborted = self._input_bytes = 0
        self._failure: str | None = None
        self._is_possible = True
        self._has_left = False
        self._retry_s = RETRY_S
        self._retry_at_s: float | None = None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    @property
    def retry_at_s(self) -> float | None:
        """When the thread tries again, on the clock `time.monotonic`; None unless units fail and may be tried again."""
        return self._retry_at_s if self._is_possible and not self._has_left else None

    @contextmanager
    def batch(self, table: Table) -> Iterator[CompactionLimit | None]:
        """Belongs around a batch, from the choice of its base snapshot to its commit; None: compact as always."""
        if table.schema.id != self._table.schema.id:
            self._follow(table)
        with self.compaction.batch(self._budget_ms) as limit:
            yield limit if self._is_possible and self._failure is None else None

    def _follow(self, table: Table) -> None:
        """Goes on with the table as it was altered; where that does not let it, the batches go on alone."""
        try:
            compaction = table.engine.background_compaction(self._user + USER_SUFFIX)
        except InvalidRequestError as error:
            self._is_possible = False
            self.refuse(str(error))
        else:
            self._is_possible = True
            self.compaction, self._table = compaction, table

    def note(self, buckets: Iterable[tuple[bytes, int]]) -> None:
        """A batch has put files into these buckets."""
        self.compaction.note(buckets)

    def report(self) -> BackgroundReport:
        """What was done since this was last asked."""
        with self._lock:
            report = BackgroundReport(self._units, self._aborted, self._input_bytes, self._failure)
            self._units = self._aborted = self._input_bytes = 0
        return report

    def leave(self) -> None:
        """The query writes the table no longer: nothing more is taken or said of it."""
        self._has_left = True

    # --- the thread of the query --------------------------------------------------------------------------------------

    def due_bytes(self) -> int:
        """What is to be compacted; 0 while units fail and it is not time to try again."""
        is_early = self._retry_at_s is not None and time.monotonic() < self._retry_at_s
        if is_early or self._has_left or not self._is_possible:
            return 0
        due_bytes = self.compaction.due_bytes()
        if not due_bytes:
            self._recover()
        return due_bytes

    def take(self) -> TakenUnit | None:
        """Between two batches: the largest unit that is due still. The caller must `release` it."""
        if self._has_left:
            return None
        table = self._table  # before its compaction, which `_follow` sets first: a newer one gives nothing yet
        unit = self.compaction.take()
        return None if unit is None else TakenUnit(unit, table.handle)

    def release(self, taken: TakenUnit) -> None:
        """The unit is over, in whatever way: its bucket is looked at again."""
        self.compaction.release(taken.unit)
        self.compaction.note([taken.unit.bucket_id])

    def put(self, taken: TakenUnit, messages: Sequence[CommitMessage]) -> None:
        """Between two batches: makes a unit visible, or drops it."""
        result = self.compaction.put(taken.unit, messages)
        with self._lock:
            self._units += len(result.snapshots)
            self._aborted += bool(result.aborted_compactions)
            self._input_bytes += taken.unit.input_bytes if result.snapshots else 0
        self._recover()

    def fail(self, failure: str) -> None:
        """A unit, or the look for one, has failed: it is tried again later."""
        self._retry_at_s = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        self.refuse(failure)

    def refuse(self, failure: str, *, is_told: bool = True) -> None:
        """Batches compact instead, and say why."""
        with self._lock:
            is_news, self._failure = failure != self._failure, failure
        if is_news and is_told and not self._has_left:
            _LOG.warning(
                "table %s: background compaction of %s is failing; batches compact instead: %s",
                self._table.name,
                self._user,
                failure,
            )

    def _recover(self) -> None:
        self._retry_s, self._retry_at_s = RETRY_S, None
        with self._lock:
            self._failure = self._failure if not self._is_possible else None
