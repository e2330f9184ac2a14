"""The state of a reader as JSON: read back, and nested dicts without lists, as streaming engines want offsets."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from freshet.logstore.protocol.record import Attempt
from freshet.logstore.reading.reader_state import (
    OpenLane,
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
LANES = st.dictionaries(
    st.tuples(st.binary(max_size=9), st.integers(0, 2**31 - 1)),
    st.builds(OpenLane, RUNS, st.none() | RUNS),
    max_size=3,
)
STATES = st.builds(
    ReaderState, NUMBERS, st.text(), st.text(), st.text(), NUMBERS, NUMBERS, NUMBERS, OFFSETS, OFFSETS,
    st.none() | NUMBERS, LANES,
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
    assert state.settled == state.positions == {0: 40}
