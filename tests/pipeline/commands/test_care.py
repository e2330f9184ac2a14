"""expire-tags and purge: what they print, and that they try before they do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from freshet import Catalog, Table
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits."""
    made = Catalog(tmp_path).create_table(
        "s.t",
        schema={"id": "BIGINT", "dt": "STRING"},
        partition_keys=["dt"],
        options={"snapshot.num-retained.min": 100},
    )
    for number in range(3):
        made.append([{"id": number, "dt": "a"}])
    return made


def test_tags_expire(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    table.tags.create("kept", 1)
    table.tags.create("short", 2, retained=timedelta(milliseconds=1))
    said = freshet.good("expire-tags", tmp_path, "s.t", "--dry-run").out
    assert said == "short of snapshot 2: 0 data files, 0 metadata files\n1 tag would go; nothing was deleted\n"
    assert len(table.tags.list()) == 2
    assert freshet.good("expire-tags", tmp_path, "s.t").out.endswith("1 tag removed\n")
    assert (
        freshet.good("expire-tags", tmp_path, "s.t", "--older-than", "2020-01-01T00:00:00Z").out == "0 tags removed\n"
    )
    facts = freshet.good("expire-tags", tmp_path, "s.t", "--older-than", "2100-01-01T00:00:00Z", "--json").facts
    assert [(each["tag"], each["snapshot"], each["dry_run"]) for each in facts] == [("kept", 1, False)]
    assert table.tags.list() == ()
    answer = freshet("expire-tags", tmp_path, "s.t", "--older-than", "yesterday")
    assert answer.code == 2 and "--older-than" in answer.err


def test_a_table_is_emptied_when_that_is_said(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    table.tags.create("kept", 1)
    table.branches.create("b", from_tag="kept")
    table.reset_consumer("me", 1)
    said = freshet.good("purge", tmp_path, "s.t").out
    assert said.splitlines()[:3] == ["branch b", "tag kept", "consumer me"]
    assert said.endswith("all rows of s.t would go, with 3 snapshots; nothing was changed. Add --yes to do it\n")
    assert table.scan().to_arrow().num_rows == 3
    facts = freshet.good("purge", tmp_path, "s.t", "--yes", "--orphans-older-than-hours", 0, "--json").facts
    assert (facts["branches"], facts["tags"], facts["consumers"], facts["dry_run"]) == (["b"], ["kept"], ["me"], False)
    assert facts["snapshots"] == [1, 2, 3]
    assert table.scan().to_arrow().num_rows == 0 and len(table.snapshots()) == 1
    assert freshet("purge", tmp_path, "s.t", "--orphans-older-than-hours", -1).code == 2
    assert freshet.good("purge", tmp_path, "s.t", "--yes").out.startswith("s.t is empty; 0 snapshots and ")
