"""Tables with a log in memory: real files, the real writer, committer and readers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.topic_logs import TopicLogs
from freshet.storage.catalog import Catalog
from freshet.storage.logs.registry import PROVIDERS, register_log_system
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])


@contextmanager
def fake_kafka() -> Iterator[FakeLog]:
    """`log.system=kafka` is a log in memory meanwhile."""
    before, log = PROVIDERS["kafka"], FakeLog()
    register_log_system("kafka", lambda: TopicLogs(lambda options: log.client()))
    try:
        yield log
    finally:
        register_log_system("kafka", before)


def make_logged(folder: Path, *, keyed: bool = True, **options: str) -> Table:
    """A table with one bucket and a log in topic `t`."""
    given = {"bucket": "1", "log.system": "kafka", "kafka.topic": "t", "kafka.bootstrap.servers": "nowhere:9"}
    if keyed:
        given["changelog-producer"] = "lookup"
    else:
        given["bucket-key"] = "k"
    spelled = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return Catalog(str(folder)).create_table(
        "db.t", schema=SCHEMA, primary_keys=["k"] if keyed else [], options={**given, **spelled}
    )


def on_broker(broker: ForeignBroker, **options: str) -> dict[str, str]:
    """Options of a table with lookup and a log in a topic of its own on a real broker."""
    return {
        "bucket": "2",
        "changelog-producer": "lookup",
        "log.system": "kafka",
        "kafka.topic": f"log-{uuid.uuid4()}",
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        **options,
    }


def rows(text: str) -> pa.Table:
    """`+I 1 a | -D 2 b` as rows to write."""
    parts = [part.split() for part in text.split("|") if part.strip()]
    return pa.table(
        {
            "k": pa.array([int(part[1]) for part in parts], pa.int64()),
            "v": pa.array([None if part[2] == "null" else part[2] for part in parts], pa.string()),
            "_ROW_KIND": pa.array([part[0] for part in parts], pa.string()),
        }
    )


def write(table: Table, *texts: str, user: str = "u") -> None:
    """Commits each of the texts."""
    with table.writer(user) as writer:
        for text in texts:
            writer.write(rows(text))
            writer.commit()


def told(table: Table, isolation: str = "committed", **start: Any) -> Stream:
    return Stream(table, isolation, **start)


class Stream:
    """A stream that is asked what came since."""

    def __init__(self, table: Table, isolation: str, **start: Any) -> None:
        self.start = {"max_wait_s": 0.0, **start}
        self.stream = table.stream(isolation=isolation, **self.start)
        self.table, self.isolation = table, isolation

    def __call__(self) -> str:
        found = [row for batch in self.batches() for row in batch.to_pylist()]
        return " | ".join(
            " ".join([row.pop("_ROW_KIND"), *("null" if value is None else str(value) for value in row.values())])
            for row in found
        )

    def batches(self) -> list[pa.RecordBatch]:
        """What came since; another stream goes on behind it."""
        found = list(self.stream)
        state = self.stream.state
        assert state is not None
        self.stream.close()
        self.stream = resumed(self.table, self.isolation, state, self.start)
        return found


def resumed(table: Table, isolation: str, state: Mapping[str, object], start: Mapping[str, Any]) -> Any:
    """Another stream that goes on where one stopped, as a restarted reader does."""
    kept = {name: value for name, value in start.items() if name in ("columns", "filter", "max_wait_s")}
    return table.stream(isolation=isolation, log_state=state, **kept)
