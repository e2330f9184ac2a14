"""One rule of case: the column that is spelled so, else the only one but for the case of its letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, InvalidRequestError, Table, col
from freshet.storage.model.schema import column_named

READERS: dict[str, Callable[[Table, str], Any]] = {
    "columns": lambda table, name: table.scan([name]).to_arrow().column_names,
    "changes": lambda table, name: table.changelog([name]).to_arrow().column_names[:1],
    "stream": lambda table, name: next(iter(table.stream([name], max_wait_s=0))).schema.names[:1],
    "between": lambda table, name: table.changes_between(1, 2, [name], mode="delta").to_arrow().column_names[:1],
    "lookup": lambda table, name: table.lookup([{"id": 1}], [name]).rows.column_names,
    "filter as text": lambda table, name: names_if(table.scan(filter=f"`{name}` = 7").count()),
    "filter": lambda table, name: names_if(table.scan(filter=col(name) == 7).count()),
    "filter as a list": lambda table, name: names_if(table.scan(filter=[(name, "=", 7)]).count()),
    "a system table": lambda table, name: (
        ["Total"] if table.system("options").scan(["KEY" if name.lower() == "total" else name]).schema.names else []
    ),
}


def names_if(count: int) -> list[str]:
    return ["Total"] if count == 1 else []


@pytest.fixture
def table(tmp_path: Path) -> Table:
    options = {"bucket": "1", "changelog-producer": "input"}
    columns = {"id": "BIGINT", "Total": "INT"}
    made = Catalog(tmp_path).create_table("db.t", schema=columns, primary_keys=["id"], options=options)
    made.upsert([{"id": 1, "Total": 7}])
    made.upsert([{"id": 2, "Total": 8}])
    return made


@pytest.mark.parametrize("reader", READERS)
def test_names_of_columns(table: Table, reader: str) -> None:
    read = READERS[reader]
    assert [read(table, name) for name in ("Total", "total", "TOTAL")] == [["Total"]] * 3
    for unknown in ("totals", "", "tötal"):
        with pytest.raises(InvalidRequestError, match="no column"):
            read(table, unknown)


def test_names_that_differ_in_case_alone() -> None:
    known = ["a", "A", "b"]
    assert [column_named(name, known) for name in ("a", "A", "B", "c", None)] == ["a", "A", "b", None, None]
    assert column_named("É", ["é"]) == "é"
    assert column_named("AA", ["aa", "aA"]) is None


def test_a_column_is_named_once(table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="named twice"):
        table.scan(["total", "TOTAL"])
