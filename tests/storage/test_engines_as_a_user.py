"""Merge engines in the hands of a user who has read the documentation and checks each sentence of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

from freshet import (
    AddColumn,
    Catalog,
    ChangeType,
    InvalidRequestError,
    Predicate,
    RenameColumn,
    SetNullable,
    SetOption,
    Table,
    col,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path))


def create(catalog: Catalog, engine: str, columns: Mapping[str, str], **options: object) -> Table:
    """A table with the key k and these columns, one bucket; in names of options _ is - and __ is a dot."""
    return catalog.create_table(
        "shop.wide",
        schema={"k": "INT", **columns},
        primary_keys=["k"],
        options={
            "bucket": 1,
            "merge-engine": engine,
            **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()},
        },
    )


def rows(table: Table, values: Sequence[tuple[Any, ...]], kinds: Sequence[str] | None = None) -> pa.Table:
    schema = table.arrow_schema
    columns = [pa.array([value[at] for value in values], field.type) for at, field in enumerate(schema)]
    made = pa.Table.from_arrays(columns, names=schema.names)
    return made if kinds is None else made.append_column("_ROW_KIND", pa.array(kinds))


def commit(table: Table, *values: tuple[Any, ...], kinds: Sequence[str] | None = None) -> None:
    with table.writer("loader") as writer:
        writer.write(rows(table, values, kinds))
        writer.commit()


def held(table: Table, **arguments: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(**arguments).to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("engine", "options", "first", "second", "merged", "predicate"),
    [
        ("partial-update", {}, (1, 1, None), (1, None, 2), (1, 1, 2), (col("a") == 1) & (col("b") == 2)),
        ("aggregation", {"fields__a__aggregate_function": "sum"}, (1, 3, 0), (1, 4, 0), (1, 7, 0), col("a") == 7),
    ],
)
def test_a_filter_finds_rows_that_only_merging_makes(
    catalog: Catalog,
    engine: str,
    options: dict[str, object],
    first: tuple[Any, ...],
    second: tuple[Any, ...],
    merged: tuple[Any, ...],
    predicate: Predicate,
) -> None:
    table = create(catalog, engine, {"a": "INT", "b": "INT"}, **options)
    commit(table, first)
    commit(table, second)
    assert held(table, filter=predicate) == [merged]
    assert held(table, filter=predicate, columns=["k"]) == [(1,)]
    table.compact()
    assert held(table, filter=predicate) == [merged]


def test_a_snapshot_from_before_a_rename_is_read_with_the_groups_it_had(catalog: Catalog) -> None:
    options = {"fields__s__sequence_group": "a", "fields__a__aggregate_function": "sum"}
    table = create(catalog, "partial-update", {"s": "INT", "a": "INT"}, **options)
    commit(table, (1, 1, 10))
    commit(table, (1, 2, 5))
    renamed = table.alter(RenameColumn("s", "version"), RenameColumn("a", "amount"))
    commit(renamed, (1, 1, 100))
    assert held(renamed) == [(1, 2, 115)]
    assert held(renamed, snapshot_id=2) == held(renamed, snapshot_id=2, columns=["k", "s", "a"]) == [(1, 2, 15)]
    assert held(renamed.with_options({"read.batch-size": 7}), snapshot_id=2) == [(1, 2, 15)]


def test_a_snapshot_from_before_its_function_changed_is_read_with_the_one_it_had(catalog: Catalog) -> None:
    table = create(catalog, "aggregation", {"a": "INT"}, fields__a__aggregate_function="sum")
    commit(table, (1, 3))
    commit(table, (1, 4))
    changed = table.alter(SetOption("fields.a.aggregate-function", "max"), AddColumn("b", "INT"), allow_lossy=True)
    commit(changed, (1, 5, 0))
    assert held(changed, snapshot_id=2) == [(1, 7)]
    assert held(changed, columns=["a"]) == [(5,)]


def test_a_merge_engine_without_a_primary_key_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="merge-engine = aggregation has no effect without a primary key"):
        catalog.create_table(
            "shop.sums", schema={"k": "INT", "a": "INT"}, options={"bucket": -1, "merge-engine": "aggregation"}
        )


def test_a_sum_that_overflows_is_cured_by_a_wider_type(catalog: Catalog) -> None:
    table = create(catalog, "aggregation", {"a": "INT"}, fields__a__aggregate_function="sum")
    commit(table, (1, 2**31 - 1))
    commit(table, (1, 1))
    with pytest.raises(InvalidRequestError, match=r"key \(k=1\).*'a'.* wider type"):
        held(table)
    with pytest.raises(InvalidRequestError, match=r"key \(k=1\).*'a'.* wider type"):
        table.compact()
    assert held(table, columns=["k"]) == [(1,)], "other columns can be read"
    wider = table.alter(ChangeType("a", "BIGINT"))
    assert held(wider) == [(1, 2**31)]
    wider.compact()
    assert held(wider) == [(1, 2**31)]


def test_bytes_that_are_no_bitmap_can_be_written_over_as_the_message_says(catalog: Catalog) -> None:
    table = create(catalog, "aggregation", {"a": "BYTES"}, fields__a__aggregate_function="rbm32")
    commit(table, (1, b"junk"))
    commit(table, (1, b"more junk"))
    with pytest.raises(InvalidRequestError, match=r"key \(k=1\).*'a'.*not a 32-bit.*set its function to last_non_null"):
        held(table)
    plain = table.alter(SetOption("fields.a.aggregate-function", "last_non_null_value"), allow_lossy=True)
    good = BitMap([7]).serialize()
    commit(plain, (1, good))
    plain.compact()
    back = plain.alter(SetOption("fields.a.aggregate-function", "rbm32"))
    commit(back, (1, BitMap([9]).serialize()))
    assert [BitMap.deserialize(value) for _, value in held(back)] == [BitMap([7, 9])]


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("ARRAY<STRING>", ["a", None, "a", "b", None], ["a", None, "b"]),
        ("ARRAY<DOUBLE>", [0.5, 1.0, 0.5], [0.5, 1.0]),
        ("ARRAY<BYTES>", [b"x", b"x"], [b"x"]),
        ("ARRAY<ROW<x INT, y STRING>>", [{"x": 1, "y": None}, {"x": 1, "y": None}], [{"x": 1, "y": None}]),
        ("ARRAY<ARRAY<INT>>", [[1, 1], [1, 1], [1]], [[1, 1], [1]]),
        ("ARRAY<MAP<STRING, INT>>", [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], [[("a", 1), ("b", 2)]]),
        ("ARRAY<INT>", [], []),
        ("ARRAY<INT>", None, None),
    ],
)
@pytest.mark.parametrize("grouped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_distinct_array_is_distinct_from_its_first_row(
    catalog: Catalog, kind: str, given: object, kept: object, grouped: bool
) -> None:
    """It kept the repetitions of a row that had no other of its key, and of one that a sequence group had set."""
    functions = {"fields__v__aggregate_function": "collect", "fields__v__distinct": "true"}
    options = {"fields__g__sequence_group": "v", **functions} if grouped else functions
    engine = "partial-update" if grouped else "aggregation"
    table = create(catalog, engine, {"v": kind, "g": "INT"}, **options)
    commit(table, (1, given, 1), (2, given, 1))
    commit(table, (2, given, 2))
    for _ in range(2):
        assert table.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [kept, kept]
        table.compact(full=True)


def test_a_closed_writer_does_nothing_more(catalog: Catalog, tmp_path: Path) -> None:
    table = create(catalog, "aggregation", {"a": "INT"}, fields__a__aggregate_function="sum")
    writer = table.writer("loader")
    for _ in range(2):
        writer.write(rows(table, [(1, 1)]))
        writer.commit()
    writer.close()
    before = sorted(path.name for path in tmp_path.rglob("data-*"))
    for call in (writer.compact, writer.commit, lambda: writer.write(rows(table, [(1, 1)]))):
        with pytest.raises(InvalidRequestError, match="is closed; open another one"):
            call()
    assert sorted(path.name for path in tmp_path.rglob("data-*")) == before
    assert held(table) == [(1, 2)]


def test_a_not_null_column_that_a_delete_sets_to_null_can_be_made_nullable(catalog: Catalog) -> None:
    table = create(catalog, "partial-update", {"s": "INT", "a": "INT NOT NULL"}, fields__s__sequence_group="a")
    commit(table, (1, 1, 10))
    commit(table, (1, 2, 10), kinds=["-D"])
    with pytest.raises(InvalidRequestError, match=r"key \(k=1\).*'a' is NOT NULL.*make the column nullable"):
        held(table)
    assert held(table.alter(SetNullable("a", True))) == [(1, 2, None)]


def test_a_session_reports_how_many_keys_it_merged(catalog: Catalog) -> None:
    table = create(catalog, "aggregation", {"a": "INT"}, fields__a__aggregate_function="sum")
    with table.writer("loader") as writer:
        writer.write(rows(table, [(1, 1), (1, 2), (2, 1)]))
        writer.commit()
        assert repr(writer.merge_metrics) == "MergeMetrics(keys_merged=1, keys_in_python=0)"


def test_one_function_for_two_columns_is_refused_with_the_way_to_write_it(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match=r"write fields\.a\.aggregate-function and fields\.b\.aggregate-func"):
        create(catalog, "aggregation", {"a": "INT", "b": "INT"}, **{"fields__a,b__aggregate_function": "sum"})
