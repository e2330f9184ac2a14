"""Columns for fields that a table lacks: what is added, and what is said where another program was first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.outcomes import SeenSchema, SourceTable
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.catalog import Catalog
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(tmp_path).create_table("a.t", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"})


def seen(**columns: str) -> list[SeenSchema]:
    described = DescribedTable(columns, (), is_typed=False, where="t partition 0 offset 7")
    return [SeenSchema(SourceTable("", "", "t"), described.to_document())]


def followed(commit: TableCommit, found: list[SeenSchema]) -> str:
    """What is said of it, once."""
    target = OneTable(commit)
    target.follow(found, 0, {})
    (event,) = target.take_events({})
    assert not target.take_events({})
    return event


def columns(table: Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.with_options({}).schema.fields}


def test_all_that_are_new_are_named(table: Table) -> None:
    event = followed(TableCommit(table, "p"), seen(a="BIGINT", b="STRING"))
    assert event == "table a.t follows its source: new a BIGINT, b STRING (t partition 0 offset 7)"
    assert columns(table) == {"id": "INT NOT NULL", "a": "BIGINT", "b": "STRING"}


def test_those_of_another_program_are_not_called_new(table: Table) -> None:
    commit = TableCommit(table, "p")
    table.alter(AddColumn("late", "STRING"))
    event = followed(commit, seen(late="BIGINT", late2="STRING"))
    assert event == "table a.t follows its source: new late2 STRING (t partition 0 offset 7)"
    assert columns(table) == {"id": "INT NOT NULL", "late": "STRING", "late2": "STRING"}


def test_another_program_may_have_added_all_of_them(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in between, as two pipelines do that read the same records."""
    alter = Table.alter

    def overtaken(self: Table, *changes: Any, **more: Any) -> Table:
        monkeypatch.setattr(Table, "alter", alter)
        table.alter(AddColumn("late", "STRING"))
        return alter(self, *changes, **more)

    monkeypatch.setattr(Table, "alter", overtaken)
    event = followed(TableCommit(table, "p"), seen(late="BIGINT"))
    assert event == "table a.t has late STRING by now, which another program added (t partition 0 offset 7)"


def test_records_are_decoded_for_them_from_then_on(table: Table) -> None:
    commit = TableCommit(table, "p")
    target = OneTable(commit, lambda: table.with_options({}).schema)
    target.follow(seen(a="BIGINT"), 0, {})
    (round_commit,) = target.round(0, {}, is_planned=True)
    assert round_commit.decoded.column_names == round_commit.table.schema.column_names == ("id", "a")
