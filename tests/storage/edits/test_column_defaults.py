"""A default fills a column that a new row does not have, and nothing else: whatever a row is written with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import freshet
from freshet import Catalog, SetDefault
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table
from tests.kit.quick import some_now

SCHEMA: Final = {"id": "INT NOT NULL", "a": "INT", "n": "STRING"}
Verb = Callable[[Table, Catalog], Any]


def make(folder: Path, *, keys: tuple[str, ...] = ("id",), **options: str) -> tuple[Table, Catalog]:
    """A table with the rows (1, 1, NULL), (2, 2, 'x'), whose `n` has got the default 'd' since."""
    catalog = Catalog(folder)
    given = {"bucket": "1" if keys else "-1"} | {key.replace("_", "-"): value for key, value in options.items()}
    table = catalog.create_table("db.t", schema=SCHEMA, primary_keys=keys, options=given)
    write(table, [{"id": 1, "a": 1, "n": None}, {"id": 2, "a": 2, "n": "x"}])
    table = table.alter(SetDefault("n", "d"))
    return catalog.table("db.t"), catalog


def write(table: Table, rows: object) -> None:
    with table.writer("w") as writer:
        writer.write(rows)
        writer.commit()


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def sql(text: str) -> Verb:
    return lambda _, catalog: freshet.sql(text, catalog)


def merge(**values: Any) -> Verb:
    source = pa.table({"id": pa.array([1], pa.int32()), "a": pa.array([5], pa.int32())})
    if values:
        return lambda table, _: table.merge(source, on="id").when_matched_update(values).execute()
    return lambda table, _: table.merge(source, on="id").when_matched_update_all().execute()


CHANGES: Final[dict[str, Verb]] = {
    "update": lambda table, _: table.update({"a": 5}, "id = 1"),
    "update to NULL": lambda table, _: table.update({"a": 5, "n": None}, "id = 1"),
    "SQL UPDATE": sql("UPDATE db.t SET a = 5 WHERE id = 1"),
    "SQL UPDATE to NULL": sql("UPDATE db.t SET a = 5, n = NULL WHERE id = 1"),
    "merge": merge(),
    "merge to NULL": merge(a=5, n=None),
    "SQL MERGE": sql(
        "MERGE INTO db.t USING (SELECT 1 AS id, 5 AS a) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a"
    ),
    "compact": lambda table, _: (table.update({"a": 5}, "id = 1"), table.compact(full=True)),
}
KEYED: Final[dict[str, Verb]] = {
    "upsert given": lambda table, _: table.upsert([{"id": 1, "a": 5}], columns="given"),
    "upsert NULL": lambda table, _: table.upsert([{"id": 1, "a": 5, "n": None}]),
    "write NULL": lambda table, _: write(table, [{"id": 1, "a": 5, "n": None}]),
    "rescale": lambda table, _: (table.update({"a": 5}, "id = 1"), table.rescale(2)),
    "SQL INSERT of NULL": sql("INSERT INTO db.t VALUES (1, 5, NULL)"),
}
TABLES: Final[dict[str, dict[str, Any]]] = {
    "deduplicate": {},
    "input": {"changelog_producer": "input"},
    "lookup": {"changelog_producer": "lookup"},
    "append": {"keys": ()},
}


@pytest.mark.few(8)
@pytest.mark.parametrize(("kind", "verb"), some_now([(kind, verb) for kind in TABLES for verb in CHANGES | KEYED], 3))
def test_what_a_change_does_not_name_stays(tmp_path: Path, kind: str, verb: str) -> None:
    if kind == "append" and verb in KEYED:
        return
    table, catalog = make(tmp_path, **TABLES[kind])
    (CHANGES | KEYED)[verb](table, catalog)
    assert rows_of(catalog.table("db.t")) == [(1, 5, None), (2, 2, "x")]


NEW: Final[dict[str, Verb]] = {
    "write": lambda table, _: write(table, pa.table({"id": pa.array([7], pa.int32()), "a": pa.array([7], pa.int32())})),
    "write one of several": lambda table, _: write(table, [{"id": 7, "a": 7}, {"id": 2, "a": 2, "n": "x"}]),
    "upsert given": lambda table, _: table.upsert([{"id": 7, "a": 7}], columns="given"),
    "merge": lambda table, _: table.merge([{"id": 7, "a": 7}], on="id").when_not_matched_insert_all().execute(),
    "SQL INSERT": sql("INSERT INTO db.t (id, a) VALUES (7, 7)"),
    "SQL MERGE": sql(
        "MERGE INTO db.t USING (SELECT 7 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, a) VALUES (7, 7)"
    ),
    "overwrite": lambda table, _: table.overwrite(
        [{"id": 1, "a": 1, "n": None}, {"id": 2, "a": 2, "n": "x"}, {"id": 7, "a": 7}]
    ),
}


@pytest.mark.parametrize("verb", NEW)
def test_a_new_row_without_the_column_gets_the_default(tmp_path: Path, verb: str) -> None:
    table, catalog = make(tmp_path)
    NEW[verb](table, catalog)
    assert rows_of(catalog.table("db.t")) == [(1, 1, None), (2, 2, "x"), (7, 7, "d")]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@pytest.mark.parametrize("verb", some_now(["write", "upsert given", "SQL INSERT", "update", "SQL UPDATE"]))
def test_where_columns_are_merged_a_column_that_is_not_given_stays(tmp_path: Path, engine: str, verb: str) -> None:
    options = {"merge_engine": engine, "fields.default-aggregate-function": "last_non_null_value"}
    table, catalog = make(tmp_path, **options)
    verbs: dict[str, Verb] = {
        "write": lambda table, _: write(table, [{"id": 2, "a": 5}]),
        "upsert given": lambda table, _: table.upsert([{"id": 2, "a": 5}], columns="given"),
        "SQL INSERT": sql("INSERT INTO db.t (id, a) VALUES (2, 5)"),
        "update": lambda table, _: table.update({"a": 5}, "id = 2"),
        "SQL UPDATE": sql("UPDATE db.t SET a = 5 WHERE id = 2"),
    }
    verbs[verb](table, catalog)
    assert rows_of(catalog.table("db.t")) == [(1, 1, None), (2, 5, "x")]


def test_the_default_of_an_ordering_column_does_not_null_what_another_stream_gave(tmp_path: Path) -> None:
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "a"}
    schema = {"id": "INT NOT NULL", "g": "INT", "a": "INT", "b": "INT"}
    table = Catalog(tmp_path).create_table("db.t", schema=schema, primary_keys=["id"], options=options)
    table = table.alter(SetDefault("g", "9"))
    write(table, [{"id": 1, "g": 5, "a": 1}])
    write(table, [{"id": 1, "b": 2}])
    assert rows_of(table) == [(1, 5, 1, 2)]


def test_images_of_what_goes_have_no_defaults(tmp_path: Path) -> None:
    table, catalog = make(tmp_path, changelog_producer="input")
    table.delete("id = 1")
    write(table, pa.table({"id": pa.array([2], pa.int32()), "a": pa.array([2], pa.int32()), "_ROW_KIND": ["-D"]}))
    gone = [row for row in catalog.table("db.t").changelog().to_arrow().to_pylist() if row["_ROW_KIND"] == "-D"]
    assert [(row["id"], row["a"], row["n"]) for row in gone] == [(1, 1, None), (2, 2, None)]


def test_a_not_null_column_is_given_where_columns_are_merged(tmp_path: Path) -> None:
    schema = {"id": "INT NOT NULL", "a": "INT", "n": "STRING NOT NULL"}
    options = {"bucket": "1", "merge-engine": "partial-update"}
    table = Catalog(tmp_path).create_table("db.t", schema=schema, primary_keys=["id"], options=options)
    table = table.alter(SetDefault("n", "d"))
    with pytest.raises(InvalidRequestError, match=r"lacks column 'n'.*would replace what is stored"):
        write(table, [{"id": 1, "a": 5}])


def test_rows_given_with_different_columns_are_not_filled_with_null(tmp_path: Path) -> None:
    table, _ = make(tmp_path)
    with pytest.raises(InvalidRequestError, match="row 0 lacks column 'n'"):
        table.upsert([{"id": 2, "a": 5}, {"id": 1, "a": 5, "n": "y"}], columns="given")
