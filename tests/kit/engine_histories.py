"""Random histories of tables of every merge engine: which tables, and what is written to them.

A `Shape` is a table: columns with a pool of values each, options, and the row kinds that its functions can take. A
history is drawn step by step from a source of chance (seeded, or hypothesis's own), along with an oracle: what
cannot be merged (an overflow, a division by zero) is left out, key by key.

    for step in history(shape, random.Random(7), keys=20, steps=8):
        ...                     step.rows to commit, or None for a full compaction; step.expected to be read afterwards
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final

from tests.contract.cases import EVERY_TYPE, SCALARS, any_value
from tests.kit.engine_oracles import KIND_COLUMN, EngineOracle, Values
from tests.kit.engine_tables import Decode, arrow_rows, texts

EVERY_KIND: Final = ("+I", "+I", "+U", "-U", "-D")
ADDS: Final = ("+I", "+U")
NESTED: Final = "ARRAY<ROW<k0 INT, k1 STRING, v INT, s INT>>"
TIMED: Final = "MAP<STRING, ROW<v INT, ts STRING>>"

Pool = Sequence[Any] | Callable[[Random], Any]

_SMALL: Final[Mapping[str, Sequence[Any]]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), (-7, -1, 0, 1, 2, 3, 30)),
    "FLOAT": (-0.0, 0.0, 0.1, 1.5, -2.25, 1e30, 3e38, float("inf"), float("-inf"), float("nan"), 16777216.0),
    "DOUBLE": (-0.0, 0.0, 0.1, 0.7, -2.25, 1e300, 1.7e308, float("inf"), float("nan"), 2.0**53),
    "DECIMAL(9, 2)": (Decimal("-1.25"), Decimal("0.00"), Decimal("0.01"), Decimal("3.00"), Decimal("199999.99")),
    "DECIMAL(18, 4)": (Decimal("-1.2500"), Decimal("2.0000"), Decimal("0.0001"), Decimal("1234567.8912")),
    "DECIMAL(38, 10)": (
        Decimal("-1.5000000000"),
        Decimal("2.5000000000"),
        Decimal("0.0000000001"),
        Decimal("9999999999999999999999999999.9999999999"),
    ),
}
NUMBERS: Final = tuple(_SMALL)
COMPARABLE: Final = tuple(kind for kind in SCALARS if kind != "BOOLEAN")
"""What max and min take; the format's own 2.0.0 cannot compare booleans."""


@dataclass(frozen=True)
class Column:
    """A column: its type, the values it gets, and its options without the prefix `fields.NAME.`."""

    type_text: str
    pool: Pool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    nulls: float = 0.25

    def value(self, source: Random) -> Any:
        if source.random() < self.nulls:
            return None
        if self.pool is None:
            return any_value(source, self.type_text)
        return self.pool(source) if callable(self.pool) else source.choice(self.pool)


@dataclass(frozen=True)
class Shape:
    """A table and what is written to it. `sets` are columns whose elements have no order.

    `without_order` names columns that are NULL in retracts: those of groups whose functions cannot retract.
    """

    name: str
    columns: Mapping[str, Column]
    options: Mapping[str, str]
    kinds: Sequence[str] = EVERY_KIND
    sets: Sequence[str] = ()
    without_order: Sequence[str] = ()
    partitioned: bool = False

    @property
    def types(self) -> dict[str, str]:
        """Types by column, the key in the middle: it has no place of its own in the format."""
        values = {name: column.type_text for name, column in self.columns.items()}
        names = list(values)
        half = len(names) // 2
        keys = {"k": "INT NOT NULL", **({"p": "STRING NOT NULL"} if self.partitioned else {})}
        return {**{n: values[n] for n in names[:half]}, **keys, **{n: values[n] for n in names[half:]}}

    @property
    def primary_keys(self) -> list[str]:
        return ["p", "k"] if self.partitioned else ["k"]

    @property
    def partition_keys(self) -> list[str]:
        return ["p"] if self.partitioned else []

    @property
    def table_options(self) -> dict[str, str]:
        named = {
            f"fields.{name}.{option}": value
            for name, column in self.columns.items()
            for option, value in column.options.items()
        }
        return {**named, **self.options}

    @property
    def decoders(self) -> dict[str, Decode | None]:
        return dict.fromkeys(self.sets)

    def oracle(self) -> EngineOracle:
        return EngineOracle(self.types, self.primary_keys, self.table_options)

    def row(self, source: Random, keys: int) -> Values:
        """One change."""
        row: Values = {"k": source.randrange(keys), KIND_COLUMN: source.choice(self.kinds)}
        if self.partitioned:
            row["p"] = source.choice(("", "a/b"))
        row.update({name: column.value(source) for name, column in self.columns.items()})
        if row[KIND_COLUMN] in ("-U", "-D"):
            row.update(dict.fromkeys(self.without_order))
        return row


