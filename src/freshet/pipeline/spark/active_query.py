"""The streaming query that a micro-batch belongs to, as the JVM knows it.

Inside `foreachBatch` a frame knows nothing of its query: it is found among the active ones of the JVM by the id that
Spark sets on the thread. This is the one place that touches what Spark keeps to itself of a query (`offsetLog`,
`lastExecution`); the version of PySpark is pinned.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


class ActiveQuery:
    """A query that runs."""

    def __init__(self, query: Any) -> None:
        self._query = query

    @classmethod
    def find(cls, frame: DataFrame, query_id: str) -> ActiveQuery | None:
        """The query of this id; None where Spark runs none."""
        classic: Any = frame
        queries = classic._jdf.sparkSession().sharedState().activeStreamingQueries().values()
        found = next((query for query in queries if query.id().toString() == query_id), None)
        return None if found is None else cls(found)

    def offsets(self, micro_batch_id: int) -> tuple[str | None, ...] | None:
        """The JSON of each source's offset at the end of a batch; None where Spark has written none down."""
        found = self._query.offsetLog().get(micro_batch_id)
        if found.isEmpty():
            return None
        offsets = found.get().offsets()
        each = [offsets.apply(index) for index in range(offsets.size())]
        return tuple(None if offset.isEmpty() else str(offset.get().json()) for offset in each)

    def kafka_parameters(self) -> list[Any]:
        """Parameters of the clients of the next batch: a map of the JVM for each source that is Kafka, to be changed.

        Spark keeps it to itself in a field without a method.
        """
        sources = self._query.sources()
        found = []
        for stream in (sources.apply(index) for index in range(sources.size())):
            kind = stream.getClass()
            if kind.getSimpleName() == "KafkaMicroBatchStream":
                field = kind.getDeclaredField("executorKafkaParams")
                field.setAccessible(True)
                found.append(field.get(stream))
        return found

    def checkpoint(self) -> str:
        """The folder of the checkpoint, as a URI."""
        return str(self._query.resolvedCheckpointRoot())

    def collect_binary(self) -> list[bytes]:
        """Runs the batch by the plan that Spark has made for it, and gives the only column of its rows.

        `collect` of the frame of a batch would analyse, optimise and plan all of it again: 50 ms more of a small batch.
        """
        return [bytes(row.getBinary(0)) for row in self._query.lastExecution().executedPlan().executeCollect()]
