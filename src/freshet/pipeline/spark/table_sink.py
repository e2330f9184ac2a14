"""The sink for `foreachBatch`: rows of a streaming frame into a table, each micro-batch exactly once.

    df.writeStream.foreachBatch(table_sink(warehouse, "shop.orders", commit_user="orders-cdc"))
      .option("checkpointLocation", ...).start()

The frame has the table's columns, in any order, and optionally `_ROW_KIND` ('+I' '-U' '+U' '-D', default '+I'). Spark
has no type for TIME and for timestamps finer than microseconds: see `arrow_bridge` for what carries them. Timestamps
finer than the table's are rounded down.

Spark replays a batch after a crash with the same query id and batch id; both are taken from the properties that Spark
sets on the thread of the query. A call outside of a query is refused: the frame of another day could not be
distinguished from a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame

from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.config.sections import CompactionConfig
from freshet.pipeline.errors.failure import is_interruption, kind_of
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError, brief_reason
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.spark.arrow_batches import ArrowBatches
from freshet.pipeline.spark.column_way import ColumnWay
from freshet.pipeline.spark.engine import SparkEngine
from freshet.pipeline.spark.job import SparkJob
from freshet.pipeline.spark.worker_python import WORKER_FAILURE, is_connect, other_python_hint, settle_python
from freshet.storage.catalog import Catalog, check_no_secrets
from freshet.storage.options import option_texts

QUERY_ID_PROPERTY = "sql.streaming.queryId"

_STOPPED: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling tasks: java.lang.InterruptedException: "
"""What Spark looks for in the error of a function (`StreamExecution.isInterruptionException`), so that a query which
was stopped in the middle of a batch ends without an error."""


class TableSink:
    """What `table_sink` gives: call it with (frame, batch id).

    `failure` is the error that ended the last batch, as it was raised: Spark's own exception carries only its text.
    """

    def __init__(
        self,
        writer: QueryRun,
        job: SparkJob,
        engine: SparkEngine,
        on_report: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._writer = writer
        self._job = job
        self._engine = engine
        self._on_report = on_report
        self.failure: Exception | None = None

    @property
    def arrow(self) -> ArrowBatches:
        """What bounds the Arrow batches of the query."""
        return self._job.arrow

    def with_tasks(self, frame: DataFrame) -> DataFrame:
        """A streaming frame with the tasks that write it, planned once; this sink then takes the batches of it."""
        return self._job.with_tasks(frame)

    def close(self) -> None:
        """Ends what runs in the background; compaction ends by itself too, once nothing is due.

        Raises `LostCommitError` where another program has replaced the last batch (`commit.coordination`), unless a
        batch has failed: the next start finds it then.
        """
        self._writer.close()
        if self.failure is None:
            self._writer.check_last()

    def __call__(self, frame: DataFrame, micro_batch_id: int) -> None:
        """Writes one batch; Spark calls this. Raises `InvalidRequestError` outside of a streaming query."""
        if is_connect(frame):
            raise InvalidRequestError(
                "table_sink needs a session with a JVM of its own, and this one is of Spark Connect: run the stream in "
                "a program that spark-submit or SparkSession.builder.master(…) starts"
            )
        settle_python(frame.sparkSession)
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if query_id is None:
            raise InvalidRequestError(_outside_text(self._writer.table_name, micro_batch_id))
        try:
            report = self._writer.write(self._engine.batch(frame, micro_batch_id, query_id))
            if self._on_report is not None:
                self._on_report(report)
        except Exception as error:  # noqa: BLE001 - kept as it is in `failure`, and raised in brief
            self.failure = error
            # Spark matches what is raised here, traceback included, against a regular expression whose stack depth
            # grows with the text: a long one (a query plan, a Java trace) ends the query's thread instead.
            text = brief_reason(error)
            if is_interruption(error):
                text = f"{_STOPPED}{text}"
            if WORKER_FAILURE.search(text):
                text += other_python_hint(frame.sparkSession)
            # The kind is in the text too: Spark's query gives its caller nothing else of the error.
            kind = kind_of(error)
            raise PipelineFailedError(f"{kind}: {text}", micro_batch_id=micro_batch_id, kind=kind) from None


def _outside_text(table: str, micro_batch_id: int) -> str:
    return (
        f"table {table}: table_sink writes the batches of a streaming query, and this frame is of none; nothing was "
        f"written. As batch {micro_batch_id} it would be taken for a replay once that number is committed. Hand the "
        "sink to writeStream.foreachBatch, or call it on the thread that runs your own foreachBatch function. Rows of "
        f"a batch frame: freshet.write(frame, {table!r}, warehouse=…)"
    )


def table_sink(
    warehouse: str,
    table: str,
    *,
    commit_user: str,
    dead_letters: str | None = None,
    max_dead_letters: MaxDeadLetters | None = None,
    options: Mapping[str, object] | None = None,
    tasks_max: int | None = None,
    compaction: CompactionConfig | None = None,
    on_report: Callable[[BatchReport], None] | None = None,
    catalog_options: Mapping[str, object] | None = None,
) -> TableSink:
    """The callable for `foreachBatch` that writes into `table` (`database.name`), which must exist.

    It is for streaming queries alone; `freshet.write` takes a batch frame.

    `commit_user` is the identity of the stream: it must stay the same from run to run, and belongs to one checkpoint
    and one table. A table that was dropped and created again is refused with the old checkpoint, as rows of earlier
    batches would be missing.

    `dead_letters` names a table for frames of outcomes (`decode.outcomes`), which is created if need be;
    `max_dead_letters` says how many of them stop the stream. `options` override the table's own for this stream.
    `tasks_max` bounds the tasks of a batch, by default `spark.sql.shuffle.partitions`. `compaction` says whether
    larger compactions run in the background (`CompactionConfig`). `on_report` is called on the driver after each batch.
    `catalog_options` are the `options` of `Catalog`; a secret among them must be `env:NAME`, as tasks get them too.
    """
    if not isinstance(commit_user, str) or not commit_user.strip():
        raise InvalidRequestError("commit_user must be text and not blank: it is the identity of the stream")
    if tasks_max is not None and (not isinstance(tasks_max, int) or tasks_max < 1):
        raise InvalidRequestError(f"tasks_max must be a whole number of 1 or more, not {tasks_max!r}")
    if max_dead_letters is not None and not isinstance(max_dead_letters, MaxDeadLetters):
        raise InvalidRequestError(
            "max_dead_letters must be such as MaxDeadLetters(share=0.5, count=1000), of freshet.pipeline.config.model, "
            f"not {max_dead_letters!r}"
        )
    if on_report is not None and not callable(on_report):
        raise InvalidRequestError(f"on_report must be a function that takes a BatchReport, not {on_report!r}")
    given = option_texts(catalog_options)
    check_no_secrets(given)
    catalog = Catalog(warehouse, options=given)
    commit = TableCommit(
        catalog.table(table),
        commit_user,
        options={key: str(value) for key, value in (options or {}).items()},
        compaction=compaction,
    )
    letters = None if dead_letters is None else open_dead_letters(catalog, dead_letters)
    engine = SparkEngine(tasks_max=tasks_max)
    way = ColumnWay(commit, engine, commit_user, dead_letters=None if letters is None else letters.handle)
    job = SparkJob(way)
    writer = QueryRun(OneTable(commit), job, commit_user, Accepts(max_dead_letters), dead_letters=letters)
    return TableSink(writer, job, engine, on_report)
