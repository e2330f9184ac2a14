"""Spark's micro-batch loop without a JVM: what it asks a streaming reader, when, and what it keeps in its checkpoint.

    query = MicroBatches(lambda: ChangeStreamReader(stream, limit))
    query.run()                      in a new process: batch after batch, until nothing comes

| asked | when |
|---|---|
| `initialOffset` | for the end of batch 0, and again for what lies between, at each plan of it |
| `partitions(last, last)` | at each start with a checkpoint |
| `latestOffset` | once the batch before is done; another text than the last one is a batch |
| `partitions(start, end)` | for each batch that is no repetition of the last offset |

Source: Spark's `MicroBatchExecution`, `PythonMicroBatchStream` (4.2).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

from freshet.pipeline.sources.stream_source import ChangeStreamReader

Rows = list[dict[str, Any]]


class MicroBatches:
    """One query with its checkpoint, over its runs. `asked` is called with every question, `sink` gets the rows of each
    batch: what they raise ends a run."""

    def __init__(self, open_reader: Callable[[], ChangeStreamReader]) -> None:
        self.open_reader = open_reader
        self.ends: list[str] = []
        """The offset log: where each batch ends."""
        self.batches: list[Rows] = []
        """Those that were done."""
        self.asked: Callable[[str], None] = lambda question: None
        self.sink: Callable[[int, Rows], None] = lambda number, rows: None

    @property
    def rows(self) -> Rows:
        """Of all batches that were done."""
        return [row for batch in self.batches for row in batch]

    def run(self, *, available_now: bool = False) -> None:
        """From a start to where nothing comes, which by itself ends only a query with `availableNow`."""
        reader = self.open_reader()
        if available_now:
            reader.prepareForTriggerAvailableNow()
        if self.ends:
            reader.partitions(json.loads(self.ends[-1]), json.loads(self.ends[-1]))
        while self._is_planned(reader):
            number = len(self.batches)
            rows = self._read(reader, number)
            self.sink(number, rows)
            self.batches.append(rows)

    def _is_planned(self, reader: ChangeStreamReader) -> bool:
        if len(self.ends) > len(self.batches):
            return True
        start = self._start(reader, len(self.ends))
        self.asked("latestOffset")
        end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
        if self.ends and end == self.ends[-1]:
            return False
        self.ends.append(end)
        return True

    def _start(self, reader: ChangeStreamReader, number: int) -> dict[str, Any]:
        if number:
            kept: dict[str, Any] = json.loads(self.ends[number - 1])
            return kept
        self.asked("initialOffset")
        return dict(json.loads(json.dumps(reader.initialOffset())))

    def _read(self, reader: ChangeStreamReader, number: int) -> Rows:
        if number and self.ends[number - 1] == self.ends[number]:
            return []
        start = self._start(reader, number)
        self.asked("partitions")
        partitions = reader.partitions(start, json.loads(self.ends[number]))
        worker = pickle.loads(pickle.dumps(reader))
        return [row for each in partitions for batch in worker.read(each) for row in batch.to_pylist()]
