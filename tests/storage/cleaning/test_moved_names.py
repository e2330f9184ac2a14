"""What a snapshot names goes to a tag, another tag and a branch, while another program looks who names it: it stays."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import StorageError
from freshet.storage.io.file_io import FileStatus
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.tags.table_tags import TableTags
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.sim_env import SimDisk, SimEnv, SimFileIO

LOCATION = "/warehouse/db.db/t"

Work = Callable[[TableStore], object]


def expire(store: TableStore) -> None:
    expire_snapshots(store, retain_max=1)


def tag_and_expire(store: TableStore) -> None:
    TableTags(store).create("new", 3)
    expire(store)


def branch_alone(store: TableStore) -> None:
    if "old" not in store.snapshots.tags.all():
        TableTags(store).create("old", 3)
    Branches(store).create("b", from_tag="old")
    TableTags(store).delete("old")


def rename(store: TableStore) -> None:
    TableTags(store).rename("old", "older")


def move_on(store: TableStore) -> None:
    tag_and_expire(store)
    Branches(store).create("b", from_tag="new")
    TableTags(store).delete("new")


def of_branch(store: TableStore) -> None:
    """What only a snapshot of a branch names goes to a tag of the branch."""
    branch = open_table_store(store.env, LOCATION, branch="b")
    if "old" in branch.snapshots.tags.all():
        TableTags(branch).replace("old", 3)
        TableTags(branch).rename("old", "kept")
    committer = Committer(branch, "v")
    for number in range(2):
        committer.commit(number, [message(branch, new=[new_file(branch, f"b{number}")])])
    expire(branch)


def delete_other(store: TableStore) -> None:
    TableTags(store).delete("other")


def delete_old(store: TableStore) -> None:
    TableTags(store).delete("old")


def tag_newest(store: TableStore) -> None:
    TableTags(store).create("newest")
    committer = Committer(store, "w")
    committer.commit(0, [message(store, new=[new_file(store, "d")])])


def orphans(store: TableStore) -> None:
    remove_orphan_files(store, older_than_ms=0)


def tag_old(store: TableStore) -> None:
    TableTags(store).create("old", 3)


def tag_other(store: TableStore) -> None:
    TableTags(store).create("other", 4)


CASES: tuple[tuple[str, tuple[Work, ...], Work, Work], ...] = (
    ("a tag is made, its snapshot expires", (), tag_and_expire, orphans),
    ("a tag becomes a branch", (tag_old, expire), branch_alone, orphans),
    ("a tag is renamed", (tag_old, expire), rename, orphans),
    ("a snapshot becomes a tag and a branch", (), move_on, orphans),
    ("a snapshot becomes a branch", (), branch_alone, expire),
    ("a tag is renamed", (tag_old,), rename, expire),
    ("a snapshot of a branch becomes a tag", (tag_old, expire, branch_alone), of_branch, orphans),
    ("a tag becomes a branch", (tag_old, tag_other, expire), branch_alone, delete_other),
    ("a tag is renamed", (tag_old, tag_other, expire), rename, delete_other),
    ("another tag is deleted", (tag_old, tag_other, expire), delete_old, delete_other),
    ("a tag is deleted", (tag_other, expire, tag_newest), delete_other, expire),
)


class _Interrupted(SimFileIO):
    """Lets another program do its work before a look at the disk, once."""

    meanwhile: Callable[[], object] | None = None
    looks_left = 0

    def _look(self) -> None:
        if self.meanwhile is not None:
            if self.looks_left == 0:
                work, self.meanwhile = self.meanwhile, None
                work()
            self.looks_left -= 1

    def read_bytes(self, path: str) -> bytes:
        self._look()
        return super().read_bytes(path)

    def entries(self, path: str) -> Iterator[FileStatus]:
        self._look()
        return super().entries(path)

    def exists(self, path: str) -> bool:
        self._look()
        return super().exists(path)


def compacted() -> SimDisk:
    """Round n appends a file (snapshot 2n + 1) and compacts it with the one before (2n + 2)."""
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    before: list[DataFileMeta] = []
    committer = Committer(store, "u")
    for number in range(3):
        new, after = new_file(store, f"a{number}"), new_file(store, f"c{number}", level=5)
        committer.commit(number, [message(store, new=[new], before=[*before, new], after=[after])])
        before = [after]
    return disk


def interrupted(disk: SimDisk, act: Work, meanwhile: Work, looks: int) -> bool:
    """Lets something act, and something else be done before a look at the disk; False where there were fewer."""
    env = SimEnv(disk, None, random.Random(1))
    file_io = _Interrupted(disk)
    env.file_io = file_io
    acting = open_table_store(env, LOCATION)
    file_io.looks_left = looks

    def work() -> None:
        with suppress(StorageError):  # it came too late
            meanwhile(open_table_store(disk.boot(), LOCATION))

    file_io.meanwhile = work
    act(acting)
    return file_io.meanwhile is None


def assert_whole(disk: SimDisk) -> None:
    store = open_table_store(disk.boot(), LOCATION)
    for line in (store.snapshots, *(SnapshotStore(store.env, paths) for paths in store.snapshots.other_lines())):
        for snapshot in [*line.all(), *line.tags.all().values()]:
            for entry in live_entries(store.manifests, snapshot):
                path = store.data_file(entry.partition, entry.bucket, entry.file.file_name)
                assert store.env.file_io.exists(path), f"{path} is gone"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("before", "meanwhile", "act"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]}, {case[3].__name__}" for case in CASES],
)
def test_what_is_named_stays(before: tuple[Work, ...], meanwhile: Work, act: Work) -> None:
    made = compacted()
    for work in before:
        work(open_table_store(made.boot(), LOCATION))
    looks = 0
    while True:
        disk = made.copy()
        if not interrupted(disk, act, meanwhile, looks):
            break
        assert_whole(disk)
        looks += 1
    assert looks > 5