def can_be_merged_raw(shape: Shape) -> bool:
    """Whether its runs mean the same before lookup has seen them."""
    return "force-lookup" not in shape.options and shape.options.get("merge-engine") != "first-row"


@dataclass(frozen=True)
class Step:
    """A commit of rows, or a full compaction (`rows` is None); afterwards a reader sees `expected`."""

    rows: list[Values] | None
    expected: list[Values]


def history(shape: Shape, source: Random, *, keys: int = 4, steps: int = 6, rows: int = 8) -> Iterator[Step]:
    """Steps of a history: commits with at least one row, and after the first one sometimes a full compaction."""
    oracle = shape.oracle()
    for _ in range(steps):
        if oracle.accepted and source.random() < 0.25:
            oracle.compact()
            yield Step(None, list(oracle.rows().values()))
            continue
        drawn = [shape.row(source, keys) for _ in range(source.randint(1, rows))]
        taken = oracle.mergeable(drawn)
        if not taken:
            continue
        oracle.write(taken)
        oracle.commit()
        yield Step(taken, list(oracle.rows().values()))


# ---------------------------------------------------------------------------------------------- shapes


def _functions(name: str, columns: Mapping[str, Column], **options: str) -> dict[str, Column]:
    """The same columns with this function and these options, `ignore_retract="true"` and the like."""
    more = {"aggregate-function": name, **{option.replace("_", "-"): value for option, value in options.items()}}
    return {
        f"{column}_{name}": Column(one.type_text, one.pool, {**one.options, **more}, one.nulls)
        for column, one in columns.items()
    }


def _named(kinds: Sequence[str], pools: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Column]:
    return {
        f"c{index}": Column(kind, None if pools is None else tuple(pools[kind])) for index, kind in enumerate(kinds)
    }


def _list_of(*elements: Any, size: int = 3) -> Callable[[Random], Any]:
    return lambda source: [source.choice(elements) for _ in range(source.randint(0, size))]


def _map_of(keys: Sequence[Any], values: Sequence[Any]) -> Callable[[Random], Any]:
    return lambda source: [(key, source.choice(values)) for key in keys if source.random() < 0.5]


def _nested_rows(source: Random) -> Any:
    rows = [
        {
            "k0": source.choice((0, 1, 1, None)),
            "k1": source.choice(("a", "b", None)),
            "v": source.choice((1, 2, None)),
            "s": source.choice((1, 2, 3, None)),
        }
        for _ in range(source.randint(0, 3))
    ]
    return [None if source.random() < 0.1 else row for row in rows]


def _timed_entries(source: Random) -> Any:
    times = ("50", "100", "200", "2", None)
    return [
        (key, None if source.random() < 0.15 else {"v": source.randrange(9), "ts": source.choice(times)})
        for key in ("p", "q", "r")
        if source.random() < 0.6
    ]


WORDS: Final = Column("STRING", ("a", "b", "a,b", "b,,c", " ", "", "d e", "\t", "\u3000", "\u00a0", "é|x", "x-y"))
ORDER: Final = Column("INT", (0, 1, 2, 3), nulls=0.2)

