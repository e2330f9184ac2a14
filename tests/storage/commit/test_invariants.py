"""Each invariant is broken by hand, and the check of a table says which, where and what mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit import change_fit, table_check
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.invariants import OF_A_BUCKET, Damage
from freshet.storage.commit.last_commits import COMMITS_PROPERTY
from freshet.storage.commit.table_check import check_table
from freshet.storage.exceptions import MissingFileError, NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import data_manifests, delta_entries, scan_live_files
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import (
    DELETION_VECTORS_INDEX,
    DeletionVectorRange,
    EntryKind,
    IndexEntry,
    IndexFileMeta,
    ManifestEntry,
)
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hand_made import force, make_table, message, new_file, partition


def a_table(folder: Path, *, partitioned: bool = False) -> TableStore:
    """A table of three snapshots: a and b at level 0 of bucket 0, c at level 1 of bucket 1."""
    store = make_table(local_env(), str(folder / "t"), options={"write-only": "true"}, partitioned=partitioned)
    where = partition(1) if partitioned else EMPTY_ROW
    committer = Committer(store, "w")
    for number, name in enumerate("ab"):
        file = new_file(store, name, sequence=10 * number, partition=where, extra=[f"{name}.side"])
        committer.commit(number, [message(store, new=[file], partition=where)])
    made = new_file(store, "c", level=1, bucket=1, partition=where, keys=(10, 20))
    committer.commit(2, [message(store, bucket=1, new=[made], partition=where)])
    return store


def added(store: TableStore, name: str, **facts: Any) -> ManifestEntry:
    """The entry of a new file."""
    total = facts.pop("total_buckets", store.options.bucket)
    file = new_file(store, name, **facts)
    return ManifestEntry(EntryKind.ADD, facts.get("partition", EMPTY_ROW), facts.get("bucket", 0), total, file)


def damage(store: TableStore) -> list[Damage]:
    """What a program finds that opens the table."""
    return check_table(open_table_store(store.env, store.location)).damage


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_that_nobody_damaged(tmp_path: Path, partitioned: bool) -> None:
    store = a_table(tmp_path, partitioned=partitioned)
    check = check_table(store)
    assert (check.snapshot_id, check.bucket_count, check.file_count, check.damage) == (3, 2, 3, [])


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    check = check_table(make_table(local_env(), str(tmp_path / "t")))
    assert (check.snapshot_id, check.file_count, check.damage) == (None, 0, [])


def overlapping_level(store: TableStore) -> None:
    force(store, [added(store, "d", level=1, bucket=1, keys=(15, 30))])


def keys_in_reverse(store: TableStore) -> None:
    force(store, [added(store, "d", keys=(9, 1))])


def numbers_in_reverse(store: TableStore) -> None:
    entry = added(store, "d", sequence=7)
    force(store, [replace(entry, file=replace(entry.file, max_sequence_number=6))])


def more_deletes_than_rows(store: TableStore) -> None:
    entry = added(store, "d")
    force(store, [replace(entry, file=replace(entry.file, delete_row_count=2))])


def a_delete_of_nothing(store: TableStore) -> None:
    force(store, [replace(added(store, "d", rows=0), kind=EntryKind.DELETE)])


def one_file_at_two_levels(store: TableStore) -> None:
    (entry,) = delta_entries(store.manifests, store.snapshots.snapshot(1))
    force(store, [replace(entry, file=replace(entry.file, level=1))])


def two_counts_in_a_bucket(store: TableStore) -> None:
    force(store, [added(store, "d", total_buckets=4)])


def two_counts_in_a_partition(store: TableStore) -> None:
    for entry in (added(store, "d", partition=partition(2)), added(store, "e", partition=partition(2), bucket=1)):
        force(store, [replace(entry, total_buckets=2 + entry.bucket)])


def a_bucket_too_many(store: TableStore) -> None:
    force(store, [added(store, "d", bucket=7)])


def a_vector_of_a_dead_file(store: TableStore) -> None:
    output = store.env.file_io.open_output(store.paths.index_file("index-1"))
    output.write(b"12345")
    output.close()
    vectors = (DeletionVectorRange("gone.parquet", 1, 4, 1),)
    entry = IndexEntry(EntryKind.ADD, EMPTY_ROW, 0, IndexFileMeta(DELETION_VECTORS_INDEX, "index-1", 5, 1, vectors))
    force(store, [], index_manifest=store.manifests.write_index_manifest([entry]))


def records_miscounted(store: TableStore) -> None:
    force(store, [], total_record_count=99)


def a_number_used_twice(store: TableStore) -> None:
    latest = store.snapshots.latest()
    assert latest is not None and latest.commit_user == "w"
    force(store, [added(store, "d")], commit_identifier=1, commit_kind=CommitKind.APPEND)


def a_user_forgotten(store: TableStore) -> None:
    force(store, [], properties={COMMITS_PROPERTY: '{"complete": true, "users": {}}'})


def a_snapshot_removed(store: TableStore) -> None:
    Path(store.paths.snapshot(2)).unlink()


def the_newest_snapshot_removed(store: TableStore) -> None:
    Path(store.paths.snapshot(3)).unlink()


def a_tag_ahead(store: TableStore) -> None:
    Path(store.paths.tag_folder).mkdir()
    Path(store.paths.tag("kept")).write_bytes(Path(store.paths.snapshot(3)).read_bytes())
    Path(store.paths.latest_hint).unlink()
    the_newest_snapshot_removed(store)


def a_data_file_removed(store: TableStore) -> None:
    Path(store.data_file(EMPTY_ROW, 0, "a.parquet")).unlink()


def a_side_car_removed(store: TableStore) -> None:
    Path(store.data_file(EMPTY_ROW, 0, "a.side")).unlink()


def a_data_file_cut(store: TableStore) -> None:
    Path(store.data_file(EMPTY_ROW, 1, "c.parquet")).write_bytes(b"")


def a_manifest_removed(store: TableStore) -> None:
    Path(store.paths.manifest(_first_manifest(store))).unlink()


def a_manifest_garbled(store: TableStore) -> None:
    path = Path(store.paths.manifest(_first_manifest(store)))
    path.write_bytes(b"x" * path.stat().st_size)


def a_list_removed(store: TableStore) -> None:
    Path(store.paths.manifest(store.snapshots.snapshot(3).base_manifest_list)).unlink()


def a_snapshot_garbled(store: TableStore) -> None:
    Path(store.paths.snapshot(3)).write_text("{}")


def an_index_file_removed(store: TableStore) -> None:
    a_vector_of_a_dead_file(store)
    Path(store.paths.index_file("index-1")).unlink()


def _first_manifest(store: TableStore) -> str:
    return store.manifests.read_manifest_list(store.snapshots.snapshot(3).base_manifest_list)[0].file_name


BROKEN: list[tuple[Callable[[TableStore], None], str, list[str]]] = [
    (overlapping_level, "levels_are_runs", ["/bucket-1", "snapshot 4", "c.parquet and d.parquet", "--repair"]),
    (keys_in_reverse, "bounds_are_in_order", ["/bucket-0", "d.parquet", "smallest key is above", "--full"]),
    (numbers_in_reverse, "bounds_are_in_order", ["/bucket-0", "d.parquet", "from 7 to 6"]),
    (more_deletes_than_rows, "bounds_are_in_order", ["d.parquet", "2 of its 1 rows are deletes"]),
    (a_delete_of_nothing, "deletes_meet_files", ["/bucket-0", "snapshot 4", "d.parquet at level 0"]),
    (one_file_at_two_levels, "files_live_once", ["/bucket-0", "a.parquet is live 2 times", "levels 0, 1", "--full"]),
    (two_counts_in_a_bucket, "bucket_count_is_one", ["/bucket-0", "2 and 4 buckets"]),
    (two_counts_in_a_partition, "bucket_count_is_one", ["/p=2/bucket-1", "2 and 3 buckets"]),
    (a_bucket_too_many, "bucket_count_is_one", ["/bucket-7", "bucket 7 of a partition of 2 buckets"]),
    (a_vector_of_a_dead_file, "vectors_mark_live_files", ["/bucket-0", "index-1", "gone.parquet"]),
    (records_miscounted, "records_add_up", ["snapshot-4", "counts 99 records", "hold 3"]),
    (a_number_used_twice, "identifiers_grow", ["snapshot-4", "commit 1 of user 'w'", "had made 2"]),
    (a_user_forgotten, "identifiers_grow", ["snapshot-4", "knows of no commit of user 'w'", "knew 2"]),
    (a_snapshot_removed, "ids_are_contiguous", ["/snapshot", "snapshot 2 missing between 1 and 3"]),
    (the_newest_snapshot_removed, "hints_are_not_ahead", ["/LATEST", "names snapshot 3", "newest there is is 2"]),
    (a_tag_ahead, "hints_are_not_ahead", ["/tag-kept", "names snapshot 3"]),
    (a_data_file_removed, "recorded_files_are_there", ["/bucket-0/a.parquet", "snapshot 3", "not there", "backup"]),
    (a_side_car_removed, "recorded_files_are_there", ["/bucket-0/a.side", "not there"]),
    (a_data_file_cut, "recorded_files_are_there", ["/bucket-1/c.parquet", "0 bytes where 1 are recorded"]),
    (a_manifest_removed, "recorded_files_are_there", ["/manifest/manifest-", "not there"]),
    (an_index_file_removed, "recorded_files_are_there", ["/index/index-1", "not there"]),
    (a_manifest_garbled, "metadata_is_readable", ["/manifest/manifest-", "backup"]),
    (a_list_removed, "metadata_is_readable", ["/manifest/manifest-list-", "backup"]),
    (a_snapshot_garbled, "metadata_is_readable", ["/snapshot-3", "backup"]),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "invariant", "said"), BROKEN, ids=lambda item: getattr(item, "__name__", ""))
def test_a_broken_table(
    tmp_path: Path, break_it: Callable[[TableStore], None], invariant: str, said: list[str]
) -> None:
    store = a_table(tmp_path, partitioned=break_it is two_counts_in_a_partition)
    assert damage(store) == []
    break_it(store)
    found = [each for each in damage(store) if each.invariant == invariant]
    assert found, damage(store)
    for part in said:
        assert part in str(found[0])


def test_every_predicate_is_broken_by_some_table() -> None:
    named = {invariant for _, invariant, _ in BROKEN}
    others = {"ids_are_contiguous", "hints_are_not_ahead", "recorded_files_are_there", "identifiers_grow"}
    assert {predicate.__name__ for predicate in OF_A_BUCKET} | others <= named


def test_many_buckets_are_looked_at_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_table(tmp_path)
    one_file_at_two_levels(store)
    whole = check_table(store)
    monkeypatch.setattr(table_check, "ENTRIES_MAX", 2)
    assert check_table(store) == whole
    assert whole.file_count == 4 and len(whole.damage) == 1


def test_a_snapshot_that_expires_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_table(tmp_path)
    look, looks = table_check.bucket_damage, 0

    def meanwhile(version: Any) -> list[Damage]:
        nonlocal looks
        looks += 1
        if looks == 1:  # a compaction replaces a, and expiry removes what it was made from
            gone = [replace(each, kind=EntryKind.DELETE) for each in version.live if each.file.file_name == "a.parquet"]
            force(store, [*gone, added(store, "new")])
            Path(store.data_file(EMPTY_ROW, 0, "a.parquet")).unlink()
            for snapshot_id in (1, 2, 3):
                Path(store.paths.snapshot(snapshot_id)).unlink()
        return look(version)

    monkeypatch.setattr(table_check, "bucket_damage", meanwhile)
    check = check_table(store)
    assert (check.snapshot_id, check.damage) == (4, [])


def test_files_of_earlier_snapshots_are_looked_for_on_request(tmp_path: Path) -> None:
    store = a_table(tmp_path)
    latest = store.snapshots.latest()
    live = scan_live_files(store.manifests, latest).of_bucket(EMPTY_ROW, 0)
    force(store, [replace(live[0], kind=EntryKind.DELETE)])
    lost = Path(store.bucket_folder(EMPTY_ROW, 0)) / live[0].file.file_name
    lost.unlink()
    newest, all_of_them = check_table(store), check_table(store, all_snapshots=True)
    assert (newest.damage, newest.snapshot_count, all_of_them.snapshot_count) == ([], 1, 4)
    (found,) = all_of_them.damage
    assert (found.invariant, found.where) == ("recorded_files_are_there", str(lost))
    assert found.what.startswith("snapshot 3 names"), "of three snapshots that name it, the newest"
    assert (all_of_them.snapshot_id, all_of_them.file_count) == (4, newest.file_count)


def test_an_earlier_snapshot_that_expires_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_table(tmp_path)
    look = table_check.bucket_damage

    def meanwhile(version: Any) -> list[Damage]:
        if version.snapshot_id == 1:
            Path(store.paths.snapshot(1)).unlink(missing_ok=True)
            return [Damage("levels_are_runs", version.folder, "it has expired", "none")]
        return look(version)

    monkeypatch.setattr(table_check, "bucket_damage", meanwhile)
    check = check_table(store, all_snapshots=True)
    assert (check.snapshot_count, check.damage) == (2, [])


def test_a_schema_that_live_files_need_is_lost(tmp_path: Path) -> None:
    store = a_table(tmp_path)
    assert store.claims.claim_schema(replace(store.schema, id=1))
    Path(store.paths.schema(0)).unlink()
    (found,) = damage(store)
    assert (found.invariant, found.where) == ("recorded_files_are_there", store.paths.schema(0))


@pytest.mark.parametrize("schemas", [1, 3])
def test_a_table_with_snapshots_and_no_schema_says_which_files_are_lost(tmp_path: Path, schemas: int) -> None:
    store = a_table(tmp_path)
    for number in range(1, schemas):
        assert store.claims.claim_schema(replace(store.schema, id=number))
    force(store, [], schema_id=schemas - 1)
    for path in (Path(store.location) / "schema").iterdir():
        path.unlink()
    lost = "schema-0" if schemas == 1 else "schema-0 to schema-2"
    with pytest.raises(MissingFileError, match=f"restore {lost} in {store.paths.schema_folder} ") as caught:
        open_table_store(store.env, store.location)
    assert caught.value.path == store.paths.schema(schemas - 1)


def test_a_table_that_is_dropped_meanwhile_is_said_to_be(tmp_path: Path) -> None:
    store = a_table(tmp_path)
    for path in (Path(store.location) / "schema").iterdir():
        path.unlink()
    a_list_removed(store)
    with pytest.raises(NotFoundError, match="dropped"):
        check_table(open_store_without_memory(store))


def open_store_without_memory(store: TableStore) -> TableStore:
    """The store as it was opened, with nothing remembered of snapshots and manifests."""
    store.manifests.forget([store.snapshots.snapshot(3).base_manifest_list])
    return store


def test_before_a_claim_the_change_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What slips past the search for conflicts is not committed in tests."""
    store = a_table(tmp_path)
    assert store.env.checks_claims, "the test kit switches it on"
    monkeypatch.setattr(change_fit, "find_conflicts", lambda *_, **__: [])
    made = new_file(store, "d", level=1, bucket=1, keys=(15, 30))
    with pytest.raises(AssertionError, match=r"levels_are_runs.*/bucket-1.*c.parquet and d.parquet"):
        Committer(store, "other").commit(0, [message(store, bucket=1, after=[made])])
    lost = new_file(store, "e")
    Path(store.data_file(EMPTY_ROW, 0, "e.parquet")).unlink()
    with pytest.raises(AssertionError, match=r"recorded_files_are_there.*e.parquet"):
        Committer(store, "other").commit(1, [message(store, new=[lost])])
    assert damage(store) == []


