"""A table and its branches expire snapshots of their own, and name files of the same folders."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from freshet.storage.changes.change_source import ChangeSource
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import DataFileMeta
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    data_files_on_disk,
    live_names,
    make_table,
    message,
    new_file,
)
from tests.kit.said_expiry import expire_as_said
from tests.kit.sim_env import SimDisk

LOCATION = "/warehouse/db.db/t"
KEEP_ALL = {"write-only": "true", "snapshot.num-retained.min": "1"}

Line = Callable[[], TableStore]


def live(store: TableStore) -> list[DataFileMeta]:
    return [entry.file for entry in live_entries(store.manifests, store.snapshots.latest())]


def compacted(store: TableStore, name: str, number: int) -> None:
    """Appends `a<name>` and compacts all that is live with it into `c<name>`."""
    before = live(store)
    new, after = new_file(store, f"a{name}"), new_file(store, f"c{name}", level=5)
    Committer(store, "u").commit(number, [message(store, new=[new], before=[*before, new], after=[after])])


def put_tag(store: TableStore, name: str, snapshot_id: int) -> None:
    store.env.file_io.overwrite(store.paths.tag(name), encode_snapshot(store.snapshots.snapshot(snapshot_id)))


def on_branch(store: TableStore, name: str = "b") -> TableStore:
    return open_table_store(store.env, LOCATION, branch=name)


def with_branch(options: dict[str, str] = KEEP_ALL) -> tuple[TableStore, TableStore]:
    """A table whose branch `b` begins with `c0`; the tag is deleted."""
    store = make_table(SimDisk().boot(), options=options)
    compacted(store, "0", 0)
    put_tag(store, "t", 2)
    Branches(store).create("b", from_tag="t")
    store.env.file_io.delete(store.paths.tag("t"))
    branch = on_branch(store)
    store.env.file_io.delete(branch.paths.tag("t"))
    return store, branch


@pytest.mark.parametrize("table_first", [True, False])
def test_each_takes_what_the_other_does_not_need(table_first: bool) -> None:
    store, branch = with_branch()
    compacted(store, "1", 1)
    compacted(branch, "b1", 1)
    lines = [store, branch] if table_first else [branch, store]
    expire_as_said(lines[0], retain_max=1)
    assert "c0" in data_files_on_disk(store), "the other still has it"
    for line in (store, branch):
        assert_everything_named_is_there(open_table_store(line.env, LOCATION, branch=line.paths.branch_name))
    expire_as_said(lines[1], retain_max=1)
    assert data_files_on_disk(store) == ["c1", "cb1"]
    assert not remove_orphan_files(store, older_than_ms=0).files
    assert not remove_orphan_files(branch, older_than_ms=0).files
    assert (live_names(store), live_names(branch)) == (["c1@5"], ["cb1@5"])


def test_a_branch_keeps_what_the_table_lives_on() -> None:
    store, branch = with_branch()
    compacted(branch, "b1", 1)
    compacted(branch, "b2", 2)
    result = expire_as_said(branch, retain_max=1)
    assert result.snapshot_ids == (2, 3, 4, 5)
    assert data_files_on_disk(store) == ["a0", "c0", "cb2"]
    fresh = open_table_store(store.env, LOCATION)
    assert_everything_named_is_there(fresh)
    assert live_names(fresh) == ["c0@5"]


def test_a_branch_keeps_what_a_tag_of_the_table_and_another_branch_name() -> None:
    store, branch = with_branch()
    put_tag(store, "kept", 1)
    put_tag(store, "t", 2)
    Branches(store).create("other", from_tag="t")
    store.env.file_io.delete(store.paths.tag("t"))
    compacted(store, "1", 1)
    expire_as_said(store, retain_max=1)
    compacted(branch, "b1", 1)
    expire_as_said(branch, retain_max=1)
    assert data_files_on_disk(store) == ["a0", "c0", "c1", "cb1"]
    Branches(store).drop("other")
    remove_orphan_files(branch, older_than_ms=0)
    assert data_files_on_disk(store) == ["a0", "c1", "cb1"], "what only the dropped branch named is an orphan"
    assert_everything_named_is_there(open_table_store(store.env, LOCATION))


def test_a_branch_keeps_what_the_changelogs_of_the_table_need() -> None:
    """And the table what those of a branch need: data files that appends wrote, without a changelog producer."""
    store = make_table(SimDisk().boot(), options={**KEEP_ALL, "changelog.num-retained.min": "100"})
    compacted(store, "0", 0)
    put_tag(store, "t", 1)
    Branches(store).create("b", from_tag="t")
    branch = on_branch(store)
    for path in (store.paths.tag("t"), branch.paths.tag("t")):
        store.env.file_io.delete(path)
    compacted(branch, "b1", 1)
    expire_as_said(store, retain_max=1)
    expire_as_said(branch.with_options({"changelog.num-retained.min": "1"}), retain_max=1)
    assert "a0" in data_files_on_disk(store)
    copy = open_table_store(store.env, LOCATION).changelogs.find(1)
    assert copy is not None
    files = [file.file_name for split in ChangePlanner(store).plan(copy, ChangeSource.DELTA) for file in split.files]
    assert files == ["a0.parquet"]
    assert not remove_orphan_files(branch, older_than_ms=0).files


def test_changelog_files_that_both_name_go_with_the_last_of_them() -> None:
    store = make_table(SimDisk().boot(), options={**KEEP_ALL, "changelog-producer": "input"})
    new, log = new_file(store, "a0"), new_file(store, "l0")
    Committer(store, "u").commit(0, [message(store, new=[new], changelog=[log])])
    put_tag(store, "t", 1)
    Branches(store).create("b", from_tag="t")
    branch = on_branch(store)
    for path in (store.paths.tag("t"), branch.paths.tag("t")):
        store.env.file_io.delete(path)
    for line, name in ((store, "1"), (branch, "b1")):
        compacted(line, name, 1)
    expire_as_said(branch, retain_max=1)
    assert "l0" in data_files_on_disk(store)
    expire_as_said(store, retain_max=1)
    assert data_files_on_disk(store) == ["c1", "cb1"]


def test_snapshots_of_another_line_are_read_anew_when_their_ids_are_used_again() -> None:
    store, branch = with_branch()
    compacted(branch, "b1", 1)
    compacted(store, "1", 1)
    expire_as_said(store, retain_max=3, retain_min=1)
    Branches(store).drop("b")
    put_tag(store, "t", 3)
    Branches(store).create("b", from_tag="t")  # its snapshots begin with another id, then get those of the first
    again = on_branch(store)
    for path in (store.paths.tag("t"), again.paths.tag("t")):
        store.env.file_io.delete(path)
    compacted(store, "2", 2)
    expire_as_said(store, retain_max=1)
    fresh = on_branch(store)
    assert_everything_named_is_there(fresh)
    assert live_names(fresh) == ["a1@0", "c0@5"]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_random_lines_expire_and_all_stay_readable(seed: int) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    env = SimDisk(seed=seed).boot()
    options = dict(chance.choice([KEEP_ALL, {**KEEP_ALL, "changelog.num-retained.min": "3"}]))
    store = make_table(env, options=options)
    compacted(store, "first", 0)
    names: list[str | None] = [None]
    made = 0
    for step in range(1, 40):
        line = open_table_store(env, LOCATION, branch=chance.choice(names))
        latest = line.snapshots.latest()
        what = chance.choice(["write", "write", "write", "expire", "tag", "untag", "branch", "drop", "orphans"])
        if what == "write":
            compacted(line, f"{step}", step)
        elif what == "expire":
            expire_as_said(line, retain_max=chance.randint(1, 3), retain_min=1)
        elif what == "tag" and latest is not None:
            put_tag(line, f"t{step}", chance.choice(line.snapshots.list_ids()))
        elif what == "untag" and line.snapshots.tags.names():
            env.file_io.delete(line.paths.tag(chance.choice(line.snapshots.tags.names())))
        elif what == "branch" and line.snapshots.tags.names():
            made += 1
            Branches(line).create(f"b{made}", from_tag=chance.choice(line.snapshots.tags.names()))
            names.append(f"b{made}")
        elif what == "drop" and len(names) > 2:
            Branches(open_table_store(env, LOCATION)).drop(names.pop(chance.randrange(1, len(names))) or "")
        elif what == "orphans":
            remove_orphan_files(line, older_than_ms=0)
        check(env, names)
    for name in names:
        line = open_table_store(env, LOCATION, branch=name)
        for tag in line.snapshots.tags.names():
            env.file_io.delete(line.paths.tag(tag))
        expire_as_said(line.with_options({"changelog.num-retained.min": "1"}), retain_max=1)
    check(env, names)
    remove_orphan_files(open_table_store(env, LOCATION, branch=chance.choice(names)), older_than_ms=0)
    check(env, names)
    lines = [open_table_store(env, LOCATION, branch=name) for name in names]
    left = {file.split("@")[0] for line in lines for file in live_names(line)}
    assert set(data_files_on_disk(lines[0])) == left


def check(env: object, names: Sequence[str | None]) -> None:
    for name in names:
        line = open_table_store(env, LOCATION, branch=name)  # type: ignore[arg-type]
        assert_everything_named_is_there(line)
        assert_contiguous(line)
