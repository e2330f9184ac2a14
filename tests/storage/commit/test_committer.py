"""Commits on a disk in memory: what each snapshot holds, replays, conflicts, lost claims and lost answers."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from types import MappingProxyType

import pytest

from freshet.storage.catalogs.claims import LOST, WON, ClaimAnswer, ClaimOutcome
from freshet.storage.codec.commit_facts import FACTS_PROPERTY
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, parse_last_commits
from freshet.storage.commit.manifest_index import index_of
from freshet.storage.exceptions import (
    ConflictError,
    DifferentInputError,
    InvalidRequestError,
    RetryableError,
    StorageError,
    UnknownOutcomeError,
)
from freshet.storage.io.file_io import Created
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import EntryKind, IndexEntry, IndexFileMeta
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    data_files_on_disk,
    live_names,
    make_table,
    message,
    new_file,
    partition,
)
from tests.kit.sim_env import Fault, FaultKind, SimDisk

LOCATION = "/warehouse/db.db/t"


def reopen(disk: SimDisk, fault: Fault | None = None) -> TableStore:
    return open_table_store(disk.boot(fault), LOCATION)


def append(store: TableStore, name: str, identifier: int, user: str = "u", query_id: str | None = "q", **file: object):
    file_meta = new_file(store, name, **file)  # type: ignore[arg-type]
    bucket = file.get("bucket", 0)
    assert isinstance(bucket, int)
    return Committer(store, user, query_id).commit(identifier, [message(store, bucket=bucket, new=[file_meta])])


def foreign_snapshot(store: TableStore, user: str, identifier: int, kind: CommitKind = CommitKind.APPEND) -> Snapshot:
    """What another library writes: the same files, none of our properties."""
    latest = store.snapshots.latest()
    assert latest is not None
    empty, size = store.manifests.write_manifest_list([])
    manifests = [
        *store.manifests.read_manifest_list(latest.base_manifest_list),
        *store.manifests.read_manifest_list(latest.delta_manifest_list),
    ]
    base, base_size = store.manifests.write_manifest_list(manifests)
    snapshot = replace(
        latest,
        id=latest.id + 1,
        uuid=None,
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=empty,
        delta_manifest_list_size=size,
        commit_user=user,
        commit_identifier=identifier,
        commit_kind=kind,
        delta_record_count=0,
        properties=None,
        time_ms=latest.time_ms + 1000,
    )
    assert store.claims.claim_snapshot(snapshot) == WON
    return snapshot


def test_append_then_compact_under_one_identifier() -> None:
    store = make_table(SimDisk().boot())
    a = new_file(store, "a", rows=3, keys=(1, 5))
    c = new_file(store, "c", rows=2, keys=(1, 5), level=5)
    result = Committer(store, "u", "q").commit(
        7, [message(store, new=[a], before=[a], after=[c])], properties={"mine": "1"}, watermark=50
    )
    first, second = result.snapshots
    assert (first.id, first.commit_kind, first.commit_identifier) == (1, CommitKind.APPEND, 7)
    assert (second.id, second.commit_kind, second.commit_identifier) == (2, CommitKind.COMPACT, 7)
    assert (first.delta_record_count, first.total_record_count) == (3, 3)
    assert (second.delta_record_count, second.total_record_count) == (-1, 2)
    assert live_names(store, first) == ["a@0"]
    assert live_names(store) == ["c@5"]
    assert (second.watermark, second.next_row_id, second.schema_id) == (50, 0, 0)
    assert second.properties is not None
    assert second.properties["mine"] == "1"
    known = parse_last_commits(second.properties[COMMITS_PROPERTY], 2)
    assert (known.users["u"].identifier, known.users["u"].query_id, known.is_complete) == (7, "q", True)
    assert store.env.file_io.read_bytes(store.paths.latest_hint) == b"2"


def test_sizes_in_the_snapshot_are_exact() -> None:
    store = make_table(SimDisk().boot())
    [snapshot] = append(store, "a", 0).snapshots
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ):
        assert store.env.file_io.size(store.paths.manifest(name)) == size
    assert store.manifests.read_manifest_list(snapshot.base_manifest_list) == (), "an empty base list is a file"


def test_upgrade_keeps_the_file() -> None:
    store = make_table(SimDisk().boot())
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a], before=[a], after=[replace(a, level=5)])])
    assert live_names(store) == ["a@5"]


def test_changelog_hangs_on_its_snapshot() -> None:
    store = make_table(SimDisk().boot())
    result = Committer(store, "u").commit(
        0, [message(store, new=[new_file(store, "a")], changelog=[new_file(store, "log", rows=4)])]
    )
    [snapshot] = result.snapshots
    assert snapshot.changelog_record_count == 4
    assert snapshot.changelog_manifest_list is not None
    assert snapshot.delta_record_count == 1, "changelog rows are not rows of the table"


def test_replay_is_recognised_in_a_new_process() -> None:
    disk = SimDisk()
    append(make_table(disk.boot()), "a", 3)
    store = reopen(disk)
    assert Committer(store, "u", "q").has_committed(3).is_committed
    result = append(store, "again", 3)
    assert result.already_committed
    assert result.snapshots == ()
    assert live_names(store) == ["a@0"]
    assert not Committer(store, "u", "q").has_committed(4).is_committed


def test_identity_survives_snapshots_and_expiry_of_others() -> None:
    disk = SimDisk()
    append(make_table(disk.boot()), "a", 3)
    store = reopen(disk)
    for number in range(3):
        foreign_snapshot(store, "paimon", number)
    assert Committer(store, "u", "q").has_committed(3).is_committed
    append(store, "b", 0, user="other")
    for snapshot_id in (1, 2, 3, 4):
        store.env.file_io.delete(store.paths.snapshot(snapshot_id))
    store = reopen(disk)
    assert Committer(store, "u", "q").has_committed(3).is_committed, "carried forward by the other user's commit"


def test_checkpoint_deleted_is_refused() -> None:
    disk = SimDisk()
    append(make_table(disk.boot()), "a", 3)
    store = reopen(disk)
    with pytest.raises(InvalidRequestError, match="checkpoint was deleted"):
        append(store, "b", 0, query_id="another")
    assert live_names(store) == ["a@0"]


def test_same_batch_of_other_input_is_refused_and_nothing_is_written() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    first, second = CommitDigest("1", "offsets [0, 10)"), CommitDigest("2", "offsets [0, 12)")
    Committer(store, "u", "q").commit(0, [message(store, new=[new_file(store, "a")])], digest=first)
    store = reopen(disk)
    committer = Committer(store, "u", "q")
    assert committer.has_committed(0, digest=first).is_committed
    with pytest.raises(DifferentInputError, match=r"offsets \[0, 10\).*offsets \[0, 12\)"):
        committer.has_committed(0, digest=second)
    names = disk.names()
    with pytest.raises(DifferentInputError):
        committer.commit(0, [], digest=second)
    assert disk.names() == names
    assert committer.commit(0, [], digest=first).already_committed
    assert committer.commit(1, [], digest=second).snapshots


def test_commits_without_order_are_refused_before_anything_is_written() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    file = new_file(store, "a")
    names = disk.names()
    for call in (
        lambda: Committer(store, "u").commit(BATCH_COMMIT_IDENTIFIER, [message(store, new=[file])]),
        lambda: Committer(store, "u").has_committed(BATCH_COMMIT_IDENTIFIER),
    ):
        with pytest.raises(InvalidRequestError, match="batch jobs of other libraries"):
            call()
    assert disk.names() == names


def test_users_beyond_any_number_are_recognised_and_new_ones_may_start_anywhere() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    for number in range(210):
        Committer(store, f"user-{number}").commit(0, [])
    store = reopen(disk)
    assert all(Committer(store, f"user-{number}").has_committed(0).is_committed for number in (0, 1, 209))
    assert Committer(store, "user-0").commit(0, []).already_committed
    assert Committer(store, "late").commit(7, []).snapshots


def test_history_expired_by_others_is_an_unknown_outcome() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    append(store, "a", 3)
    foreign_snapshot(store, "paimon", 1)
    foreign_snapshot(store, "paimon", 2)
    store.env.file_io.delete(store.paths.snapshot(1))
    store.env.file_io.delete(store.paths.snapshot(2))
    store = reopen(disk)
    with pytest.raises(UnknownOutcomeError, match="snapshots have expired"):
        append(store, "b", 4)
    assert append(store, "c", 0, user="fresh").snapshots, "batch 0 of a new user starts"
    with pytest.raises(UnknownOutcomeError):
        append(store, "d", 4)


def test_empty_commit_leaves_its_trace_unless_not_forced() -> None:
    store = make_table(SimDisk().boot())
    committer = Committer(store, "u", "q")
    assert committer.commit(0, [], force_empty=False).snapshots == ()
    [snapshot] = committer.commit(0, []).snapshots
    assert (snapshot.delta_record_count, snapshot.commit_kind) == (0, CommitKind.APPEND)
    assert committer.commit(0, []).already_committed


def test_compaction_whose_input_vanished_is_dropped_bucket_by_bucket() -> None:
    store = make_table(SimDisk().boot())
    a, b = new_file(store, "a"), new_file(store, "b", bucket=1)
    Committer(store, "u").commit(0, [message(store, new=[a]), message(store, bucket=1, new=[b])])
    rival = new_file(store, "rival", level=5)
    Committer(store, "rival").commit(0, [message(store, before=[a], after=[rival])], force_empty=False)
    c, d = new_file(store, "c", level=5), new_file(store, "d", level=5, bucket=1)
    new = new_file(store, "new")
    result = Committer(store, "u").commit(
        1,
        [message(store, new=[new], before=[a, new], after=[c]), message(store, bucket=1, before=[b], after=[d])],
    )
    assert [snapshot.commit_kind for snapshot in result.snapshots] == [CommitKind.APPEND, CommitKind.COMPACT]
    assert [(conflict.bucket, "not live any more" in conflict.reason) for conflict in result.aborted_compactions] == [
        (0, True)
    ]
    assert live_names(store) == ["d@5", "new@0", "rival@5"], "the append is there, bucket 1 is compacted"
    assert "c" not in data_files_on_disk(store), "what the compaction had written is removed"
    assert_everything_named_is_there(store)


def test_upgrade_that_is_dropped_keeps_the_file_it_would_have_renamed() -> None:
    store = make_table(SimDisk().boot())
    a, b = new_file(store, "a", keys=(1, 2)), new_file(store, "b", keys=(3, 4))
    Committer(store, "u").commit(0, [message(store, new=[a])])
    rival = new_file(store, "rival", level=5)
    Committer(store, "rival").commit(0, [message(store, before=[a], after=[rival])], force_empty=False)
    upgrades = [replace(a, level=5), replace(b, level=5)]
    result = Committer(store, "u").commit(1, [message(store, new=[b], before=[a, b], after=upgrades)])
    assert result.aborted_compactions
    assert live_names(store) == ["b@0", "rival@5"]
    assert_everything_named_is_there(store)


def test_of_two_equal_upgrades_the_later_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both give the file the same level: that it has it already does not mean that this commit was made before."""
    store = make_table(SimDisk().boot())
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    upgrade, claim = message(store, before=[a], after=[replace(a, level=5)]), store.claims.claim_snapshot

    def overtaken(snapshot: Snapshot) -> ClaimAnswer:
        monkeypatch.undo()
        other = open_table_store(store.env, store.location)
        Committer(other, "rival").commit(0, [upgrade], force_empty=False)
        return claim(snapshot)

    monkeypatch.setattr(store.claims, "claim_snapshot", overtaken)
    result = Committer(store, "late").commit(0, [upgrade], force_empty=False)
    assert result.snapshots == ()
    assert result.aborted_compactions
    assert live_names(store) == ["a@5"]
    assert_everything_named_is_there(store)


