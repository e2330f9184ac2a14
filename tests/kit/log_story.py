"""Stories about one log, told in rows: a writer that logs and commits, readers of both isolations, what they hand out.

    story = Story()
    story.log(1, "-U 1 a | +U 1 b")          batch 1, the next attempt of the writer; nothing is committed
    story.commit(1)                          its snapshot
    story.spec() / story.comm()              what the reader hands out since the last call

Table T(k, v), key k, one bucket. Readers start at the snapshot that is the latest when they are asked for first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from freshet.logstore.client import TopicPartition
from freshet.logstore.control import claim_epoch
from freshet.logstore.decide import RowRange, is_settling, opened, settle, show_records
from freshet.logstore.reader_state import state_at
from freshet.logstore.record import KIND_FIELD
from freshet.logstore.rows import LogRows
from freshet.logstore.topic import ensure_topics
from freshet.logstore.writer import LogWriter, WriterSettings
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.table_log import NO_BATCH, Lane, LogIdentity, LogIncrement, LogProgress, settled
from tests.kit.fake_log import FakeLog

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
    rows = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return " | ".join(f"{KIND_TEXTS[kind]} {key} {'null' if value is None else value}" for kind, key, value in rows)


class StoryWriter:
    """One start of the writer."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.producer = story.log_.client().producer()
        self.epoch = claim_epoch(self.producer, TOPIC, "u", 0)
        self.writer = LogWriter(self.producer, WriterSettings(story.identity, self.epoch, 0, 1_000_000))

    def log(self, batch: int, *texts: str, bucket: int = 0) -> Mapping[Lane, LogIncrement]:
        self.writer.begin(batch, 0)
        for text in texts:  # a record each
            self.writer.log(EMPTY_ROW, bucket, table_of(text))
        return self.writer.finish()


class StoryReader:
    """Reads what it is told to, and remembers what it handed out."""

    def __init__(self, story: Story, *, speculative: bool, at: int | None = None) -> None:
        self.story, self.speculative = story, speculative
        start = len(story.snapshots) if at is None else at
        progress = story.snapshots[start - 1] if start else None
        self.state = state_at(start, progress)
        self.rows = LogRows(story.log_.client(), lambda schema_id: SCHEMA)

    def __call__(self) -> str:
        found = self.look()
        while self.speculative and self.state.has_log:
            places = {TopicPartition(TOPIC, number): offset for number, offset in self.state.positions.items()}
            fetched = self.story.log_.client().fetch(places, wait_s=0)
            if not fetched:
                break
            stops = False
            for place, each in fetched.items():
                step = show_records(self.state, place.partition, each.records, each.next_offset, self.rows)
                found += self.taken(step.ranges)
                self.state = step.state
                if step.stops_at is not None:
                    found += self.look()
                    before, self.state = self.state, opened(self.state, step.stops_at)
                    stops = before == self.state
            if stops:
                break
        return text_of(found)

    def look(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        while self.state.snapshot_id < len(self.story.snapshots):
            progress = self.story.snapshots[self.state.snapshot_id]
            if not is_settling(self.state, progress):
                self.state = replace(self.state, snapshot_id=self.state.snapshot_id + 1)
                continue
            step = settle(self.state, self.state.snapshot_id + 1, progress, self.rows)
            found += self.taken(step.ranges)
            self.state = step.state
        return found

    def taken(self, ranges: tuple[RowRange, ...]) -> list[pa.RecordBatch]:
        return [batch for wanted in ranges for _, batch in self.rows.read(wanted)]


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

    def reader(self, *, speculative: bool, at: int | None = None) -> StoryReader:
        return StoryReader(self, speculative=speculative, at=at)

    def commit(self, batch: int, won: Mapping[Lane, LogIncrement]) -> None:
        last = next((each for each in reversed(self.snapshots) if each is not None), None)
        base = LogProgress(self.identity, 0, NO_BATCH, self.identity.start, {}) if last is None else last
        self.snapshots.append(settled(base, batch, won))
