"""Making, renaming and dropping branches: who gets the name, what a crash leaves, what is refused."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import encode_schema, encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.file_io import Created
from freshet.storage.metadata.branch_store import READ_WITH, Branches
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.tags.table_tags import TableTags
from tests.kit.hand_made import assert_everything_named_is_there, live_names, make_table, message, new_file
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
HOME = f"{LOCATION}/branch/branch-b"
KEEP_ALL = {"write-only": "true"}
MAKE_POINTS = (CrashPoint.BRANCH_MARKED, CrashPoint.BRANCH_COPIED)
DROP_POINTS = (CrashPoint.BRANCH_DROP_MARKED, CrashPoint.BRANCH_SCHEMAS_REMOVED)


def tagged(disk: SimDisk) -> TableStore:
    """Three commits; tag `t` is the second one."""
    store = make_table(disk.boot(), options=KEEP_ALL)
    for number in range(3):
        append(store, number, f"a{number}")
    put_tag(store, "t", 2)
    return store


def append(store: TableStore, number: int, name: str) -> None:
    Committer(store, "u").commit(number, [message(store, new=[new_file(store, name)])])


def put_tag(store: TableStore, name: str, snapshot_id: int) -> None:
    store.env.file_io.overwrite(store.paths.tag(name), encode_snapshot(store.snapshots.snapshot(snapshot_id)))


def on_branch(store: TableStore, name: str = "b") -> TableStore:
    return open_table_store(store.env, LOCATION, branch=name)


def files_below(disk: SimDisk, folder: str) -> list[str]:
    return sorted(path.removeprefix(f"{folder}/") for path in disk.names() if path.startswith(f"{folder}/"))


def test_a_branch_of_a_tag_has_its_snapshot_its_schemas_and_no_hints() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    assert files_below(disk, HOME) == ["schema/schema-0", "snapshot/snapshot-2", "tag/tag-t"]
    assert disk.files[f"{HOME}/snapshot/snapshot-2"].content == disk.files[f"{LOCATION}/snapshot/snapshot-2"].content
    branch = on_branch(store)
    assert live_names(branch) == ["a0@0", "a1@0"]
    assert branch.name == f"{LOCATION}$branch_b"
    assert Branches(store).list() == ["b"]


def test_a_branch_of_nothing_has_the_schemas_alone() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b")
    assert files_below(disk, HOME) == ["schema/schema-0"]
    branch = on_branch(store)
    assert branch.snapshots.latest() is None
    append(branch, 0, "x")
    assert [snapshot.id for snapshot in branch.snapshots.all()] == [1]
    assert live_names(on_branch(store)) == ["x@0"]


def test_schemas_after_that_of_the_tag_are_left_out() -> None:
    disk = SimDisk()
    store = tagged(disk)
    for schema_id in (1, 2):
        later = replace(store.schema, id=schema_id, comment=f"{schema_id}")
        store.env.file_io.create_exclusive(store.paths.schema(schema_id), encode_schema(later))
    Branches(store).create("b", from_tag="t")
    Branches(store).create("c")
    assert [path for path in files_below(disk, HOME) if "schema" in path] == ["schema/schema-0"]
    assert len(files_below(disk, f"{LOCATION}/branch/branch-c")) == 3


def test_the_snapshot_of_a_tag_that_has_expired_or_was_rolled_back_is_made_from_the_tag() -> None:
    for instead in (None, 3):
        disk = SimDisk()
        store = tagged(disk)
        expected = store.snapshots.snapshot(2)
        if instead is None:
            store.env.file_io.delete(store.paths.snapshot(2))
        else:
            another = replace(store.snapshots.snapshot(instead), id=2)
            store.env.file_io.overwrite(store.paths.snapshot(2), encode_snapshot(another))
        fresh = open_table_store(store.env, LOCATION)
        Branches(fresh).create("b", from_tag="t")
        assert on_branch(fresh).snapshots.latest() == expected


@pytest.mark.parametrize(
    "name", ["main", "MAIN", "", " ", "12", "a/b", "a\\b", "a$b", "a@b", ".x", " x", "x\n", "x" * 201]
)
def test_names_that_no_branch_can_have(name: str) -> None:
    disk = SimDisk()
    store = tagged(disk)
    before = disk.names()
    with pytest.raises(InvalidRequestError, match="cannot be the name of a branch"):
        Branches(store).create(name)
    assert disk.names() == before


@pytest.mark.parametrize("name", ["b", "v1", "1a", "größer", "a.b", "a b", "x" * 200])
def test_names_that_a_branch_can_have(name: str) -> None:
    store = tagged(SimDisk())
    Branches(store).create(name)
    assert Branches(store).list() == [name]
    assert open_table_store(store.env, LOCATION, options={"branch": name}).paths.branch_name == name


def test_what_is_refused_writes_nothing() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    before = disk.names()
    with pytest.raises(AlreadyExistsError, match="has a branch 'b' already"):
        Branches(store).create("b")
    with pytest.raises(NotFoundError, match="no tag 'u'"):
        Branches(store).create("c", from_tag="u")
    with pytest.raises(NotFoundError, match=r"no branch 'c'; branches there are: b"):
        Branches(store).drop("c")
    with pytest.raises(NotFoundError, match=r"no branch .*\$branch_c.*branches of the table: b"):
        on_branch(store, "c")
    with pytest.raises(InvalidRequestError, match="opened on it"):
        Branches(on_branch(store)).drop("b")
    with pytest.raises(UnsupportedFeatureError, match="not in this release"):
        Branches(store).fast_forward("b")
    with pytest.raises(NotFoundError, match=r"no branch 'c'; branches there are: b"):
        Branches(store).rename("c", "d")
    with pytest.raises(AlreadyExistsError, match="has a branch 'b' already"):
        Branches(store).rename("b", "b")
    with pytest.raises(InvalidRequestError, match="cannot be the name of a branch"):
        Branches(store).rename("b", "main")
    with pytest.raises(InvalidRequestError, match="renamed by what is opened on it"):
        Branches(on_branch(store)).rename("b", "c")
    with pytest.raises(InvalidRequestError, match="asks for another one"):
        open_table_store(store.env, LOCATION, branch="b", options={"branch": "c"})
    with pytest.raises(InvalidRequestError, match="names another one"):
        on_branch(store).with_options({"branch": "main"})
    assert disk.names() == before


@pytest.mark.parametrize("key", READ_WITH)
def test_a_branch_that_readers_need_is_not_dropped(key: str) -> None:
    store = tagged(SimDisk())
    Branches(store).create("b")
    schema = replace(store.schema, id=1, options={**store.schema.options, key: "b"})
    store.env.file_io.create_exclusive(store.paths.schema(1), encode_schema(schema))
    with pytest.raises(InvalidRequestError, match=f"{key}=b lets readers"):
        Branches(store).drop("b")
    with pytest.raises(InvalidRequestError, match=f"cannot be renamed: {key}=b lets readers"):
        Branches(store).rename("b", "c")
    assert Branches(store).list() == ["b"]


@pytest.mark.parametrize("point", MAKE_POINTS)
def test_a_crash_while_a_branch_is_made_leaves_half_a_branch_that_is_dropped(point: CrashPoint) -> None:
    disk = SimDisk()
    tagged(disk)
    with pytest.raises(Crash):
        Branches(open_table_store(disk.boot(Fault(point=point)), LOCATION)).create("b", from_tag="t")
    half_is_dropped(disk)


@pytest.mark.parametrize("point", DROP_POINTS)
def test_a_crash_while_a_branch_is_dropped_leaves_half_a_branch(point: CrashPoint) -> None:
    disk = SimDisk()
    Branches(tagged(disk)).create("b", from_tag="t")
    with pytest.raises(Crash):
        Branches(open_table_store(disk.boot(Fault(point=point)), LOCATION)).drop("b")
    half_is_dropped(disk)


def half_is_dropped(disk: SimDisk) -> None:
    store = open_table_store(disk.boot(), LOCATION)
    branches = Branches(store)
    assert branches.list() == []
    assert branches.half_made() == ["b"]
    with pytest.raises(InvalidRequestError):
        on_branch(store)
    with pytest.raises(AlreadyExistsError, match="a half one is at"):
        branches.create("b")
    remove_orphan_files(store, older_than_ms=0)
    branches.drop("b")
    assert files_below(disk, HOME) == []
    branches.create("b", from_tag="t")
    assert live_names(on_branch(store)) == ["a0@0", "a1@0"]
    assert_everything_named_is_there(store)


def test_a_branch_is_renamed_with_all_it_has() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    append(on_branch(store), 7, "x")
    before = files_below(disk, HOME)
    Branches(store).rename("b", "c")
    assert Branches(store).list() == ["c"]
    assert files_below(disk, f"{LOCATION}/branch/branch-c") == before
    branch = on_branch(store, "c")
    assert live_names(branch) == ["a0@0", "a1@0", "x@0"]
    append(branch, 8, "y")
    assert [snapshot.id for snapshot in on_branch(store, "c").snapshots.all()] == [2, 3, 4]
    Branches(store).create("b", from_tag="t")
    assert live_names(on_branch(store)) == ["a0@0", "a1@0"]


def test_a_branch_whose_schema_notes_its_old_name_is_opened_under_the_new_one() -> None:
    """As other programs leave it that alter a branch."""
    store = tagged(SimDisk())
    Branches(store).create("b", from_tag="t")
    branch = on_branch(store)
    noted = replace(branch.schema, id=1, options={**branch.schema.options, "branch": "b"})
    store.env.file_io.create_exclusive(branch.paths.schema(1), encode_schema(noted))
    Branches(store).rename("b", "c")
    assert live_names(on_branch(store, "c")) == ["a0@0", "a1@0"]


def test_a_writer_that_has_a_renamed_branch_open_commits_nothing() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    late, committer = on_branch(store), Committer(on_branch(store), "late")
    committer.commit(0, [message(late, new=[new_file(late, "x")])])
    Branches(store).rename("b", "c")
    with pytest.raises(NotFoundError, match="dropped or renamed"):
        committer.commit(1, [message(late, new=[new_file(late, "y")])])
    assert Branches(store).list() == ["c"]
    assert files_below(disk, HOME) == []
    assert live_names(on_branch(store, "c")) == ["a0@0", "a1@0", "x@0"]


def test_half_a_branch_is_not_renamed_and_takes_no_name() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    crashing = open_table_store(disk.boot(Fault(point=CrashPoint.BRANCH_MARKED)), LOCATION)
    with pytest.raises(Crash):
        Branches(crashing).create("half")
    branches = Branches(open_table_store(disk.boot(), LOCATION))
    with pytest.raises(InvalidRequestError, match="'half'.*it is not whole"):
        branches.rename("half", "c")
    with pytest.raises(AlreadyExistsError, match="a half one is at"):
        branches.rename("b", "half")
    assert branches.list() == ["b"]


def test_a_store_that_cannot_rename_refuses_before_anything_is_written() -> None:
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    before = disk.names()
    store.env.file_io.folders = None  # type: ignore[assignment, misc]
    with pytest.raises(UnsupportedFeatureError, match="cannot rename them at once"):
        Branches(store).rename("b", "c")
    assert disk.names() == before


@pytest.mark.parametrize("fault", [Fault(at=at, takes_effect=effect) for at in (0, 1) for effect in (False, True)])
def test_a_crash_leaves_a_branch_under_one_name(fault: Fault) -> None:
    disk = SimDisk()
    Branches(tagged(disk)).create("b", from_tag="t")
    with contextlib.suppress(Crash):
        Branches(open_table_store(disk.boot(fault), LOCATION)).rename("b", "c")
    store = open_table_store(disk.boot(), LOCATION)
    (name,) = store.snapshots.branches()
    assert Branches(store).list() == [name]
    assert live_names(on_branch(store, name)) == ["a0@0", "a1@0"]


@pytest.mark.parametrize("listing", [1, 2, 3])
@pytest.mark.parametrize("how", ["orphans", "expire", "delete a tag"])
def test_a_branch_that_is_renamed_while_files_are_removed_keeps_its_own(how: str, listing: int) -> None:
    """Between one of the listings of the branches and the look at this one, it gets another name."""
    disk = SimDisk()
    store = tagged(disk)
    Branches(store).create("b", from_tag="t")
    append(on_branch(store), 7, "x")
    Committer(store, "u").truncate(9)
    if how == "delete a tag":
        expire_snapshots(store, retain_max=1, retain_min=1, time_retained_ms=0)
    other, entries, count = open_table_store(disk.boot(), LOCATION), store.env.file_io.entries, 0

    def renamed_meanwhile(path: str) -> object:
        nonlocal count
        listed = list(entries(path))
        count += path == store.paths.branch_folder
        if path == store.paths.branch_folder and count == listing:
            Branches(other).rename("b", "c")
        return iter(listed)

    store.env.file_io.entries = renamed_meanwhile  # type: ignore[assignment, method-assign]
    if how == "orphans":
        remove_orphan_files(store, older_than_ms=-1_000_000)
    elif how == "expire":
        store.snapshots.tags.remove("t")
        expire_snapshots(store, retain_max=1, retain_min=1, time_retained_ms=0)
    else:
        TableTags(store).delete("t")
    (name,) = Branches(other).list()
    branch = on_branch(open_table_store(disk.boot(), LOCATION), name)
    assert live_names(branch) == ["a0@0", "a1@0", "x@0"]
    assert_everything_named_is_there(branch)


def crashes() -> list[Fault]:
    return [Fault(at=number, takes_effect=effect) for number in range(13) for effect in (False, True)]


@pytest.mark.parametrize("fault", crashes(), ids=str)
def test_a_crash_anywhere_leaves_no_branch_half_of_one_or_a_whole_one(fault: Fault) -> None:
    disk = SimDisk()
    tagged(disk)
    try:
        branches = Branches(open_table_store(disk.boot(fault), LOCATION))
        branches.create("b", from_tag="t")
        branches.drop("b")
    except Crash:
        pass
    else:
        assert fault.at is not None
        assert fault.at > 7
    store = open_table_store(disk.boot(), LOCATION)
    branches = Branches(store)
    if branches.list() == ["b"]:
        assert live_names(on_branch(store)) == ["a0@0", "a1@0"]
    if store.snapshots.branches():
        branches.drop("b")
    branches.create("b", from_tag="t")
    assert live_names(on_branch(store)) == ["a0@0", "a1@0"]


class SecondCreator:
    """Makes the same branch, whole, just before the first exclusive create of another one takes place."""

    def __init__(self, disk: SimDisk, *, ends: bool) -> None:
        self._disk = disk
        self._ends = ends

    def before(self, create: object) -> object:
        def create_exclusive(path: str, data: bytes) -> Created:
            fault = None if self._ends else Fault(point=CrashPoint.BRANCH_COPIED)
            with contextlib.suppress(Crash):
                Branches(open_table_store(self._disk.boot(fault), LOCATION)).create("b")
            return create(path, data)  # type: ignore[operator, no-any-return]

        return create_exclusive


@pytest.mark.parametrize("ends", [True, False])
def test_of_two_who_make_a_branch_of_one_name_one_is_refused(ends: bool) -> None:
    disk = SimDisk()
    store = tagged(disk)
    other = SecondCreator(disk, ends=ends)
    store.env.file_io.create_exclusive = other.before(store.env.file_io.create_exclusive)  # type: ignore[method-assign, assignment]
    with pytest.raises(AlreadyExistsError, match="another program makes it"):
        Branches(store).create("b", from_tag="t")
    store = open_table_store(disk.boot(), LOCATION)
    assert Branches(store).list() == (["b"] if ends else [])
    assert "snapshot/snapshot-2" not in files_below(disk, HOME), "nothing of the one that was refused"


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_tag_that_goes_meanwhile_makes_no_branch(change: str) -> None:
    disk = SimDisk()
    store = tagged(disk)
    overwrite = store.env.file_io.overwrite

    def then_the_tag_goes(path: str, data: bytes, *, sync: bool = True) -> None:
        overwrite(path, data, sync=sync)
        if path == f"{HOME}/schema/schema-0":
            if change == "deleted":
                disk.boot().file_io.delete(store.paths.tag("t"))
            else:
                put_tag(open_table_store(disk.boot(), LOCATION), "t", 3)

    store.env.file_io.overwrite = then_the_tag_goes  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="deleted or replaced"):
        Branches(store).create("b", from_tag="t")
    assert files_below(disk, HOME) == []
