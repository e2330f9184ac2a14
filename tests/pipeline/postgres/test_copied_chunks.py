"""Changes beside a copy: each counts once, whatever the order of commits, chunks and what the stream brings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from freshet.pipeline.postgres.copied_chunks import Chunk, CopyProgress
from freshet.pipeline.postgres.transactions import TransactionSnapshot

SEEN = TransactionSnapshot(10, 20, (10, 14))


def test_progress_is_json_in_a_checkpoint() -> None:
    chunks = (Chunk(None, ("5", "b"), SEEN), Chunk(("5", "b"), None, TransactionSnapshot(30, 30)))
    progress = CopyProgress(chunks, (3, 7))
    assert CopyProgress.of(json.loads(json.dumps(progress.to_document()))) == progress
    assert progress.is_whole
    assert progress.bounds == (("5", "b"),)
    assert not CopyProgress().is_whole
    assert CopyProgress(chunks[:1]).after == ("5", "b")


def test_a_change_counts_unless_its_chunk_has_it() -> None:
    progress = CopyProgress((Chunk(None, ("5",), SEEN), Chunk(("5",), ("9",), TransactionSnapshot(20, 20))))
    places, transactions = np.array([0, 0, 1, 1, 2, 2]), np.array([13, 14, 14, 20, 13, 21])
    counts, after = progress.applied(places, transactions)
    assert counts.tolist() == [False, True, False, True, False, False]
    assert after.awaited == (13, 21)
    assert not after.may_be_read_in(TransactionSnapshot(21, 30, (21,)))
    assert after.seen(TransactionSnapshot(21, 30, (21,))).awaited == (21,)
    assert after.may_be_read_in(TransactionSnapshot(30, 30))


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        (Chunk(("4",), None, TransactionSnapshot(30, 30)), r"begins after \('5',\), and this one after \('4',\)"),
        (Chunk(("5",), None, TransactionSnapshot(14, 30, (14,))), r"does not hold \(14,\), whose changes were dropped"),
    ],
)  # fmt: skip
def test_a_chunk_that_loses_changes_is_refused(chunk: Chunk, says: str) -> None:
    progress = CopyProgress((Chunk(None, ("5",), SEEN),), (14,))
    with pytest.raises(ValueError, match=says):
        progress.with_chunk(chunk)


@dataclass
class Server:
    """Two counters by key; a transaction adds one to both, is in the log first and visible some time later."""

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


@example(["log", "stream", "copy"], 0)
@example(["log", "copy", "stream"], 0)
@given(st.lists(st.sampled_from(["log", "show", "stream", "copy", "forget"]), max_size=40), st.integers(0, 5))
def test_sums_are_right_in_any_order(turns: list[str], number: int) -> None:
    """Keys up to 5 are one chunk, the others the next."""
    server, progress, copied, streamed = Server(), CopyProgress(), dict[int, int](), 0
    ranges = [(None, ("5",), 2), (("5",), None, 7)]

    def stream(count: int) -> CopyProgress:
        nonlocal streamed
        ids = np.array(server.logged[streamed:][:count], np.int64)
        streamed += len(ids)
        found = progress
        for place, (_, _, key) in enumerate(ranges):
            counts, found = found.applied(np.full(len(ids), place), ids)
            if place < len(progress.chunks):
                copied[key] += int(counts.sum())
            else:
                assert not counts.any()
        return found

    def copy() -> CopyProgress:
        if progress.is_whole or not progress.may_be_read_in(server.snapshot()):
            return progress
        after, until, key = ranges[len(progress.chunks)]
        copied[key] = server.sums[key]
        return progress.with_chunk(Chunk(after, until, server.snapshot()))

    for turn in [*turns, *["show"] * 40, "copy", "copy"]:
        match turn:
            case "log":
                server.log()
            case "show":
                server.show(number)
            case "stream":
                progress = stream(2)
            case "copy":
                progress = copy()
            case "forget":
                progress = progress.seen(server.snapshot())
    progress = stream(len(server.logged))
    assert progress.is_whole
    assert copied == server.sums == dict.fromkeys((2, 7), len(server.logged))
