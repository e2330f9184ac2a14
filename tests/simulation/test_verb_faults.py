"""Verbs that die at a named point, or whose disk is full from some write on: what people see of the warehouse is as
before or as after, everything that is named is there, and the verb may be called again.

Deletes, updates, overwrites and rollbacks crash at each mutation in `test_edit_crashes`, tags and branches in their own
tests; here are the verbs that those leave out, all named points, and the full disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError, UnsupportedFeatureError
from freshet.storage.table import Table
from tests.kit.hand_made import assert_everything_named_is_there
from tests.kit.sim_env import Crash, Fault, FaultKind, SimDisk, SimEnv
from tests.soak.counts import VERB_FAULTS, chance_of

WAREHOUSE = "/warehouse"
KINDS = {
    "keyed": ({"bucket": "1", "num-sorted-run.compaction-trigger": "2"}, True),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, True),
    "append": ({"bucket": "-1"}, False),
}
Seen = Mapping[str, Any]


def catalog_of(env: SimEnv) -> Catalog:
    return Catalog(WAREHOUSE, env=env)


def table_of(catalog: Catalog, name: str = "db.t") -> Table:
    return catalog.table(name)


@lru_cache
def made(kind: str) -> SimDisk:
    """A table of three commits with a tag of an expired snapshot, a branch, and a table beside."""
    options, is_keyed = KINDS[kind]
    disk = SimDisk(1)
    catalog = catalog_of(disk.boot())
    schema = {"p": "STRING NOT NULL", "id": "INT NOT NULL", "n": "INT"}
    keys = ["p", "id"] if is_keyed else []
    for name in ("db.t", "db.beside"):
        catalog.create_table(name, schema=schema, primary_keys=keys, partition_keys=["p"], options=options)
    table = table_of(catalog)
    for n, ids in ((1, range(10)), (2, range(5, 15)), (3, range(3))):
        rows = [{"p": "ab"[number % 2], "id": number, "n": n} for number in ids]
        with table.writer("w") as writer:
            writer.write(
                pa.Table.from_pylist(rows, pa.schema([("p", pa.string()), ("id", pa.int32()), ("n", pa.int32())]))
            )
            writer.commit()
        if n == 1:
            table.tags.create("first")
            table.branches.create("b", from_tag="first")
    table.tags.create("last")
    table.expire_snapshots(retain_max=3, retain_min=3, older_than_ms=0)
    table_of(catalog, "db.beside").append([{"p": "a", "id": 1, "n": 1}])
    return disk


def seen(disk: SimDisk) -> Seen:
    """What people see: tables, branches, tags, and the rows of each. Everything that is named is there."""
    catalog = catalog_of(disk.boot())
    found: dict[str, Any] = {"databases": catalog.list_databases()}
    for database in found["databases"]:
        for name in catalog.list_tables(database):
            table = table_of(catalog, f"{database}.{name}")
            branches = {each: table_of(catalog, f"{database}.{name}$branch_{each}") for each in table.branches.list()}
            for line, opened in {"": table, **branches}.items():
                assert_everything_named_is_there(opened.store)
                tags = {tag.name: tag.snapshot_id for tag in opened.tags.list()}
                found[f"{database}.{name} {line}"] = rows_of(opened), {each: rows_of(opened, tag=each) for each in tags}
    return found


def rows_of(table: Table, tag: str | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(tag=tag).to_arrow().to_pylist())


@dataclass(frozen=True)
class Verb:
    """What is called; `may_be_half` where what is dropped may be gone in part."""

    act: Callable[[Catalog], object]
    may_be_half: bool = False
    keyed_only: bool = False
    is_twice: bool = False
    """Where the table has no key, who calls it again has its rows twice."""


def merged(catalog: Catalog) -> object:
    rows = [{"p": "a", "id": 2, "n": 7}, {"p": "b", "id": 99, "n": 7}]
    return (
        table_of(catalog).merge(rows, on=["p", "id"]).when_matched_update_all().when_not_matched_insert_all().execute()
    )


def loaded(catalog: Catalog) -> int:
    """The newest snapshot of those that the table begins with."""
    return max(each.id for each in table_of(catalog).snapshots() if each.commit_user == "w")


FAR = 9_999_999_999_999
NEW = [{"p": "a", "id": 2, "n": 7}, {"p": "c", "id": 50, "n": 8}]
VERBS: dict[str, Verb] = {
    "append": Verb(lambda catalog: table_of(catalog).append(NEW), is_twice=True),
    "upsert given": Verb(lambda catalog: table_of(catalog).upsert(NEW, columns="given"), keyed_only=True),
    "delete": Verb(lambda catalog: table_of(catalog).delete("id < 4 OR n = 2")),
    "update": Verb(lambda catalog: table_of(catalog).update({"n": 9}, "id > 3")),
    "merge": Verb(merged, keyed_only=True),
    "overwrite": Verb(lambda catalog: table_of(catalog).overwrite(NEW)),
    "overwrite a partition": Verb(lambda catalog: table_of(catalog).overwrite(NEW[:1], partition={"p": "a"})),
    "overwrite all": Verb(lambda catalog: table_of(catalog).overwrite(NEW, dynamic=False)),
    "truncate": Verb(lambda catalog: table_of(catalog).truncate()),
    "drop a partition": Verb(lambda catalog: table_of(catalog).drop_partition({"p": "a"})),
    "rollback to a tag": Verb(lambda catalog: table_of(catalog).rollback("first")),
    "undo": Verb(lambda catalog: table_of(catalog).rollback(undo=("w", 2))),
    "cut": Verb(lambda catalog: table_of(catalog).rollback("first", delete_newer=True), may_be_half=True),
    "tag": Verb(lambda catalog: table_of(catalog).tags.create("new")),
    "replace a tag": Verb(lambda catalog: table_of(catalog).tags.replace("first", loaded(catalog))),
    "rename a tag": Verb(lambda catalog: table_of(catalog).tags.rename("first", "new"), may_be_half=True),
    "delete a tag": Verb(lambda catalog: table_of(catalog).tags.delete("first")),
    "expire tags": Verb(lambda catalog: table_of(catalog).tags.expire(older_than=FAR), may_be_half=True),
    "merge manifests": Verb(lambda catalog: table_of(catalog).compact_manifests()),
    "branch": Verb(lambda catalog: table_of(catalog).branches.create("new", from_tag="first")),
    "rename a branch": Verb(lambda catalog: table_of(catalog).branches.rename("b", "new")),
    "drop a branch": Verb(lambda catalog: table_of(catalog).branches.drop("b")),
    "write on a branch": Verb(lambda catalog: table_of(catalog, "db.t$branch_b").append(NEW), is_twice=True),
    "rename the table": Verb(lambda catalog: catalog.rename_table("db.t", "db.renamed")),
    "drop the table": Verb(lambda catalog: catalog.drop_table("db.t", if_exists=True), may_be_half=True),
    "drop the database": Verb(lambda catalog: catalog.drop_database("db", cascade=True), may_be_half=True),
    "compact": Verb(lambda catalog: table_of(catalog).compact(full=True)),
    "expire": Verb(lambda catalog: table_of(catalog).expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)),
}
OFTEN_TESTED = ("compact", "expire", "append", "write on a branch")
"""By other tests of crashes."""
CASES = [
    (kind, name)
    for name, verb in VERBS.items()
    for kind, (_, is_keyed) in KINDS.items()
    if is_keyed or not verb.keyed_only
]


def spread(faults: list[Fault], count: int | None) -> list[Fault]:
    """So many of them, from the first to the last."""
    if count is None or len(faults) <= count:
        return faults
    return [faults[number * (len(faults) - 1) // (count - 1)] for number in range(count)]


def point_faults(disk: SimDisk, verb: Verb) -> Iterator[Fault]:
    """Each visit of each named point that the verb comes to."""
    env = disk.copy().boot()
    verb.act(catalog_of(env))
    env.finish_later()
    for point, count in sorted(env.visits.items()):
        for visit in range(1, count + 1):
            yield Fault(point=point, visit=visit)


def full_faults(disk: SimDisk, verb: Verb) -> Iterator[Fault]:
    """Full before each change of the disk."""
    env = disk.copy().boot()
    verb.act(catalog_of(env))
    env.finish_later()
    for number in range(env.file_io.mutation_count):
        yield Fault(FaultKind.FULL, at=number)


def mutation_faults(disk: SimDisk, verb: Verb) -> Iterator[Fault]:
    """A crash at each change of the disk."""
    for full in full_faults(disk, verb):
        yield Fault(at=full.at)
        yield Fault(at=full.at, takes_effect=True)


def check(kind: str, name: str, faults: Sequence[Fault]) -> None:
    verb, disk = VERBS[name], made(kind)
    before, done = seen(disk.copy()), disk.copy()
    verb.act(catalog_of(done.boot()))
    after = seen(done)
    assert faults
    for fault in faults:
        tried = disk.copy()
        env = tried.boot(fault)
        failure: BaseException | None = None
        try:
            verb.act(catalog_of(env))
            env.finish_later()
        except (StorageError, Crash) as error:
            failure = error
        if fault.kind is FaultKind.FULL and failure is not None:
            assert "No space left" in str(failure), (fault, repr(failure))
            assert WAREHOUSE in str(failure), (fault, repr(failure))
        found = None
        try:
            found = seen(tried)
        except StorageError:
            assert verb.may_be_half, fault
        if found is not None and not verb.may_be_half:
            assert found in (before, after), f"{kind}, {name}, {fault}: {failure!r}: {found}"
        if fault.kind is FaultKind.FULL and failure is None:
            assert found == after, f"{fault}: it said that it was done"
        again(tried, verb)
        end = seen(tried)
        if not (verb.is_twice and kind == "append" and found == after):
            assert end == after, f"{kind}, {name}, {fault}, again: {failure!r}"
        catalog = catalog_of(tried.boot())
        if catalog.list_databases() and catalog.has_table("db.t"):
            remove_orphan_files(table_of(catalog).store, older_than_ms=-1_000_000)
            assert seen(tried) == end, f"{fault}: orphan cleaning took a file in use"


def again(disk: SimDisk, verb: Verb) -> None:
    """What is there already, or gone already, is done; what is half there is removed first, as the errors say."""
    catalog = catalog_of(disk.boot())
    if catalog.list_databases() and catalog.has_table("db.t"):
        table = table_of(catalog)
        for half in table.branches.half_made():
            table.branches.drop(half)
        tags = {tag.name for tag in table.tags.list()}
        if {"first", "new"} <= tags and verb is VERBS["rename a tag"]:
            table.tags.delete("new")
    with suppress(AlreadyExistsError, NotFoundError):
        verb.act(catalog_of(disk.boot()))


def test_each_kind_of_table_can_be_seen() -> None:
    for kind in KINDS:
        found = seen(made(kind).copy())
        assert set(found) == {"databases", "db.t ", "db.t b", "db.beside "}
        assert set(found["db.t "][1]) == {"first", "last"}


def all_points(disk: SimDisk, verb: Verb) -> list[Fault]:
    """Where a verb has no named point, its changes of the disk are its points."""
    return list(point_faults(disk, verb)) or list(mutation_faults(disk, verb))


WAYS: dict[str, Callable[[SimDisk, Verb], Iterable[Fault]]] = {
    "named points": all_points,
    "each change": mutation_faults,
    "a full disk": full_faults,
}
ALL = [(kind, name, way) for kind, name in CASES for way in WAYS]
SOME = [each for each in ALL if each[1] not in OFTEN_TESTED]


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "name", "way"), ALL[::17])
def test_some_faults(kind: str, name: str, way: str) -> None:
    check(kind, name, spread(list(WAYS[way](made(kind), VERBS[name])), 3))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "way"), SOME[5::4])
def test_more_faults(kind: str, name: str, way: str) -> None:
    check(kind, name, spread(list(WAYS[way](made(kind), VERBS[name])), 4))


@pytest.mark.soak
def test_all_faults() -> None:
    for kind, name, way in chance_of("verb faults").sample(ALL, min(VERB_FAULTS.now(), len(ALL))):
        check(kind, name, list(WAYS[way](made(kind), VERBS[name])))


def test_a_store_without_renames_refuses_before_anything_is_written() -> None:
    disk = made("keyed").copy()
    env = disk.boot()
    env.file_io.folders = None  # type: ignore[assignment]
    before = disk.names()
    with pytest.raises(UnsupportedFeatureError, match="cannot be renamed"):
        catalog_of(env).rename_table("db.t", "db.renamed")
    assert disk.names() == before
