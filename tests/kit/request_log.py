"""A store in memory at which a request takes its time, and is noted: what a reader asks for, and how many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from freshet.storage.io.env import Env
from freshet.storage.io.file_cache import CacheSettings
from freshet.storage.io.file_io import FileStatus
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.io.ranges import ByteRange, ReadCosts

COSTS = ReadCosts(whole_bytes=16 * 1024, gap_bytes=1024, request_bytes=8 * 1024, in_flight=48)
"""So small that the files of tests are read in many pieces."""


@dataclass(frozen=True)
class Request:
    """One request; `kind` is get, range, head, list, put or delete."""

    kind: str
    path: str
    wanted: ByteRange | None = None

    def __str__(self) -> str:
        at = "" if self.wanted is None else f" {self.wanted.offset}+{self.wanted.length}"
        return f"{self.kind} {self.path}{at}"


class RequestLog(MemoryFileIO):
    """The store; `latency_s` is what each request takes."""

    def __init__(self, costs: ReadCosts = COSTS, latency_s: float = 0.0) -> None:
        super().__init__()
        self.read_costs = costs
        self.latency_s = latency_s
        self.requests: list[Request] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._noting = threading.Condition()
        self._together = 0

    @contextmanager
    def noted(self) -> Iterator[list[Request]]:
        """The requests made while the block runs."""
        with self._noting:
            self.requests = found = []
            self.most_in_flight = self._in_flight
        yield found

    @contextmanager
    def together(self, count: int) -> Iterator[list[Request]]:
        """As `noted`; no request is answered before so many are under way at one moment, or ten seconds have passed.
        A latency instead would make what is counted a matter of how busy the machine is."""
        with self.noted() as found:
            self._together = count
            try:
                yield found
            finally:
                self._together = 0

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        with self._request("range", path, wanted):
            return super().read_range(path, wanted)

    def read_bytes(self, path: str) -> bytes:
        with self._request("get", path):
            return super().read_bytes(path)

    def open_input(self, path: str) -> pa.NativeFile:
        raise AssertionError(f"{path} is opened, where a store is read by ranges")

    def exists(self, path: str) -> bool:
        with self._request("head", path):
            return super().exists(path)

    def exists_prefix(self, path: str) -> bool:
        with self._request("list", path):
            return super().exists_prefix(path)

    def size(self, path: str) -> int:
        with self._request("head", path):
            return super().size(path)

    def entries(self, path: str) -> Iterator[FileStatus]:
        with self._request("list", path):
            return super().entries(path)

    @contextmanager
    def _request(self, kind: str, path: str, wanted: ByteRange | None = None) -> Iterator[None]:
        with self._noting:
            self.requests.append(Request(kind, path, wanted))
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            self._noting.notify_all()
            self._noting.wait_for(lambda: self.most_in_flight >= self._together, timeout=10)
        try:
            if self.latency_s:
                time.sleep(self.latency_s)
            yield
        finally:
            with self._noting:
                self._in_flight -= 1


class StoreEnv(Env):
    """A world whose files are in such a store; the local cache is off unless its settings are given."""

    def __init__(self, log: RequestLog, cache: CacheSettings | None = None, **kwargs: Any) -> None:
        super().__init__(log, cache=cache, **kwargs)
        self.log = log