def test_compaction_that_is_dropped_entirely_writes_nothing() -> None:
    store = make_table(SimDisk().boot())
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a], before=[a], after=[new_file(store, "c", level=5)])])
    before = list(store.env.file_io.entries(store.paths.manifest_folder))
    late = new_file(store, "late", level=5)
    result = Committer(store, "late").commit(0, [message(store, before=[a], after=[late])], force_empty=False)
    assert (result.snapshots, len(result.aborted_compactions), result.already_committed) == ((), 1, False)
    assert list(store.env.file_io.entries(store.paths.manifest_folder)) == before


def test_overwrite_on_files_that_are_gone_is_a_conflict() -> None:
    store = make_table(SimDisk().boot())
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    [snapshot] = Committer(store, "u").commit(1, [message(store, deleted=[a], new=[new_file(store, "b")])]).snapshots
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    before = list(store.env.file_io.entries(store.paths.manifest_folder))
    with pytest.raises(ConflictError, match=r"a\.parquet at level 0 is not live any more.*read the table again"):
        Committer(store, "u").commit(2, [message(store, deleted=[a], new=[new_file(store, "c")])])
    assert list(store.env.file_io.entries(store.paths.manifest_folder)) == before, "no manifest of the attempt stays"


def test_bucket_count_is_checked_also_for_plain_appends() -> None:
    store = make_table(SimDisk().boot(), partitioned=True)
    p, q = partition(1), partition(2)
    a = new_file(store, "a", partition=p)
    Committer(store, "u").commit(0, [message(store, partition=p, new=[a])])
    wrong = replace(message(store, partition=p, new=[new_file(store, "b", partition=p)]), total_buckets=8)
    with pytest.raises(ConflictError, match="has 2 buckets, the change was written for 8"):
        Committer(store, "u").commit(1, [wrong])
    other = replace(message(store, partition=q, new=[new_file(store, "c", partition=q)]), total_buckets=8)
    assert Committer(store, "u").commit(1, [other]).snapshots, "another partition may have another count"


