"""Tables that are emptied for good: what is left, what is refused, and what a crash leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError, StorageError
from tests.kit.hand_made import assert_everything_named_is_there
from tests.kit.sim_env import Crash, Fault, SimDisk

WAREHOUSE = "/warehouse"
AT_ONCE = -1_000_000


def made(catalog: Catalog, **options: object) -> Table:
    table = catalog.create_table(
        "db.t",
        schema={"id": "BIGINT", "n": "INT"},
        primary_keys=["id"],
        options={"bucket": 1, "changelog-producer": "lookup", **options},
    )
    for number in range(3):
        with table.writer("loader") as writer:
            writer.write([{"id": 1, "n": number}, {"id": number, "n": 0}])
            writer.commit(number)
        table.tags.create(f"t{number}")
    table.branches.create("b", from_tag="t1")
    catalog.table("db.t$branch_b").append([{"id": 50, "n": 1}])
    table.reset_consumer("me", 1)
    return table


def test_nothing_is_left_but_the_table(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = made(catalog, **{"changelog.num-retained.min": 50, "changelog.num-retained.max": 60})
    table.delete_consumer("me")
    table.expire_snapshots(retain_max=2, older_than_ms=0)
    table.reset_consumer("me", 1)
    assert table.store.changelogs.list_ids() != []
    ids = [each.id for each in table.snapshots()]
    tried = table.purge(dry_run=True)
    assert (tried.branches, tried.tags, tried.consumers) == (("b",), ("t0", "t1", "t2"), ("me",))
    assert (list(tried.snapshot_ids), tried.is_dry_run) == (ids, True)
    assert [each.id for each in table.snapshots()] == ids and len(table.tags.list()) == 3
    done = table.purge(orphans_older_than_ms=AT_ONCE)
    assert (done.branches, done.tags, done.consumers) == (tried.branches, tried.tags, tried.consumers)
    assert done.edit.snapshots
    table = catalog.table("db.t")
    assert len(table.snapshots()) == 1 and table.store.changelogs.list_ids() == []
    assert table.branches.list() == [] and table.tags.list() == () and table.consumers() == {}
    assert table.scan().to_arrow().num_rows == 0
    assert not list(Path(table.location).rglob("*.parquet"))
    assert_everything_named_is_there(table.store)
    with table.writer("loader") as writer:
        writer.write([{"id": 9, "n": 9}])
        assert writer.commit(2).already_committed, "what was committed is not committed again"
    table.append([{"id": 7, "n": 7}])
    assert table.scan().to_arrow().to_pylist() == [{"id": 7, "n": 7}]
    table.purge()
    assert table.scan().to_arrow().num_rows == 0


def test_an_empty_table_stays_one(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema={"id": "BIGINT"})
    assert table.purge().snapshot_ids == ()
    assert table.snapshots() == []


def test_what_is_refused_has_taken_nothing(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = made(catalog)
    with pytest.raises(InvalidRequestError, match=r"branch db\.t\$branch_b is not purged"):
        catalog.table("db.t$branch_b").purge()
    before = [each.id for each in table.snapshots()]
    table.branches.create("a")
    schema = Path(table.store.paths.schema(0))
    schema.write_text(schema.read_text().replace('"bucket"', '"scan.fallback-branch" : "b", "bucket"'))
    with pytest.raises(StorageError, match="fallback-branch"):
        catalog.table("db.t").purge()
    assert [each.id for each in table.snapshots()] == before and len(table.tags.list()) == 3
    assert table.branches.list() == ["a", "b"]


@pytest.mark.few(1)
@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_anywhere_is_followed_by_another_call(effect: bool) -> None:
    whole = SimDisk(1)
    made(Catalog(WAREHOUSE, env=whole.boot()))
    tried = whole.copy()
    env = tried.boot()
    Catalog(WAREHOUSE, env=env).table("db.t").purge(orphans_older_than_ms=AT_ONCE)
    count = env.file_io.mutation_count
    assert count > 20
    for at in range(0, count, 3):
        disk = whole.copy()
        with contextlib.suppress(Crash):
            Catalog(WAREHOUSE, env=disk.boot(Fault(at=at, takes_effect=effect))).table("db.t").purge(
                orphans_older_than_ms=AT_ONCE
            )
        table = Catalog(WAREHOUSE, env=disk.boot()).table("db.t")
        assert_everything_named_is_there(table.store)
        assert table.scan().to_arrow().num_rows in (0, 3)
        table.purge(orphans_older_than_ms=AT_ONCE)
        assert len(table.snapshots()) == 1 and table.scan().to_arrow().num_rows == 0
        assert table.branches.half_made() == table.branches.list() == [] and table.tags.list() == ()
        assert not [name for name in disk.names() if name.endswith(".parquet")]
        assert_everything_named_is_there(table.store)
