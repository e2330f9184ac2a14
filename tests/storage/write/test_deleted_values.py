"""A deleted value does not return: whatever engine removes the row, however changes are cut into commits, whatever was
compacted."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, sql
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.table import Table
from tests.kit.quick import some_now

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


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("cut", "engine", "layout"), some_now(product(("apart", "together", "thrice"), REMOVING, LAYOUTS), stride=7)
)
def test_a_row_after_a_delete_has_its_own_values_only(tmp_path: Path, cut: str, engine: str, layout: str) -> None:
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


@pytest.mark.parametrize("way", ["delete", "sql", "merge", "key alone", "NOT NULL"])
def test_every_way_to_delete(tmp_path: Path, way: str) -> None:
    kept = " NOT NULL" if way == "NOT NULL" else ""
    columns = {"k": "INT", "a": "INT" + kept, "n": "STRING"}
    table = table_of(tmp_path, REMOVING["partial-update"], columns)
    commit(table, {"k": 1, "a": 100, "n": "old"}, {"k": 2, "a": 1})
    match way:
        case "delete":
            table.delete("k = 1")
        case "sql":
            sql("DELETE FROM db.t WHERE k = 1", Catalog(str(tmp_path)))
        case "merge":
            table.merge(pa.table({"k": pa.array([1], pa.int32())}), on="k").when_matched_delete().execute()
        case _:
            commit(table, {"k": 1, "kind": "-D"})
    commit(table, {"k": 1, "a": 5})
    assert table.scan(filter="k = 1").to_arrow().to_pylist() == [{"k": 1, "a": 5, "n": None}]


FUNCTIONS: dict[str, tuple[str, Any, Any, dict[str, str]]] = {
    "collect": ("ARRAY<STRING>", ["a"], ["b"], {}),
    "merge_map": ("MAP<STRING, INT>", [("a", 1)], [("b", 2)], {}),
    "nested_update": ("ARRAY<ROW<x INT>>", [{"x": 1}], [{"x": 2}], {}),
    "product": ("INT", 5, 7, {}),
    "last_non_null_value": ("STRING", "a", "b", {}),
    "last_value": ("STRING", "a", "b", {}),
    "sum": ("INT", 5, 7, {}),
}


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_update_in_one_commit(tmp_path: Path, function: str, producer: str) -> None:
    type_text, old, new, _ = FUNCTIONS[function]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function, "changelog-producer": producer}
    table = table_of(tmp_path, options, {"k": "INT", "v": type_text})
    commit(table, {"k": 1, "v": old})
    commit(table, {"k": 1, "v": old, "kind": "-U"}, {"k": 1, "v": new, "kind": "+U"})
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "v": new}]
    level_0 = [entry.file for entry in table.files() if entry.file.level == 0]
    assert len(level_0) == (0 if producer == "lookup" else 2 if function in ("sum", "last_value") else 3)
    if producer == "none" and function not in ("sum", "last_value"):
        newest, older = sorted(level_0, key=lambda file: -file.max_sequence_number)[:2]
        assert newest.min_sequence_number > older.max_sequence_number
        assert older.delete_row_count == older.row_count


@pytest.mark.parametrize("first", ["-U", "+I"])
def test_a_key_that_changes_often_in_one_commit(tmp_path: Path, first: str) -> None:
    """More often than there are files for: the newest holds the rest."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "collect"}
    table = table_of(tmp_path, options, {"k": "INT", "v": "ARRAY<INT>"})
    commit(table, {"k": 1, "v": [0]})
    rows: list[dict[str, Any]] = [{"k": 1, "v": [100]}] if first == "+I" else []
    for number in range(40):
        rows += [{"k": 1, "v": [number], "kind": "-U"}, {"k": 1, "v": [number + 1], "kind": "+U"}]
    commit(table, *rows)
    assert len(table.files()) <= 17
    (row,) = table.scan().to_arrow().to_pylist()
    assert sorted(row["v"]) == ([40, 100] if first == "+I" else [40])


def test_the_changelog_of_the_input_has_what_the_delete_came_with(tmp_path: Path) -> None:
    table = table_of(tmp_path, {**REMOVING["partial-update"], "changelog-producer": "input"})
    commit(table, OLD)
    commit(table, {**OLD, "kind": "-D"}, NEW)
    changes = table.changelog(from_snapshot=2).to_arrow().select(["_ROW_KIND", "k", "a", "n"]).to_pylist()
    assert [tuple(row.values()) for row in changes] == [("-D", 1, 100, "old"), ("+I", 1, 5, None)]


def test_check_counts_deletes_that_hold_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As builds before November 2026 and Apache Paimon write them."""
    table = table_of(tmp_path, REMOVING["partial-update"])
    commit(table, OLD, {**OLD, "k": 2})
    commit(table, {**OLD, "kind": "-D"})
    assert table.check().deleted_values == 0
    with monkeypatch.context() as patched:
        patched.setattr(RetractLayers, "blanked", lambda self, rows: rows)
        commit(table, {**OLD, "k": 2, "kind": "-D"})
    assert table.check().deleted_values == 1
    table.compact(full=True)
    assert table.check().deleted_values == 0