def test_bucket_count_of_an_emptied_partition_is_free() -> None:
    store = make_table(SimDisk().boot())
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    Committer(store, "u").commit(1, [message(store, deleted=[a])])
    changed = replace(message(store, new=[new_file(store, "b")]), total_buckets=8)
    assert Committer(store, "u").commit(2, [changed]).snapshots


def test_time_never_goes_back_and_watermark_never_falls() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    [first] = Committer(store, "u").commit(0, [], watermark=100).snapshots
    disk.now_ms -= 10_000_000
    [second] = Committer(store, "u").commit(1, [], watermark=50).snapshots
    [third] = Committer(store, "u").commit(2, []).snapshots
    assert first.time_ms == second.time_ms == third.time_ms
    assert (second.watermark, third.watermark) == (100, 100)


def test_inherited_facts_of_the_latest_snapshot() -> None:
    store = make_table(SimDisk().boot())
    append(store, "a", 0)
    latest = store.snapshots.latest()
    assert latest is not None
    other = IndexEntry(EntryKind.ADD, EMPTY_ROW, 0, IndexFileMeta("btree", "index-x", 8, 1))
    index = store.manifests.write_index_manifest([other])
    strange = replace(latest, id=2, index_manifest=index, statistics="stat-x", next_row_id=17, properties=None)
    assert store.env.file_io.create_exclusive(store.paths.snapshot(2), encode_snapshot(strange)) is Created.WON
    [snapshot] = append(store, "b", 1, user="v").snapshots
    assert (snapshot.index_manifest, snapshot.statistics, snapshot.next_row_id) == (index, "stat-x", 17)
    assert snapshot.total_record_count == 2


