"""A query as a streaming engine runs it: planned by one process, read by another, its offset as JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

from freshet.logstore.reading.split_stream import LogSplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit
from tests.logstore.logged_tables import lines


class Query:
    """A query over a table: each call is a batch, planned by one process and read by another."""

    def __init__(self, table: Table, isolation: str | None, **asked: Any) -> None:
        self.table, self.asked = table, {"isolation": isolation, **asked}
        self.start()
        self.offset = self.stream.first().to_document()

    def start(self) -> None:
        stream = self.table.engine.split_stream(StreamRequest(**self.asked))
        assert isinstance(stream, LogSplitStream)
        self.stream = stream

    def restart(self) -> None:
        self.start()
        self.offset = json.loads(json.dumps(self.offset))

    def plan(self, limit: StreamLimit = StreamLimit()) -> dict[str, Any]:  # noqa: B008 - a frozen value
        begin = self.stream.position(self.offset)
        self.stream.handed_over(begin)
        document: dict[str, Any] = self.stream.advance(begin, limit).to_document()
        return document

    def read(self, end: dict[str, Any]) -> str:
        groups = self.stream.groups(self.stream.position(self.offset), self.stream.position(end))
        reader = pickle.loads(pickle.dumps(self.stream))
        return " | ".join(line for group in groups for batch in reader.read_group(group) for line in lines(batch))

    def __call__(self, limit: StreamLimit = StreamLimit()) -> str:  # noqa: B008 - a frozen value
        end = self.plan(limit)
        text = self.read(end)
        self.offset = end
        return text
