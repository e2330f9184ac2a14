"""A stream of ours beside the verbs: what it has told, folded, is the table, or it stops and says what to do."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from freshet import Table
from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import StorageError
from freshet.storage.model.snapshot_walk import StreamLimit
from tests.contract.verbs.model import Line, texts
from tests.contract.verbs.shapes import VerbTable

CONSUMER = "follower"


class Follower:
    """Reads on now and then, also from a checkpoint; begins anew where it has to."""

    def __init__(self, shape: VerbTable, chance: random.Random) -> None:
        self._shape = shape
        self._chance = chance
        self._consumer = CONSUMER if chance.random() < 0.5 else None
        self._stream: SplitStream | None = None
        self._held: Counter[tuple[Any, ...]] = Counter()
        self._by_key: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.is_behind = False
        """An overwrite came that streams of the table pass over: what is told does not add up to the table."""
        self.cut_to: int | None = None
        """The newest snapshot that was left when later ones were removed, since the last look."""
        self.may_be_overtaken = False
        """Snapshots have expired since the last look."""
        self.cut_is_forgotten = False
        """Apache Paimon has expired snapshots since the last cut: which ones they were is told nowhere."""
        self.stops: list[str] = []

    def look(self, table: Table, line: Line) -> None:
        """Reads what has come, and compares."""
        if self._stream is None:
            self._begin(table, line)
        else:
            has_read, cut_to = self._position.snapshot_id - 1, self.cut_to
            try:
                self._read_on(table)
            except StorageError as error:
                if cut_to is None and not self.may_be_overtaken:
                    raise
                self.stops.append(str(error))
                self._begin(table, line)
            else:
                is_other = cut_to is not None and has_read > cut_to
                assert not is_other or self.cut_is_forgotten, "the stream went from one history to another"
                if self.is_behind or is_other:
                    self._begin(table, line)
        assert all("read the table" in stop.lower() or "Begin anew" in stop for stop in self.stops), self.stops
        self.is_behind, self.cut_to, self.may_be_overtaken, self.cut_is_forgotten = False, None, False, False
        self._compare(line)

    def _begin(self, table: Table, line: Line) -> None:
        if self._consumer:
            table.delete_consumer(self._consumer)
        self._request = StreamRequest(consumer_id=self._consumer, upserts=self._shape.needs_upserts)
        self._columns, self._schema_id = line.now.columns, table.schema.id
        self._stream = table.engine.split_stream(self._request)  # type: ignore[assignment]
        self._position = self._stream.first()  # type: ignore[union-attr]
        self._held.clear()
        self._by_key.clear()
        self._read_on(table)

    def _read_on(self, table: Table) -> None:
        if table.schema.id == self._schema_id and self._chance.random() < 0.3:  # a process that goes on
            document = json.loads(json.dumps(self._position.to_document()))
            self._stream = table.engine.split_stream(self._request)  # type: ignore[assignment]
            self._position = self._stream.position(document)  # type: ignore[union-attr]
        stream = self._stream
        assert stream is not None
        limit = self._chance.choice([StreamLimit(), StreamLimit(snapshots=1), StreamLimit(files=1)])
        while (end := stream.advance(self._position, limit)) != self._position:
            changes = [row for batch in stream.read_between(self._position, end) for row in batch.to_pylist()]
            for change in changes:
                self._apply(change)
            self._position = end
            stream.handed_over(end)

    def _apply(self, change: dict[str, Any]) -> None:
        kind = change.pop("_ROW_KIND")
        row = tuple(change[column.name] for column in self._columns)
        key = tuple(change[column.name] for column in self._columns if column.number in self._shape.keys)
        if not self._shape.keys:
            assert kind == "+I", change
            self._held[row] += 1
        elif kind in ("+I", "+U"):
            self._by_key[key] = row
        elif kind == "-D":
            self._by_key.pop(key, None)

    def _compare(self, line: Line) -> None:
        """In the columns that both have."""
        kept = [column for column in self._columns if line.now.column(column.number)]
        places = [self._columns.index(column) for column in kept]
        rows = list(self._held.elements()) if not self._shape.keys else list(self._by_key.values())
        found = texts(tuple(row[place] for place in places) for row in rows)
        wanted = texts(tuple(row.get(column.number) for column in kept) for row in line.now.rows)
        assert found == wanted, f"what the stream told is not the table:\n{found}\n{wanted}"