def test_statistics_end_with_their_schema() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    append(store, "a", 0)
    latest = store.snapshots.latest()
    assert latest is not None
    store.env.file_io.create_exclusive(
        store.paths.snapshot(2), encode_snapshot(replace(latest, id=2, statistics="stat-x"))
    )
    assert store.claims.claim_schema(replace(store.schema, id=1))
    [snapshot] = append(reopen(disk), "b", 1).snapshots
    assert (snapshot.schema_id, snapshot.statistics) == (1, None)


def test_rollback_that_reuses_an_id_is_seen_by_an_open_committer() -> None:
    store = make_table(SimDisk().boot())
    committer = Committer(store, "u")
    for identifier, name in enumerate(("a", "b")):
        committer.commit(identifier, [message(store, new=[new_file(store, name)])])
    store.snapshots.write_latest_hint(1)
    store.env.file_io.delete(store.paths.snapshot(2))
    other = open_table_store(store.env, LOCATION)
    Committer(other, "other").commit(0, [message(other, new=[new_file(other, "x")])])
    committer.commit(5, [message(store, new=[new_file(store, "c")])])
    assert live_names(open_table_store(store.env, LOCATION)) == ["a@0", "c@0", "x@0"]


class ClaimedByOthers:
    """A claim that another writer wins first, `times` times."""

    def __init__(self, store: TableStore, times: int) -> None:
        self._claim = store.claims.claim_snapshot
        self._store = store
        self._times = times

    def __call__(self, snapshot: Snapshot) -> ClaimAnswer:
        if self._times > 0:
            self._times -= 1
            foreign_snapshot(self._store, "rival", self._times)
            return LOST
        return self._claim(snapshot)


