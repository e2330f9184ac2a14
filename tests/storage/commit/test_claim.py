"""Claims that come so late that their id was used and has expired: they must not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshet.storage.catalogs.claims import WON, ClaimAnswer
from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.snapshot import CommitKind, Snapshot
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    live_names,
    make_table,
    message,
    new_file,
)
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
OPTIONS = {"write-only": "true"}


class Overtaken:
    """Between the last look and the create, others commit `commits` times and expire all but `retain`; once."""

    def __init__(self, store: TableStore, commits: int, retain: int, kind: CommitKind = CommitKind.APPEND) -> None:
        self.claim = store.claims.claim_snapshot
        self._other = open_table_store(store.env, LOCATION)
        self._commits, self._retain, self._kind = commits, retain, kind
        self.was_late = False

    def __call__(self, snapshot: Snapshot) -> ClaimAnswer:
        if self.was_late or snapshot.commit_kind is not self._kind:
            return self.claim(snapshot)
        self.was_late = True
        for number in range(self._commits):
            made = new_file(self._other, f"other{number}", sequence=10 * (number + 1))
            Committer(self._other, "other").commit(number, [message(self._other, new=[made])])
        expire_snapshots(self._other, retain_max=self._retain, time_retained_ms=0)
        return self.claim(snapshot)


@pytest.mark.parametrize("retain", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [0, 1])
def test_late_append_is_committed_again_on_top(start: int, retain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With four commits and four retained the id is still taken; with three its successor is the earliest."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    for number in range(start):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"before{number}")])])
    late = Overtaken(store, commits=4, retain=retain)
    monkeypatch.setattr(store.claims, "claim_snapshot", late)
    [snapshot] = Committer(store, "u").commit(start, [message(store, new=[new_file(store, "late")])]).snapshots
    assert late.was_late
    assert snapshot.id == start + 5
    assert_contiguous(store)
    assert {"late@0", "other0@0", "other3@0"} <= set(live_names(open_table_store(store.env, LOCATION)))
    assert Committer(open_table_store(store.env, LOCATION), "u").has_committed(start).is_committed


@pytest.mark.parametrize("retain", [1, 3])
def test_late_compaction_is_committed_again_on_top(retain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_table(SimDisk().boot(), options=OPTIONS)
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    late = Overtaken(store, commits=4, retain=retain, kind=CommitKind.COMPACT)
    monkeypatch.setattr(store.claims, "claim_snapshot", late)
    compaction = message(store, before=[a], after=[new_file(store, "c", level=5)])
    [snapshot] = Committer(store, "compactor").commit(0, [compaction], force_empty=False).snapshots
    assert (late.was_late, snapshot.id) == (True, 6)
    assert_contiguous(store)
    assert_everything_named_is_there(store)
    assert live_names(open_table_store(store.env, LOCATION)) == ["c@5", *(f"other{number}@0" for number in range(4))]


def test_late_claim_that_expiry_finds_below_the_history_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expiry, whose hint is gone, takes the late snapshot for the oldest one and away, before its writer looks."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    Committer(store, "u").commit(0, [message(store, new=[new_file(store, "a")])])
    late, other = Overtaken(store, commits=4, retain=1), open_table_store(store.env, LOCATION)

    def claim_then_expire(snapshot: Snapshot) -> ClaimAnswer:
        is_late = not late.was_late
        answer = late(snapshot)
        if is_late:
            store.env.file_io.delete(store.paths.earliest_hint)
            expire_snapshots(other, retain_max=1, time_retained_ms=0)
            assert not store.snapshots.exists(snapshot.id)
        return answer

    monkeypatch.setattr(store.claims, "claim_snapshot", claim_then_expire)
    [snapshot] = Committer(store, "u").commit(1, [message(store, new=[new_file(store, "late")])]).snapshots
    assert snapshot.id == 6
    fresh = open_table_store(store.env, LOCATION)
    assert_contiguous(fresh)
    assert_everything_named_is_there(fresh)
    assert "late@0" in live_names(fresh)


@pytest.mark.parametrize("comes", ["before the look", "before the create"])
def test_late_claim_on_top_of_another_late_claim_does_not_count(comes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id before it is there again, but as the late claim of a third writer."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    for number in range(2):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"before{number}")])])
    late, base = Overtaken(store, commits=4, retain=1), store.snapshots.snapshot(2)
    third = replace(base, uuid="third", commit_user="third")
    find = store.snapshots.find

    def look_late(snapshot_id: int) -> Snapshot | None:
        if snapshot_id == base.id and not late.was_late:
            late(replace(base, id=3, uuid="never", commit_kind=CommitKind.APPEND))
            store.env.file_io.delete(store.paths.snapshot(3))
            assert late.claim(third) == WON
        return find(snapshot_id)

    def claim_late(snapshot: Snapshot) -> ClaimAnswer:
        if late.was_late:
            return late.claim(snapshot)
        answer = late(snapshot)
        assert late.claim(third) == WON
        return answer

    if comes == "before the look":
        monkeypatch.setattr(store.snapshots, "find", look_late)
    else:
        monkeypatch.setattr(store.claims, "claim_snapshot", claim_late)
    [snapshot] = Committer(store, "u").commit(2, [message(store, new=[new_file(store, "late")])]).snapshots
    assert (late.was_late, snapshot.id) == (True, 7)
    store.env.file_io.delete(store.paths.snapshot(third.id))  # as its writer does
    fresh = open_table_store(store.env, LOCATION)
    assert_contiguous(fresh)
    assert "late@0" in live_names(fresh)


def test_expiry_takes_nothing_but_the_snapshot_of_late_claims() -> None:
    """A late compaction that died before it was taken back deletes a file that is live: it stays."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    compaction = message(store, before=[a], after=[new_file(store, "c", level=5)])
    Committer(store, "compactor").commit(0, [compaction], force_empty=False)
    late = [store.env.file_io.read_bytes(store.paths.snapshot(number)) for number in (1, 2)]
    store.env.file_io.delete(store.paths.snapshot(2))
    store.snapshots.write_latest_hint(1)
    store = open_table_store(store.env, LOCATION)
    for number in range(4):
        Committer(store, "v").commit(number, [message(store, new=[new_file(store, f"v{number}")])])
    expire_snapshots(store, retain_max=1, time_retained_ms=0)
    for number, data in zip((1, 2), late, strict=True):
        store.env.file_io.overwrite(store.paths.snapshot(number), data)
    store.env.file_io.delete(store.paths.earliest_hint)
    store = open_table_store(store.env, LOCATION)
    Committer(store, "v").commit(4, [message(store, new=[new_file(store, "v4")])])
    expire_snapshots(store, retain_max=1, time_retained_ms=0)
    fresh = open_table_store(store.env, LOCATION)
    assert fresh.snapshots.list_ids() == [6]
    assert_everything_named_is_there(fresh)