def test_a_damaged_bucket_is_no_reason_to_refuse_what_leaves_it_as_it_is(tmp_path: Path) -> None:
    store = a_table(tmp_path)
    overlapping_level(store)
    Committer(store, "other").commit(0, [message(store, bucket=1, new=[new_file(store, "e", bucket=1, sequence=90)])])
    assert [each.invariant for each in damage(store)] == ["levels_are_runs"]


@pytest.mark.parametrize("options", [{}, {"precommit-compact": "true"}])
def test_a_lost_changelog_file_is_named(tmp_path: Path, options: dict[str, str]) -> None:
    table = Catalog(tmp_path).create_table(
        "a.t",
        schema={"id": "BIGINT", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "2", "changelog-producer": "input", **options},
    )
    with table.writer("u") as writer:
        for number in (1, 2):
            writer.write({"id": [1, 2, 3, 4], "v": [number] * 4})
            writer.commit(number)
    store = table.store
    assert check_table(store, all_snapshots=True).damage == []
    lost = next(path for path in sorted((tmp_path / "a.db" / "t").rglob("*changelog-*")) if path.parent.name[0] == "b")
    lost.unlink()
    found = damage(store) + check_table(store, all_snapshots=True).damage
    assert {each.where for each in found} == {str(lost)}


def test_a_lost_manifest_of_the_newest_snapshot_is_damage(tmp_path: Path) -> None:
    store = a_table(tmp_path)
    latest = store.snapshots.latest()
    assert latest is not None
    manifest = data_manifests(store.manifests, latest)[-1]
    (tmp_path / "t" / "manifest" / manifest.file_name).unlink()
    again = open_table_store(store.env, store.location)
    with pytest.raises(MissingFileError, match=r"restore it from a backup.*check-table"):
        again.at_latest(again.live.at)
