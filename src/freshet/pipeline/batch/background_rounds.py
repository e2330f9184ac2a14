"""Background compaction of a streaming query, in its own Spark application: a thread of the driver takes compaction
units, a Spark task runs each, the thread commits it. A compaction round is all units that are due.

    batches      with rounds.batch(table) as limit: …        the limit goes to the tasks that write
                 rounds.after_batch(spark, buckets)          starts the thread, or wakes it
    the thread   unit after unit, one at a time; it ends when nothing has been due for `IDLE_S`, or at `close`

Units are jobs of one task in the scheduler pool `POOL`, so they take one core at most; an application that has but one
leaves the compactions to its batches. The commit user is that of the stream and `-compact`.

| a unit | then |
|---|---|
| whose inputs another commit has changed | is dropped, its files are removed, the bucket is looked at again |
| that fails | is not committed; each batch reports the error until a unit succeeds |
| that runs when the query is stopped | `close` waits for it, `STOP_WAIT_S` at most; then its job is cancelled |

While units fail, batches compact as if there were no rounds; the thread tries again after `RETRY_S`, then after twice
as long each time.

Source: storage/maintenance/background_compaction.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS
from freshet.pipeline.exceptions import brief_reason
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table, TableHandle
from freshet.storage.table_engine import (
    BackgroundUnit,
    CommitMessage,
    CompactionLimit,
    decode_commit_messages,
    encode_commit_messages,
)

_LOG: Final = logging.getLogger(__name__)

POOL: Final = "freshet-compaction"
USER_SUFFIX: Final = "-compact"

IDLE_S: Final = 10.0
RETRY_S: Final = 5.0
RETRY_MAX_S: Final = 300.0
STOP_WAIT_S: Final = 15.0
CORES_MIN: Final = 2

ONE_CORE: Final = "the application has one core; batches compact the table themselves"


@dataclass(frozen=True, slots=True)
class BackgroundReport:
    """What background compaction did since the batch before. `failure` is why it does not go on at the moment."""

    units: int = 0
    aborted: int = 0
    input_bytes: int = 0
    failure: str | None = None


def joined_report(reports: Iterable[BackgroundReport]) -> BackgroundReport | None:
    """What was done for all tables of a query; None where none has background compaction."""
    found = list(reports)
    if not found:
        return None
    return BackgroundReport(
        sum(each.units for each in found),
        sum(each.aborted for each in found),
        sum(each.input_bytes for each in found),
        next((each.failure for each in found if each.failure is not None), None),
    )


@dataclass(frozen=True, slots=True)
class UnitTask:
    """The work of a unit in a Python worker; a value that travels there."""

    table: TableHandle

    def __call__(self, unit: BackgroundUnit) -> bytes:
        """Encoded commit messages."""
        return encode_commit_messages(open_worker_table(self.table).engine.run_background_unit(unit))


class BackgroundRounds:
    """The compaction rounds of one query into one table; batches come from one thread."""

    def __init__(self, table: Table, commit_user: str, *, budget_ms: int) -> None:
        """Raises `InvalidRequestError` where the compactions of this table must stay in its batches."""
        self._compaction = table.engine.background_compaction(commit_user + USER_SUFFIX)
        self._table = table
        self._name = commit_user
        self._budget_ms = budget_ms
        self._group = f"{POOL}-{uuid4()}"
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._context: SparkContext | None = None
        self._units = self._aborted = self._input_bytes = 0
        self._failure: str | None = None
        self._is_possible = True

    @contextmanager
    def batch(self, table: Table) -> Iterator[CompactionLimit | None]:
        """Belongs around a batch, from the choice of its base snapshot to its commit; None: compact as always."""
        if table.schema.id != self._table.schema.id:
            self._follow(table)
        with self._compaction.batch(self._budget_ms) as limit:
            yield limit if self._is_possible and self._failure is None else None

    def _follow(self, table: Table) -> None:
        """Goes on with the table as it was altered; where that does not let it, the batches go on alone."""
        try:
            compaction = table.engine.background_compaction(self._name + USER_SUFFIX)
        except InvalidRequestError as error:
            self._is_possible = False
            self._fail(str(error))
        else:
            self._is_possible = True
            self._compaction, self._table = compaction, table

    def after_batch(self, spark: SparkSession, buckets: Iterable[tuple[bytes, int]]) -> None:
        """The batch has put files into these buckets."""
        self._compaction.note(buckets)
        self._context = spark.sparkContext
        if not self._is_possible:
            return
        if self._context.defaultParallelism < CORES_MIN:
            self._fail(ONE_CORE)
            return
        with self._lock:
            self._wake.set()
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, args=(self._context,), name=f"freshet-compaction-{self._name}", daemon=True
                )
                self._thread.start()

    def report(self) -> BackgroundReport:
        """What was done since this was last asked."""
        with self._lock:
            report = BackgroundReport(self._units, self._aborted, self._input_bytes, self._failure)
            self._units = self._aborted = self._input_bytes = 0
        return report

    def close(self) -> None:
        """Ends the rounds: waits for the unit that runs, then cancels it; nothing is left running."""
        self._stop.set()
        self._wake.set()
        thread, context = self._thread, self._context
        if thread is None or context is None:
            return
        thread.join(STOP_WAIT_S)
        if thread.is_alive():
            context.cancelJobGroup(self._group)
            thread.join(STOP_WAIT_S)

    def _run(self, context: SparkContext) -> None:
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(self._group, f"background compaction of {self._table.name} for {self._name}")
        retry_s = RETRY_S
        while not self._has_ended():
            self._wake.clear()
            failure = self._round(context)
            if failure is None:
                retry_s = RETRY_S
            elif not self._stop.is_set():
                self._fail(failure)
                self._stop.wait(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)
                self._wake.set()

    def _has_ended(self) -> bool:
        """True when there is to be no other round; a batch that comes after that starts another thread."""
        self._wake.wait(IDLE_S)
        with self._lock:
            if self._wake.is_set() and not self._stop.is_set():
                return False
            self._thread = None
            return True

    def _round(self, context: SparkContext) -> str | None:
        """Units until none is due; why it ended before."""
        while not self._stop.is_set():
            try:
                unit = self._compaction.next_unit()
                if unit is None:
                    break
                self._do(context, unit)
            except (*REPEATING_ERRORS, OSError, MemoryError, PySparkException, Py4JError) as error:
                return brief_reason(error)
        self._recover()
        return None

    def _do(self, context: SparkContext, unit: BackgroundUnit) -> None:
        is_done = False
        try:
            result = self._compaction.commit(unit, self._run_unit(context, unit))
            is_done = True
        finally:
            self._compaction.release(unit)
            if not is_done:
                self._compaction.note([unit.bucket_id])
        with self._lock:
            self._units += len(result.snapshots)
            self._aborted += bool(result.aborted_compactions)
            self._input_bytes += unit.input_bytes if result.snapshots else 0
        self._recover()

    def _run_unit(self, context: SparkContext, unit: BackgroundUnit) -> Sequence[CommitMessage]:
        (encoded,) = context.parallelize([unit], 1).map(UnitTask(self._table.handle)).collect()
        return decode_commit_messages(encoded)

    def _recover(self) -> None:
        with self._lock:
            self._failure = self._failure if not self._is_possible else None

    def _fail(self, failure: str) -> None:
        with self._lock:
            is_news, self._failure = failure != self._failure, failure
        if is_news:
            _LOG.warning(
                "table %s: background compaction of %s is failing; batches compact instead: %s",
                self._table.name,
                self._name,
                failure,
            )
