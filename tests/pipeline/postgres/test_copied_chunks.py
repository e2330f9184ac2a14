"""Changes beside a copy: each counts once, whatever the order of commits, chunks and what the stream brings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from freshet.pipeline.postgres.copy_state import Chunk, CopyProgress, CopyState
from freshet.pipeline.postgres.transactions import TransactionSnapshot

SEEN = TransactionSnapshot(10, 20, (10, 14))
LATER = TransactionSnapshot(30, 30)
T, U = ("public", "t"), ("public", "u")


def test_a_copy_is_json_in_a_checkpoint() -> None:
    chunks = (Chunk(None, ("5", "b"), SEEN, 7), Chunk(("5", "b"), None, LATER, 9))
    progress = CopyProgress(chunks, 3)
    state = CopyState((T, U), {T: progress})
    assert CopyState.of_document(json.loads(json.dumps(state.to_document()))) == state
    assert progress.is_whole
    assert progress.bounds == (("5", "b"),)
    assert not CopyProgress().is_whole
    assert (state.left, state.is_whole, state.until) == ((U,), False, None)
    assert state.with_chunk(U, Chunk(None, None, SEEN, 8)).until == 9


def test_a_change_counts_unless_its_chunk_has_it() -> None:
    progress = CopyProgress((Chunk(None, ("5",), SEEN, 70), Chunk(("5",), ("9",), TransactionSnapshot(20, 20), 80)))
    places, transactions = np.array([0, 0, 0, 1, 1, 2, 2]), np.array([13, 14, 13, 14, 20, 13, 21])
    lsns = np.array([60, 60, 70, 60, 60, 60, 90])
    assert progress.counting(places, transactions, lsns).tolist() == [False, True, True, False, True, False, False]


def test_chunks_that_the_stream_has_passed_are_one() -> None:
    chunks = tuple(
        Chunk((str(n),) if n else None, (str(n + 1),) if n < 3 else None, SEEN, 10 * (n // 2)) for n in range(4)
    )
    progress = CopyProgress(chunks)
    passed = progress.passed(0)
    assert passed == CopyProgress((replace(chunks[1], after=None), *chunks[2:]), 1)
    assert passed.passed(9) == passed
    assert (passed.count, passed.bounds) == (4, (("2",), ("3",)))
    assert passed.passed(10) == CopyProgress((Chunk(None, None, SEEN, 10),), 3)
    assert passed.first(3) == CopyProgress(passed.chunks[:2], 1)
    assert passed.since(3) == chunks[3:]
    assert progress.first(0) == CopyProgress()
    before = CopyState((T,), {T: progress.first(2)})
    assert CopyState((T, U), {T: progress}).at(before) == CopyState((T, U), {T: progress.first(2), U: CopyProgress()})
    assert CopyState((T, U), {T: progress}).since(before) == {T: chunks[2:]}


def test_chunks_that_are_read_again_are_those_of_another_snapshot() -> None:
    chunks = (Chunk(None, ("5",), SEEN, 7), Chunk(("5",), None, SEEN, 7))
    state = CopyState((T,), {T: CopyProgress(chunks)})
    read = state.read_in(T, 1, Chunk(None, None, LATER, 9))
    assert read.of(T).chunks == (chunks[0], Chunk(("5",), None, LATER, 9))


def test_another_chunk_than_the_next_is_refused() -> None:
    progress = CopyProgress((Chunk(None, ("5",), SEEN),))
    with pytest.raises(ValueError, match=r"begins after \('5',\), and this one after \('4',\)"):
        progress.with_chunk(Chunk(("4",), None, LATER))


@dataclass
class Server:
    """Counters by key; a transaction adds one to all of them, is in the log first and visible some time later. Its
    place in the log is its number there."""

    sums: dict[int, int] = field(default_factory=lambda: dict.fromkeys((2, 7), 0))
    logged: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    next: int = 10

    def log(self) -> None:
        self.logged.append(self.next)
        self.hidden.append(self.next)
        self.next += 1

    def show(self, number: int) -> None:
        if self.hidden:
            self.hidden.pop(number % len(self.hidden))
            for key in self.sums:
                self.sums[key] += 1

    def snapshot(self) -> TransactionSnapshot:
        return TransactionSnapshot(min(self.hidden, default=self.next), self.next, tuple(sorted(self.hidden)))


@pytest.mark.dear("examples of a property, the first of which load numpy")
@example(["log", "copy", "stream"], 0)
@example(["log", "log", "show", "copy", "copy"], 1)
@given(st.lists(st.sampled_from(["log", "show", "stream", "copy", "pass"]), max_size=40), st.integers(0, 5))
def test_sums_are_right_in_any_order(turns: list[str], number: int) -> None:
    """Keys up to 5 are one chunk, the others the next."""
    server, progress, copied, streamed = Server(), CopyProgress(), dict[int, int](), 0
    ranges = [(None, ("5",), 2), (("5",), None, 7)]

    def stream(to: int) -> None:
        nonlocal streamed
        ids, lsns = np.array(server.logged[streamed:to], np.int64), np.arange(streamed, to)
        for place, (_, _, key) in enumerate(ranges):
            counts = progress.counting(np.full(len(ids), 0 if progress.merged else place), ids, lsns)
            copied[key] = copied.get(key, 0) + int(counts.sum())
        streamed = max(streamed, to)

    def copy() -> CopyProgress:
        """A batch with a chunk, and with the stream up to what its snapshot holds."""
        if progress.is_whole:
            return progress
        after, until, key = ranges[len(progress.chunks)]
        snapshot = server.snapshot()
        held = snapshot.holds(np.array(server.logged[streamed:], np.int64)).tolist()
        stream(streamed + [*held, False].index(False))
        copied[key] = copied.get(key, 0) + server.sums[key]
        return progress.with_chunk(Chunk(after, until, snapshot, len(server.logged)))

    for turn in [*turns, *["show"] * 40, "copy", "copy"]:
        match turn:
            case "log":
                server.log()
            case "show":
                server.show(number)
            case "stream" if progress.is_whole:
                stream(min(streamed + 2, len(server.logged)))
            case "pass" if progress.is_whole:
                progress = progress.passed(streamed)
            case "copy":
                progress = copy()
    stream(len(server.logged))
    assert progress.is_whole
    assert copied == server.sums == dict.fromkeys((2, 7), len(server.logged))
