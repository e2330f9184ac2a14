"""The protocol under random schedules (`tests.kit.log_model`): whatever dies, comes twice or comes late, readers agree
with the table.

A failing seed is run again alone: FRESHET_LOG_SEED=<seed> pytest tests/logstore/test_random_schedules.py
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from freshet.logstore.exceptions import LogLostError
from freshet.logstore.protocol.record import Attempt
from freshet.logstore.reading.decide import RowRange
from freshet.logstore.writing.writer import LogWriter
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import LogIncrement
from tests.kit.log_model import Counts, Reader, Violation, run_schedule
from tests.kit.log_model_pieces import PieceReader
from tests.soak.counts import READERS, SPLIT_READERS, Count, seeds_of

QUICK = 24
"""Schedules of each kind."""


KINDS = pytest.mark.parametrize("kind", [Reader, PieceReader])


def run(seeds: range, *, equal_replays: bool, kind: type[Reader] = Reader) -> Counts:
    given = os.environ.get("FRESHET_LOG_SEED")
    counts = Counts()
    for seed in seeds if given is None else [int(given)]:
        try:
            counts += run_schedule(seed, equal_replays=equal_replays, reader_kind=kind)
        except Exception as error:  # raised again: whatever it is, it says its seed
            error.add_note(f"seed {seed}, equal_replays={equal_replays}, {kind.__name__}")
            raise
    print(f"seeds {seeds}: {counts}")
    return counts


@pytest.mark.dear("24 schedules")
@KINDS
def test_equal_replays_are_silent(kind: type[Reader]) -> None:
    counts = run(range(QUICK), equal_replays=True, kind=kind)
    assert counts.stable > QUICK and counts.replacements and counts.zombie_steps and counts.lost_compactions


@pytest.mark.dear("24 schedules")
@KINDS
def test_replays_with_other_rows_are_corrected(kind: type[Reader]) -> None:
    counts = run(range(QUICK), equal_replays=False, kind=kind)
    assert counts.stable > QUICK and counts.retracted and counts.zombie_steps


@pytest.mark.dear("48 schedules")
def test_lost_records_are_never_skipped() -> None:
    """A schedule whose readers need none of the lost records ends well; any other ends in the error that says so."""
    outcomes = Counter[str]()
    for seed in range(2 * QUICK):
        try:
            run_schedule(seed, equal_replays=bool(seed % 2), loss_probability=0.05)
            outcomes["harmless"] += 1
        except LogLostError:
            outcomes["reported"] += 1
    assert min(outcomes["harmless"], outcomes["reported"]) > QUICK // 6


def no_winner(*given: object) -> list[RowRange]:
    return []


def one_too_low(finish: Callable[[LogWriter], Mapping[BucketId, LogIncrement]]) -> object:
    return lambda writer: {
        bucket: replace(each, next_offset=each.next_offset - 1) for bucket, each in finish(writer).items()
    }


MUTATIONS = {
    "what is retracted keeps its kind": ("freshet.logstore.reading.rows.INVERTED", np.array([0, 1, 2, 3], np.int8)),
    "no snapshot names a winner": ("freshet.logstore.reading.decide._to_winner", no_winner),
    "the last offset is stored as the next": (
        "freshet.logstore.writing.writer.LogWriter.finish",
        one_too_low(LogWriter.finish),
    ),
    "all attempts are one": ("freshet.logstore.writing.writer.Attempt", lambda epoch, attempt: Attempt(0, 0)),
    "what is retracted comes first row first": (
        "freshet.logstore.reading.rows._backwards",
        lambda count: np.arange(count),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_schedules_notice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    with pytest.raises((Violation, LogLostError, KeyError), match=r"seed \d+"):
        run(range(QUICK), equal_replays=False)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "count", "name"), [(Reader, READERS, "readers"), (PieceReader, SPLIT_READERS, "split readers")]
)
@pytest.mark.parametrize("equal_replays", [True, False])
def test_many_schedules(kind: type[Reader], count: Count, name: str, equal_replays: bool) -> None:
    seeds = seeds_of(count, name, equal_replays)
    counts = run(seeds, equal_replays=equal_replays, kind=kind)
    assert counts.stable > len(seeds) and counts.zombie_steps > len(seeds) // 10