def test_lost_claims_are_repeated_and_leave_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_table(SimDisk().boot())
    append(store, "a", 0)
    disk_before = {status.name for status in store.env.file_io.entries(store.paths.manifest_folder)}
    rival = open_table_store(store.env, LOCATION)
    monkeypatch.setattr(store.claims, "claim_snapshot", ClaimedByOthers(rival, 3))
    [snapshot] = append(store, "b", 1).snapshots
    assert snapshot.id == 5
    assert_contiguous(store)
    assert live_names(store) == ["a@0", "b@0"]
    named = {
        name
        for snapshot_id in (2, 3, 4, 5)
        for name in (
            store.snapshots.snapshot(snapshot_id).base_manifest_list,
            store.snapshots.snapshot(snapshot_id).delta_manifest_list,
        )
    }
    named |= {meta.file_name for meta in store.manifests.read_manifest_list(snapshot.delta_manifest_list)}
    after = {status.name for status in store.env.file_io.entries(store.paths.manifest_folder)}
    assert after - disk_before <= named, "only what snapshots name is left"


def test_retry_budget_ends_in_a_retryable_error_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_table(SimDisk().boot(), options={"commit.max-retries": "2"})
    append(store, "a", 0)
    files_before = {status.name for status in store.env.file_io.entries(store.paths.manifest_folder)}
    monkeypatch.setattr(store.claims, "claim_snapshot", lambda snapshot: LOST)
    started = store.env.now_ms()
    with pytest.raises(RetryableError, match=r"other writers were faster.*commit\.max-retries"):
        append(store, "b", 1)
    assert 30 <= store.env.now_ms() - started < 100, "10 ms and 20 ms, up to 20 % more"
    assert {status.name for status in store.env.file_io.entries(store.paths.manifest_folder)} == files_before


def test_commit_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_table(SimDisk().boot(), options={"commit.max-retries": "1000", "commit.timeout": "1 s"})
    monkeypatch.setattr(store.claims, "claim_snapshot", lambda snapshot: LOST)
    started = store.env.now_ms()
    with pytest.raises(RetryableError):
        append(store, "b", 1)
    assert store.env.now_ms() - started < 5_000


def claim_number(store: TableStore) -> int:
    """Number of the mutation that creates the next snapshot, found by doing it once on a copy of the world."""
    append(store, "x", 1)
    journal = store.env.file_io.journal  # type: ignore[attr-defined]
    [number] = [index for index, line in enumerate(journal) if line.startswith("create") and "/snapshot-2" in line]
    return int(number)


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_claim_without_an_answer_is_looked_up_before_anything_else(takes_effect: bool, count: int) -> None:
    seed_disk = SimDisk()
    append(make_table(seed_disk.boot()), "a", 0)
    number = claim_number(reopen(seed_disk))

    disk = SimDisk()
    append(make_table(disk.boot()), "a", 0)
    store = reopen(disk, Fault(FaultKind.ERROR, at=number, count=count, takes_effect=takes_effect))
    [snapshot] = append(store, "x", 1).snapshots
    assert snapshot.id == 2
    assert_contiguous(store)
    assert live_names(store) == ["a@0", "x@0"], "once"
    assert store.snapshots.latest_id() == 2


def test_claim_that_never_answers_is_an_unknown_outcome_and_deletes_nothing() -> None:
    seed_disk = SimDisk()
    append(make_table(seed_disk.boot()), "a", 0)
    number = claim_number(reopen(seed_disk))

    disk = SimDisk()
    append(make_table(disk.boot()), "a", 0)
    store = reopen(disk, Fault(FaultKind.ERROR, at=number, count=10_000))
    names_before = disk.names()
    with pytest.raises((UnknownOutcomeError, RetryableError)) as raised:
        append(store, "x", 1)
    assert "1 of 'u'" in str(raised.value)
    assert names_before <= disk.names()
    assert [snapshot.id for snapshot in append(reopen(disk), "y", 1).snapshots] == [2]


def test_blank_user_negative_identifier_and_other_versions_are_refused() -> None:
    store = make_table(SimDisk().boot())
    with pytest.raises(InvalidRequestError, match="commit user"):
        Committer(store, " ")
    with pytest.raises(InvalidRequestError, match="0 or more"):
        Committer(store, "u").commit(-1, [])
    with pytest.raises(InvalidRequestError, match="version 9"):
        Committer(store, "u").commit(0, [replace(message(store), version=9)])


def test_properties_of_the_caller_are_not_inherited() -> None:
    store = make_table(SimDisk().boot())
    Committer(store, "u").commit(0, [], properties=MappingProxyType({"log": "1"}))
    [snapshot] = Committer(store, "u").commit(1, []).snapshots
    assert snapshot.properties is not None
    assert set(snapshot.properties) == {COMMITS_PROPERTY, FACTS_PROPERTY}


