"""The map of commit users that every snapshot carries: read, counted on, written."""

from __future__ import annotations

import orjson
import pytest

from freshet.storage.commit.last_commits import (
    COMMITS_PROPERTY,
    DIGESTS_KEPT,
    NO_COMMITS,
    CommitTrace,
    LastCommits,
    last_commits_of,
    last_commits_to_text,
    parse_last_commits,
)
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.model.commit_message import DIGEST_TEXT_MAX, CommitDigest
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from tests.kit.hand_made import bare_snapshot


def snapshot(
    snapshot_id: int,
    user: str,
    identifier: int,
    carried: LastCommits | None = None,
    kind: CommitKind = CommitKind.APPEND,
) -> Snapshot:
    return bare_snapshot(
        snapshot_id,
        commit_user=user,
        commit_identifier=identifier,
        commit_kind=kind,
        time_ms=1000 + snapshot_id,
        properties=None if carried is None else {COMMITS_PROPERTY: last_commits_to_text(carried)},
    )


def commits(complete: bool = True, **users: tuple[int, str | None]) -> LastCommits:
    return LastCommits({user: CommitTrace(last, query, 1) for user, (last, query) in users.items()}, complete)


def digest(number: int) -> CommitDigest:
    return CommitDigest(f"hash-{number}", f"offsets [{number}, {number + 1})")


def test_map_is_found_behind_snapshots_of_others() -> None:
    ours = snapshot(7, "u", 3, commits(u=(3, "q")))
    others = [snapshot(8, "paimon", 1), snapshot(9, "paimon", 2, kind=CommitKind.COMPACT)]
    known = last_commits_of([*reversed(others), ours])
    assert known.users["u"] == CommitTrace(3, "q", 1)
    assert known.users["paimon"] == CommitTrace(2, None, 1009)
    assert known.is_complete


def test_snapshot_of_another_library_under_our_user_ends_our_query() -> None:
    ours = snapshot(7, "u", 3, commits(u=(3, "q")))
    known = last_commits_of([snapshot(8, "u", 1), ours])
    assert known.users["u"] == CommitTrace(3, None, 1008), "the larger identifier, and no longer our query"


def test_batch_commit_of_another_library_says_nothing() -> None:
    assert last_commits_of([snapshot(1, "u", BATCH_COMMIT_IDENTIFIER)]).users == {}


def test_history_is_complete_only_down_to_snapshot_one() -> None:
    assert last_commits_of([]) == NO_COMMITS
    assert last_commits_of([snapshot(2, "a", 1), snapshot(1, "a", 0)]).is_complete
    assert not last_commits_of([snapshot(9, "a", 1), snapshot(8, "a", 0)]).is_complete
    assert not last_commits_of([snapshot(9, "u", 4, commits(complete=False, u=(4, "q")))]).is_complete


def test_walk_stops_at_the_carrier() -> None:
    def lazily() -> object:
        yield snapshot(9, "u", 4, commits(u=(4, "q")))
        raise AssertionError("walked past the carrier")

    assert last_commits_of(lazily()).users["u"].identifier == 4  # type: ignore[arg-type]


def test_no_user_is_ever_dropped() -> None:
    known = NO_COMMITS
    for number in range(1_000):
        known = known.with_commit(f"user-{number:04}", 0, None, time_ms=10_000 + number)
    known = parse_last_commits(last_commits_to_text(known), 1)
    assert len(known.users) == 1_000
    assert known.is_complete


def test_last_digests_are_carried_and_older_ones_forgotten() -> None:
    known = NO_COMMITS
    for number in range(DIGESTS_KEPT + 2):
        known = known.with_commit("u", number, "q", 1, digest(number))
    known = parse_last_commits(last_commits_to_text(known), 1)
    last = DIGESTS_KEPT + 1
    assert known.users["u"].digests == tuple((last - back, digest(last - back)) for back in range(DIGESTS_KEPT))


def test_first_digest_remembers_that_the_commit_before_had_none() -> None:
    known = commits(u=(3, "q")).with_commit("u", 4, "q", 1, digest(4))
    assert known.users["u"].digests == ((4, digest(4)), (3, None))
    assert known.with_commit("u", 5, "q", 1).users["u"].digests[0] == (5, None)


def test_users_without_digests_leave_the_map_as_older_releases_write_it() -> None:
    assert orjson.loads(last_commits_to_text(commits(u=(4, "q")))) == {"complete": True, "users": {"u": [4, "q", 1]}}


def test_map_of_an_older_release_is_read() -> None:
    known = parse_last_commits('{"complete": true, "users": {"u": [4, "q", 7]}}', 1)
    assert known.users["u"] == CommitTrace(4, "q", 7)


def test_users_of_a_map_with_digests_are_read_by_older_releases() -> None:
    text = last_commits_to_text(NO_COMMITS.with_commit("u", 4, "q", 7, digest(4)))
    assert orjson.loads(text)["users"] == {"u": [4, "q", 7]}, "three facts for each user, as they unpack it"


def test_long_ranges_are_cut_in_what_is_carried() -> None:
    known = NO_COMMITS.with_commit("u", 4, "q", 7, CommitDigest("h", "x" * 10_000))
    assert len(last_commits_to_text(known)) < DIGEST_TEXT_MAX + 200


def test_text_round_trip_and_refusal_of_anything_else() -> None:
    known = commits(complete=False, u=(4, "q"), v=(9, None)).with_commit("u", 5, "q", 2, digest(5))
    assert parse_last_commits(last_commits_to_text(known), 1) == known
    for text in ("", "[]", '{"users": []}', '{"complete": true, "users": {"u": [1]}}'):
        with pytest.raises(UnknownOutcomeError, match="snapshot 12"):
            parse_last_commits(text, 12)


def test_a_text_is_carried_until_its_user_gives_another() -> None:
    known = commits(complete=True).with_commit("u", 0, "q", 1, carried="first").with_commit("v", 3, "q", 2)
    known = parse_last_commits(last_commits_to_text(known.with_commit("u", 1, "q", 3)), 7)
    assert known.users["u"].carried == "first" and known.users["v"].carried is None
    assert known.with_commit("u", 2, "q", 4, carried="second").users["u"].carried == "second"
