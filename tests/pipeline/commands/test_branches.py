"""branches, the SQL that makes and drops them, and the other commands on a branch by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.table_store import open_table_store
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two rows, which tag `t` has, and a third."""
    table = Catalog(tmp_path).create_table(
        "shop.orders", schema={"id": "BIGINT", "note": "STRING"}, primary_keys=["id"], options={"bucket": 1}
    )
    with table.writer("loader") as writer:
        writer.write([{"id": 1, "note": "a"}, {"id": 2, "note": "b"}])
        writer.commit()
        latest = table.latest_snapshot()
        assert latest is not None
        table.store.env.file_io.overwrite(table.store.paths.tag("t"), encode_snapshot(latest))
        writer.write([{"id": 3, "note": "c"}])
        writer.commit()
    return table


def test_branches_are_made_listed_and_dropped(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    assert freshet.good("branches", tmp_path, "shop.orders", "--json").facts == []
    table.branches.create("audit", from_tag="t")
    table.branches.create("empty")
    audit, empty = freshet.good("branches", tmp_path, "shop.orders", "--json").facts
    assert (audit["branch"], audit["table"], audit["records"]) == ("audit", "shop.orders$branch_audit", 2)
    nothing = dict.fromkeys(("snapshot", "records", "time", "error"))
    assert empty == {"branch": "empty", "table": "shop.orders$branch_empty", **nothing}
    lines = freshet.good("branches", tmp_path, "shop.orders").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["branch", "table"],
        ["audit", "shop.orders$branch_audit"],
        ["empty", "shop.orders$branch_empty"],
    ]
    named = "table => 'shop.orders'"
    gone = freshet("branch", tmp_path, "shop.orders").err
    for sql in (
        "rename_branch({t}, from_branch => 'audit', to_branch => 'year')",
        "delete_branch({t}, branch => 'year')",
        "create_branch({t}, branch => 'b', tag => 't')",
        "delete_branch({t}, branch => 'b')",
    ):
        assert f"CALL sys.{sql.partition('(')[0]}(…)" in gone
        freshet.good("sql", tmp_path, f"CALL sys.{sql.format(t=named)}")
    assert table.branches.list() == ["empty"]


def test_other_commands_take_the_name_of_a_branch(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    table.branches.create("audit", from_tag="t")
    name = "shop.orders$branch_audit"
    rows = freshet.good("read", tmp_path, name, "--format", "json").out.splitlines()
    assert [json.loads(row)["id"] for row in rows] == [1, 2]
    assert name in freshet.good("describe", tmp_path, name).out
    statement = f"ALTER TABLE {name} SET TBLPROPERTIES ('snapshot.num-retained.min' = '1')"
    freshet.good("sql", tmp_path, statement)
    freshet.good("compact", tmp_path, name)
    freshet.good("expire", tmp_path, name, "--retain-max", 1)
    freshet.good("check-table", tmp_path, name)
    freshet.good("orphans", tmp_path, name, "--older-than-hours", 0, "--delete")
    assert len(Catalog(tmp_path).table(name).snapshots()) == 1
    assert len(Catalog(tmp_path).table(name).scan().to_arrow()) == 2
    assert len(table.scan().to_arrow()) == 3
    assert Catalog(tmp_path).table("shop.orders").schema.id == 0


def test_half_a_branch_is_listed_as_such_and_dropped(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    class Dies(Exception):
        """The process ends."""

    store = open_table_store(table.store.env, table.location)
    reach = store.env.reach

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.BRANCH_SCHEMAS_REMOVED:
            raise Dies
        reach(point)

    table.branches.create("audit", from_tag="t")
    store.env.reach = die  # type: ignore[method-assign]
    with pytest.raises(Dies):
        Branches(store).drop("audit")
    del store.env.reach
    assert "half made: drop it, or wait" in freshet.good("branches", tmp_path, "shop.orders").out
    assert freshet("read", tmp_path, "shop.orders$branch_audit").code == 2
    freshet.good("sql", tmp_path, "CALL sys.delete_branch('shop.orders', 'audit')")
    assert freshet.good("branches", tmp_path, "shop.orders", "--json").facts == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("create_branch('shop.orders', 'main')", "so the table itself is called"),
        ("create_branch('shop.orders', '12')", "it is a number"),
        ("create_branch('shop.orders', 'b', 'u')", "has no tag 'u'"),
        ("delete_branch('shop.orders', 'b')", "has no branch 'b'"),
        ("rename_branch('shop.orders', 'b', 'c')", "has no branch 'b'"),
    ],
)
def test_what_is_refused(freshet: Freshet, table: Table, tmp_path: Path, call: str, text: str) -> None:
    answer = freshet("sql", tmp_path, f"CALL sys.{call}")
    assert answer.code == 2
    assert text in answer.err
    assert table.branches.list() == []
