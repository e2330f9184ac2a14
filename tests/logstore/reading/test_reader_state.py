"""The state of a reader as JSON: read back, and nested dicts without lists, as streaming engines want offsets."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from freshet.logstore.protocol.record import Attempt
from freshet.logstore.reading.reader_state import (
    OpenBucket,
    ReaderState,
    Run,
    state_at,
    state_from_json,
    state_to_json,
)
from freshet.storage.model.table_log import LogIdentity, LogProgress

NUMBERS = st.integers(-1, 2**62)
OFFSETS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**62), max_size=3)
RUNS = st.builds(
    Run, st.builds(Attempt, NUMBERS, NUMBERS), NUMBERS, NUMBERS, NUMBERS, st.binary(min_size=8, max_size=8)
)
OPEN_BUCKETS = st.dictionaries(
    st.tuples(st.binary(max_size=9), st.integers(0, 2**31 - 1)),
    st.builds(OpenBucket, RUNS, st.none() | RUNS),
    max_size=3,
)
STATES = st.builds(
    ReaderState, NUMBERS, st.text(), st.text(), st.text(), NUMBERS, NUMBERS, NUMBERS, OFFSETS, OFFSETS,
    st.none() | NUMBERS, OPEN_BUCKETS,
)  # fmt: skip


def has_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(has_list, value.values())))


@given(STATES)
def test_states_are_read_back(state: ReaderState) -> None:
    source = state_to_json(state)
    assert state_from_json(json.loads(json.dumps(source))) == state
    assert not has_list(source)


def test_a_reader_of_a_snapshot_goes_on_where_its_log_ends() -> None:
    assert not state_at(7, None).has_log
    progress = LogProgress(LogIdentity("t", "id", "u", {0: 1}), 2, 9, {0: 40}, {})
    state = state_at(7, progress)
    assert state.has_log and (state.batch, state.generation) == (9, 2)
    assert state.stable_offsets == state.positions == {0: 40}


def test_checkpoints_of_earlier_versions_are_read() -> None:
    """Its keys are part of the format, whatever the fields are called."""
    run = {"epoch": 1, "attempt": 2, "first_offset": 40, "end_offset": 42, "row_count": 3, "row_hash": "0a"}
    kept = {
        "snapshot_id": 7, "topic": "t", "topic_id": "id", "commit_user": "u", "generation": 0, "batch": 9,
        "epoch": 1, "settled": {"0": 40}, "positions": {"0": 42}, "open_batch": 10,
        "lanes": {"0/AAE=": {"shown": run, "matched": run}},
    }  # fmt: skip
    shown = Run(Attempt(1, 2), 40, 42, 3, b"\n")
    state = ReaderState(7, "t", "id", "u", 0, 9, 1, {0: 40}, {0: 42}, 10, {(b"\0\1", 0): OpenBucket(shown, shown)})
    assert state_from_json(kept) == state
    assert state_to_json(state) == kept
