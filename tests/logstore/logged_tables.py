"""Tables with a log in memory: real files, the real writer, committer and readers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.topic_logs import TopicLogs
from freshet.storage.catalog import Catalog
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.logs.log_systems import TaskLog
from freshet.storage.logs.registry import PROVIDERS, register_log_system
from freshet.storage.model.commit_message import CommitMessage
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


def log_batch(table: Table, text: str, *, batch: int = 1, attempt: int = 1) -> Callable[[], CommitResult]:
    """Logs a batch and does not commit it; what is returned commits it."""
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    task = table.engine.task_writer(
        base_snapshot_id=None if base is None else base.id, log=TaskLog(driver.identity, driver.epoch, attempt)
    )
    task.write(rows(text))
    messages = task.prepare_commit(batch)
    return lambda: table.engine.committer("u", log=driver.identity).commit(batch, messages)


def overwrite(table: Table, text: str) -> None:
    """These rows instead of those that are there, by a commit that is not logged."""
    unlogged = table.without_log()
    task = unlogged.engine.task_writer(base_snapshot_id=None)
    task.write(rows(text))
    [message] = task.prepare_commit(0)
    gone = tuple(entry.file for entry in table.files())
    unlogged.engine.committer("loader").commit(
        0, [CommitMessage(message.partition, 0, 1, new_files=message.new_files, deleted_files=gone)]
    )


def rolled_back(table: Table, snapshot_id: int) -> Table:
    """The table after a rollback by another program: later snapshots are gone."""
    folder = Path(table.location) / "snapshot"
    for snapshot in table.snapshots():
        if snapshot.id > snapshot_id:
            (folder / f"snapshot-{snapshot.id}").unlink()
    (folder / "LATEST").write_text(str(snapshot_id))
    return Table.open(table.location)


def held(table: Table) -> dict[int, str]:
    """What the table holds, by key."""
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def folded(text: str, before: dict[int, str] | None = None) -> dict[int, str]:
    """What changes make of rows, by key; each must fit on what is there."""
    found = dict(before or {})
    for kind, key, value in (part.split() for part in text.split(" | ") if part):
        if kind in ("-U", "-D"):
            assert found.pop(int(key)) == value
        else:
            assert int(key) not in found
            found[int(key)] = value
    return found


def lines(changes: pa.RecordBatch | pa.Table) -> list[str]:
    """Changes as `+I 1 a`."""
    return [
        " ".join([row.pop("_ROW_KIND"), *("null" if value is None else str(value) for value in row.values())])
        for row in changes.to_pylist()
    ]


class Stream:
    """A stream that is asked what came since."""

    def __init__(self, table: Table, isolation: str = "committed", **start: Any) -> None:
        self.start = {"max_wait_s": 0.0, **start}
        self.stream = table.stream(isolation=isolation, **self.start)
        self.table, self.isolation = table, isolation

    def __call__(self) -> str:
        return " | ".join(line for batch in self.batches() for line in lines(batch))

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
    kept = {
        name: value for name, value in start.items() if name in ("columns", "filter", "max_wait_s", "with_snapshot_id")
    }
    return table.stream(isolation=isolation, log_state=state, **kept)
