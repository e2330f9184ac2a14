"""`Table.changes_between`: delta, changelog and diff; by snapshots, tags and times."""

from __future__ import annotations

import datetime
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.changes.reader import difference
from freshet.storage.cleaning.expire import expire_later
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import local_env
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.hypothesis_profile import examples
from tests.kit.sim_env import SimDisk
from tests.storage.changes.change_tables import COLUMNS, LoggedTable, folded, read_changes, row

WRITE_ONLY = {"write-only": "true"}


@pytest.fixture
def logged(tmp_path: Path) -> LoggedTable:
    """1: keys 1, 2, 3 come; 2: 1 changes, 2 goes; 3: 4 comes and 3 is written as it was."""
    made = LoggedTable(tmp_path, options=WRITE_ONLY, env=local_env())
    made.log([row(1, "a"), row(2, "b"), row(3, "c")], [row(1, "a"), row(2, "b"), row(3, "c")])
    made.log([row(1, "a", "-U"), row(1, "A", "+U"), row(2, "b", "-D")], [row(1, "A", "+U"), row(2, "b", "-D")])
    made.log([row(4, "d")], [row(3, "c"), row(4, "d")])
    return made


def tag(logged: LoggedTable, name: str, snapshot_id: int) -> None:
    store = logged.store
    store.env.file_io.overwrite(store.paths.tag(name), encode_snapshot(store.snapshots.snapshot(snapshot_id)))


def between(logged: LoggedTable, *ends: Any, **asked: Any) -> list[tuple[Any, ...]]:
    return read_changes(logged.table.changes_between(*ends, **asked).to_arrow())


def test_the_changelog_between_two_snapshots(logged: LoggedTable) -> None:
    expected = [("-U", 1, "a", 2), ("+U", 1, "A", 2), ("-D", 2, "b", 2), ("+I", 4, "d", 3)]
    assert between(logged, 1, 3) == between(logged, 1, 3, mode="changelog") == expected
    assert between(logged, 2, 3) == expected[3:]
    assert between(logged, 3, 3) == []
    assert len(between(logged, 0, 3)) == 7


def test_the_rows_written_between_two_snapshots(logged: LoggedTable) -> None:
    expected = [("+U", 1, "A", 2), ("-D", 2, "b", 2), ("+I", 3, "c", 3), ("+I", 4, "d", 3)]
    assert between(logged, 1, 3, mode="delta") == expected


def test_what_differs_between_two_states(logged: LoggedTable) -> None:
    assert between(logged, 1, 3, mode="diff") == [
        ("-U", 1, "a", 3), ("+U", 1, "A", 3), ("-D", 2, "b", 3), ("+I", 4, "d", 3),
    ]  # fmt: skip
    assert between(logged, 0, 1, mode="diff") == [("+I", 1, "a", 1), ("+I", 2, "b", 1), ("+I", 3, "c", 1)]
    assert between(logged, 2, 3, mode="diff") == [("+I", 4, "d", 3)], "the key that was written as it was is no change"
    assert between(logged, 1, 1, mode="diff") == []
    narrowed = logged.table.changes_between(1, 3, ["v"], "id < 3 and v = 'A'", mode="diff")
    assert read_changes(narrowed.to_arrow()) == [("+U", "A", 3)]
    again = pickle.loads(pickle.dumps(narrowed))
    assert read_changes(again.to_arrow()) == [("+U", "A", 3)]
    assert read_changes(again.read_split(again.plan()[0])) == [("+U", "A", 3)]


def test_a_compaction_differs_in_nothing(logged: LoggedTable) -> None:
    table = logged.table.with_options({"changelog-producer": "none"})
    before = table.snapshots()[-1].id
    table.compact(full=True)
    after = table.snapshots()[-1].id
    assert after > before
    assert between(logged, before, after, mode="diff") == []
    assert between(logged, 1, after, mode="diff")[-1] == ("+I", 4, "d", after)


def test_between_tags(logged: LoggedTable) -> None:
    tag(logged, "first", 1)
    tag(logged, "third", 3)
    assert between(logged, "first", "third") == between(logged, 1, 3, mode="diff")
    assert between(logged, "first", "third", mode="changelog") == between(logged, 1, 3)
    assert between(logged, "first", "third", mode="delta") == between(logged, 1, 3, mode="delta")
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert between(logged, "first", "third")[0] == ("-U", 1, "a", 3), "tags outlive their snapshots"
    with pytest.raises(NotFoundError, match="changes of snapshots 3 to 3 are there"):
        between(logged, "first", "third", mode="changelog")
    with pytest.raises(NotFoundError, match="no tag 'second'"):
        between(logged, "second", "third")


def test_between_times(logged: LoggedTable) -> None:
    times = [datetime.datetime.fromtimestamp(each.time_ms / 1000, datetime.UTC) for each in logged.table.snapshots()]
    second = datetime.timedelta(seconds=1)
    assert between(logged, times[0] - second, times[2] + second) == between(logged, 0, 3)
    assert between(logged, times[2] + second, times[2] + 2 * second) == []
    assert between(logged, times[0] - 2 * second, times[0] - second) == []
    last = [change for change in between(logged, 0, 3) if times[change[-1] - 1] > times[0]]
    assert between(logged, times[0], times[2]) == last