def test_compaction_that_cannot_be_made_does_not_fail_the_commit() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"commit.max-retries": "1"})
    claim = store.claims.claim_snapshot

    def fail_compactions(snapshot: Snapshot) -> ClaimAnswer:
        if snapshot.commit_kind is CommitKind.COMPACT:
            return ClaimAnswer(ClaimOutcome.UNKNOWN, StorageError("the disk is gone"))
        return claim(snapshot)

    store.claims.claim_snapshot = fail_compactions  # type: ignore[method-assign]
    a, c = new_file(store, "a"), new_file(store, "c", level=5)
    result = Committer(store, "u", "q").commit(0, [message(store, new=[a], before=[a], after=[c])])
    assert [snapshot.commit_kind for snapshot in result.snapshots] == [CommitKind.APPEND]
    assert [conflict.bucket for conflict in result.aborted_compactions] == [0]
    assert "the disk is gone" in result.aborted_compactions[0].reason
    assert live_names(store) == ["a@0"]
    with pytest.raises(StorageError):
        Committer(store, "alone").commit(0, [message(store, before=[a], after=[c])], force_empty=False)


def test_committers_of_one_table_share_their_index_and_free_it() -> None:
    store = make_table(SimDisk().boot())
    index = weakref.ref(index_of(store.manifests))
    Committer(store, "u").commit(0, [])
    assert index_of(store.manifests) is index()
    del store
    gc.collect()
    assert index() is None


def test_full_disk_is_reported_soon_and_leaves_nothing_half_written() -> None:
    disk = SimDisk()
    append(make_table(disk.boot()), "a", 0)
    env = disk.boot(Fault(FaultKind.ERROR, at=2, count=10_000))
    store = open_table_store(env, LOCATION)
    file = new_file(store, "x")  # opens and closes: mutations 0 and 1
    names, started_ms = disk.names(), disk.now_ms
    with pytest.raises(StorageError, match="injected error"):
        Committer(store, "u", "q").commit(1, [message(store, new=[file])])
    assert disk.now_ms - started_ms < 1_000
    assert disk.names() == names
    [snapshot] = Committer(reopen(disk), "u", "q").commit(1, [message(store, new=[file])]).snapshots
    assert snapshot.id == 2


def test_strict_mode_gives_up_when_others_were_in_the_partition() -> None:
    store = make_table(SimDisk().boot(), partitioned=True)
    p, q = partition(1), partition(2)
    a = new_file(store, "a", partition=p)
    Committer(store, "other").commit(0, [message(store, partition=p, new=[a])])
    strict = store.with_options({"commit.strict-mode.last-safe-snapshot": "0"})
    committer = Committer(strict, "u")
    committer.commit(0, [message(store, partition=p, new=[new_file(store, "b", partition=p, sequence=10)])])
    compaction = message(store, partition=p, before=[a], after=[new_file(store, "c", partition=p, level=5)])
    Committer(store, "other").commit(1, [compaction])
    committer.commit(1, [message(store, partition=q, new=[new_file(store, "d", partition=q)])])
    late = Committer(store.with_options({"commit.strict-mode.last-safe-snapshot": "1"}), "u")
    with pytest.raises(ConflictError, match="COMPACT by 'other'"):
        late.commit(2, [message(store, partition=p, new=[new_file(store, "e", partition=p)])])
    with pytest.raises(InvalidRequestError, match="option commit.strict-mode.last-safe-snapshot = 'x'.*whole number"):
        store.with_options({"commit.strict-mode.last-safe-snapshot": "x"})


@pytest.mark.parametrize("is_list", [True, False], ids=["manifest list", "merging manifests"])
def test_an_error_that_nobody_expected_leaves_no_manifest(monkeypatch: pytest.MonkeyPatch, is_list: bool) -> None:
    """Commits that failed with another error than ours left their manifests behind, one set for each try."""
    disk = SimDisk()
    store = make_table(disk.boot())
    append(store, "a", 0)
    before = disk.names()

    def fail(*_: object, **__: object) -> None:
        raise TypeError("'<' not supported")

    with monkeypatch.context() as broken:
        if is_list:
            broken.setattr(store.manifests, "write_manifest_list", fail, raising=False)
        else:
            broken.setattr("freshet.storage.commit.commit_files.merge_manifests", fail)
        with pytest.raises(TypeError):
            append(store, "b", 1)
    assert {name for name in disk.names() - before if "/manifest/" in name} == set()
    append(store, "c", 1)
    assert live_names(store) == ["a@0", "c@0"]
