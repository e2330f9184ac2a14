"""freshet tags and freshet tag: what they print, what they change, and what they refuse before they do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from freshet import Catalog, Table
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits, each compacted."""
    made = Catalog(tmp_path).create_table(
        "shop.orders",
        schema={"id": "BIGINT"},
        primary_keys=["id"],
        options={"bucket": 1, "snapshot.num-retained.min": 100},
    )
    with made.writer("loader") as writer:
        for number in range(3):
            writer.write([{"id": 0}, {"id": number}])
            writer.compact(full=True)
            writer.commit(number)
    return made


def test_tags_are_made_listed_and_deleted(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    place = (tmp_path, "shop.orders")
    assert freshet.good("tag", *place, "create", "monday", "--snapshot", 2).out == "tag 'monday' names snapshot 2\n"
    said = freshet.good("tag", *place, "create", "today", "--retained-hours", 1.5).out
    assert said.startswith("tag 'today' names snapshot 6 until 2")
    time = table.snapshots()[4].time_ms
    assert freshet.good("tag", *place, "create", "then", "--timestamp", time, "--json").facts["snapshot"] == 5
    header, *lines = freshet.good("tags", *place).out.splitlines()
    assert header.split() == ["tag", "snapshot", "committed", "(UTC)", "records", "created", "retained", "until"]
    assert [line.split()[:2] for line in lines] == [["monday", "2"], ["then", "5"], ["today", "6"]]
    monday, _, today = freshet.good("tags", *place, "--json").facts
    assert (monday["tag"], monday["snapshot"], monday["records"]) == ("monday", 2, 1)
    assert monday["created"] is monday["retained_until"] is None
    assert datetime.fromisoformat(monday["committed"]) == table.tags.get("monday").commit_time.replace(tzinfo=UTC)
    assert f"{table.tags.get('monday').commit_time:%Y-%m-%d %H:%M:%S}" in freshet.good("tags", *place).out
    assert today["created"] < today["retained_until"]

    table.expire_snapshots(retain_max=1)
    would = freshet.good("tag", *place, "delete", "monday", "--dry-run").out
    assert would.startswith("tag 'monday' of snapshot 2 would be deleted, and 1 data file and ")
    assert freshet.good("tag", *place, "replace", "monday", "--dry-run").out == would.replace("deleted", "replaced")
    assert [tag.name for tag in table.tags.list()] == ["monday", "then", "today"]
    renamed = freshet.good("tag", *place, "rename", "monday", "tuesday").out
    assert renamed == "tag 'monday' is called 'tuesday' now, and names snapshot 2\n"
    gone = freshet.good("tag", *place, "delete", "tuesday", "--json").facts
    assert (gone["tag"], gone["snapshot"], gone["data_files"], gone["dry_run"]) == ("tuesday", 2, 1, False)
    assert freshet.good("tag", *place, "replace", "then").out == "tag 'then' names snapshot 6\n"
    assert freshet.good("tag", *place, "delete", "then").out == (
        "tag 'then' of snapshot 6 deleted, and 0 data files and 0 metadata files with it\n"
    )
    assert [tag.name for tag in table.tags.list()] == ["today"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "a/b"), "cannot be the name of a tag"),
        (("create", "there"), "has a tag 'there' already"),
        (("create", "new", "--snapshot", 9), "snapshot 9 is not there: table shop.orders has snapshots 1 to 6"),
        (("create", "new", "--timestamp", "2026-03-01"), "--timestamp 2026-03-01 says no time zone"),
        (("create", "new", "--snapshot", 1, "--timestamp", 5), "exclude each other"),
        (("create", "new", "--retained-hours", 0), "--retained-hours 0.0: give more than 0"),
        (("create", "new", "--dry-run"), "--dry-run goes with delete and replace"),
        (("create", "new", "newer"), "give a new name with rename"),
        (("rename", "there"), "give a new name with rename"),
        (("rename", "there", "new", "--snapshot", 1), "go with create and replace, not rename"),
        (("delete", "there", "--retained-hours", 1), "go with create and replace, not delete"),
        (("delete", "nobody"), "no tag 'nobody'; tags there are: there"),
        (("show", "there"), "show"),
    ],
)
def test_a_wrong_call_changes_nothing(
    freshet: Freshet, table: Table, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    table.tags.create("there", 3)
    called = freshet("tag", tmp_path, "shop.orders", *arguments)
    assert called.code == 2
    assert message in " ".join(called.err.split())
    assert [(tag.name, tag.snapshot_id) for tag in table.tags.list()] == [("there", 3)]


def test_a_table_without_tags(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    assert table.tags.list() == ()
    assert len(freshet.good("tags", tmp_path, "shop.orders").out.splitlines()) == 1
    assert freshet.good("tags", tmp_path, "shop.orders", "--json").facts == []
