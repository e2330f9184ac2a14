"""Streams of a table with a log on a real broker that read on until they have everything that was there."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from freshet import Table
from freshet.logstore.kafka.log_client import KafkaLogClient
from tests.logstore.logged_tables import Stream

WAIT_S = 0.2
TRIES_S = 300.0


class CaughtUp(Stream):
    """A stream that is asked what came since. A broker may answer late, so that silence for some time says nothing: in
    speculative isolation it reads on until it is at the ends that the topic has when it is asked. What is committed
    is known from the snapshots, and waited for by the stream itself.
    """

    def __init__(self, table: Table, isolation: str, **start: Any) -> None:
        super().__init__(table, isolation, max_wait_s=0.0 if isolation == "committed" else WAIT_S, **start)

    def batches(self) -> list[pa.RecordBatch]:
        """What came since."""
        ends = self._ends()
        deadline = time.monotonic() + TRIES_S
        found = super().batches()
        while not self._has_reached(ends):
            assert time.monotonic() < deadline, f"{self.stream.progress} has not come to {ends}"
            found += super().batches()
        return found

    def close(self) -> None:
        """Lets go of connections."""
        self.stream.close()

    def _ends(self) -> dict[int, int]:
        if self.isolation == "committed":
            return {}
        client = KafkaLogClient.of_options(self.table.options.given)
        try:
            topic = self.table.options.given["kafka.topic"]
            return {} if client.topic(topic) is None else {n: each.end for n, each in client.bounds(topic).items()}
        finally:
            client.close()

    def _has_reached(self, ends: dict[int, int]) -> bool:
        positions = self.stream.progress.positions
        return all(positions.get(number, 0) >= end for number, end in ends.items())
