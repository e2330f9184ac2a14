"""Requests that are made ahead of their reader: in its order, so many at once, within their bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from freshet.storage.exceptions import RetryableError
from freshet.storage.io import store_reads
from freshet.storage.io.store_reads import AHEAD_PER_REQUEST, ComingRead, StoreReads


@pytest.fixture
def reads() -> StoreReads:
    return StoreReads(4)


def coming(count: int, made: list[int], size_bytes: int = 1) -> Iterator[ComingRead]:
    def make(number: int) -> int:
        made.append(number)
        return number * number

    return (ComingRead(number, size_bytes, partial(make, number)) for number in range(count))


def taken(reads: StoreReads, key: int) -> Any:
    future = reads.take(key)
    return None if future is None else future.result(60)


def test_answers_are_taken_once(reads: StoreReads) -> None:
    made: list[int] = []
    with reads.ahead(coming(50, made)):
        assert [taken(reads, number) for number in range(50)] == [number * number for number in range(50)]
        assert taken(reads, 3) is None
    assert sorted(made) == list(range(50))


def test_no_more_is_requested_than_may_wait(reads: StoreReads, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    with reads.ahead(coming(100, made)):
        assert reads.take(4 * AHEAD_PER_REQUEST) is None
        assert taken(reads, 0) == 0
        assert taken(reads, 4 * AHEAD_PER_REQUEST) is not None
    monkeypatch.setattr(store_reads, "AHEAD_BYTES_MAX", 10)
    with reads.ahead(coming(100, made, size_bytes=4)):
        assert [reads.take(number) is None for number in (3, 2)] == [True, False]


def test_what_was_not_taken_is_dropped(reads: StoreReads) -> None:
    made: list[int] = []
    with reads.ahead(coming(10, made)):
        assert taken(reads, 0) == 0
    assert [reads.take(number) for number in range(10)] == [None] * 10


def test_two_readers_of_one_file_make_one_request_each_at_most(reads: StoreReads) -> None:
    made: list[int] = []
    with reads.ahead(coming(3, made)):
        with reads.ahead(coming(4, made)):
            assert [taken(reads, number) for number in range(4)] == [0, 1, 4, 9]
        assert reads.take(0) is None
    assert sorted(made) == [0, 1, 2, 3]


def test_an_error_comes_to_who_takes_the_answer(reads: StoreReads) -> None:
    def fail() -> int:
        raise RetryableError("busy")

    with reads.ahead([ComingRead("a", 1, fail), ComingRead("b", 1, lambda: 1)]):
        future = reads.take("a")
        assert future is not None
        with pytest.raises(RetryableError, match="busy"):
            future.result(60)
    with pytest.raises(RetryableError, match="busy"):
        reads.together([lambda: 1, fail])


def test_requests_are_made_at_the_same_time(reads: StoreReads) -> None:
    meeting = threading.Barrier(4)
    calls: list[Callable[[], int]] = [partial(meeting.wait, 60)] * 4
    assert sorted(reads.together(calls)) == [0, 1, 2, 3]
    with reads.ahead(ComingRead(number, 1, partial(meeting.wait, 60)) for number in range(4)):
        assert sorted(taken(reads, number) for number in range(4)) == [0, 1, 2, 3]


def test_memory_is_bounded_and_never_waited_for(reads: StoreReads) -> None:
    most = store_reads.HELD_BYTES_MAX
    assert reads.reserve(2 * most)  # one alone may be larger
    assert not reads.reserve(1)
    reads.release(2 * most)
    assert reads.reserve(most)


def test_a_forked_child_has_threads_of_its_own(reads: StoreReads) -> None:
    with reads.ahead([ComingRead("a", 1, lambda: 1)]):
        assert reads.together([lambda: 1, lambda: 2]) == [1, 2]
        child = os.fork()
        if child == 0:
            is_well = reads.take("a") is None and reads.together([lambda: 3, lambda: 4]) == [3, 4]
            os._exit(0 if is_well else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert taken(reads, "a") == 1