def test_tables_without_a_changelog(tmp_path: Path) -> None:
    upserts = LoggedTable(tmp_path / "keyed", producer="none", options=WRITE_ONLY)
    upserts.place([row(1, "a")])
    upserts.place([row(1, "A")])
    assert between(upserts, 0, 2) == [("+I", 1, "a", 1), ("+I", 1, "A", 2)], "as they were written"
    assert between(upserts, 1, 2, mode="diff") == [("-U", 1, "a", 2), ("+U", 1, "A", 2)]
    with pytest.raises(InvalidRequestError, match=r"mode='delta'"):
        between(upserts, 0, 2, mode="changelog")
    appended = LoggedTable(tmp_path / "append", keys=(), options=WRITE_ONLY)
    appended.place([row(1, "a")])
    assert between(appended, 0, 1) == between(appended, 0, 1, mode="changelog") == [("+I", 1, "a", 1)]
    with pytest.raises(InvalidRequestError, match="no primary key"):
        between(appended, 0, 1, mode="diff")


@pytest.mark.parametrize(
    ("ends", "mode", "error", "message"),
    [
        ((2, 1), "auto", InvalidRequestError, "is before the start"),
        ((-1, 1), "auto", InvalidRequestError, "the start of an incremental read"),
        ((1, True), "auto", InvalidRequestError, "the end of an incremental read"),
        ((1, 2), "merge", InvalidRequestError, "mode is one of auto, delta, changelog, diff"),
        ((1, 9), "auto", NotFoundError, "changes of snapshots 1 to 3 are there"),
        ((1, 9), "diff", NotFoundError, "snapshot 9 does not exist"),
        ((datetime.datetime(2026, 1, 1), 2), "auto", InvalidRequestError, "with a time zone"),
    ],
)
def test_bad_calls(logged: LoggedTable, ends: tuple[Any, Any], mode: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        logged.table.changes_between(*ends, mode=mode)


RETAINED = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "changelog.num-retained.min": "10",
    "changelog.num-retained.max": "10",
    "write-only": "true",
}


def test_rows_written_by_snapshots_that_left_only_their_changelog(tmp_path: Path) -> None:
    kept = LoggedTable(tmp_path, options=RETAINED)
    for value in ("a", "b", "c"):
        kept.log([row(1, value)], [row(1, value)])
    kept.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert between(kept, 0, 3) == [("+I", 1, "a", 1), ("+I", 1, "b", 2), ("+I", 1, "c", 3)]
    with pytest.raises(NotFoundError, match=r"snapshots before 3 have expired.*mode='changelog', or begin after .*2"):
        between(kept, 0, 3, mode="delta")
    assert between(kept, 2, 3, mode="delta") == [("+I", 1, "c", 3)]


def test_other_buckets_cannot_be_compared() -> None:
    store = make_table(SimDisk().boot(), options=WRITE_ONLY)
    committer, old = Committer(store, "u", after_commit=expire_later), new_file(store, "a")
    committer.commit(0, [message(store, new=[old])])
    rescaled = replace(message(store, deleted=[old], new=[new_file(store, "b")]), total_buckets=4)
    committer.commit(1, [rescaled])
    with pytest.raises(InvalidRequestError, match="rewritten into 4 buckets, it had 2"):
        ChangePlanner(store).difference(*map(store.snapshots.snapshot, (1, 2)))


# ------------------------------------------------------------------------------------------------ any two states at all


states = st.dictionaries(st.integers(0, 9), st.one_of(st.none(), st.text("ab", max_size=1)), max_size=8)


@given(states, states)
def test_a_difference_leads_from_one_state_to_the_other(old: dict[int, str | None], new: dict[int, str | None]) -> None:
    tables = [
        pa.table({"id": sorted(each), "v": [each[key] for key in sorted(each)]}, schema=COLUMNS) for each in (old, new)
    ]
    rows, kinds = difference(*tables, ("id",))
    changes = [
        (("+I", "-U", "+U", "-D")[kind], *values.values())
        for kind, values in zip(kinds.tolist(), rows.to_pylist(), strict=True)
    ]
    assert folded(changes, old) == new
    assert [change[1] for change in changes] == sorted(change[1] for change in changes)
    touched = {key for key in {*old, *new} if key not in old or key not in new or old[key] != new[key]}
    assert {change[1] for change in changes} == touched


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc-")), max_size=4), min_size=2, max_size=5),
    st.integers(1, 3),
    st.sampled_from([0, 5]),
)
def test_diffs_of_tables(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[tuple[int, str]]], buckets: int, first_level: int
) -> None:
    logged = LoggedTable(
        tmp_path_factory.mktemp("diff"), producer="none", options={"bucket": str(buckets), **WRITE_ONLY}
    )
    state: dict[int, str] = {}
    seen = [dict(state)]
    for number, commit in enumerate(history):
        rows = [row(key, value, "-D" if value == "-" else "+I") for key, value in dict(commit).items()]
        logged.place([each for each in rows if each["_ROW_KIND"] == "+I" or number], level=0 if number else first_level)
        for each in rows:
            if each["_ROW_KIND"] == "+I":
                state[each["id"]] = each["v"]
            elif number:
                state.pop(each["id"], None)
        seen.append(dict(state))
    last = logged.store.snapshots.latest_id() or 0
    assert last == len(history)
    for start in range(last):
        changes = [change[:-1] for change in between(logged, start, last, mode="diff")]
        assert folded(changes, seen[start]) == state