LISTS: Final = {
    "ints": Column("ARRAY<INT>", _list_of(1, 2, 3, None)),
    "texts": Column("ARRAY<STRING>", _list_of("a", "b", "", None)),
    "doubles": Column("ARRAY<DOUBLE>", _list_of(0.0, -0.0, 1.5, float("nan"))),
    "decimals": Column("ARRAY<DECIMAL(9, 2)>", _list_of(Decimal("1.00"), Decimal("2.50"))),
    "dates": Column("ARRAY<DATE>", _list_of(date(1970, 1, 1), date(2024, 2, 29))),
    "times": Column("ARRAY<TIMESTAMP(6)>", _list_of(datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4))),
    "flags": Column("ARRAY<BOOLEAN>", _list_of(True, False)),
}
CONSTRUCTED_LISTS: Final = {
    "rows": Column("ARRAY<ROW<x INT, y STRING>>", _list_of({"x": 1, "y": "a"}, {"x": 1, "y": None}, {"x": 2, "y": ""})),
    "lists": Column("ARRAY<ARRAY<INT>>", _list_of([1], [1, 2], [])),
    "maps": Column("ARRAY<MAP<STRING, INT>>", _list_of([("a", 1)], [("b", 2), ("a", 1)], [])),
}
MAPS: Final = {
    "m0": Column("MAP<STRING, BIGINT>", _map_of(("a", "b", "c"), (1, 2, None))),
    "m1": Column("MAP<INT, STRING>", _map_of((1, 2, -3), ("x", "", None))),
    "m2": Column("MAP<DATE, DOUBLE>", _map_of((date(1970, 1, 1), date(2024, 1, 1)), (0.5, -0.0))),
    "m3": Column("MAP<STRING, ARRAY<INT>>", _map_of(("a", "b"), ([1], [], [None, 2]))),
}
NESTED_COLUMNS: Final = {
    "plain": Column(NESTED, _nested_rows),
    "limited": Column(NESTED, _nested_rows, {"count-limit": "2"}),
}
KEYED_COLUMNS: Final = {
    "keyed": Column(NESTED, _nested_rows, {"nested-key": "k0"}),
    "keyed2": Column(NESTED, _nested_rows, {"nested-key": "k0,k1", "nested-key-null-strategy": "ignore"}),
}
SEQUENCED_COLUMNS: Final = {
    "newest": Column(NESTED, _nested_rows, {"nested-key": "k0", "nested-sequence-field": "s"}),
    "newest2": Column(NESTED, _nested_rows, {"nested-key": "k1,k0", "nested-sequence-field": "s,v"}),
}
# Nested nanoseconds have no Python value; 2.0.0 compares binary values by identity.
_ELEMENTS: Final = tuple(kind for kind in SCALARS if not kind.startswith("TIMESTAMP(9)"))
_COMPARED: Final = tuple(kind for kind in _ELEMENTS if not kind.startswith("B") or kind in ("BOOLEAN", "BIGINT"))


def _lists_of(kind: str) -> Callable[[Random], Any]:
    return lambda source: [any_value(source, kind) for _ in range(source.randint(0, 3))]


def _maps_of(key: str, value: str) -> Callable[[Random], Any]:
    def draw(source: Random) -> Any:
        keys = {repr(one): one for one in (any_value(source, key) for _ in range(3))}
        return [(one, any_value(source, value)) for one in keys.values()]

    return draw


EVERY_LIST: Final = {f"a{index}": Column(f"ARRAY<{kind}>", _lists_of(kind)) for index, kind in enumerate(_ELEMENTS)}
EVERY_COMPARED_LIST: Final = {name: one for name, one in EVERY_LIST.items() if one.type_text[6:-1] in _COMPARED}
EVERY_MAP: Final = {
    **{f"k{index}": Column(f"MAP<{kind}, INT>", _maps_of(kind, "INT")) for index, kind in enumerate(_COMPARED)},
    **{f"v{index}": Column(f"MAP<INT, {kind}>", _maps_of("INT", kind)) for index, kind in enumerate(_ELEMENTS)},
}
EVERY_COLUMN: Final = {name: Column(kind) for name, kind in EVERY_TYPE.items()}

_AGGREGATION: Final = {"merge-engine": "aggregation"}
_PARTIAL: Final = {"merge-engine": "partial-update"}
_LOOKUP: Final = {"force-lookup": "true"}

