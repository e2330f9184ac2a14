"""Pipelines, Spark streams and logs of a golden archive: what they are, and where each was stopped.

| folder | |
|---|---|
| warehouse, checkpoints, pipelines | tables, checkpoints, and the pipeline files (`${WORLD}`, `${KAFKA}`) |
| sinks | what streams have handed over: a file of rows for each batch |
| kafka/logs | the broker's own files: source topic, logs of tables, transactions |
| manifest.json | what is expected, and what else arrives |

Records of the topic `changes` are {"k", "v", "a"}; those of a key are in one Kafka partition. Every pipeline reads it
but those that follow a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from freshet import Table, register
from freshet.pipeline.exceptions import PipelineFailedError
from tests.upgrade.shapes import LONG, Row, in_order

TOPIC: Final = "changes"
TOPIC_PARTITIONS: Final = 2
BROKER_SETTINGS: Final = {"log.retention.ms": "-1", "log.segment.bytes": "1048576", "log.index.size.max.bytes": "65536"}
"""An archive is continued years later; its files are small."""
RECORDS_PER_TRIGGER: Final = 16
COMPUTED: Final = {"bucket": "2", **LONG, "changelog-producer": "lookup"}
SUMS: Final = {
    **COMPUTED,
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.default-aggregate-function": "last_non_null_value",
}
SOURCES: Final = {"orders": False, "orders_logged": True}
"""Tables that streams and pipelines follow, and whether they have a log."""


# ---------------------------------------------------------------------------------------------- pipelines


@dataclass(frozen=True)
class Pipeline:
    """A pipeline and where it was stopped: at this batch, before or after the commit of the table."""

    name: str
    batch: int
    point: str
    options: dict[str, str] = field(default_factory=dict)
    follows: str | None = None
    is_keyed: bool = True

    @property
    def file(self) -> str:
        """The pipeline file."""
        document = {
            "name": self.name,
            "sources": [self._source],
            "table": self._table,
            "trigger": {"available_now": True},
            "checkpoint": f"file://${{WORLD}}/checkpoints/{self.name}",
        }
        return json.dumps(document, indent=1)

    @property
    def _table(self) -> dict[str, Any]:
        return {
            "warehouse": "file://${WORLD}/warehouse",
            "name": f"shop.{self.name}",
            "columns": {"k": "BIGINT", "v": "STRING"} | ({} if self.follows else {"a": "BIGINT"}),
            "primary_key": ["k"] if self.is_keyed else [],
            "options": self.options,
        }

    @property
    def _source(self) -> dict[str, Any]:
        if self.follows is not None:
            warehouse = "file://${WORLD}/warehouse"
            return {"table": {"warehouse": warehouse, "name": f"shop.{self.follows}", "maxFilesPerTrigger": 1}}
        kafka = {
            "kafka.bootstrap.servers": "${KAFKA}",
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": RECORDS_PER_TRIGGER,
        }
        return {"kafka": kafka, "format": "json"}


def logged(topic: str, kafka: str, **options: str) -> dict[str, str]:
    """Options of a table with a log."""
    given = {"log.system": "kafka", "kafka.bootstrap.servers": kafka, "kafka.topic": topic}
    return {**given, **{name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}}


def pipelines(kafka: str) -> list[Pipeline]:
    """All of them, for a broker at this address."""
    published = logged("log-published", kafka, log__consistency="transactional", log__format="debezium-json")
    return [
        Pipeline("keyed", 2, "before-commit", COMPUTED),
        Pipeline("first_batch", 0, "before-commit", SUMS),
        Pipeline("sums", 2, "after-commit", SUMS),
        Pipeline("appended", 1, "before-commit", LONG, is_keyed=False),
        Pipeline("appended_after", 1, "after-commit", LONG, is_keyed=False),
        Pipeline("logged", 2, "before-commit", {**COMPUTED, **logged("log-logged", kafka)}),
        Pipeline("logged_sums", 2, "after-commit", {**SUMS, **logged("log-sums", kafka)}),
        Pipeline("published", 2, "after-commit", {**SUMS, **published}),
        Pipeline("copy", 1, "before-commit", COMPUTED, follows="orders"),
        Pipeline("copy_after", 1, "after-commit", COMPUTED, follows="orders"),
        Pipeline("copy_logged", 1, "before-commit", COMPUTED, follows="orders_logged"),
        Pipeline("copy_first_batch", 0, "before-commit", COMPUTED, follows="orders"),
    ]


# ---------------------------------------------------------------------------------------------- streams


@dataclass(frozen=True)
class Stream:
    """A query that follows a table of `SOURCES`; stopped inside a batch that Spark has planned, or cleanly (None)."""

    table: str
    isolation: str | None
    stopped_inside: int | None

    @property
    def name(self) -> str:
        where = "between" if self.stopped_inside is None else f"inside_{self.stopped_inside}"
        return f"{self.isolation or 'files'}_{where}"

    def start(self, spark: SparkSession, world: Path, sink: Callable[[int, list[Row]], None]) -> StreamingQuery:
        """Reads to the end of what is there, batch by batch."""
        register(spark)
        reader = spark.readStream.format("freshet").option("warehouse", f"file://{world}/warehouse")
        reader = reader.option("table", f"shop.{self.table}").option("scan.mode", "latest-full")
        reader = reader.option("maxFilesPerTrigger", "1")
        if self.isolation is not None:
            reader = reader.option("log.read.isolation", self.isolation)

        def hand_over(frame: DataFrame, batch: int) -> None:
            sink(batch, [row.asDict() for row in frame.collect()])

        writer = reader.load().writeStream.foreachBatch(hand_over)
        return (
            writer.option("checkpointLocation", f"{world}/checkpoints/{self.name}").trigger(availableNow=True).start()
        )

    def run(self, spark: SparkSession, world: Path) -> None:
        """Reads to the end of what is there, and keeps it."""
        patiently(lambda: self.start(spark, world, self.keep(world)).awaitTermination())

    def keep(self, world: Path) -> Callable[[int, list[Row]], None]:
        """A sink that keeps the rows of each batch in a file."""
        folder = world / "sinks" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return lambda batch, rows: (folder / f"{batch:03}.json").write_text(json.dumps(rows)) and None

    def kept(self, world: Path) -> list[Row]:
        """What the sink has, batch after batch."""
        files = sorted((world / "sinks" / self.name).glob("*.json"))
        return [row for file in files for row in json.loads(file.read_text())]


STREAMS: Final = [
    Stream(table, isolation, inside)
    for table, isolation in (
        ("orders", None),
        ("orders_logged", "committed"),
        ("orders_logged", "speculative"),
    )
    for inside in (None, 2, 0)
]


def patiently(run: Callable[[], object], tries: int = 5) -> None:
    """Runs what follows a table. Spark gives the Python process that plans ten seconds to start, which on a busy
    machine is not always enough; nothing was planned then, and it is run again.
    """
    for left in reversed(range(tries)):
        try:
            run()
            return
        except (StreamingQueryException, PipelineFailedError) as error:
            if not left or "failed to connect back" not in str(error):
                raise


# ---------------------------------------------------------------------------------------------- rows


def order_commits() -> list[list[Row]]:
    """What is written to the tables of `SOURCES`, commit after commit: two, then two while streams run, then two."""
    commits = []
    for number in range(6):
        changed = [
            {"k": key, "v": f"{number}-{key}", "_ROW_KIND": "+I"} for key in range(30) if key % (number + 1) == 0
        ]
        removed = [{"k": key, "v": None, "_ROW_KIND": "-D"} for key in range(number, 30, 7)] if number else []
        gone = {row["k"] for row in removed}
        commits.append([*(row for row in changed if row["k"] not in gone), *removed])
    return commits


def commit_orders(table: Table, identifiers: Iterable[int]) -> None:
    """Commits to a table of `SOURCES`; numbers count from 1."""
    commits = order_commits()
    with table.writer("orders-cdc") as writer:
        for identifier in identifiers:
            writer.write(commits[identifier - 1])
            writer.commit(identifier)


def records(numbers: Iterable[int]) -> list[str]:
    """Texts of records for the topic; some are no JSON."""
    texts = []
    for number in numbers:
        record = {"k": number * 7 % 12, "v": f"text {number}", "a": number}
        texts.append(json.dumps(record) if number % 19 else f"broken {number}")
    return texts


def send(kafka: str, texts: Sequence[str]) -> None:
    """Appends records to the topic; those of a key go to one Kafka partition."""
    producer = Producer({"bootstrap.servers": kafka})
    for text in texts:
        key = json.loads(text)["k"] if text.startswith("{") else 0
        producer.produce(TOPIC, value=text.encode(), partition=key % TOPIC_PARTITIONS)
    assert producer.flush(300) == 0


def held_after(pipeline: Pipeline, texts: Sequence[str]) -> list[Row]:
    """What the table of a pipeline that reads the topic holds after these records."""
    rows = [json.loads(text) for text in texts if text.startswith("{")]
    if not pipeline.is_keyed:
        return in_order(rows)
    held: dict[int, Row] = {}
    for row in rows:
        before = held.get(row["k"], {"a": 0})
        held[row["k"]] = {**row, "a": row["a"] + (before["a"] if "merge-engine" in pipeline.options else 0)}
    return in_order(held.values())
