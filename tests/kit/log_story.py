"""Stories about one log, as rows: a writer that logs and commits, readers of both isolations, what they return.

    story = Story()
    story.log(1, "-U 1 a | +U 1 b")          batch 1, the next attempt of the writer; nothing is committed
    story.commit(1)                          its snapshot
    story.spec() / story.comm()              what the reader hands out since the last call

Table T(k, v), key k, one bucket. Readers start at the snapshot that is the latest when they are asked for first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pyarrow as pa

from freshet.logstore.protocol.control import claim_epoch
from freshet.logstore.protocol.record import KIND_FIELD
from freshet.logstore.protocol.topic import ensure_topics
from freshet.logstore.reading.split_stream import LogSplitStream
from freshet.logstore.writing.writer import LogWriter, WriterSettings
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.table_log import (
    LOG_PROPERTY,
    NO_BATCH,
    LogIdentity,
    LogIncrement,
    LogProgress,
    log_to_text,
    with_stable_batch,
)
from tests.kit.fake_log import FakeLog
from tests.kit.log_reader import SnapshotsAlone, reader_of

TOPIC = "t"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])


def table_of(text: str) -> pa.Table:
    """`-U 1 a | +U 1 b` as rows of the log; `null` is NULL."""
    parts = [part.split() for part in text.split("|") if part.strip()]
    kinds = pa.array([KIND_TEXTS.index(part[0]) for part in parts], pa.int8())
    values = pa.array([None if part[2] == "null" else part[2] for part in parts], pa.string())
    columns = [kinds, pa.array([int(part[1]) for part in parts], pa.int64()), values]
    return pa.Table.from_arrays(columns, schema=pa.schema([KIND_FIELD, *SCHEMA]))


def text_of(batches: list[pa.RecordBatch]) -> str:
    rows = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns[:3]), strict=True)]
    return " | ".join(f"{KIND_TEXTS[kind]} {key} {'null' if value is None else value}" for kind, key, value in rows)


class StoryWriter:
    """One start of the writer."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.producer = story.log_.client().producer()
        self.epoch = claim_epoch(self.producer, TOPIC, "u", 0)
        self.writer = LogWriter(self.producer, WriterSettings(story.identity, self.epoch, 0, 1_000_000))

    def log(self, batch: int, *texts: str, bucket: int = 0) -> Mapping[BucketId, LogIncrement]:
        self.writer.begin(batch, 0)
        for text in texts:  # a record each
            self.writer.log(EMPTY_ROW, bucket, table_of(text))
        return self.writer.finish()


class StoryReader:
    """Reads what came since, step by step as `Table.stream` does."""

    def __init__(self, story: Story, *, speculative: bool) -> None:
        self.story, self.speculative = story, speculative
        self.stream = self.opened()
        self.position = self.stream.first()

    def opened(self) -> LogSplitStream:
        return reader_of(self.story.log_, SnapshotsAlone(SCHEMA, self.story.snapshot), speculative=self.speculative)

    def __call__(self) -> str:
        found: list[pa.RecordBatch] = []
        while (end := self.stream.advance(self.position, StreamLimit(snapshots=1))) != self.position:
            found += self.stream.read_between(self.position, end)
            self.position = end
        return text_of(found)

    def restart(self) -> None:
        state = json.loads(json.dumps(self.stream.state_of(self.position)))
        self.stream = self.opened()
        self.position = self.stream.resumed(state)


class Story:
    """The log and the snapshots."""

    def __init__(self, buckets: int = 1) -> None:
        self.log_ = FakeLog()
        facts = ensure_topics(self.log_.client(), TOPIC, buckets, table="t")
        self.identity = LogIdentity(TOPIC, facts.topic_id, "u", dict.fromkeys(range(buckets), 0))
        self.snapshots: list[LogProgress | None] = []
        self.writer = self.start()
        self.commit(0, self.writer.log(0, "+I 1 a"))
        self.spec = self.reader(speculative=True)
        self.comm = self.reader(speculative=False)

    def start(self) -> StoryWriter:
        return StoryWriter(self)

    def reader(self, *, speculative: bool) -> StoryReader:
        return StoryReader(self, speculative=speculative)

    def snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        number = len(self.snapshots) if snapshot_id is None else snapshot_id
        if not 0 < number <= len(self.snapshots):
            return None
        progress = self.snapshots[number - 1]
        properties = {} if progress is None else {LOG_PROPERTY: log_to_text(progress)}
        return cast("Snapshot", SimpleNamespace(id=number, time_ms=number, properties=properties))

    def commit(self, batch: int, won: Mapping[BucketId, LogIncrement]) -> None:
        last = next((each for each in reversed(self.snapshots) if each is not None), None)
        base = LogProgress(self.identity, 0, NO_BATCH, self.identity.start, {}) if last is None else last
        self.snapshots.append(with_stable_batch(base, batch, won))
