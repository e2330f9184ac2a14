"""Rescaling: another number of buckets is another topic and another generation, which readers follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from freshet.logstore.exceptions import LogConfigError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.table_log import LogProgress, log_of
from freshet.storage.table import SetOption, Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import fake_kafka, make_logged, rows, told
from tests.logstore.test_logged_tables import folded, held, write


@pytest.fixture
def log() -> Iterator[FakeLog]:
    with fake_kafka() as found:
        yield found


def rescaled(table: Table, buckets: int) -> None:
    """Puts all rows into that many buckets, as an overwrite does."""
    unlogged = table.without_log()
    gone = tuple(unlogged.files())
    with closing(unlogged.task_writer(base_snapshot_id=None)) as task:
        task.write(rows(" | ".join(f"+I {key} {value}" for key, value in held(table).items())))
        messages = list(task.prepare_commit(0))
    assert {message.total_buckets for message in messages} == {buckets}
    messages += [
        CommitMessage(entry.partition, entry.bucket, entry.total_buckets, deleted_files=(entry.file,)) for entry in gone
    ]
    unlogged.committer("rescale").commit(0, messages)


def as_paimon_does(table: Table, buckets: str) -> Table:
    """The table with another number of buckets, which Apache Paimon sets while there are files."""
    folder = Path(table.location) / "schema"
    source = json.loads((folder / f"schema-{table.schema.id}").read_text())
    source |= {"id": source["id"] + 1, "options": {**source["options"], "bucket": buckets}}
    (folder / f"schema-{source['id']}").write_text(json.dumps(source))
    return Table.open(table.location)


def progress(table: Table) -> LogProgress:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    found = log_of(snapshot.properties, snapshot.id)
    assert found is not None
    return found


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_n19_readers_follow_a_table_into_more_buckets(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    stream = told(table, isolation)
    seen = folded(stream())
    more = as_paimon_does(table, "2")
    with pytest.raises(LogConfigError, match=r"has 2 buckets and topic t of its log 1 partitions.*to a new name"):
        more.writer("u")
    more = more.alter(SetOption("kafka.topic", "t2"))
    rescaled(more, 2)
    write(more, "+I 1 x | +I 4 d", "-D 2 b")
    seen = folded(stream(), seen)
    assert seen == held(more) == {1: "x", 3: "c", 4: "d"}
    assert len(log.topics["t2"].partitions) == 2
    assert (progress(more).generation, set(progress(more).next_offsets)) == (1, {0, 1})
    write(more, "+I 3 y")
    assert folded(stream(), seen) == held(more)
    assert folded(told(more, isolation)()) == held(more)