_NESTED_UPDATES: Final = _functions("nested_update", {**NESTED_COLUMNS, **KEYED_COLUMNS, **SEQUENCED_COLUMNS})
_NESTED_SETS: Final = tuple(name for name, one in _NESTED_UPDATES.items() if "nested-key" in one.options)
_LISTAGGS: Final = {
    **_functions("listagg", {"plain": WORDS}),
    **_functions("listagg", {"dashed": WORDS}, list_agg_delimiter=" - "),
    **_functions("listagg", {"joined": WORDS}, list_agg_delimiter=""),
    **_functions("listagg", {"once": WORDS}, distinct="true"),
    **_functions("listagg", {"spaced": WORDS}, distinct="true", list_agg_delimiter=" "),
    **_functions("listagg", {"closed": WORDS}, distinct="true", list_agg_delimiter=""),
}


def _all_ignoring(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {
        name: Column(one.type_text, one.pool, {**one.options, "ignore-retract": "true"}, one.nulls)
        for name, one in columns.items()
    }


_NUMBERS = _named(NUMBERS, _SMALL)
_ONE_OF_EACH_RETRACTABLE: Final = {
    **_functions("sum", {"i": Column("INT", _SMALL["INT"]), "f": Column("FLOAT", _SMALL["FLOAT"])}),
    **_functions("product", {"i": Column("BIGINT", (-2, 1, 2, 3))}),
    **_functions("last_value", {"t": Column("STRING")}),
    **_functions("last_non_null_value", {"t": Column("STRING")}),
    **_functions("collect", {"a": LISTS["ints"]}),
    **_functions("merge_map", {"m": MAPS["m0"]}),
    **_functions("nested_update", {"n": NESTED_COLUMNS["plain"]}),
}
_ONE_OF_EACH_OTHER: Final = {
    **_functions("max", {"d": Column("DATE")}),
    **_functions("min", {"x": Column("DOUBLE")}),
    **_functions("first_value", {"t": Column("STRING")}),
    **_functions("first_non_null_value", {"t": Column("STRING")}),
    **_functions("listagg", {"l": WORDS}),
    **_functions("bool_and", {"b": Column("BOOLEAN")}),
    **_functions("bool_or", {"b": Column("BOOLEAN")}),
    **_functions("merge_map_with_keytime", {"m": Column(TIMED, _timed_entries)}),
    **_functions("nested_partial_update", {"n": KEYED_COLUMNS["keyed"]}),
}
_OTHER_SETS: Final = ("n_nested_partial_update",)

# Functions for which it does not matter whether a lone record is merged, so that the level that lookup compaction
# chooses (by the sizes of files, which are not the same for every writer) does not show.
_MANY_LEVELS: Final = {"num-levels": "5", "num-sorted-run.compaction-trigger": "2"}
_STAGELESS: Final = {
    **_functions("sum", {"i": Column("INT", _SMALL["INT"]), "d": Column("DECIMAL(9, 2)", _SMALL["DECIMAL(9, 2)"])}),
    **_functions("last_value", {"t": Column("STRING")}),
    "t_last_non_null_value": Column("STRING"),
    **_functions("max", {"m": Column("DATE")}, ignore_retract="true"),
}

AGGREGATION_SHAPES: Final = (
    Shape("sum", _functions("sum", _NUMBERS), _AGGREGATION),
    Shape("sum, retracts ignored", _functions("sum", _NUMBERS, ignore_retract="true"), _AGGREGATION),
    Shape("product", _functions("product", _NUMBERS), _AGGREGATION),
    Shape("max", _functions("max", _named(COMPARABLE), ignore_retract="true"), _AGGREGATION),
    Shape("min", _functions("min", _named(COMPARABLE)), _AGGREGATION, ADDS),
    Shape("last_value", _functions("last_value", EVERY_COLUMN), _AGGREGATION),
    Shape("last_non_null_value", dict(EVERY_COLUMN), _AGGREGATION),
    Shape("first_value", _functions("first_value", EVERY_COLUMN, ignore_retract="true"), _AGGREGATION),
    Shape("first_non_null_value", _functions("first_non_null_value", EVERY_COLUMN), _AGGREGATION, ADDS),
    Shape(
        "flags",
        _all_ignoring(
            {
                **_functions("bool_and", {"a": Column("BOOLEAN")}),
                **_functions("bool_or", {"o": Column("BOOLEAN")}),
                **_functions("first_not_null_value", {"f": Column("BOOLEAN")}),
            }
        ),
        _AGGREGATION,
    ),
    Shape("listagg", _LISTAGGS, _AGGREGATION, ADDS),
    Shape("listagg, retracts ignored", _all_ignoring(_LISTAGGS), _AGGREGATION),
    Shape("collect", _functions("collect", LISTS), _AGGREGATION),
    Shape("collect, constructed, adds", _functions("collect", CONSTRUCTED_LISTS), _AGGREGATION, ADDS),
    Shape(
        "collect distinct",
        _functions("collect", LISTS, distinct="true"),
        _AGGREGATION,
        sets=tuple(f"{name}_collect" for name in LISTS),
    ),
    Shape(
        "collect distinct, constructed",
        _functions("collect", CONSTRUCTED_LISTS, distinct="true"),
        _AGGREGATION,
    ),
    Shape("merge_map", _functions("merge_map", MAPS), _AGGREGATION),
    Shape("merge_map of every type", _functions("merge_map", EVERY_MAP), _AGGREGATION),
    Shape("collect of every type", _functions("collect", EVERY_COMPARED_LIST), _AGGREGATION),
    Shape("collect of every type, adds", _functions("collect", EVERY_LIST), _AGGREGATION, ADDS),
    Shape(
        "collect distinct of every type",
        _functions("collect", EVERY_COMPARED_LIST, distinct="true"),
        _AGGREGATION,
        sets=tuple(f"{name}_collect" for name in EVERY_COMPARED_LIST),
    ),
    Shape(
        "merge_map_with_keytime",
        {
            **_functions("merge_map_with_keytime", {"last": Column(TIMED, _timed_entries)}),
            **_functions("merge_map_with_keytime", {"named": Column(TIMED, _timed_entries)}, ts_field="ts"),
        },
        _AGGREGATION,
        ADDS,
    ),
    Shape("nested_update", _NESTED_UPDATES, _AGGREGATION, sets=_NESTED_SETS),
    Shape(
        "nested_partial_update",
        _functions("nested_partial_update", KEYED_COLUMNS, ignore_retract="true"),
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
        {**_ONE_OF_EACH_OTHER},
        {**_AGGREGATION, "aggregation.remove-record-on-delete": "true"},
        (*ADDS, "-D"),
        sets=_OTHER_SETS,
    ),
    Shape(
        "default function",
        {"a": Column("INT", _SMALL["INT"]), "b": Column("DOUBLE", _SMALL["DOUBLE"])},
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
        {"s": Column("INT", (0, 1, 2, 3), {"ignore-retract": "true"}), "v": Column("INT", _SMALL["INT"])},
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


def _group(ordering: str, protected: str) -> dict[str, str]:
    return {f"fields.{ordering}.sequence-group": protected}


def _between(columns: Mapping[str, Column], **ordering: Column) -> dict[str, Column]:
    """Protected columns on both sides of the ordering ones."""
    names = list(columns)
    half = len(names) // 2
    return {**{n: columns[n] for n in names[:half]}, **ordering, **{n: columns[n] for n in names[half:]}}


_INTS: Final = Column("INT", (1, 2, 3, 4, 5), nulls=0.35)
_TWO_GROUPS: Final = {"a": _INTS, "g": ORDER, "b": _INTS, "h": ORDER, "c": _INTS, "d": _INTS, "free": _INTS}
_TWO_GROUP_OPTIONS: Final = {**_PARTIAL, **_group("g", "a,b"), **_group("h", "c,d")}
_WIDE_GROUPS: Final = {"g0": ORDER, "a": _INTS, "g1": ORDER, "h": ORDER, "b": _INTS, "i": ORDER, "c": _INTS, "d": _INTS}
_WIDE_GROUP_OPTIONS: Final = {**_PARTIAL, **_group("g1,g0", "a,b"), **_group("h,i", "c")}
_EVERY_NAME: Final = ",".join(EVERY_COLUMN)
_REMOVING: Final = "partial-update.remove-record-on-sequence-group"
_ORDER_KINDS: Final = ("BOOLEAN", "STRING", "DATE", "TIMESTAMP(6)", "DECIMAL(38, 10)", "DOUBLE", "BYTES", "BIGINT")
_ORDER_TYPES: Final = {f"g{index}": Column(kind) for index, kind in enumerate(_ORDER_KINDS)}


def _grouped(name: str, columns: Mapping[str, Column], **more: Any) -> Shape:
    """One group over all columns, ordered by g."""
    return Shape(name, _between(columns, g=ORDER), {**_PARTIAL, **_group("g", ",".join(columns))}, **more)


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
    ),
    Shape(
        "remove-record-on-delete, sequence.field",
        {"a": _INTS, "s": ORDER, "b": _INTS},
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true", "sequence.field": "s"},
    ),
    Shape(
        "remove-record-on-delete, lookup",
        {"a": _INTS, "b": _INTS, "c": Column("STRING")},
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true", **_LOOKUP},
    ),
    Shape("ignore-delete", {"a": _INTS, "b": _INTS}, {**_PARTIAL, "ignore-delete": "true"}),
    Shape("groups", _TWO_GROUPS, _TWO_GROUP_OPTIONS),
    Shape("groups, adds", _TWO_GROUPS, _TWO_GROUP_OPTIONS, ADDS),
    Shape("groups, lookup", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, **_LOOKUP}),
    Shape("groups, partitioned", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, "bucket": "2"}, partitioned=True),
    Shape("groups, ignore-delete", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, "partial-update.ignore-delete": "true"}),
    Shape("groups, remove-record", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, _REMOVING: "h"}),
    Shape("groups, remove-record on either", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, _REMOVING: "g,h"}),
    Shape("groups, remove-record, lookup", _TWO_GROUPS, {**_TWO_GROUP_OPTIONS, _REMOVING: "h", **_LOOKUP}),
    Shape("wide groups", _WIDE_GROUPS, _WIDE_GROUP_OPTIONS),
    Shape("wide groups, remove-record", _WIDE_GROUPS, {**_WIDE_GROUP_OPTIONS, _REMOVING: "i"}),
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
        {**_PARTIAL, **{k: v for i in range(len(_ORDER_TYPES)) for k, v in _group(f"g{i}", f"v{i}").items()}},
    ),
    _grouped("functions in a group", _ONE_OF_EACH_RETRACTABLE),
    _grouped("functions in a group, retracts ignored", _all_ignoring(_ONE_OF_EACH_RETRACTABLE)),
    _grouped("other functions in a group, adds", _ONE_OF_EACH_OTHER, kinds=ADDS, sets=_OTHER_SETS),
    _grouped("other functions in a group, retracts ignored", _all_ignoring(_ONE_OF_EACH_OTHER), sets=_OTHER_SETS),
    Shape(
        "other functions in a group, retracts elsewhere",
        {**_between(_ONE_OF_EACH_OTHER, g=ORDER), "h": ORDER, "z": _INTS},
        {**_PARTIAL, **_group("g", ",".join(_ONE_OF_EACH_OTHER)), **_group("h", "z")},
        without_order=("g",),
        sets=_OTHER_SETS,
    ),
    Shape(
        "functions in a group, remove-record",
        {**_between(_ONE_OF_EACH_RETRACTABLE, g=ORDER), "h": ORDER, "z": _INTS},
        {**_PARTIAL, **_group("g", ",".join(_ONE_OF_EACH_RETRACTABLE)), **_group("h", "z"), _REMOVING: "g"},
    ),
    Shape(  # a delete removes the row before any function is called: the ordering column is the first one
        "other functions in a group, remove-record",
        {"g": ORDER, **_ONE_OF_EACH_OTHER, "h": ORDER, "z": _INTS},
        {**_PARTIAL, **_group("g", ",".join(_ONE_OF_EACH_OTHER)), **_group("h", "z"), _REMOVING: "g"},
        (*ADDS, "-D"),
        sets=_OTHER_SETS,
    ),
    _grouped("listagg in a group", _LISTAGGS, kinds=ADDS),
    _grouped("nested_update in a group", _NESTED_UPDATES, sets=_NESTED_SETS),
    Shape(
        "functions in a group, lookup",
        _between(_ONE_OF_EACH_RETRACTABLE, g=ORDER),
        {**_PARTIAL, **_group("g", ",".join(_ONE_OF_EACH_RETRACTABLE)), **_LOOKUP},
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
    Shape("collect, constructed", _functions("collect", CONSTRUCTED_LISTS), _AGGREGATION),
    Shape(
        "bytes by content",
        {
            **_functions("collect", {"all": Column("ARRAY<BYTES>", _list_of(b"", b"a", b"ab"))}),
            **_functions("merge_map", {"m": Column("MAP<BYTES, INT>", _map_of((b"", b"a"), (1, None)))}),
        },
        _AGGREGATION,
    ),
    Shape(
        "distinct bytes by content",
        _functions("collect", {"once": Column("ARRAY<BYTES>", _list_of(b"", b"a", b"ab"))}, distinct="true"),
        _AGGREGATION,
        sets=("once_collect",),
    ),
)

