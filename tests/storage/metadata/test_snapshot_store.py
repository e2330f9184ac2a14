"""Snapshots, hints, tags and consumers; what hints may do wrong is FORMAT.md §1.1."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freshet.storage.catalogs.claims import WON, FileClaims
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.exceptions import CorruptDataError, NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import TablePaths
from tests.kit.hand_made import bare_snapshot


def snapshot(snapshot_id: int, time_ms: int = 0, user: str = "me") -> Snapshot:
    return bare_snapshot(snapshot_id, commit_user=user, commit_identifier=snapshot_id, time_ms=time_ms)


def commit(store: SnapshotStore, made: Snapshot) -> None:
    assert FileClaims(store._env.file_io, store._paths).claim_snapshot(made) == WON
    store.remember(made)


def store_with(
    location: Path, ids: range | list[int], latest: str | None = None, earliest: str | None = None
) -> SnapshotStore:
    store = SnapshotStore(local_env(), TablePaths(str(location)))
    for snapshot_id in ids:
        commit(store, snapshot(snapshot_id, time_ms=snapshot_id * 10))
    folder = location / "snapshot"
    folder.mkdir(exist_ok=True, parents=True)
    (location / "schema").mkdir(exist_ok=True)
    (location / "schema" / "schema-0").touch()  # without one, the table would be dropped
    if latest is not None:
        (folder / "LATEST").write_text(latest)
    if earliest is not None:
        (folder / "EARLIEST").write_text(earliest)
    return store


def test_an_empty_table(tmp_path: Path) -> None:
    store = SnapshotStore(local_env(), TablePaths(str(tmp_path)))
    assert store.latest() is None
    assert store.earliest() is None
    assert store.list_ids() == []
    assert store.at_or_before(99) is None
    assert list(store.newest_first(store.latest())) == []
    assert store.tags.all() == {}
    assert store.branches() == []


@pytest.mark.parametrize(
    "hint", [None, "5", "5\n", "3", "1", "0", "-1", "", "x", "2", "9" * 400], ids=lambda hint: repr(hint)
)
def test_the_latest_snapshot_whatever_the_hint_says(tmp_path: Path, hint: str | None) -> None:
    store_with(tmp_path, range(2, 6), latest=hint, earliest=hint)
    store = SnapshotStore(local_env(), TablePaths(str(tmp_path)))
    latest, earliest = store.latest(), store.earliest()
    assert latest is not None
    assert latest.id == 5
    assert earliest is not None
    # Of EARLIEST only what lies below a gap is left out: it says where to begin to look.
    assert earliest.id == 2


def test_snapshots_below_a_gap_are_older_than_the_earliest(tmp_path: Path) -> None:
    store_with(tmp_path, [1, 3, 4, 5], earliest="5")
    assert SnapshotStore(local_env(), TablePaths(str(tmp_path))).earliest_id() == 3


@pytest.mark.parametrize("hint", ["6", "99"])
def test_a_hint_proves_that_a_snapshot_was_lost(tmp_path: Path, hint: str) -> None:
    store_with(tmp_path, range(2, 6), latest=hint)
    store = SnapshotStore(local_env(), TablePaths(str(tmp_path)))
    with pytest.raises(CorruptDataError, match=rf"snapshot {hint} was committed .* the newest there is is 5.*Restore"):
        store.latest()
    (tmp_path / "snapshot" / "LATEST").write_text("5")  # what the message says to do
    assert store.latest_id() == 5


def test_a_tag_proves_that_a_snapshot_was_lost(tmp_path: Path) -> None:
    store_with(tmp_path, range(2, 6), latest="")
    (tmp_path / "tag").mkdir()
    (tmp_path / "tag" / "tag-kept").write_bytes(encode_snapshot(snapshot(7)))
    with pytest.raises(CorruptDataError, match=r"snapshot 7 was committed \(tag 'kept' names it\)"):
        SnapshotStore(local_env(), TablePaths(str(tmp_path))).latest()


def test_all_snapshots_lost_is_no_empty_table(tmp_path: Path) -> None:
    store_with(tmp_path, [], latest="3")
    with pytest.raises(
        CorruptDataError, match=r"snapshot 3 was committed .* there are none.* to be empty, remove the hint"
    ):
        SnapshotStore(local_env(), TablePaths(str(tmp_path))).latest()


def test_a_hint_that_a_drop_has_left_is_no_damage(tmp_path: Path) -> None:
    store_with(tmp_path, [], latest="3")
    (tmp_path / "schema" / "schema-0").unlink()
    with pytest.raises(NotFoundError, match="was dropped or renamed while it was open"):
        SnapshotStore(local_env(), TablePaths(str(tmp_path))).latest()


def reads_of(store: SnapshotStore) -> list[str]:
    """Gets the name of each file that is read from now on."""
    names: list[str] = []
    read = store._env.file_io.read_bytes

    def noted(path: str) -> bytes:
        names.append(Path(path).name)
        return read(path)

    store._env.file_io.read_bytes = noted  # type: ignore[method-assign]
    return names


def test_a_process_that_knows_the_latest_looks_with_two_calls(tmp_path: Path) -> None:
    store = store_with(tmp_path, range(1, 4))
    other = SnapshotStore(local_env(), TablePaths(str(tmp_path)))
    calls = reads_of(store)
    assert store.latest_id() == 3
    assert calls == ["snapshot-3", "snapshot-4"]
    commit(other, snapshot(4))
    assert store.latest_id() == 4, "another writer's is seen"
    (tmp_path / "snapshot" / "snapshot-4").unlink()
    (tmp_path / "snapshot" / "LATEST").write_text("3")
    assert other.latest_id() == 3
    assert store.latest_id() == 3, "and a rollback"
    commit(other, snapshot(4, user="another"))
    latest = store.latest()
    assert latest is not None
    assert latest.commit_user == "another"


def test_the_next_one_is_found_with_two_calls_and_those_after_it_later(tmp_path: Path) -> None:
    store = store_with(tmp_path, range(1, 3))
    other = SnapshotStore(local_env(), TablePaths(str(tmp_path)))
    calls = reads_of(store)
    seen = [store.latest_or_next()]
    for made in (3, 4):
        commit(other, snapshot(made))
    seen += [store.latest_or_next(), store.latest_or_next()]
    assert calls == [f"snapshot-{at}" for at in (2, 3, 2, 3, 3, 4)]
    assert [None if each is None else each.id for each in seen] == [2, 3, 4]
    assert seen[0] is not None and seen[2] is not None and store.follows(seen[0], seen[2])
    (tmp_path / "snapshot" / "snapshot-4").write_bytes(encode_snapshot(snapshot(4, user="another")))
    latest = store.latest_or_next()
    assert latest is not None
    assert latest.commit_user == "another", "after a rollback as latest"


def test_a_hint_far_behind_does_not_step_all_the_way(tmp_path: Path) -> None:
    store = store_with(tmp_path, range(1, 60), latest="2")
    assert store.latest_id() == 59


def test_stray_names_are_passed_over(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 2])
    for name in ("snapshot-5.tmp", ".snapshot-9.u.tmp", "snapshot-", "notes"):
        (tmp_path / "snapshot" / name).write_text("{}")
    assert store.list_ids() == [1, 2]
    assert store.latest_id() == 2


def test_a_snapshot_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    store = store_with(tmp_path, range(3, 6))
    with pytest.raises(NotFoundError, match="snapshot 2 does not exist: the table has snapshots 3 to 5"):
        store.snapshot(2)


def test_broken_and_misnamed_snapshots_are_corrupt(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1])
    (tmp_path / "snapshot" / "snapshot-2").write_bytes(encode_snapshot(snapshot(2))[:40])
    (tmp_path / "snapshot" / "snapshot-3").write_bytes(encode_snapshot(snapshot(7)))
    with pytest.raises(CorruptDataError, match="snapshot-2"):
        store.snapshot(2)
    with pytest.raises(CorruptDataError, match="holds snapshot 7"):
        store.snapshot(3)


def test_newest_first_ends_where_snapshots_have_expired(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 4, 5, 6])
    assert [found.id for found in store.newest_first(store.latest())] == [6, 5, 4]


@pytest.mark.parametrize(
    ("time_ms", "found"), [(0, None), (29, None), (30, 3), (39, 3), (40, 4), (79, 7), (80, 8), (999, 8)]
)
def test_the_snapshot_at_a_time(tmp_path: Path, time_ms: int, found: int | None) -> None:
    store = store_with(tmp_path, range(3, 9))
    at = store.at_or_before(time_ms)
    assert (at.id if at else None) == found


def test_hints_are_written(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1, 2])
    store.write_latest_hint(2)
    store.write_earliest_hint(1)
    assert (tmp_path / "snapshot" / "LATEST").read_bytes() == b"2"
    assert (tmp_path / "snapshot" / "EARLIEST").read_bytes() == b"1"


def test_tags_and_branches(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1])
    for folder in ("tag", "branch/branch-dev/snapshot"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tag" / "tag-v 1").write_bytes(encode_snapshot(snapshot(9)))
    (tmp_path / "branch" / "branch-dev" / "snapshot" / "snapshot-3").write_bytes(encode_snapshot(snapshot(3)))
    assert {name: tag.id for name, tag in store.tags.all().items()} == {"v 1": 9}
    assert store.branches() == ["dev"]
    latest = store.branch("dev").latest()
    assert latest is not None
    assert latest.id == 3
    with pytest.raises(NotFoundError, match=r"no tag 'v2'; tags there are: v 1"):
        store.tags.of("v2")


def test_a_snapshot_is_read_once(tmp_path: Path) -> None:
    store = store_with(tmp_path, [1])
    first = store.snapshot(1)
    (tmp_path / "snapshot" / "snapshot-1").write_bytes(encode_snapshot(dataclasses.replace(first, commit_user="x")))
    assert store.snapshot(1) == first
    store.forget(1)
    assert store.snapshot(1).commit_user == "x"


def test_the_latest_is_what_is_on_disk_after_a_rollback(tmp_path: Path) -> None:
    store = store_with(tmp_path, range(1, 4))
    assert [store.snapshot(i).commit_user for i in (1, 2, 3)] == ["me"] * 3
    for snapshot_id in (2, 3):
        (tmp_path / "snapshot" / f"snapshot-{snapshot_id}").write_bytes(
            encode_snapshot(snapshot(snapshot_id, user="you"))
        )
    latest = store.latest()
    assert latest is not None
    assert latest.commit_user == "you"
    assert store.snapshot(2).commit_user == "you"
