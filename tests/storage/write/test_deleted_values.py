"""A deleted value does not return: whatever engine removes the row, however changes are cut into commits, whatever was
compacted."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.table import Table

REMOVING: dict[str, dict[str, str]] = {
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.a.aggregate-function": "sum",
    },
    "groups": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "a",
        "partial-update.remove-record-on-sequence-group": "g",
    },
}
"""Of each engine that removes rows the options that say so."""

LAYOUTS: dict[str, dict[str, str]] = {
    "never compacted": {"num-sorted-run.compaction-trigger": "100"},
    "trigger 2": {"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000000"},
    "trigger 3": {"num-sorted-run.compaction-trigger": "3", "compaction.max-size-amplification-percent": "1000000"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "small buffer": {"write-buffer-size": "1 kb"},
}


def table_of(folder: Path, options: dict[str, str], columns: dict[str, str] | None = None) -> Table:
    columns = columns or {"k": "INT", "a": "INT", "n": "STRING", "g": "INT"}
    return Catalog(str(folder)).create_table(
        "db.t", schema=columns, primary_keys=["k"], options={"bucket": "1", **options}
    )


def commit(table: Table, *rows: dict[str, Any]) -> None:
    names = [field.name for field in table.schema.fields]
    types = {field.name: table.arrow_schema.field(field.name).type for field in table.schema.fields}
    with table.writer("w") as writer:
        columns = {name: pa.array([row.get(name) for row in rows], types[name]) for name in names}
        writer.write(pa.table({**columns, "_ROW_KIND": [row.get("kind", "+I") for row in rows]}))
        writer.commit()


OLD = {"k": 1, "a": 100, "n": "old", "g": 1}
NEW = {"k": 1, "a": 5, "g": 3}
FILLERS = [{"k": 0, "a": 1, "g": 1}, {"k": 2, "a": 1, "g": 1}]


MANY = [{"k": key, "a": key, "n": Random(key).randbytes(200).hex(), "g": 1} for key in range(10, 200)]
"""Rows that make the oldest run larger than what the rules of compaction take along."""


def deletion(way: str, table: Table) -> None:
    match way:
        case "rows":
            commit(table, {**OLD, "g": 2, "kind": "-D"})
        case "verb":
            table.delete("k = 1")
        case "merge":
            table.merge([{"k": 1}], on=["k"]).when_matched_delete().commit()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", REMOVING)
@pytest.mark.parametrize("cut", ["apart", "together", "thrice"])
def test_a_row_after_a_delete_has_its_own_values_only(tmp_path: Path, engine: str, layout: str, cut: str) -> None:
    table = table_of(tmp_path, {**REMOVING[engine], **LAYOUTS[layout]})
    commit(table, OLD, *FILLERS, *MANY)
    table.compact(full=True)
    gone = {**OLD, "g": 2, "kind": "-D"}
    if cut == "apart":
        commit(table, *FILLERS, gone)
        commit(table, NEW, *FILLERS)
    elif cut == "together":
        commit(table, gone, NEW)
    else:
        commit(table, {**OLD, "a": 7, "g": 1}, gone, {**NEW, "n": "between", "g": 2}, {**gone, "g": 3}, NEW)
    for _ in range(3):
        row = {name: NEW.get(name) for name in ("k", "a", "n", "g")}
        assert table.scan(filter="k = 1").to_arrow().to_pylist() == [row]
        commit(table, {"k": 0, "a": 0, "g": 1})
        table.compact()
    table.compact(full=True)
    assert table.scan(filter="k = 1").to_arrow().to_pylist() == [row]