# An array by key has no order: where it is cut to a limit after it was merged once, no two programs agree. In one flush
# they do.
ONE_FLUSH_SHAPES: Final = (
    Shape(
        "nested_update by key with a limit",
        _functions(
            "nested_update",
            {
                "two": Column(NESTED, _nested_rows, {"nested-key": "k0,k1", "count-limit": "2"}),
                "one": Column(NESTED, _nested_rows, {"nested-key": "k1", "count-limit": "1"}),
                "newest": Column(
                    NESTED, _nested_rows, {"nested-key": "k0", "nested-sequence-field": "s", "count-limit": "2"}
                ),
            },
        ),
        _AGGREGATION,
        sets=("two_nested_update", "one_nested_update", "newest_nested_update"),
    ),
)

SHAPES: Final = (
    *(replace(shape, name=f"aggregation, {shape.name}") for shape in AGGREGATION_SHAPES),
    *(replace(shape, name=f"partial-update, {shape.name}") for shape in PARTIAL_SHAPES),
    *OTHER_SHAPES,
)


# ---------------------------------------------------------------------------------------------- shapes by chance

_RETRACTABLE: Final = (
    *_functions("sum", _NUMBERS).values(),
    *_functions(
        "product", {"i": Column("BIGINT", (-2, 1, 2, 3)), "d": Column("DECIMAL(9, 2)", (Decimal("2.00"),))}
    ).values(),
    *_functions("last_value", EVERY_COLUMN).values(),
    *_functions("last_non_null_value", EVERY_COLUMN).values(),
    *_functions("collect", LISTS).values(),
    *_functions("merge_map", MAPS).values(),
    *_NESTED_UPDATES.values(),
    *_functions("collect", LISTS, distinct="true").values(),
)
_ONLY_ADDS: Final = (
    *_functions("max", _named(COMPARABLE)).values(),
    *_functions("min", _named(COMPARABLE)).values(),
    *_functions("first_value", EVERY_COLUMN).values(),
    *_functions("first_non_null_value", EVERY_COLUMN).values(),
    *_functions("bool_and", {"b": Column("BOOLEAN")}).values(),
    *_functions("bool_or", {"b": Column("BOOLEAN")}).values(),
    *_LISTAGGS.values(),
    *_functions("merge_map_with_keytime", {"m": Column(TIMED, _timed_entries)}).values(),
    *_functions("nested_partial_update", KEYED_COLUMNS).values(),
)


