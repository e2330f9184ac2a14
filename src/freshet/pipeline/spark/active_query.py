"""The streaming query that a micro-batch belongs to, as the JVM knows it.

Inside `foreachBatch` a frame knows nothing of its query: it is found among the active ones of the JVM by the id that
Spark sets on the thread. This is the one place that touches what Spark keeps to itself of a query (`offsetLog`,
`lastExecution`); the version of PySpark is pinned.

Replies of the JVM that come at once.

The JVM writes a reply in pieces of 8 KiB to a socket that holds the next piece back until the last one is acknowledged
(Nagle), and the kernel on this side acknowledges after 40 ms, as it hopes to send data along. Measured: replies of 10
and 50 KB take 44 ms, and 0.3 and 0.7 ms where each read says before that they shall be acknowledged at once.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

import io
import logging
import math
import re
import socket
from functools import cached_property
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.spark.hadoop_folder import open_checkpoint
from freshet.pipeline.spark.single_stage import SingleStage

_LOG: Final = logging.getLogger(__name__)
_IGNORE_MISSING: Final = "spark.sql.files.ignoreMissingFiles"
_NOTHING: Final = frozenset({"LocalTableScanExec", "EmptyRelationExec"})
"""Leaves of a plan that read nothing."""
_RANGE: Final = re.compile(r"KafkaBatchInputPartition\(KafkaOffsetRange\(([\w.-]+)-(\d+),(\d+),(\d+),", re.ASCII)
"""How Spark writes a range: topic, partition, first offset, offset behind the last."""

_Range = tuple[str, int, int, int]

_QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""


class ActiveQuery:
    """A query that runs."""

    def __init__(self, query: Any, session: SparkSession) -> None:
        self._query = query
        self._session = session

    @classmethod
    def find(cls, frame: DataFrame, query_id: str) -> ActiveQuery | None:
        """The query of this id; None where Spark runs none."""
        hasten_replies(frame.sparkSession)
        classic: Any = frame
        queries = classic._jdf.sparkSession().sharedState().activeStreamingQueries().values()
        found = next((query for query in queries if query.id().toString() == query_id), None)
        return None if found is None else cls(found, frame.sparkSession)

    @cached_property
    def run_id(self) -> str:
        """Spark's id of this run, another one after each start."""
        return str(self._query.runId().toString())

    def is_active(self) -> bool:
        """Whether the run goes on."""
        return bool(self._query.isActive())

    def output_mode(self) -> str:
        """`Append`, `Update` or `Complete`."""
        return str(self._query.outputMode().toString())

    def offsets(self, micro_batch_id: int) -> tuple[str | None, ...] | None:
        """The JSON of each source's offset at the end of a batch; None where Spark has written none down."""
        found = self._query.offsetLog().get(micro_batch_id)
        if found.isEmpty():
            return None
        offsets = found.get().offsets()
        each = [offsets.apply(index) for index in range(offsets.size())]
        return tuple(None if offset.isEmpty() else str(offset.get().json()) for offset in each)

    def kafka_parameters(self) -> dict[int, Any]:
        """Parameters of the clients of the batch whose job comes next: of each source that is Kafka, by its number, a
        map of the JVM, to be changed.

        Spark keeps it to itself in a field without a method.
        """
        sources = self._query.sources()
        found = {}
        for index in range(sources.size()):
            stream = sources.apply(index)
            kind = stream.getClass()
            if kind.getSimpleName() == "KafkaMicroBatchStream":
                field = kind.getDeclaredField("executorKafkaParams")
                field.setAccessible(True)
                found[index] = field.get(stream)
        return found

    def kafka_ranges(self, most: float = math.inf) -> list[tuple[int, list[_Range]]] | None:
        """What the plan of the batch reads: of each source with records, by its number, the ranges of its tasks as
        (topic, partition, first offset, offset behind the last). None where a source is not Kafka, or has more than
        `most` ranges."""
        sources = self._query.sources()
        leaves = self._query.lastExecution().executedPlan().collectLeaves()
        found = []
        for leaf in (leaves.apply(index) for index in range(leaves.size())):
            kind = str(leaf.getClass().getSimpleName())
            if kind in _NOTHING:
                continue  # a source that has nothing
            if kind != "MicroBatchScanExec":
                return None
            stream = leaf.stream()
            if stream.getClass().getSimpleName() != "KafkaMicroBatchStream":
                return None
            number = next(index for index in range(sources.size()) if sources.apply(index).equals(stream))
            parts = leaf.inputPartitions()
            if parts.size() > most:
                return None
            found.append((number, _ranges(parts)))
        return found

    @cached_property
    def folder(self) -> CheckpointFolder:
        """The checkpoint."""
        return open_checkpoint(self._session, str(self._query.resolvedCheckpointRoot()))

    def ignores_missing_files(self) -> bool:
        """Whether Spark passes files over that are gone."""
        return str(self._session.conf.get(_IGNORE_MISSING, "false")).lower() == "true"

    def takes_names_for_patterns(self) -> bool:
        """`PlannedQuery.takes_names_for_patterns`: tried with seven files, of which five had such names and each of
        these gave the records of all."""
        return True

    def collect_binary(self, *, anew: bool = False) -> list[bytes]:
        """Runs the batch by the plan that Spark has made for it, and gives the only column of its rows.

        `collect` of the frame of a batch would analyse, optimise and plan all of it again: 50 ms more of a small batch.
        A plan that has run keeps the output of its shuffles, and a job of the same plan begins behind them; with `anew`
        all is computed once more.
        """
        plan = self._query.lastExecution().executedPlan()
        return _binary(plan.clone() if anew else plan)

    def collect_in_one_task(self, stage: SingleStage) -> list[bytes] | None:
        """The same by one task, anew each time; None where the plan is not one that can be."""
        try:
            plan = stage.of(self._query.lastExecution().executedPlan())
        except Py4JError as error:  # nodes of another build of Spark
            _LOG.warning("small batches are run in two stages, since this Spark's plans are others: %s", error)
            return None
        return None if plan is None else _binary(plan)


