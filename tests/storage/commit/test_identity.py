"""The truth table of commit identity, and the map that every snapshot carries."""

from __future__ import annotations

from itertools import product

import pytest

from freshet.storage.commit.identity import (
    COMMITS_PROPERTY,
    EMPTY_HISTORY,
    USERS_MAX,
    CommitHistory,
    CommitTrace,
    Verdict,
    decide,
    history_of,
    history_to_text,
    is_committed,
    parse_history,
)
from freshet.storage.exceptions import InvalidRequestError, UnknownOutcomeError
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot


def snapshot(
    snapshot_id: int,
    user: str,
    identifier: int,
    history: CommitHistory | None = None,
    kind: CommitKind = CommitKind.APPEND,
) -> Snapshot:
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list="base",
        delta_manifest_list="delta",
        commit_user=user,
        commit_identifier=identifier,
        commit_kind=kind,
        time_ms=1000 + snapshot_id,
        total_record_count=0,
        delta_record_count=0,
        properties=None if history is None else {COMMITS_PROPERTY: history_to_text(history)},
    )


def history(complete: bool = True, **users: tuple[int, str | None]) -> CommitHistory:
    return CommitHistory({user: CommitTrace(last, query, 1) for user, (last, query) in users.items()}, complete)


def test_truth_table_every_cell() -> None:
    traces = {"none": None, "same": (5, "q"), "other": (5, "x"), "plain": (5, None)}
    for (name, trace), complete, identifier in product(traces.items(), (True, False), (0, 4, 5, 6)):
        known = history(complete, **({} if trace is None else {"u": trace}))
        if name == "none":
            expected = Verdict.WRITE if complete or identifier == 0 else Verdict.UNKNOWN_OUTCOME
        elif name == "same":
            expected = Verdict.ALREADY_COMMITTED if identifier <= 5 else Verdict.WRITE
        else:
            expected = Verdict.FOREIGN_QUERY
        assert decide(known, "u", identifier, "q") is expected, (name, complete, identifier)


def test_plain_writer_without_query_id_is_idempotent_and_does_not_take_over_a_query() -> None:
    assert decide(history(u=(5, None)), "u", 5, None) is Verdict.ALREADY_COMMITTED
    assert decide(history(u=(5, None)), "u", 6, None) is Verdict.WRITE
    assert decide(history(u=(5, "q")), "u", 6, None) is Verdict.FOREIGN_QUERY


def test_batch_identifier_is_never_known() -> None:
    known = EMPTY_HISTORY.with_commit("u", CommitTrace(BATCH_COMMIT_IDENTIFIER, None, 1))
    assert known.users == {}
    assert decide(history(u=(5, None)), "u", BATCH_COMMIT_IDENTIFIER, None) is Verdict.WRITE


def test_refusals_name_the_remedy() -> None:
    with pytest.raises(InvalidRequestError, match=r"checkpoint was deleted .* another commit user"):
        is_committed(history(u=(5, "x")), "u", 0, "q", table="t")
    with pytest.raises(UnknownOutcomeError, match=r"table t.*snapshots have expired.*snapshot.num-retained.min"):
        is_committed(history(complete=False), "u", 3, "q", table="t")


def test_map_is_found_behind_snapshots_of_others() -> None:
    ours = snapshot(7, "u", 3, history(u=(3, "q")))
    others = [snapshot(8, "paimon", 1), snapshot(9, "paimon", 2, kind=CommitKind.COMPACT)]
    known = history_of([*reversed(others), ours])
    assert known.users["u"] == CommitTrace(3, "q", 1)
    assert known.users["paimon"] == CommitTrace(2, None, 1009)
    assert known.is_complete


def test_snapshot_of_another_library_under_our_user_makes_us_stop() -> None:
    ours = snapshot(7, "u", 3, history(u=(3, "q")))
    known = history_of([snapshot(8, "u", 1), ours])
    assert known.users["u"] == CommitTrace(3, None, 1008), "the larger identifier, and no longer our query"
    assert decide(known, "u", 4, "q") is Verdict.FOREIGN_QUERY
    assert decide(known, "u", 3, None) is Verdict.ALREADY_COMMITTED


def test_batch_commit_of_another_library_says_nothing() -> None:
    assert history_of([snapshot(1, "u", BATCH_COMMIT_IDENTIFIER)]).users == {}


def test_history_is_complete_only_down_to_snapshot_one() -> None:
    assert history_of([]) == EMPTY_HISTORY
    assert history_of([snapshot(2, "a", 1), snapshot(1, "a", 0)]).is_complete
    assert not history_of([snapshot(9, "a", 1), snapshot(8, "a", 0)]).is_complete
    assert not history_of([snapshot(9, "u", 4, history(complete=False, u=(4, "q")))]).is_complete


def test_walk_stops_at_the_carrier() -> None:
    def lazily() -> object:
        yield snapshot(9, "u", 4, history(u=(4, "q")))
        raise AssertionError("walked past the carrier")

    assert history_of(lazily()).users["u"].identifier == 4  # type: ignore[arg-type]


def test_carried_map_is_bounded_and_says_so() -> None:
    known = EMPTY_HISTORY
    for number in range(USERS_MAX + 1):
        known = known.with_commit(f"user-{number:04}", CommitTrace(0, None, time_ms=10_000 + number))
    assert len(known.users) == USERS_MAX
    assert "user-0000" not in known.users, "the one that committed longest ago"
    assert not known.is_complete
    assert decide(known, "user-0000", 1, None) is Verdict.UNKNOWN_OUTCOME


def test_the_committing_user_is_never_the_one_that_is_dropped() -> None:
    known = EMPTY_HISTORY
    for number in range(USERS_MAX):
        known = known.with_commit(f"user-{number:04}", CommitTrace(0, None, time_ms=10_000))
    assert "late" in known.with_commit("late", CommitTrace(1, "q", time_ms=1)).users


def test_text_round_trip_and_refusal_of_anything_else() -> None:
    known = history(complete=False, u=(4, "q"), v=(9, None))
    assert parse_history(history_to_text(known), 1) == known
    for text in ("", "[]", '{"users": []}', '{"complete": true, "users": {"u": [1]}}'):
        with pytest.raises(UnknownOutcomeError, match="snapshot 12"):
            parse_history(text, 12)
