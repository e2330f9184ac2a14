"""Options of the merge engines: what they resolve to, and every way to get one wrong."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import column_type
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate, SequenceGroup, engine_options
from freshet.storage.schema.change import AddColumn, ChangeType, DropColumn, RenameColumn, ResetOption, SetOption
from freshet.storage.schema.validation import validate_changed_schema, validate_new_table

F = AggregateFunction
COLUMNS = {
    "k": "BIGINT NOT NULL",
    "p": "STRING NOT NULL",
    "a": "INT",
    "b": "STRING",
    "c": "DECIMAL(10, 2)",
    "flag": "BOOLEAN",
    "g": "INT",
    "h": "TIMESTAMP(3)",
    "tags": "ARRAY<STRING>",
    "lines": "ARRAY<ROW<id INT, pos INT, note STRING, inner ROW<x INT>>>",
    "m": "MAP<STRING, INT>",
    "timed": "MAP<STRING, ROW<v STRING, at STRING, n INT>>",
    "raw": "BYTES",
    "code": "VARCHAR(10)",
    "fixed": "BINARY(4)",
}
VALUES = [name for name in COLUMNS if name not in ("k", "p")]


def schema(options: dict[str, str], columns: dict[str, str] | None = None, *, keyed: bool = True) -> TableSchema:
    types = COLUMNS if columns is None else columns
    fields = tuple(DataField(i, name, column_type(name, text)) for i, (name, text) in enumerate(types.items()))
    return TableSchema(0, fields, 99, ("p",) if "p" in types else (), ("p", "k") if keyed else (), options)


def aggregation(**options: str) -> dict[str, str]:
    return {"bucket": "1", "merge-engine": "aggregation", **_keys(options)}


def partial_update(**options: str) -> dict[str, str]:
    return {"bucket": "1", "merge-engine": "partial-update", **_keys(options)}


def _keys(options: dict[str, str]) -> dict[str, str]:
    """`a="sum"` is the function of a; anything else is a key of its own, given as **{key: value}."""
    return {(f"fields.{name}.aggregate-function" if name in COLUMNS else name): text for name, text in options.items()}


def resolve(options: dict[str, str], columns: dict[str, str] | None = None) -> Any:
    table = schema(options, columns)
    return engine_options(table, CoreOptions.parse(options, has_primary_key=True, strict=False))


def named(message: str, parts: list[str]) -> None:
    assert [part for part in parts if part not in message] == [], message


# --------------------------------------------------------------------------------------------------------- resolved


def test_aggregation_gives_every_value_column_a_function() -> None:
    result = resolve(aggregation(a="sum", b="listagg", **{"sequence.field": "h"}))
    assert {name: function.name for name, function in result.functions.items()} == {
        **dict.fromkeys(VALUES, F.LAST_NON_NULL_VALUE),
        "a": F.SUM,
        "b": F.LISTAGG,
        "h": F.LAST_VALUE,
    }
    assert (result.groups, result.remove_record_on_delete, result.ignore_delete) == ((), False, False)


def test_the_default_function_is_for_columns_without_their_own_and_not_for_the_sequence_field() -> None:
    result = resolve(
        aggregation(a="max", **{"fields.default-aggregate-function": "first_value", "sequence.field": "h,g"})
    )
    names = {name: function.name for name, function in result.functions.items()}
    assert (names["a"], names["b"], names["h"], names["g"]) == (F.MAX, F.FIRST_VALUE, F.LAST_VALUE, F.LAST_VALUE)
    assert not {"k", "p"} & set(names)


@pytest.mark.parametrize("engine", ["deduplicate", "first-row"])
def test_the_other_engines_have_no_functions(engine: str) -> None:
    result = resolve(
        {"bucket": "1", "merge-engine": engine, "ignore-delete": "true", "fields.a.aggregate-function": "sum"}
    )
    assert (dict(result.functions), result.groups, result.ignore_delete) == ({}, (), True)


def test_without_a_primary_key_nothing_is_merged() -> None:
    options = CoreOptions.parse({"merge-engine": "aggregation"}, has_primary_key=False)
    assert dict(engine_options(schema({}, keyed=False), options).functions) == {}


def test_partial_update_has_the_functions_that_are_given() -> None:
    result = resolve(
        partial_update(
            a="sum",
            b="last_non_null_value",
            g="max",
            **{
                "fields.h,g.sequence-group": "a,c",
                "fields.code.sequence-group": "fixed",
                "partial-update.remove-record-on-sequence-group": "g",
            },
        )
    )
    assert dict(result.functions) == {"a": ColumnAggregate(F.SUM), "b": ColumnAggregate(F.LAST_NON_NULL_VALUE)}
    assert result.groups == (
        SequenceGroup(("h", "g"), ("a", "c"), removes_record=True),
        SequenceGroup(("code",), ("fixed",), removes_record=False),
    )
    assert result.remove_record_on_delete is False


def test_groups_stand_in_column_order_however_they_are_spelled() -> None:
    groups = {"fields.h.sequence-group": "a", "fields.c.sequence-group": "raw", "fields.b.sequence-group": "m"}
    assert [group.ordering for group in resolve(partial_update(**groups)).groups] == [("b",), ("c",), ("h",)]
    assert [group.ordering for group in resolve(partial_update(**dict(reversed(groups.items())))).groups] == [
        ("b",),
        ("c",),
        ("h",),
    ]


def test_a_group_may_protect_its_own_ordering_column_and_end_with_a_comma() -> None:
    assert resolve(partial_update(**{"fields.g.sequence-group": "a,g,"})).groups == (
        SequenceGroup(("g",), ("a",), removes_record=False),
    )


def test_the_default_function_of_partial_update_reaches_protected_columns() -> None:
    columns = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "a": "INT", "c": "INT", "g": "INT"}
    options = partial_update(**{"fields.g.sequence-group": "a,c", "fields.default-aggregate-function": "sum"})
    assert dict(resolve(options, columns).functions) == {"a": ColumnAggregate(F.SUM), "c": ColumnAggregate(F.SUM)}
    options = partial_update(**{"fields.default-aggregate-function": "last_non_null_value"})
    assert set(resolve(options, columns).functions) == {"a", "c", "g"}


@pytest.mark.parametrize(
    ("column", "options", "function"),
    [
        ("b", {"aggregate-function": "listagg"}, ColumnAggregate(F.LISTAGG)),
        (
            "b",
            {"aggregate-function": "listagg", "list-agg-delimiter": "", "distinct": "TRUE"},
            ColumnAggregate(F.LISTAGG, distinct=True, delimiter=""),
        ),
        (
            "tags",
            {"aggregate-function": "collect", "distinct": "true", "ignore-retract": "true"},
            ColumnAggregate(F.COLLECT, ignore_retract=True, distinct=True),
        ),
        # Options of other functions do not reach this one.
        (
            "a",
            {"aggregate-function": "sum", "distinct": "true", "list-agg-delimiter": "-", "count-limit": "x"},
            ColumnAggregate(F.SUM),
        ),
        ("a", {"aggregate-function": "first_not_null_value"}, ColumnAggregate(F.FIRST_NON_NULL_VALUE)),
        ("m", {"aggregate-function": "merge_map"}, ColumnAggregate(F.MERGE_MAP)),
        (
            "timed",
            {"aggregate-function": "merge_map_with_keytime", "ts-field": "at"},
            ColumnAggregate(F.MERGE_MAP_WITH_KEYTIME, time_field="at"),
        ),
        ("lines", {"aggregate-function": "nested_update"}, ColumnAggregate(F.NESTED_UPDATE)),
        (
            "lines",
            {
                "aggregate-function": "nested_update",
                "nested-key": "id, pos",
                "nested-sequence-field": "note",
                "nested-key-null-strategy": "Ignore",
                "count-limit": "7",
            },
            ColumnAggregate(
                F.NESTED_UPDATE,
                nested_key=("id", "pos"),
                nested_sequence=("note",),
                null_strategy="ignore",
                count_limit=7,
            ),
        ),
        (
            "lines",
            {"aggregate-function": "nested_partial_update", "nested-key": "inner"},
            ColumnAggregate(F.NESTED_PARTIAL_UPDATE, nested_key=("inner",)),
        ),
        ("raw", {"aggregate-function": "hll_sketch"}, ColumnAggregate(F.HLL_SKETCH)),
    ],
)
def test_options_of_a_function(column: str, options: dict[str, str], function: ColumnAggregate) -> None:
    given = {f"fields.{column}.{name}": text for name, text in options.items()}
    assert resolve(aggregation(**given)).functions[column] == function
    grouped = resolve(partial_update(**{"fields.g.sequence-group": column}, **given))
    assert grouped.functions == {column: function}


NUMBERS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)"}
SCALARS = NUMBERS | {
    *("BOOLEAN", "STRING", "VARCHAR(10)", "CHAR(3)", "BYTES", "VARBINARY(9)", "BINARY(4)"),
    *("DATE", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
}
BINARIES = {"BYTES", "VARBINARY(9)"}
TYPES = SCALARS | {
    *("ARRAY<INT>", "ARRAY<ROW<x INT>>", "MAP<STRING, INT>", "MAP<INT, ROW<v INT, at STRING>>"),
    *("MAP<INT, ROW<at STRING>>", "MAP<INT, ROW<at STRING, v INT>>", "ROW<x INT>"),
}
TAKEN: dict[AggregateFunction, set[str]] = {
    **dict.fromkeys((F.SUM, F.PRODUCT), NUMBERS),
    **dict.fromkeys((F.MAX, F.MIN), SCALARS),
    **dict.fromkeys((F.LAST_VALUE, F.LAST_NON_NULL_VALUE, F.FIRST_VALUE, F.FIRST_NON_NULL_VALUE), TYPES),
    F.LISTAGG: {"STRING"},
    F.BOOL_AND: {"BOOLEAN"},
    F.BOOL_OR: {"BOOLEAN"},
    F.COLLECT: {text for text in TYPES if text.startswith("ARRAY")},
    F.MERGE_MAP: {text for text in TYPES if text.startswith("MAP")},
    F.MERGE_MAP_WITH_KEYTIME: {"MAP<INT, ROW<v INT, at STRING>>"},
    F.NESTED_UPDATE: {"ARRAY<ROW<x INT>>"},
    F.NESTED_PARTIAL_UPDATE: {"ARRAY<ROW<x INT>>"},
    **dict.fromkeys((F.RBM32, F.RBM64, F.HLL_SKETCH, F.THETA_SKETCH), BINARIES),
}


def refusal(function: AggregateFunction, key: str, type_text: str) -> str | None:
    """Why a function is refused for a column v of the type, None if it is taken."""
    options = {"bucket": "1", "merge-engine": "aggregation", key: str(function)}
    if function is F.NESTED_PARTIAL_UPDATE:
        options["fields.v.nested-key"] = "x"
    try:
        result = resolve(options, {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": type_text})
    except InvalidRequestError as error:
        return str(error)
    return None if result.functions["v"].name is function else "another function was chosen"


@pytest.mark.parametrize("function", list(F))
@pytest.mark.parametrize("key", ["fields.v.aggregate-function", "fields.default-aggregate-function"])
def test_which_function_takes_which_type(function: AggregateFunction, key: str) -> None:
    refusals = {text: refusal(function, key, text) for text in TYPES}
    assert {text for text, reason in refusals.items() if reason is None} == TAKEN[function]
    for reason in filter(None, refusals.values()):
        named(reason, [str(function), "column v"])


def test_resolved_options_travel_between_processes() -> None:
    result = resolve(partial_update(a="sum", **{"fields.g.sequence-group": "a"}))
    assert pickle.loads(pickle.dumps(result)) == result


# ---------------------------------------------------------------------------------------------------------- refused

GROUP = {"fields.g.sequence-group": "a,b"}
WRONG: list[tuple[dict[str, str], list[str]]] = [
    # functions
    (aggregation(a="summ"), ["fields.a.aggregate-function = 'summ'", "did you mean sum?"]),
    (aggregation(a="SUM"), ["fields.a.aggregate-function = 'SUM'", "did you mean sum?"]),
    (aggregation(a="count"), ["fields.a.aggregate-function = 'count'", "no aggregate function"]),
    (aggregation(a="primary-key"), ["fields.a.aggregate-function = 'primary-key'"]),
    (aggregation(a=""), ["fields.a.aggregate-function = ''", "sum, product"]),
    (aggregation(b="sum"), ["fields.b.aggregate-function = sum", "sum takes numbers", "column b is STRING"]),
    (aggregation(code="listagg"), ["fields.code.aggregate-function", "STRING without a length", "VARCHAR(10)"]),
    (aggregation(fixed="rbm32"), ["fields.fixed.aggregate-function", "VARBINARY", "BINARY(4)"]),
    (aggregation(tags="max"), ["fields.tags.aggregate-function", "order", "ARRAY<STRING>"]),
    (aggregation(flag="max"), ["fields.flag.aggregate-function = max", "BOOLEAN", "use bool_or"]),
    (aggregation(flag="min"), ["fields.flag.aggregate-function = min", "BOOLEAN", "use bool_and"]),
    (
        aggregation(**{"fields.default-aggregate-function": "sum"}),
        ["fields.default-aggregate-function = sum", "column b", "fields.b.aggregate-function"],
    ),
    (aggregation(**{"fields.default-aggregate-function": "smu"}), ["fields.default-aggregate-function", "mean sum"]),
    (aggregation(k="max"), ["fields.k.aggregate-function = max has no effect", "primary key"]),
    (aggregation(h="max", **{"sequence.field": "h"}), ["fields.h.aggregate-function", "sequence.field", "remove"]),
    (partial_update(g="max", **{"sequence.field": "g"}, **GROUP), ["fields.g.aggregate-function", "sequence.field"]),
    # options of functions
    (aggregation(a="sum", **{"fields.a.ignore-retract": "yes"}), ["fields.a.ignore-retract = 'yes'", "true or false"]),
    (aggregation(b="listagg", **{"fields.b.distinct": "1"}), ["fields.b.distinct = '1'", "true or false"]),
    (aggregation(a="sum", **{"fields.a.distinct": "true"}), ["fields.a.distinct", "no effect", "sum", "column a"]),
    (aggregation(b="max", **{"fields.b.list-agg-delimiter": ";"}), ["fields.b.list-agg-delimiter", "no effect"]),
    (aggregation(**{"fields.k.ignore-retract": "true"}), ["fields.k.ignore-retract", "primary key"]),
    (partial_update(**{"fields.a.ignore-retract": "true"}), ["fields.a.ignore-retract", "column a has no function"]),
    (aggregation(b="listagg", **{"fields.b.list-agg-delimeter": ";"}), ["did you mean fields.b.list-agg-delimiter?"]),
    (aggregation(**{"fields.a.agg": "sum"}), ["unknown option 'fields.a.agg'"]),
    (aggregation(**{"fields.a": "sum"}), ["unknown option 'fields.a'", "aggregate-function"]),
    (aggregation(**{"fields.nope.aggregate-function": "sum"}), ["'nope'", "columns: k, p"]),
    (aggregation(**{"fields.lines.note.aggregate-function": "max"}), ["unknown option", "fields.lines.aggregate-f"]),
    (aggregation(lines="nested_partial_update"), ["fields.lines.nested-key", "column lines", "such as id"]),
    (
        aggregation(lines="nested_update", **{"fields.lines.nested-key": "id,nope"}),
        ["fields.lines.nested-key", "'nope'", "column lines", "fields: id, pos"],
    ),
    (
        aggregation(lines="nested_update", **{"fields.lines.nested-key": ""}),
        ["fields.lines.nested-key names field ''"],
    ),
    (
        aggregation(lines="nested_update", **{"fields.lines.nested-sequence-field": "pos"}),
        ["fields.lines.nested-sequence-field needs option fields.lines.nested-key"],
    ),
    (
        aggregation(lines="nested_update", **{"fields.lines.nested-key-null-strategy": "error"}),
        ["fields.lines.nested-key-null-strategy needs option fields.lines.nested-key"],
    ),
    (
        aggregation(
            lines="nested_update",
            **{"fields.lines.nested-key": "id", "fields.lines.nested-key-null-strategy": "drop"},
        ),
        ["fields.lines.nested-key-null-strategy = 'drop'", "merge, ignore, error"],
    ),
    (
        aggregation(
            lines="nested_update", **{"fields.lines.nested-key": "id", "fields.lines.nested-sequence-field": "inner"}
        ),
        ["fields.lines.nested-sequence-field", "inner", "no order"],
    ),
    (aggregation(lines="nested_update", **{"fields.lines.count-limit": "many"}), ["count-limit = 'many'", "whole"]),
    (aggregation(lines="nested_update", **{"fields.lines.count-limit": "0"}), ["count-limit = 0", "from 1 on"]),
    (
        aggregation(
            lines="nested_partial_update", **{"fields.lines.nested-key": "id", "fields.lines.count-limit": "3"}
        ),
        ["fields.lines.count-limit", "no effect", "nested_partial_update"],
    ),
    (aggregation(timed="merge_map_with_keytime"), ["column timed", "times as text", "n is INT", "ts-field"]),
    (
        aggregation(timed="merge_map_with_keytime", **{"fields.timed.ts-field": "when"}),
        ["fields.timed.ts-field", "'when'", "column timed", "fields: v, at, n"],
    ),
    # sequence groups
    (partial_update(**{"fields.g.sequence-group": "a,nope"}), ["fields.g.sequence-group", "'nope'", "columns: k"]),
    (partial_update(**{"fields.g.sequence-group": "a, b"}), ["' b'", "without blanks"]),
    (partial_update(**{"fields.g.sequence-group": ""}), ["fields.g.sequence-group names column ''"]),
    (partial_update(**{"fields.nope.sequence-group": "a"}), ["'nope'"]),
    (partial_update(**{"fields.g.sequence-group": "a,k"}), ["fields.g.sequence-group", "column k", "primary key"]),
    (partial_update(**{"fields.p.sequence-group": "a"}), ["fields.p.sequence-group", "column p", "primary key"]),
    (partial_update(**GROUP, **{"fields.h.sequence-group": "b"}), ["h.sequence-group", "b in fields.g.sequence-group"]),
    (partial_update(**GROUP, **{"fields.h,g.sequence-group": "c"}), ["column g", "as well", "one sequence group"]),
    (partial_update(**GROUP, **{"fields.h.sequence-group": "g"}), ["column g", "as well"]),
    (partial_update(**{"fields.g.sequence-group": "a,a"}), ["fields.g.sequence-group names column a twice"]),
    (partial_update(**{"fields.tags.sequence-group": "a"}), ["fields.tags.sequence-group", "column tags", "no order"]),
    (partial_update(c="sum", **GROUP), ["fields.c.aggregate-function = sum", "column c", "no sequence group"]),
    (partial_update(a="last_value"), ["fields.a.aggregate-function", "last_non_null_value"]),
    (
        partial_update(**GROUP, **{"fields.default-aggregate-function": "last_value"}),
        ["fields.default-aggregate-function = last_value", "column c", "set fields.c.aggregate-function"],
    ),
    (partial_update(b="sum", **GROUP), ["fields.b.aggregate-function = sum", "column b is STRING"]),
    (partial_update(g="smu", **GROUP), ["fields.g.aggregate-function = 'smu'"]),
    # deletes
    (
        partial_update(**GROUP, **{"partial-update.remove-record-on-delete": "true"}),
        ["partial-update.remove-record-on-delete", "sequence groups", "remove-record-on-sequence-group"],
    ),
    (
        partial_update(**{"partial-update.remove-record-on-delete": "true", "ignore-delete": "true"}),
        ["partial-update.remove-record-on-delete and ignore-delete"],
    ),
    (
        partial_update(
            **GROUP,
            **{"partial-update.remove-record-on-sequence-group": "g", "partial-update.ignore-delete": "true"},
        ),
        ["partial-update.remove-record-on-sequence-group and ignore-delete"],
    ),
    (
        partial_update(**GROUP, **{"partial-update.remove-record-on-sequence-group": "a"}),
        ["partial-update.remove-record-on-sequence-group", "'a'", "ordering columns: g"],
    ),
    (
        partial_update(**{"partial-update.remove-record-on-sequence-group": "g"}),
        ["'g'", "no sequence groups"],
    ),
    (
        aggregation(**{"aggregation.remove-record-on-delete": "true", "fields.a.ignore-retract": "TRUE"}),
        ["aggregation.remove-record-on-delete", "fields.a.ignore-retract", "remove one of them"],
    ),
    (
        aggregation(**{"aggregation.remove-record-on-delete": "true", "ignore-delete": "true"}),
        ["aggregation.remove-record-on-delete", "ignore-delete"],
    ),
    # engines
    (
        {"bucket": "1", "fields.a.aggregate-function": "sum"},
        [
            "fields.a.aggregate-function = sum has no effect with merge-engine=deduplicate",
            "set merge-engine=aggregation",
        ],
    ),
    (aggregation(**GROUP), ["fields.g.sequence-group", "no effect with merge-engine=aggregation", "partial-update"]),
    (aggregation(**{"partial-update.remove-record-on-delete": "true"}), ["partial-update.remove-record-on-delete"]),
    (partial_update(**{"aggregation.remove-record-on-delete": "true"}), ["no effect with merge-engine=partial-update"]),
    (
        {"bucket": "1", "fields.default-aggregate-function": "sum"},
        ["fields.default-aggregate-function", "merge-engine=deduplicate"],
    ),
    (
        {"bucket": "1", "merge-engine": "first-row", "sequence.field": "h"},
        ["sequence.field", "merge-engine=first-row", "remove it"],
    ),
    (
        {"bucket": "1", "merge-engine": "first-row", "changelog-producer": "input"},
        ["changelog-producer=input", "first-row", "none or lookup"],
    ),
    (
        {"bucket": "1", "merge-engine": "first-row", "changelog-producer": "full-compaction"},
        ["changelog-producer=full-compaction", "first-row"],
    ),
    (
        {"bucket": "1", "merge-engine": "first-row", "deletion-vectors.enabled": "true"},
        ["deletion-vectors.enabled", "first-row"],
    ),
    (
        {"bucket": "1", "changelog-producer": "full-compaction", "deletion-vectors.enabled": "true"},
        ["deletion-vectors.enabled", "full-compaction", "lookup"],
    ),
    (
        {"bucket": "1", "changelog-producer": "lookup", "full-compaction.delta-commits": "3"},
        ["full-compaction.delta-commits", "changelog-producer=lookup"],
    ),
    (
        {"bucket": "1", "changelog-producer": "lookup", "streaming-read-overwrite": "true"},
        ["streaming-read-overwrite", "changelog-producer=lookup"],
    ),
    ({"bucket": "1", "lookup-compact": "slow"}, ["lookup-compact = 'slow'", "radical, gentle"]),
]


@pytest.mark.parametrize(("options", "parts"), WRONG, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_tables_with_wrong_engine_options_are_not_created(options: dict[str, str], parts: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate_new_table(schema(options))
    named(str(caught.value), parts)


@pytest.mark.parametrize(("options", "parts"), WRONG, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_tables_do_not_come_to_wrong_engine_options_by_a_change(options: dict[str, str], parts: list[str]) -> None:
    bare = {key: text for key, text in options.items() if key in ("bucket", "merge-engine")}
    with pytest.raises(InvalidRequestError) as caught:
        validate_changed_schema(schema(bare), schema(options))
    named(str(caught.value), parts)


@pytest.mark.parametrize(
    "options",
    [
        aggregation(),
        aggregation(a="sum", b="listagg", flag="bool_or", tags="collect", m="merge_map", raw="rbm64", c="product"),
        aggregation(**{"aggregation.remove-record-on-delete": "true"}),
        aggregation(**{"sequence.field": "h", "fields.h.ignore-retract": "true"}),
        aggregation(**{"force-lookup": "true", "lookup-compact": "gentle", "lookup-compact.max-interval": "7"}),
        partial_update(),
        partial_update(**{"partial-update.remove-record-on-delete": "true"}),
        partial_update(**{"partial-update.ignore-delete": "true"}),
        partial_update(a="sum", g="max", **GROUP, **{"partial-update.remove-record-on-sequence-group": "g"}),
        partial_update(
            **{"fields.g,h.sequence-group": "a,b", "fields.default-aggregate-function": "last_non_null_value"}
        ),
        {"bucket": "1", "merge-engine": "first-row"},
        {"bucket": "1", "merge-engine": "first-row", "first-row.ignore-delete": "true"},
        {"bucket": "1", "force-lookup": "true", "aggregation.remove-record-on-delete": "false"},
        {"bucket": "1", "fields.a.stats-mode": "none"},
    ],
    ids=str,
)
def test_tables_with_right_engine_options_are_created(options: dict[str, str]) -> None:
    table = schema(options)
    assert validate_new_table(table).given == options
    assert validate_changed_schema(schema({"bucket": "1"}), table).given == options


def test_append_tables_take_no_options_of_columns_that_are_merged() -> None:
    for key, text in (("fields.a.aggregate-function", "sum"), ("fields.g.sequence-group", "a")):
        with pytest.raises(InvalidRequestError, match=f"{key} = {text} has no effect without a primary key"):
            validate_new_table(
                schema({key: text, "merge-engine": "partial-update"}, {"g": "INT", "a": "INT"}, keyed=False)
            )


# ----------------------------------------------------------------------------------- tables of other programs, changes

ODD = aggregation(
    flag="max",
    k="sum",
    **{
        "fields.a.distinct": "true",
        "fields.b.somebody": "x",
        "fields.lines.count-limit": "0",
        "partial-update.remove-record-on-delete": "true",
    },
)


def test_options_without_effect_stay_in_a_table_made_elsewhere() -> None:
    assert resolve(ODD).functions["flag"] == ColumnAggregate(F.MAX)
    before = schema(ODD)
    after = dataclasses.replace(before, id=1, options={**ODD, "write-only": "true"})
    assert validate_changed_schema(before, after).write_only is True
    retyped = dataclasses.replace(before, id=1, options={**ODD, "fields.a.distinct": "false"})
    with pytest.raises(InvalidRequestError, match="fields.a.distinct = false has no effect"):
        validate_changed_schema(before, retyped)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "warehouse")


def test_an_odd_table_is_opened_with_dynamic_options_and_refuses_odd_ones(catalog: Catalog) -> None:
    created = catalog.create_table(
        "shop.wide", schema=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options=aggregation()
    )
    file = next(Path(created.location).glob("schema/schema-0"))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"merge-engine"', '"fields.a.distinct":"true","merge-engine"'), encoding="utf-8")
    opened = catalog.table("shop.wide", options={"write-only": True})
    assert opened.store.options.field_option("a", "distinct") == "true"
    for key, value in (
        ("fields.b.distinct", "true"),
        ("fields.b.aggregate-function", "listagg"),
        ("aggregation.remove-record-on-delete", "true"),
    ):
        with pytest.raises(InvalidRequestError, match=f"option {key} .* cannot be given when opening it"):
            catalog.table("shop.wide", options={key: value})


def test_changes_keep_the_options_of_the_engine_right(catalog: Catalog) -> None:
    table = catalog.create_table(
        "shop.wide",
        schema={"k": "BIGINT", "a": "INT", "b": "INT", "g": "INT", "note": "STRING"},
        primary_keys=["k"],
        options=partial_update(a="sum", b="max", **GROUP, **{"partial-update.remove-record-on-sequence-group": "g"}),
    )
    for change, parts in (
        (ChangeType("a", "STRING"), ["fields.a.aggregate-function = sum", "column a is STRING"]),
        (DropColumn("g"), ["'g'", "names it"]),
        (ResetOption("fields.g.sequence-group"), ["fields.a.aggregate-function", "no sequence group"]),
        (SetOption("fields.default-aggregate-function", "last_value"), ["column note", "no sequence group"]),
        (SetOption("ignore-delete", "true"), ["remove-record-on-sequence-group and ignore-delete"]),
        (SetOption("fields.note.sequence-group", "a"), ["column a", "as well"]),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            table.alter(change)
        named(str(caught.value), parts)
    table = table.alter(RenameColumn("g", "version"), RenameColumn("a", "total"), AddColumn("more", "STRING"))
    engine = engine_options(table.store.schema, table.store.options)
    assert engine.groups == (SequenceGroup(("version",), ("total", "b"), removes_record=True),)
    assert {name: function.name for name, function in engine.functions.items()} == {"total": F.SUM, "b": F.MAX}
    table = table.alter(ChangeType("total", "BIGINT"), SetOption("fields.more.sequence-group", "note"))
    assert len(engine_options(table.store.schema, table.store.options).groups) == 2
    assert table.arrow_schema.field("total").type == pa.int64()