def collected_binary(frame: DataFrame) -> list[bytes]:
    """Runs a frame of its own and gives the only column of its rows."""
    classic: Any = frame
    return _binary(classic._jdf.queryExecution().executedPlan())


def _ranges(parts: Any) -> list[_Range]:
    """The ranges of the tasks of a scan, by one call: measured, a hundred of them 2 ms, and 90 call by call."""
    texts = _RANGE.findall(str(parts.mkString("\n")))
    if len(texts) != parts.size():
        return _ranges_by_calls(parts)
    return [(topic, int(partition), int(start), int(end)) for topic, partition, start, end in texts]


def _ranges_by_calls(parts: Any) -> list[_Range]:
    """The same where another build of Spark writes them otherwise."""
    ranges = []
    for part in (parts.apply(index).offsetRange() for index in range(parts.size())):
        place = part.topicPartition()
        ranges.append((str(place.topic()), int(place.partition()), int(part.fromOffset()), int(part.untilOffset())))
    return ranges


def _binary(plan: Any) -> list[bytes]:
    return [bytes(row.getBinary(0)) for row in plan.executeCollect()]


class _QuickReader(socket.SocketIO):
    """Reads from a socket; what comes is acknowledged at once."""

    def __init__(self, of: socket.socket, option: int) -> None:
        super().__init__(of, "r")
        self._of, self._option = of, option

    def readinto(self, buffer: Any) -> int | None:
        # Whenever something is sent, the kernel forgets it.
        self._of.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return super().readinto(buffer)


def hasten_replies(spark: SparkSession) -> None:
    """Has the replies to calls of this thread come at once, from now on."""
    client: Any = getattr(spark.sparkContext._gateway, "_gateway_client", None)
    connection: Any = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    of, stream = getattr(connection, "socket", None), getattr(connection, "stream", None)
    if _QUICK is None or type(of) is not socket.socket or of.family != socket.AF_INET:
        return
    # Between two calls nothing is in the buffer of the reader that there is.
    if type(getattr(stream, "raw", None)) is socket.SocketIO:
        connection.stream = io.BufferedReader(_QuickReader(of, _QUICK))
