"""branches and branch, and the other commands on a branch by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.codec.snapshot_json import encode_snapshot
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
    answer = freshet.good("branch", tmp_path, "shop.orders", "create", "audit", "--from-tag", "t")
    assert answer.out == "branch audit created with the rows of tag t; its name is shop.orders$branch_audit\n"
    assert freshet.good("branch", tmp_path, "shop.orders", "create", "empty", "--json").facts == {
        "branch": "empty",
        "table": "shop.orders$branch_empty",
        "action": "create",
    }
    audit, empty = freshet.good("branches", tmp_path, "shop.orders", "--json").facts
    assert (audit["branch"], audit["table"], audit["records"]) == ("audit", "shop.orders$branch_audit", 2)
    assert empty == {"branch": "empty", "table": "shop.orders$branch_empty"}
    lines = freshet.good("branches", tmp_path, "shop.orders").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["branch", "table"],
        ["audit", "shop.orders$branch_audit"],
        ["empty", "shop.orders$branch_empty"],
    ]
    answer = freshet.good("branch", tmp_path, "shop.orders", "rename", "audit", "year")
    assert answer.out == "branch audit is called year now; its name is shop.orders$branch_year\n"
    assert len(Catalog(tmp_path).table("shop.orders$branch_year").scan().to_arrow()) == 2
    answer = freshet.good("branch", tmp_path, "shop.orders", "rename", "year", "audit", "--json")
    assert answer.facts == {"branch": "audit", "table": "shop.orders$branch_audit", "action": "rename"}
    answer = freshet.good("branch", tmp_path, "shop.orders", "drop", "audit")
    assert answer.out == "branch audit of shop.orders dropped; freshet orphans removes the files that only it named\n"
    assert table.branches.list() == ["empty"]


def test_other_commands_take_the_name_of_a_branch(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    table.branches.create("audit", from_tag="t")
    name = "shop.orders$branch_audit"
    rows = freshet.good("read", tmp_path, name, "--format", "json").out.splitlines()
    assert [json.loads(row)["id"] for row in rows] == [1, 2]
    assert name in freshet.good("describe", tmp_path, name).out
    freshet.good("alter", tmp_path, name, "--set", "snapshot.num-retained.min=1")
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
    freshet.good("branch", tmp_path, "shop.orders", "drop", "audit")
    assert freshet.good("branches", tmp_path, "shop.orders", "--json").facts == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "main"), "so the table itself is called"),
        (("create", "12"), "it is a number"),
        (("create", "b", "--from-tag", "u"), "has no tag 'u'"),
        (("drop", "b"), "has no branch 'b'"),
        (("drop", "b", "--from-tag", "t"), "--from-tag goes with create"),
        (("rename", "b"), "give a new name with rename"),
        (("create", "b", "c"), "give a new name with rename"),
        (("rename", "b", "c"), "has no branch 'b'"),
        (("swap", "b"), "'swap' is not one of 'create', 'rename', 'drop'"),
    ],
)
def test_what_is_refused(freshet: Freshet, table: Table, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    answer = freshet("branch", tmp_path, "shop.orders", *arguments)
    assert answer.code == 2
    assert text in answer.err
    assert table.branches.list() == []
