"""What a process knows of buckets is right at every snapshot, whoever made it, and bounded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.manifest import BucketId, EntryKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write import bucket_state
from freshet.storage.write.bucket_state import BucketStates, process_states

COLUMNS = {"day": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def a_table(folder: Path, **options: str) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "2", **options}
    )


def write(table: Table, *days: int, user: str = "w", value: str = "x") -> None:
    with table.writer(user) as writer:
        writer.write(
            pa.table({"day": list(days) * 8, "k": sorted(list(range(8)) * len(days)), "v": [value] * 8 * len(days)})
        )
        writer.commit()


def buckets(store: TableStore, snapshot: Snapshot | None) -> list[BucketId]:
    return sorted({(entry.partition, entry.bucket) for entry in live_entries(store.manifests, snapshot)})


def check(states: BucketStates, store: TableStore, snapshot: Snapshot | None, wanted: Sequence[BucketId]) -> None:
    """The states are what a scan of the manifests finds."""
    found = {
        (entry.identity, entry.total_buckets)
        for state in states.at(store, snapshot, wanted).values()
        for entry in state.files.values()
    }
    scanned = live_entries(store.manifests, snapshot, bucket_ids=wanted)
    assert found == {(entry.identity, entry.total_buckets) for entry in scanned if entry.kind is EntryKind.ADD}


def test_states_follow_the_commits_of_all_writers(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"num-sorted-run.compaction-trigger": "3"})
    stranger = Catalog(str(tmp_path)).table("db.t")
    states = BucketStates()
    write(table, 1, 2)
    wanted = buckets(table.store, table.store.snapshots.latest())
    for number in range(8):
        write(table if number % 2 else stranger, 1, 1 + number % 3, user=f"w{number % 2}")
        check(states, table.store, table.store.snapshots.latest(), wanted)
    stranger.compact(full=True)
    check(states, table.store, table.store.snapshots.latest(), wanted)


def test_a_step_reads_no_manifest_that_is_known_and_no_state_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path)
    states = BucketStates()
    write(table, 1, 2)
    snapshot = table.store.snapshots.latest()
    wanted = buckets(table.store, snapshot)
    states.at(table.store, snapshot, wanted)
    write(table, 1)

    def refused(*_: object) -> None:
        raise AssertionError("a known bucket was read from the manifests")

    monkeypatch.setattr(bucket_state, "_read_states", refused)
    latest = table.store.snapshots.latest()
    after = states.at(table.store, latest, wanted)
    check(states, table.store, latest, wanted)
    untouched = {bucket for bucket in wanted if bucket[0] == wanted[-1][0]}
    assert all(len(after[bucket].files) == 1 for bucket in untouched)


@pytest.mark.parametrize("is_small", [True, False])
def test_buckets_that_were_empty_when_they_were_first_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    monkeypatch.setattr(bucket_state, "SMALL_ENTRIES_MAX", 1000 if is_small else 0)
    table = a_table(tmp_path)
    other = a_table(tmp_path / "other")
    write(other, 1, 2, 3)
    wanted = buckets(other.store, other.store.snapshots.latest())
    states = BucketStates()
    write(table, 1)
    for day in (2, 3, 2):
        check(states, table.store, table.store.snapshots.latest(), wanted[:4])
        write(table, day)
    check(states, table.store, table.store.snapshots.latest(), wanted)


def test_of_a_small_table_all_buckets_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path)
    write(table, *range(5))
    latest = table.store.snapshots.latest()
    wanted = buckets(table.store, latest)
    states = BucketStates()
    states.at(table.store, latest, wanted[:1])
    monkeypatch.setattr(bucket_state, "live_entries", lambda *_, **__: pytest.fail("read a second time"))
    assert sum(len(states.at(table.store, latest, [bucket])[bucket].files) for bucket in wanted) == len(wanted)


def test_after_a_failed_read_no_bucket_is_taken_for_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a bucket taken for empty would be numbered from 0 on: those that stand would win over them."""
    table = a_table(tmp_path)
    write(table, 1)
    latest = table.store.snapshots.latest()
    wanted = buckets(table.store, latest)
    states = BucketStates()
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StorageError("the disk does not answer")

        patch.setattr(bucket_state, "live_entries", fail)
        with pytest.raises(StorageError, match="does not answer"):
            states.at(table.store, latest, wanted)
    check(states, table.store, latest, wanted)


def test_an_earlier_snapshot_is_read_for_the_caller_alone(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    write(table, 1)
    first = table.store.snapshots.latest()
    write(table, 1)
    latest = table.store.snapshots.latest()
    states = BucketStates()
    wanted = buckets(table.store, latest)
    check(states, table.store, latest, wanted)
    check(states, table.store, first, wanted)
    assert states.known == set(wanted)
    check(states, table.store, latest, wanted)


def test_a_table_made_anew_in_the_same_folder_is_another(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = a_table(tmp_path)
    states = BucketStates()
    for _ in range(3):
        write(table, 1)
    wanted = buckets(table.store, table.store.snapshots.latest())
    states.at(table.store, table.store.snapshots.latest(), wanted)
    catalog.drop_table("db.t")
    table = a_table(tmp_path)
    for number in range(4):
        write(table, 1, value=str(number))
        check(states, table.store, table.store.snapshots.latest(), wanted)


def test_a_snapshot_that_expired_meanwhile_is_no_base(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    states = BucketStates()
    write(table, 1)
    wanted = buckets(table.store, table.store.snapshots.latest())
    states.at(table.store, table.store.snapshots.latest(), wanted)
    for _ in range(3):
        write(table, 1)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    check(states, table.store, table.store.snapshots.latest(), wanted)


def test_buckets_not_used_for_long_are_let_go(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"write-only": "true"})
    for _ in range(3):
        write(table, *range(10))
    latest = table.store.snapshots.latest()
    wanted = buckets(table.store, latest)
    states = BucketStates(files_max=12)
    for bucket in wanted:
        check(states, table.store, latest, [bucket])
    assert states.known == set(wanted[-4:])
    write(table, *range(10))
    check(states, table.store, table.store.snapshots.latest(), wanted)


def test_a_process_knows_a_table_once_whatever_its_schema(tmp_path: Path) -> None:
    env = local_env()
    table = a_table(tmp_path)
    one = open_table_store(env, table.location)
    other = open_table_store(env, table.location, options={"write-only": "true"})
    assert process_states(one) is process_states(other)
    assert process_states(one) is not process_states(open_table_store(local_env(), table.location))


def test_what_a_bucket_remembers_follows_it(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    states = BucketStates()
    write(table, 1)
    snapshot = table.store.snapshots.latest()
    (bucket, *_) = buckets(table.store, snapshot)
    states.at(table.store, snapshot, [bucket])[bucket].memory.last_full_ms = 17
    write(table, 1)
    assert states.at(table.store, table.store.snapshots.latest(), [bucket])[bucket].memory.last_full_ms == 17
