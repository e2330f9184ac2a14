"""The tables with merge engines that are tested (`SHAPES`): each engine and function, alone and combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.kit.engine_columns import (
    COMPARABLE,
    CONSTRUCTED_LISTS,
    EVERY_COLUMN,
    EVERY_COMPARED_LIST,
    EVERY_LIST,
    EVERY_MAP,
    KEYED_COLUMNS,
    LISTS,
    MAPS,
    NESTED,
    NESTED_COLUMNS,
    NUMBERS,
    ORDER,
    SEQUENCED_COLUMNS,
    SMALL,
    TIMED,
    WORDS,
    Column,
    all_ignoring,
    columns_of,
    list_of,
    map_of,
    nested_rows,
    timed_entries,
    with_function,
)
from tests.kit.engine_histories import ADDS, Shape

_AGGREGATION: Final = {"merge-engine": "aggregation"}
_PARTIAL: Final = {"merge-engine": "partial-update"}
_LOOKUP: Final = {"force-lookup": "true"}
NESTED_UPDATES: Final = with_function("nested_update", {**NESTED_COLUMNS, **KEYED_COLUMNS, **SEQUENCED_COLUMNS})
_NESTED_SETS: Final = tuple(name for name, one in NESTED_UPDATES.items() if "nested-key" in one.options)
LISTAGGS: Final = {
    **with_function("listagg", {"plain": WORDS}),
    **with_function("listagg", {"dashed": WORDS}, list_agg_delimiter=" - "),
    **with_function("listagg", {"joined": WORDS}, list_agg_delimiter=""),
    **with_function("listagg", {"once": WORDS}, distinct="true"),
    **with_function("listagg", {"spaced": WORDS}, distinct="true", list_agg_delimiter=" "),
    **with_function("listagg", {"closed": WORDS}, distinct="true", list_agg_delimiter=""),
}
NUMBER_COLUMNS = columns_of(NUMBERS, SMALL)
_ONE_OF_EACH_RETRACTABLE: Final = {
    **with_function("sum", {"i": Column("INT", SMALL["INT"]), "f": Column("FLOAT", SMALL["FLOAT"])}),
    **with_function("product", {"i": Column("BIGINT", (-2, 1, 2, 3))}),
    **with_function("last_value", {"t": Column("STRING")}),
    **with_function("last_non_null_value", {"t": Column("STRING")}),
    **with_function("collect", {"a": LISTS["ints"]}),
    **with_function("merge_map", {"m": MAPS["m0"]}),
    **with_function("nested_update", {"n": NESTED_COLUMNS["plain"]}),
}
_ONE_OF_EACH_OTHER: Final = {
    **with_function("max", {"d": Column("DATE")}),
    **with_function("min", {"x": Column("DOUBLE")}),
    **with_function("first_value", {"t": Column("STRING")}),
    **with_function("first_non_null_value", {"t": Column("STRING")}),
    **with_function("listagg", {"l": WORDS}),
    **with_function("bool_and", {"b": Column("BOOLEAN")}),
    **with_function("bool_or", {"b": Column("BOOLEAN")}),
    **with_function("merge_map_with_keytime", {"m": Column(TIMED, timed_entries)}),
    **with_function("nested_partial_update", {"n": KEYED_COLUMNS["keyed"]}),
}
_ONE_OF_EACH_REMOVED: Final = {name: one for name, one in _ONE_OF_EACH_OTHER.items() if "first" not in name}
"""What a table may have whose deletes remove rows."""
_OTHER_SETS: Final = ("n_nested_partial_update",)
# Functions for which it does not matter whether a lone record is merged, so that the level that lookup compaction
# chooses (by the sizes of files, which are not the same for every writer) does not show.
_MANY_LEVELS: Final = {"num-levels": "5", "num-sorted-run.compaction-trigger": "2"}
_STAGELESS: Final = {
    **with_function("sum", {"i": Column("INT", SMALL["INT"]), "d": Column("DECIMAL(9, 2)", SMALL["DECIMAL(9, 2)"])}),
    **with_function("last_value", {"t": Column("STRING")}),
    "t_last_non_null_value": Column("STRING"),
    **with_function("max", {"m": Column("DATE")}, ignore_retract="true"),
}
AGGREGATION_SHAPES: Final = (
    Shape("sum", with_function("sum", NUMBER_COLUMNS), _AGGREGATION),
    Shape("sum, retracts ignored", with_function("sum", NUMBER_COLUMNS, ignore_retract="true"), _AGGREGATION),
    Shape("product", with_function("product", NUMBER_COLUMNS), _AGGREGATION),
    Shape("max", with_function("max", columns_of(COMPARABLE), ignore_retract="true"), _AGGREGATION),
    Shape("min", with_function("min", columns_of(COMPARABLE)), _AGGREGATION, ADDS),
    Shape("last_value", with_function("last_value", EVERY_COLUMN), _AGGREGATION),
    Shape("last_non_null_value", dict(EVERY_COLUMN), _AGGREGATION),
    Shape("first_value", with_function("first_value", EVERY_COLUMN, ignore_retract="true"), _AGGREGATION),
    Shape("first_non_null_value", with_function("first_non_null_value", EVERY_COLUMN), _AGGREGATION, ADDS),
    Shape(
        "flags",
        all_ignoring(
            {
                **with_function("bool_and", {"a": Column("BOOLEAN")}),
                **with_function("bool_or", {"o": Column("BOOLEAN")}),
                **with_function("first_not_null_value", {"f": Column("BOOLEAN")}),
            }
        ),
        _AGGREGATION,
    ),
    Shape("listagg", LISTAGGS, _AGGREGATION, ADDS),
    Shape("listagg, retracts ignored", all_ignoring(LISTAGGS), _AGGREGATION),
    Shape("collect", with_function("collect", LISTS), _AGGREGATION),
    Shape("collect, constructed, adds", with_function("collect", CONSTRUCTED_LISTS), _AGGREGATION, ADDS),
    Shape(
        "collect distinct",
        with_function("collect", LISTS, distinct="true"),
        _AGGREGATION,
        sets=tuple(f"{name}_collect" for name in LISTS),
    ),
    Shape(
        "collect distinct, constructed",
        with_function("collect", CONSTRUCTED_LISTS, distinct="true"),
        _AGGREGATION,
    ),
    Shape("merge_map", with_function("merge_map", MAPS), _AGGREGATION),
    Shape("merge_map of every type", with_function("merge_map", EVERY_MAP), _AGGREGATION),
    Shape("collect of every type", with_function("collect", EVERY_COMPARED_LIST), _AGGREGATION),
    Shape("collect of every type, adds", with_function("collect", EVERY_LIST), _AGGREGATION, ADDS),
    Shape(
        "collect distinct of every type",
        with_function("collect", EVERY_COMPARED_LIST, distinct="true"),
        _AGGREGATION,
        sets=tuple(f"{name}_collect" for name in EVERY_COMPARED_LIST),
    ),
    Shape(
        "merge_map_with_keytime",
        {
            **with_function("merge_map_with_keytime", {"last": Column(TIMED, timed_entries)}),
            **with_function("merge_map_with_keytime", {"named": Column(TIMED, timed_entries)}, ts_field="ts"),
        },
        _AGGREGATION,
        ADDS,
    ),
    Shape("nested_update", NESTED_UPDATES, _AGGREGATION, sets=_NESTED_SETS),
    Shape(
        "nested_partial_update",
        with_function("nested_partial_update", KEYED_COLUMNS, ignore_retract="true"),
        _AGGREGATION,
        sets=tuple(f"{name}_nested_partial_update" for name in KEYED_COLUMNS),
    ),
    Shape(
        "remove-record-on-delete",
        {**_ONE_OF_EACH_RETRACTABLE},
        {**_AGGREGATION, "aggregation.remove-record-on-delete": "true"},
    ),
    Shape(
        "remove-record-on-delete, no -U",
        {**_ONE_OF_EACH_REMOVED},
        {**_AGGREGATION, "aggregation.remove-record-on-delete": "true"},
        (*ADDS, "-D"),
        sets=_OTHER_SETS,
    ),
    Shape(
        "default function",
        {"a": Column("INT", SMALL["INT"]), "b": Column("DOUBLE", SMALL["DOUBLE"])},
        {**_AGGREGATION, "fields.default-aggregate-function": "sum"},
    ),
    *(
        Shape(
            f"sequence.field {direction}{lookup}",
            {"s": ORDER, "t": Column("STRING", ("a", "b")), **_ONE_OF_EACH_RETRACTABLE},
            {**_AGGREGATION, "sequence.field": "s,t", "sequence.field.sort-order": direction, **more},
        )
        for direction in ("ascending", "descending")
        for lookup, more in (("", {}), (", lookup", _LOOKUP))
    ),
    Shape(
        "sequence.field that ignores retracts",
        {"s": Column("INT", (0, 1, 2, 3), {"ignore-retract": "true"}), "v": Column("INT", SMALL["INT"])},
        {**_AGGREGATION, "sequence.field": "s", "fields.v.aggregate-function": "sum"},
    ),
    Shape(
        "sequence.field, adds",
        {"s": ORDER, **_ONE_OF_EACH_OTHER},
        {**_AGGREGATION, "sequence.field": "s"},
        ADDS,
        sets=_OTHER_SETS,
    ),
    Shape("lookup", {**_ONE_OF_EACH_RETRACTABLE}, {**_AGGREGATION, **_LOOKUP}),
    Shape("lookup, adds", {**_ONE_OF_EACH_OTHER}, {**_AGGREGATION, **_LOOKUP}, ADDS, sets=_OTHER_SETS),
    Shape("partitioned", {**_ONE_OF_EACH_RETRACTABLE}, {**_AGGREGATION, "bucket": "3"}, partitioned=True),
    Shape("lookup, many levels", _STAGELESS, {**_AGGREGATION, **_LOOKUP, **_MANY_LEVELS}),
)


def sequence_group(ordering: str, protected: str) -> dict[str, str]:
    return {f"fields.{ordering}.sequence-group": protected}


def _between(columns: Mapping[str, Column], **ordering: Column) -> dict[str, Column]:
    """Protected columns on both sides of the ordering ones."""
    names = list(columns)
    half = len(names) // 2
    return {**{n: columns[n] for n in names[:half]}, **ordering, **{n: columns[n] for n in names[half:]}}


_INTS: Final = Column("INT", (1, 2, 3, 4, 5), nulls=0.35)
_TWO_GROUPS: Final = {"a": _INTS, "g": ORDER, "b": _INTS, "h": ORDER, "c": _INTS, "d": _INTS, "free": _INTS}
_TWO_GROUP_OPTIONS: Final = {**_PARTIAL, **sequence_group("g", "a,b"), **sequence_group("h", "c,d")}
_WIDE_GROUPS: Final = {"g0": ORDER, "a": _INTS, "g1": ORDER, "h": ORDER, "b": _INTS, "i": ORDER, "c": _INTS, "d": _INTS}
_WIDE_GROUP_OPTIONS: Final = {**_PARTIAL, **sequence_group("g1,g0", "a,b"), **sequence_group("h,i", "c")}
REMOVING: Final = "partial-update.remove-record-on-sequence-group"
_ORDER_KINDS: Final = ("BOOLEAN", "STRING", "DATE", "TIMESTAMP(6)", "DECIMAL(38, 10)", "DOUBLE", "BYTES", "BIGINT")
_ORDER_TYPES: Final = {f"g{index}": Column(kind) for index, kind in enumerate(_ORDER_KINDS)}


def _grouped(name: str, columns: Mapping[str, Column], **more: Any) -> Shape:
    """One group over all columns, ordered by g."""
    return Shape(name, _between(columns, g=ORDER), {**_PARTIAL, **sequence_group("g", ",".join(columns))}, **more)


PARTIAL_SHAPES: Final = (
    Shape("adds", dict(EVERY_COLUMN), _PARTIAL, ADDS),
    Shape("adds, sequence.field", {"s": ORDER, "a": _INTS, "b": _INTS}, {**_PARTIAL, "sequence.field": "s"}, ADDS),
    Shape(
        "adds, partitioned, default function",
        {"a": _INTS, "b": Column("STRING")},
        {**_PARTIAL, "fields.default-aggregate-function": "last_non_null_value"},
        ADDS,
        partitioned=True,
    ),
    Shape(
        "remove-record-on-delete",
        {"a": _INTS, "b": _INTS, "c": Column("STRING")},
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true"},
        (*ADDS, "-D"),  # a -U alone is refused
    ),
    Shape(
        "remove-record-on-delete, sequence.field",
        {"a": _INTS, "s": ORDER, "b": _INTS},
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true", "sequence.field": "s"},
        (*ADDS, "-D"),
    ),
    Shape(
        "remove-record-on-delete, lookup",
        {"a": _INTS, "b": _INTS, "c": Column("STRING")},
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true", **_LOOKUP},
        (*ADDS, "-D"),
    ),
    Shape("ignore-delete", {"a": _INTS, "b": _INTS}, {**_PARTIAL, "ignore-delete": "true"}),
    Shape("groups", _TWO_GROUPS, _TWO_GROUP_OPTIONS),
    Shape("groups, adds", _TWO_GROUPS, _TWO_GROUP_OPTIONS, ADDS),
    Shape("groups, lookup", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, **_LOOKUP}),
    Shape("groups, partitioned", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, "bucket": "2"}, partitioned=True),
    Shape("groups, ignore-delete", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, "partial-update.ignore-delete": "true"}),
    Shape("groups, remove-record", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, REMOVING: "h"}),
    Shape("groups, remove-record on either", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, REMOVING: "g,h"}),
    Shape("groups, remove-record, lookup", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, REMOVING: "h", **_LOOKUP}),
    Shape("wide groups", _WIDE_GROUPS, _WIDE_GROUP_OPTIONS),
    Shape("wide groups, remove-record", _WIDE_GROUPS, {**_WIDE_GROUP_OPTIONS, REMOVING: "i"}),
    *(
        Shape(
            f"groups, sequence.field {direction}",
            {"s": Column("INT", (0, 1, 2, 3)), **_TWO_GROUPS},
            {**_TWO_GROUP_OPTIONS, "sequence.field": "s", "sequence.field.sort-order": direction},
        )
        for direction in ("ascending", "descending")
    ),
    Shape(
        "groups, sequence.field in a group",
        _TWO_GROUPS,
        {**_TWO_GROUP_OPTIONS, "sequence.field": "g"},
    ),
    Shape(
        "groups, default function",
        _TWO_GROUPS,
        {**_TWO_GROUP_OPTIONS, "fields.default-aggregate-function": "last_non_null_value"},
    ),
    _grouped("every type in a group", EVERY_COLUMN),
    Shape(
        "ordering of every type",
        {**{f"v{index}": _INTS for index in range(len(_ORDER_TYPES))}, **_ORDER_TYPES},
        {**_PARTIAL, **{k: v for i in range(len(_ORDER_TYPES)) for k, v in sequence_group(f"g{i}", f"v{i}").items()}},
    ),
    _grouped("functions in a group", _ONE_OF_EACH_RETRACTABLE),
    _grouped("functions in a group, retracts ignored", all_ignoring(_ONE_OF_EACH_RETRACTABLE)),
    _grouped("other functions in a group, adds", _ONE_OF_EACH_OTHER, kinds=ADDS, sets=_OTHER_SETS),
    _grouped("other functions in a group, retracts ignored", all_ignoring(_ONE_OF_EACH_OTHER), sets=_OTHER_SETS),
    Shape(
        "other functions in a group, retracts elsewhere",
        {**_between(_ONE_OF_EACH_OTHER, g=ORDER), "h": ORDER, "z": _INTS},
        {**_PARTIAL, **sequence_group("g", ",".join(_ONE_OF_EACH_OTHER)), **sequence_group("h", "z")},
        without_order=("g",),
        sets=_OTHER_SETS,
    ),
    Shape(
        "functions in a group, remove-record",
        {**_between(_ONE_OF_EACH_RETRACTABLE, g=ORDER), "h": ORDER, "z": _INTS},
        {
            **_PARTIAL,
            **sequence_group("g", ",".join(_ONE_OF_EACH_RETRACTABLE)),
            **sequence_group("h", "z"),
            REMOVING: "g",
        },
    ),
    Shape(  # a delete removes the row before any function is called: the ordering column is the first one
        "other functions in a group, remove-record",
        {"g": ORDER, **_ONE_OF_EACH_REMOVED, "h": ORDER, "z": _INTS},
        {**_PARTIAL, **sequence_group("g", ",".join(_ONE_OF_EACH_REMOVED)), **sequence_group("h", "z"), REMOVING: "g"},
        (*ADDS, "-D"),
        sets=_OTHER_SETS,
    ),
    _grouped("listagg in a group", LISTAGGS, kinds=ADDS),
    _grouped("nested_update in a group", NESTED_UPDATES, sets=_NESTED_SETS),
    Shape(
        "functions in a group, lookup",
        _between(_ONE_OF_EACH_RETRACTABLE, g=ORDER),
        {**_PARTIAL, **sequence_group("g", ",".join(_ONE_OF_EACH_RETRACTABLE)), **_LOOKUP},
    ),
)


OTHER_SHAPES: Final = (
    Shape("first-row", {"a": _INTS, "b": Column("STRING")}, {"merge-engine": "first-row"}, ADDS),
    Shape("first-row, every type", dict(EVERY_COLUMN), {"merge-engine": "first-row"}, ADDS),
    Shape(
        "first-row, ignore-delete",
        {"a": _INTS, "b": Column("STRING")},
        {"merge-engine": "first-row", "first-row.ignore-delete": "true"},
    ),
    Shape(
        "first-row, many levels",
        {"a": _INTS, "b": Column("STRING")},
        {"merge-engine": "first-row", **_MANY_LEVELS},
        ADDS,
    ),
    Shape("deduplicate, lookup", {"a": _INTS, "b": Column("STRING")}, _LOOKUP),
    Shape("deduplicate, lookup, many levels", {"a": _INTS, "b": Column("STRING")}, {**_LOOKUP, **_MANY_LEVELS}),
    Shape("deduplicate, lookup, sequence.field", {"s": ORDER, "b": _INTS}, {**_LOOKUP, "sequence.field": "s"}),
    Shape(
        "deduplicate, ignore-update-before",
        {"s": ORDER, "b": _INTS},
        {"sequence.field": "s", "ignore-update-before": "true"},
    ),
)


# What Paimon 2.0.0 does not do as later versions do: values of VARBINARY are the same only if they are the same object,
# elements that are rows or arrays likewise, and two booleans cannot be compared.
LATER_SHAPES: Final = (
    Shape("collect, constructed", with_function("collect", CONSTRUCTED_LISTS), _AGGREGATION),
    Shape(
        "bytes by content",
        {
            **with_function("collect", {"all": Column("ARRAY<BYTES>", list_of(b"", b"a", b"ab"))}),
            **with_function("merge_map", {"m": Column("MAP<BYTES, INT>", map_of((b"", b"a"), (1, None)))}),
        },
        _AGGREGATION,
    ),
    Shape(
        "distinct bytes by content",
        with_function("collect", {"once": Column("ARRAY<BYTES>", list_of(b"", b"a", b"ab"))}, distinct="true"),
        _AGGREGATION,
        sets=("once_collect",),
    ),
)
# An array by key has no order: where it is cut to a limit after it was merged once, no two programs agree. In one flush
# they do, which has no retracts: what follows one is another file.
ONE_FLUSH_SHAPES: Final = (
    Shape(
        "nested_update by key with a limit",
        with_function(
            "nested_update",
            {
                "two": Column(NESTED, nested_rows, {"nested-key": "k0,k1", "count-limit": "2"}),
                "one": Column(NESTED, nested_rows, {"nested-key": "k1", "count-limit": "1"}),
                "newest": Column(
                    NESTED, nested_rows, {"nested-key": "k0", "nested-sequence-field": "s", "count-limit": "2"}
                ),
            },
        ),
        _AGGREGATION,
        ADDS,
        sets=("two_nested_update", "one_nested_update", "newest_nested_update"),
    ),
)
SHAPES: Final = (
    *(replace(shape, name=f"aggregation, {shape.name}") for shape in AGGREGATION_SHAPES),
    *(replace(shape, name=f"partial-update, {shape.name}") for shape in PARTIAL_SHAPES),
    *OTHER_SHAPES,
)
