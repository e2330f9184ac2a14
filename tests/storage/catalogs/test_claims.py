"""One behaviour of every claim: two of everything at the same time, lost answers, a claimer that was stalled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from freshet.storage.catalogs.claims import LOST, WON, ClaimAnswer, ClaimOutcome, FileClaims, LockedClaims, TableClaims
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError, UnknownOutcomeError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import Created, FileIO
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.snapshot import Snapshot
from tests.kit.at_once import at_once
from tests.kit.hand_made import assert_contiguous, bare_snapshot, live_names, make_table, message, new_file
from tests.kit.jdbc_catalogs import sqlite_lock
from tests.kit.lost_answers import LostAnswers

T = TypeVar("T")

RACERS = 20


@dataclass
class Place:
    """Where the tables of a test lie, and how their ids are claimed."""

    file_io: FileIO
    location: str
    claims_over: Callable[[FileClaims], TableClaims]

    def table(self) -> TableStore:
        options = {"write-only": "true", "commit.max-retries": "100"}
        return self._claimed(make_table(Env(self.file_io), self.location, options=options))

    def again(self, file_io: FileIO | None = None) -> TableStore:
        """The table as another process opens it, maybe over a worse store."""
        return self._claimed(open_table_store(Env(file_io or self.file_io), self.location))

    def _claimed(self, store: TableStore) -> TableStore:
        return replace(store, claims=self.claims_over(FileClaims(store.env.file_io, store.paths)))


def _as_they_are(claims: FileClaims) -> TableClaims:
    return claims


@pytest.fixture(params=["local", "memory", "local, locked", "memory, locked", "local, jdbc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    where, _, how = request.param.partition(", ")
    lock = threading.Lock()
    over: Callable[[FileClaims], TableClaims] = _as_they_are
    if how == "locked":
        over = lambda claims: LockedClaims(claims, lambda: lock)  # noqa: E731
    elif how == "jdbc":
        row = sqlite_lock(f"{tmp_path}/catalog.db")
        over = lambda claims: LockedClaims(claims, lambda: row.held(TableName("db", "t")))  # noqa: E731
    if where == "memory":
        return Place(MemoryFileIO(), "memory:/w/db.db/t", over)
    return Place(LocalFileIO(), f"{tmp_path}/t", over)


def snapshot(store: TableStore, snapshot_id: int, user: str = "u") -> Snapshot:
    return bare_snapshot(snapshot_id, commit_user=user, uuid=store.env.new_uuid())


def append(store: TableStore, name: str, number: int) -> Snapshot:
    [made] = Committer(store, name).commit(number, [message(store, new=[new_file(store, f"{name}{number}")])]).snapshots
    return made


def test_a_won_snapshot_is_visible_and_the_id_is_gone(place: Place) -> None:
    store = place.table()
    ours, theirs = snapshot(store, 1), snapshot(store, 1, "another")
    assert store.claims.claim_snapshot(ours) == WON
    assert place.again().snapshots.latest() == ours
    assert place.again().claims.claim_snapshot(theirs) == LOST
    assert place.again().claims.claim_snapshot(ours) == LOST, "a claim is made once; asking again says whose it is"
    assert place.again().snapshots.latest() == ours


def test_asking_again_distinguishes_ours_from_anothers_and_from_none(place: Place) -> None:
    store = place.table()
    ours, theirs = snapshot(store, 1), snapshot(store, 1)
    assert replace(ours, uuid=None) == replace(theirs, uuid=None), "but for the uuid they are the same"
    assert store.claims.ask_again(ours).outcome is ClaimOutcome.UNKNOWN
    assert store.claims.claim_snapshot(ours) == WON
    assert (store.claims.ask_again(ours), store.claims.ask_again(theirs)) == (WON, LOST)


@pytest.mark.few(3)
def test_of_twenty_that_race_for_each_id_one_wins(place: Place) -> None:
    store = place.table()
    for snapshot_id in range(1, 11):
        racers = [(place.again(), snapshot(store, snapshot_id, f"u{number}")) for number in range(RACERS)]
        answers = at_once([lambda racer=racer: racer[0].claims.claim_snapshot(racer[1]) for racer in racers])
        assert sorted(answer.outcome.value for answer in answers) == ["lost"] * (RACERS - 1) + ["won"]
        [winner] = [made for (_, made), answer in zip(racers, answers, strict=True) if answer == WON]
        assert place.again().snapshots.latest() == winner


def test_of_twenty_that_race_for_a_schema_one_wins(place: Place) -> None:
    store = place.table()
    wanted = [replace(store.schema, id=1, comment=f"of {number}") for number in range(RACERS)]
    won = at_once([lambda schema=schema: place.again().claims.claim_schema(schema) for schema in wanted])
    assert won.count(True) == 1
    assert place.again().schema == wanted[won.index(True)]
    assert not store.claims.claim_schema(wanted[0]), "the id is given once"


@pytest.mark.few(2)
def test_twenty_committers_at_once_all_commit_once(place: Place) -> None:
    store = place.table()
    at_once([lambda number=number: append(place.again(), f"u{number}-", 0) for number in range(RACERS)])
    assert_contiguous(place.again())
    assert live_names(place.again()) == sorted(f"u{number}-0@0" for number in range(RACERS))
    assert [made.id for made in store.snapshots.all()] == list(range(1, RACERS + 1))


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_lost_answer_is_a_value_and_the_commit_is_there_once(
    place: Place, takes_effect: bool, is_error: bool
) -> None:
    append(place.table(), "a", 0)
    deaf = LostAnswers(place.file_io, takes_effect, is_error, left=2)
    store = place.again(deaf)  # type: ignore[arg-type]
    made = snapshot(store, 2)
    answer = store.claims.claim_snapshot(made)
    assert answer.outcome is ClaimOutcome.UNKNOWN
    assert (answer.cause is not None) is is_error
    assert store.claims.ask_again(made).outcome is (ClaimOutcome.WON if takes_effect else ClaimOutcome.UNKNOWN)
    place.file_io.delete(store.paths.snapshot(2))
    deaf.asked.clear()

    assert append(store, "b", 0).id == 2
    assert deaf.asked == [store.paths.snapshot(2)], "the committer asked whose the snapshot is"
    assert_contiguous(place.again())
    assert live_names(place.again()) == ["a0@0", "b0@0"]


def test_a_store_that_refuses_to_be_asked_again_says_nothing_of_the_claim(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(place.table(), "a", 0)
    deaf = LostAnswers(place.file_io, takes_effect=True, is_error=True)
    store = place.again(deaf)  # type: ignore[arg-type]

    def refuse(path: str, data: bytes) -> Created:
        raise InvalidRequestError("this user may not read")

    monkeypatch.setattr(deaf, "asked_again", refuse)
    answer = store.claims.ask_again(snapshot(store, 2))
    assert (answer.outcome, str(answer.cause)) == (ClaimOutcome.UNKNOWN, "this user may not read")
    assert append(store, "b", 0).id == 2, "the next round finds it by its uuid"
    assert live_names(place.again()) == ["a0@0", "b0@0"]


def test_answers_that_stay_away_end_in_an_unknown_outcome_and_delete_nothing(place: Place) -> None:
    store = make_table(Env(place.file_io), place.location, options={"commit.max-retries": "2"})
    deaf = LostAnswers(place.file_io, takes_effect=False, is_error=True, left=1000)
    store = place.again(deaf)  # type: ignore[arg-type]
    with pytest.raises(UnknownOutcomeError, match="without an answer"):
        append(store, "a", 0)
    left = [status.name for status in place.file_io.entries(store.paths.manifest_folder)]
    assert left, "a snapshot that appears late finds its manifests"


@dataclass
class Stalled:
    """Claims that stop before the first claim of a snapshot until `meanwhile` is over."""

    inner: TableClaims
    meanwhile: Callable[[], None]
    is_over: bool = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def claim_snapshot(self, made: Snapshot) -> ClaimAnswer:
        if not self.is_over:
            self.is_over = True
            self.meanwhile()
        return self.inner.claim_snapshot(made)


def stalled(store: TableStore, meanwhile: Callable[[], None]) -> TableStore:
    return replace(store, claims=Stalled(store.claims, meanwhile))  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [1, 3])
def test_a_stalled_claimer_whose_id_was_used_and_has_expired_commits_on_top(place: Place, kept: int) -> None:
    append(place.table(), "a", 0)

    def others() -> None:
        store = place.again()
        for number in range(4):
            append(store, "other", number)
        expire_snapshots(store, retain_max=kept, time_retained_ms=0)

    assert append(stalled(place.again(), others), "late", 0).id == 6
    assert_contiguous(place.again())
    assert live_names(place.again()) == ["a0@0", "late0@0", *(f"other{number}@0" for number in range(4))]


@pytest.mark.parametrize("commits", [0, 1])
def test_a_claim_of_a_table_that_is_gone_is_taken_back(place: Place, commits: int) -> None:
    """Dropped, or renamed: what is won in a folder without a schema would be in no table."""
    store = place.table()
    for number in range(commits):
        append(store, "a", number)

    def drop() -> None:
        for folder in (store.paths.schema_folder, store.paths.snapshot_folder):
            place.file_io.delete_prefix(folder)

    with pytest.raises(NotFoundError, match="while it was open"):
        append(stalled(place.again(), drop), "late", 0)
    assert not [status.name for status in place.file_io.entries(store.paths.snapshot_folder)]


def test_a_lock_that_cannot_be_had_means_that_nothing_was_created(place: Place) -> None:
    store = place.table()

    @contextmanager
    def held_by_another() -> Iterator[None]:
        raise NotFoundError("the table is no more")
        yield

    claims = LockedClaims(store.claims, held_by_another)
    for claim in (lambda: claims.claim_snapshot(snapshot(store, 1)), lambda: claims.claim_schema(store.schema)):
        with pytest.raises(NotFoundError, match="no more"):
            claim()
    assert store.snapshots.latest() is None


def test_a_lock_that_cannot_be_released_takes_no_claim_back(place: Place) -> None:
    store = place.table()

    @contextmanager
    def lost_at_the_end() -> Iterator[None]:
        yield
        raise RetryableError("the lock could not be released")

    locked = replace(store, claims=LockedClaims(store.claims, lost_at_the_end))
    result = Committer(locked, "u").commit(1, [message(store, new=[new_file(store, "f")])])
    assert [each.commit_user for each in result.snapshots] == ["u"]
    assert len(live_names(place.again())) == 1
