"""The truth table of commit identity, and the refusals."""

from __future__ import annotations

from itertools import product

import pytest

from freshet.storage.commit.identity import CommitIdentity, Verdict, check_identifier, decide, is_committed
from freshet.storage.commit.last_commits import CommitTrace, LastCommits
from freshet.storage.exceptions import DifferentInputError, InvalidRequestError, UnknownOutcomeError
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER

SAME, OTHER = CommitDigest("aaa", "topic t: 0 [10, 20)"), CommitDigest("bbb", "topic t: 0 [0, 20)")


def commits(complete: bool = True, **users: tuple[int, str | None]) -> LastCommits:
    return LastCommits({user: CommitTrace(last, query, 1) for user, (last, query) in users.items()}, complete)


def identity(identifier: int, query_id: str | None = "q", digest: CommitDigest | None = None) -> CommitIdentity:
    return CommitIdentity("u", identifier, query_id, digest)


def with_digests(last: int, *digests: tuple[int, CommitDigest | None]) -> LastCommits:
    return LastCommits({"u": CommitTrace(last, "q", 1, digests)}, is_complete=True)


def test_truth_table_every_cell() -> None:
    traces = {"none": None, "same": (5, "q"), "other": (5, "x"), "plain": (5, None)}
    for (name, trace), complete, identifier in product(traces.items(), (True, False), (0, 4, 5, 6)):
        known = commits(complete, **({} if trace is None else {"u": trace}))
        if name == "none":
            expected = Verdict.WRITE if complete or identifier == 0 else Verdict.UNKNOWN_OUTCOME
        elif name == "same":
            expected = Verdict.ALREADY_COMMITTED if identifier <= 5 else Verdict.WRITE
        else:
            expected = Verdict.FOREIGN_QUERY
        assert decide(known, identity(identifier)) is expected, (name, complete, identifier)


@pytest.mark.parametrize(
    ("identifier", "given", "verdict"),
    [
        (5, SAME, Verdict.ALREADY_COMMITTED),
        (5, OTHER, Verdict.OTHER_INPUT),
        (5, None, Verdict.ALREADY_COMMITTED),
        (4, OTHER, Verdict.ALREADY_COMMITTED),  # equal: 4 was committed from it
        (4, SAME, Verdict.OTHER_INPUT),
        (3, SAME, Verdict.ALREADY_COMMITTED),  # committed by an older release, without a digest
        (2, SAME, Verdict.OTHER_INPUT),  # forgotten
        (2, None, Verdict.ALREADY_COMMITTED),
        (6, SAME, Verdict.WRITE),
        (6, OTHER, Verdict.WRITE),
    ],
)
def test_truth_table_of_digests(identifier: int, given: CommitDigest | None, verdict: Verdict) -> None:
    known = with_digests(5, (5, SAME), (4, OTHER), (3, None))
    assert decide(known, identity(identifier, digest=given)) is verdict
    if verdict is Verdict.ALREADY_COMMITTED:
        assert decide(commits(u=(5, "q")), identity(identifier, digest=given)) is verdict, "nobody gave digests before"


def test_foreign_query_is_reported_before_the_digest() -> None:
    assert decide(with_digests(5, (5, SAME)), identity(5, "x", OTHER)) is Verdict.FOREIGN_QUERY


def test_plain_writer_without_query_id_is_idempotent_and_does_not_take_over_a_query() -> None:
    assert decide(commits(u=(5, None)), identity(5, None)) is Verdict.ALREADY_COMMITTED
    assert decide(commits(u=(5, None)), identity(6, None)) is Verdict.WRITE
    assert decide(commits(u=(5, "q")), identity(6, None)) is Verdict.FOREIGN_QUERY


@pytest.mark.parametrize("identifier", [-1, BATCH_COMMIT_IDENTIFIER, BATCH_COMMIT_IDENTIFIER + 1])
def test_identifiers_without_an_order_are_refused(identifier: int) -> None:
    with pytest.raises(InvalidRequestError, match=str(identifier)):
        check_identifier(identifier)
    check_identifier(BATCH_COMMIT_IDENTIFIER - 1)


def test_refusals_name_the_remedy() -> None:
    with pytest.raises(InvalidRequestError, match=r"checkpoint was deleted .* another commit user"):
        is_committed(commits(u=(5, "x")), identity(0), table="t")
    with pytest.raises(UnknownOutcomeError, match=r"table t.*snapshots have expired.*snapshot.num-retained.min"):
        is_committed(commits(complete=False), identity(3), table="t")


def test_other_input_shows_both_ranges() -> None:
    with pytest.raises(DifferentInputError) as caught:
        is_committed(with_digests(5, (5, SAME)), identity(5, digest=OTHER), table="t")
    error = caught.value
    assert SAME.text in str(error)
    assert OTHER.text in str(error)
    assert (error.commit_user, error.identifier, error.committed, error.given) == ("u", 5, SAME, OTHER)
    with pytest.raises(DifferentInputError, match=r"lies before 5.*no longer known.*newest checkpoint") as caught:
        is_committed(with_digests(5, (5, SAME)), identity(1, digest=OTHER), table="t")
    assert caught.value.committed is None
