"""Reading ahead keeps order, passes errors on, stays within its portion, and stops when nobody reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from freshet.storage.merge.read_ahead import read_ahead


class Source:
    """Batches of ten rows that count how far they were read, and in which thread; may fail at a batch."""

    def __init__(self, batches: int, fail_at: int | None = None) -> None:
        self.read = 0
        self.is_closed = False
        self.threads: set[str] = set()
        self._batches = batches
        self._fail_at = fail_at

    def __call__(self) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(self._batches):
                if number == self._fail_at:
                    raise OSError("the disk is gone")
                self.read += 1
                self.threads.add(threading.current_thread().name)
                yield pa.record_batch({"n": [number] * 10})
        finally:
            self.is_closed = True


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [batch["n"][0].as_py() for batch in batches]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, "ahead") as pool:
        yield pool


@pytest.mark.parametrize("portion_rows", [1, 10, 25, 1000])
def test_all_batches_in_order(executor: ThreadPoolExecutor, portion_rows: int) -> None:
    source = Source(7)
    assert numbers(read_ahead(source(), executor, portion_rows)) == list(range(7))
    assert all(name.startswith("ahead") for name in source.threads)
    assert source.is_closed


def test_many_streams_share_an_executor(executor: ThreadPoolExecutor) -> None:
    streams = [read_ahead(Source(5)(), executor, 10) for _ in range(20)]
    assert [numbers(stream) for stream in reversed(streams)] == [list(range(5))] * 20


def test_at_most_one_portion_beyond_the_one_in_use(executor: ThreadPoolExecutor) -> None:
    source = Source(100)
    batches = read_ahead(source(), executor, 20)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert source.read <= 4
    assert source.is_closed


def test_errors_arrive_at_the_reader(executor: ThreadPoolExecutor) -> None:
    batches = read_ahead(Source(5, fail_at=2)(), executor, 10)
    assert next(batches)["n"][0].as_py() == 0
    with pytest.raises(OSError, match="the disk is gone"):
        list(batches)


def test_an_error_nobody_waits_for_is_dropped(executor: ThreadPoolExecutor) -> None:
    batches = read_ahead(Source(5, fail_at=1)(), executor, 10)
    next(batches)
    batches.close()  # type: ignore[attr-defined]


def test_empty_stream(executor: ThreadPoolExecutor) -> None:
    assert list(read_ahead(Source(0)(), executor, 10)) == []