def any_shape(source: Random) -> Shape:
    """A table of aggregation or partial-update with columns, groups and options as chance has it."""
    return _any_aggregation(source) if source.random() < 0.4 else _any_partial_update(source)


def _any_function(source: Random, *, may_ignore: bool = True) -> Column:
    column = source.choice(_RETRACTABLE if source.random() < 0.6 else _ONLY_ADDS)
    if may_ignore and source.random() < 0.3:
        return replace(column, options={**column.options, "ignore-retract": "true"})
    return column


def _takes_retracts(column: Column) -> bool:
    return column in _RETRACTABLE or "aggregate-function" not in column.options or "ignore-retract" in column.options


def _unordered(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Columns whose elements have no order."""
    return tuple(
        name
        for name, one in columns.items()
        if "nested-key" in one.options
        or (one.options.get("aggregate-function") == "collect" and "distinct" in one.options)
    )


def _any_order(source: Random, columns: dict[str, Column], options: dict[str, str]) -> None:
    """Sometimes a sequence.field."""
    if source.random() < 0.3:
        columns["seq"] = source.choice((ORDER, Column("STRING", ("a", "b", "ab")), Column("DATE")))
        options["sequence.field"] = "seq"
        options["sequence.field.sort-order"] = source.choice(("ascending", "descending"))


def _any_aggregation(source: Random) -> Shape:
    options = {"merge-engine": "aggregation"}
    removes = source.random() < 0.25
    columns = {f"c{index}": _any_function(source, may_ignore=not removes) for index in range(source.randint(1, 5))}
    kinds: Sequence[str] = EVERY_KIND if all(map(_takes_retracts, columns.values())) else ADDS
    if removes:
        options["aggregation.remove-record-on-delete"] = "true"
        kinds = (*kinds, "-D")
    _any_order(source, columns, options)
    lookup = source.random() < 0.25
    if lookup:
        options["force-lookup"] = "true"
    partitioned = not lookup and source.random() < 0.2
    return Shape("any aggregation", columns, options, kinds, sets=_unordered(columns), partitioned=partitioned)


def _any_partial_update(source: Random) -> Shape:
    options = {"merge-engine": "partial-update"}
    columns: dict[str, Column] = {}
    silent: list[str] = []
    removing: list[str] = []
    for group in range(source.randint(0, 3)):
        ordering = [f"g{group}{part}" for part in range(source.randint(1, 2))]
        protected = {
            f"p{group}{part}": _any_function(source) if source.random() < 0.5 else Column(source.choice(SCALARS))
            for part in range(source.randint(1, 3))
        }
        columns |= protected | dict.fromkeys(ordering, ORDER)
        options |= _group(",".join(source.sample(ordering, len(ordering))), ",".join(protected))
        if not all(map(_takes_retracts, protected.values())):
            silent += ordering
        elif source.random() < 0.3:
            removing.append(source.choice(ordering))
    has_groups = bool(columns)
    columns |= {f"f{index}": Column(source.choice(SCALARS)) for index in range(source.randint(0 if columns else 1, 2))}
    kinds: Sequence[str] = EVERY_KIND
    if source.random() < 0.15:
        options["ignore-delete"] = "true"
    elif removing:
        options[_REMOVING] = ",".join(removing)
    elif not has_groups and source.random() < 0.7:
        options["partial-update.remove-record-on-delete"] = "true"
    elif not has_groups:
        kinds = ADDS
    names = source.sample(list(columns), len(columns))
    columns = {name: columns[name] for name in names}
    _any_order(source, columns, options)
    if source.random() < 0.2:
        options["force-lookup"] = "true"
    return Shape("any partial-update", columns, options, kinds, sets=_unordered(columns), without_order=tuple(silent))


@dataclass
class Story:
    """The steps of a history as they happen, reported by key when something is wrong."""

    shape: Shape
    seed: Any
    steps: list[Step] = field(default_factory=list)

    def check(self, found: Any, columns: Sequence[str] | None = None, *, by: str = "the table") -> None:
        """Fails unless the rows found are those expected after the last step."""
        types = {name: self.shape.types[name] for name in columns or self.shape.types}
        sets = {name: decode for name, decode in self.shape.decoders.items() if name in types}
        wanted = texts(arrow_rows(self.steps[-1].expected, types), sets)
        seen = texts(found.select(list(types)), sets)
        if seen == wanted:
            return
        missing, surplus = _difference(wanted, seen), _difference(seen, wanted)
        raise AssertionError(
            f"{self.shape.name}, seed {self.seed}, after step {len(self.steps)}: {by} differs"
            f"\noptions  {self.shape.table_options}"
            + "".join(f"\nexpected {row}" for row in missing[:3])
            + "".join(f"\nfound    {row}" for row in surplus[:3])
            + self._history_of([*missing, *surplus][0] if columns is None else "")
        )

    def _history_of(self, text: str) -> str:
        key = re.search(r"'k': (-?\d+)", text)
        if key is None:
            return ""
        lines = []
        for number, step in enumerate(self.steps, 1):
            if step.rows is None:
                lines.append(f"{number} full compaction")
            else:
                lines += [f"{number} {row}" for row in step.rows if row["k"] == int(key[1])]
        return "\nhistory of the key:\n" + "\n".join(lines)


def _difference(left: Sequence[str], right: Sequence[str]) -> list[str]:
    rest = list(right)
    only = []
    for row in left:
        if row in rest:
            rest.remove(row)
        else:
            only.append(row)
    return only
