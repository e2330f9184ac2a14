"""The ledger: one row for each table, and one for the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.sync.ledger import ACTIVE, APART, WHOLE, LedgerRow, ledger_rows, read_ledger, write_rows
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(tmp_path).create_table(
        "lake._freshet_ledger_shop", schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"}
    )


def test_rows_are_read_as_they_were_written(table: Table) -> None:
    assert read_ledger(table) == {}
    a, b = SourceTable("shop", "public", "orders"), SourceTable("shop", "", "a,b")
    rows = [
        LedgerRow(WHOLE, batch=7, digest="d"),
        LedgerRow("lake.a", batch=7, digest="d", schema_id=2, created_ms=1_700_000_000_000).with_sources([a, b, a]),
        LedgerRow("lake.b", APART, since_batch=5, since_offsets=json.dumps({"t": {"0": 12}}), cause="it is damaged"),
    ]
    write_rows(table, "shop", rows)
    assert read_ledger(table) == {row.table_name: row for row in rows}
    found = read_ledger(table)["lake.a"]
    assert found.source_tables == (b, a)
    assert found.since == {} and read_ledger(table)["lake.b"].since == {"t": {"0": 12}}


def test_a_later_row_takes_the_place_of_the_earlier_one(table: Table) -> None:
    write_rows(table, "shop", [LedgerRow("lake.a", APART, since_batch=5, cause="x"), LedgerRow("lake.b", batch=4)])
    write_rows(table, "shop", [LedgerRow("lake.a", batch=6)])
    assert read_ledger(table) == {"lake.a": LedgerRow("lake.a", batch=6), "lake.b": LedgerRow("lake.b", batch=4)}


def test_facts_are_commits_of_their_own(table: Table) -> None:
    """They are not taken for a batch of the pipeline."""
    write_rows(table, "shop", [LedgerRow("lake.a", APART)])
    (snapshot,) = table.snapshots()
    assert snapshot.commit_user != "shop"


def test_all_columns_are_there() -> None:
    assert ledger_rows([]).column_names == list(LEDGER_COLUMNS)
    assert set(LedgerRow.__dataclass_fields__) == set(LEDGER_COLUMNS)


def test_a_ledger_of_an_earlier_version_that_knows_of_renamed_columns(table: Table) -> None:
    """It has a column more, which is passed over: a table that has followed keeps its names."""
    table = table.alter(AddColumn("renames", "STRING"))
    row = {**dict.fromkeys(LEDGER_COLUMNS), "table_name": "lake.a", "batch": 3, "state": ACTIVE, "sources": "[]"}
    table.append([{**row, "renames": '{"steps":[[[["n","m",1]],["id","m"]]],"read":{}}'}])
    assert read_ledger(table) == {"lake.a": LedgerRow("lake.a", batch=3)}
    write_rows(table, "shop", [LedgerRow("lake.a", batch=4)])
    assert read_ledger(table) == {"lake.a": LedgerRow("lake.a", batch=4)}