def test_crash_after_a_late_claim_leaves_the_table_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options=OPTIONS)
    Committer(store, "u").commit(0, [message(store, new=[new_file(store, "a")])])
    store = open_table_store(disk.boot(Fault(point=CrashPoint.COMMIT_MANIFESTS_WRITTEN, visit=6)), LOCATION)
    late = Overtaken(store, commits=4, retain=1)

    def claim_and_die(snapshot: Snapshot) -> ClaimAnswer:
        late(snapshot)
        store.env.file_io.die()  # type: ignore[attr-defined]
        raise AssertionError

    monkeypatch.setattr(store.claims, "claim_snapshot", claim_and_die)
    with pytest.raises(Crash):
        Committer(store, "u").commit(1, [message(store, new=[new_file(store, "late")])])
    store = open_table_store(disk.boot(), LOCATION)
    assert store.snapshots.latest_id() == 5
    assert store.snapshots.earliest_id() == 5
    assert not Committer(store, "u").has_committed(1).is_committed
    [snapshot] = Committer(store, "u").commit(1, [message(store, new=[new_file(store, "again")])]).snapshots
    assert snapshot.id == 6
    assert "late@0" not in live_names(store)


def test_claim_next_to_fast_expiry_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round: ours is the next one, and what it was built on expires at once."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    for number in range(3):
        claim = store.claims.claim_snapshot

        def claim_then_others(snapshot: Snapshot, claim=claim, number: int = number) -> bool:
            monkeypatch.undo()
            assert claim(snapshot) == WON
            other = open_table_store(store.env, LOCATION)
            for _ in range(number):
                made = message(other, new=[new_file(other, f"other{snapshot.id}-{_}")])
                Committer(other, "other").commit(snapshot.id * 10 + _, [made])
            expire_snapshots(other, retain_max=number + 1, time_retained_ms=0)
            return WON

        monkeypatch.setattr(store.claims, "claim_snapshot", claim_then_others)
        made = message(store, new=[new_file(store, f"mine{number}")])
        assert len(Committer(store, "u").commit(number, [made]).snapshots) == 1
        assert f"mine{number}@0" in live_names(open_table_store(store.env, LOCATION))
        assert_contiguous(store)


@pytest.mark.parametrize("kind", [CommitKind.APPEND, CommitKind.COMPACT])
@pytest.mark.parametrize("call", ["list_ids", "fresh"])
def test_claim_holds_when_its_neighbours_expire_while_they_are_looked_at(
    kind: CommitKind, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the claim is built on has expired; it and its successor expire after the listing, or after the reading, of
    the snapshots around it. Nothing that the newer snapshots name may be taken back."""
    store = make_table(SimDisk().boot(), options=OPTIONS)
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    other = open_table_store(store.env, LOCATION)
    claim, look = store.claims.claim_snapshot, getattr(store.snapshots, call)

    def claim_then_others(snapshot: Snapshot) -> ClaimAnswer:
        monkeypatch.setattr(store.claims, "claim_snapshot", claim)
        assert claim(snapshot) == WON
        for number in range(2):
            made = message(other, new=[new_file(other, f"other{number}")])
            Committer(other, "other").commit(number, [made])
        expire_snapshots(other, retain_max=3, time_retained_ms=0)
        monkeypatch.setattr(store.snapshots, call, look_then_expire)
        return WON

    def look_then_expire(*arguments: int) -> object:
        monkeypatch.setattr(store.snapshots, call, look)
        seen = look(*arguments)
        expire_snapshots(other, retain_max=1, time_retained_ms=0)
        return seen

    monkeypatch.setattr(store.claims, "claim_snapshot", claim_then_others)
    if kind is CommitKind.APPEND:
        result = Committer(store, "u").commit(1, [message(store, new=[new_file(store, "mine")])])
    else:
        compaction = message(store, before=[a], after=[new_file(store, "mine", level=5)])
        result = Committer(store, "compactor").commit(0, [compaction], force_empty=False)
    assert result.snapshots
    assert not result.aborted_compactions
    fresh = open_table_store(store.env, LOCATION)
    assert_contiguous(fresh)
    assert_everything_named_is_there(fresh)
    mine = ["a@0", "mine@0"] if kind is CommitKind.APPEND else ["mine@5"]
    assert live_names(fresh) == [*mine, "other0@0", "other1@0"]
