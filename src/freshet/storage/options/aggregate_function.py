"""The aggregate function of a column: its name, what it can do (`CAPABILITIES`, a row per function), its options.

| function | column | options besides ignore-retract |
|---|---|---|
| sum, product | number | |
| max, min | scalar | |
| last_value, last_non_null_value, first_value, first_non_null_value | any | |
| listagg | STRING | list-agg-delimiter, distinct |
| bool_and, bool_or | BOOLEAN | |
| collect | ARRAY | distinct |
| merge_map | MAP | |
| merge_map_with_keytime | MAP of ROW with two fields or more | ts-field: a text field, the last one if not given |
| nested_update | ARRAY of ROW | nested-key, nested-key-null-strategy, nested-sequence-field, count-limit |
| nested_partial_update | ARRAY of ROW | nested-key (a must), nested-key-null-strategy |
| rbm32, rbm64, hll_sketch, theta_sketch | VARBINARY | |

Options are keyed `fields.<column>.<option>`; what does not fit is refused by name of option and column. An option of
another function is not read here; `freshet.storage.schema.option_validation` refuses it where it is typed.

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeVar

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import (
    LENGTH_MAX,
    TEXT_ROOTS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
)
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.values import parse_bool, parse_int, split_names


class AggregateFunction(StrEnum):
    """Functions that make one value of a column out of the values of a key's rows."""

    SUM = "sum"
    PRODUCT = "product"
    MAX = "max"
    MIN = "min"
    LAST_VALUE = "last_value"
    LAST_NON_NULL_VALUE = "last_non_null_value"
    FIRST_VALUE = "first_value"
    FIRST_NON_NULL_VALUE = "first_non_null_value"
    LISTAGG = "listagg"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    COLLECT = "collect"
    MERGE_MAP = "merge_map"
    MERGE_MAP_WITH_KEYTIME = "merge_map_with_keytime"
    NESTED_UPDATE = "nested_update"
    NESTED_PARTIAL_UPDATE = "nested_partial_update"
    RBM32 = "rbm32"
    RBM64 = "rbm64"
    HLL_SKETCH = "hll_sketch"
    THETA_SKETCH = "theta_sketch"


class ColumnAggregate(Frozen):
    """One function with the options of its column; those of other functions keep their defaults."""

    name: AggregateFunction
    ignore_retract: bool = False
    distinct: bool = False
    """listagg, collect: a value is taken once."""
    delimiter: str = ","
    """listagg; may be empty, which joins without anything between (and splits at blanks for distinct)."""
    nested_key: tuple[str, ...] = ()
    nested_sequence: tuple[str, ...] = ()
    null_strategy: str = "merge"
    """nested_update, nested_partial_update: merge, ignore or error for rows whose key has nulls."""
    count_limit: int | None = None
    """nested_update: rows at which an array takes no more; None for no limit."""
    time_field: str | None = None
    """merge_map_with_keytime: field of the value that holds the time; None for the last one."""


class Capability(Frozen):
    """What one function can do."""

    wanted: str
    """The types it takes, in words; empty for all."""
    takes: Callable[[DataType], bool]
    """True for types it takes."""
    takes_retracts: bool = False
    """-U and -D undo a value; other functions refuse them, unless `ignore-retract` is set."""
    folds_retracts: bool = False
    """A retract takes away the same, also when it is merged with newer rows before the row that it is about."""
    counts_blank: bool = False
    """An empty value (0, empty text, false) is a value like others, also before the first one."""
    adds_up: bool = False
    """A value given twice counts twice, so that an update must retract the row before it."""
    takes_null: bool = False
    """NULL is a value like others; for other functions it leaves the accumulator alone."""
    keeps_lone_value: bool = False
    """One value alone always comes out as it went in."""
    options: frozenset[str] = frozenset()
    """Options it reads besides `ignore-retract`."""


_F = AggregateFunction
_OTHER_NAMES: Final = {"first_not_null_value": AggregateFunction.FIRST_NON_NULL_VALUE}
_NESTED_KEY_OPTIONS: Final = frozenset({"nested-key", "nested-key-null-strategy"})
_NULL_STRATEGIES: Final = ("merge", "ignore", "error")
_NUMBERS: Final = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
    }
)

T = TypeVar("T")


def read_function_name(key: str, text: str) -> AggregateFunction:
    """The function named by an option; names are spelled exactly, and one has an older name."""
    if text in _OTHER_NAMES:
        return _OTHER_NAMES[text]
    try:
        return AggregateFunction(text)
    except ValueError as error:
        near = difflib.get_close_matches(text.lower().replace("-", "_"), list(AggregateFunction), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"functions are {', '.join(AggregateFunction)}"
        raise InvalidRequestError(f"option {key} = {text!r} names no aggregate function; {hint}", option=key) from error


def options_of(function: AggregateFunction) -> frozenset[str]:
    """Names of the options that the function reads."""
    return CAPABILITIES[function].options | {"ignore-retract"}


def column_aggregate(name: AggregateFunction, key: str, column: DataField, options: CoreOptions) -> ColumnAggregate:
    """The function with its options, checked against the column's type; `key` is the option that chose it."""
    _check_type(name, key, column)
    reader = _OptionReader(column, options)
    ignores = reader.read("ignore-retract", parse_bool, False)
    match name:
        case _F.LISTAGG:
            distinct = reader.read("distinct", parse_bool, False)
            return ColumnAggregate(name, ignores, distinct, reader.read("list-agg-delimiter", str, ","))
        case _F.COLLECT:
            return ColumnAggregate(name, ignores, reader.read("distinct", parse_bool, False))
        case _F.MERGE_MAP_WITH_KEYTIME:
            return ColumnAggregate(name, ignores, time_field=_time_field(column, reader))
        case _F.NESTED_UPDATE | _F.NESTED_PARTIAL_UPDATE:
            return _nested(name, ignores, column, reader)
    return ColumnAggregate(name, ignores)


class _OptionReader(Frozen):
    column: DataField
    options: CoreOptions

    def key(self, name: str) -> str:
        return f"fields.{self.column.name}.{name}"

    def is_given(self, name: str) -> bool:
        return self.key(name) in self.options.given

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        text = self.options.field_option(self.column.name, name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidRequestError(
                f"option {self.key(name)} = {text!r} cannot be used: {error}", option=self.key(name)
            ) from error


def _time_field(column: DataField, reader: _OptionReader) -> str | None:
    row = _value_row(column.type)
    assert row is not None  # _check_type has seen to it
    given = reader.read("ts-field", str, None)
    names = [field.name for field in row.fields]
    if given is not None and given not in names:
        raise InvalidRequestError(
            f"option {reader.key('ts-field')} names field {given!r}, which the values of column {column.name} "
            f"do not have; fields: {', '.join(names)}",
            option=reader.key("ts-field"),
            column=column.name,
        )
    field = row.fields[names.index(given)] if given is not None else row.fields[-1]
    if field.type.root not in TEXT_ROOTS:
        raise InvalidRequestError(
            f"column {column.name}: merge_map_with_keytime compares times as text, but field {field.name} is "
            f"{field.type}; name a STRING field with {reader.key('ts-field')}",
            column=column.name,
        )
    return given


def _nested(name: AggregateFunction, ignore_retract: bool, column: DataField, reader: _OptionReader) -> ColumnAggregate:
    row = _element_row(column.type)
    assert row is not None  # _check_type has seen to it
    key = _nested_names("nested-key", column, row, reader)
    strategy = reader.read("nested-key-null-strategy", _null_strategy, "merge")
    if name is _F.NESTED_PARTIAL_UPDATE:
        if not key:
            raise InvalidRequestError(
                f"column {column.name}: {name} needs option {reader.key('nested-key')}, the fields that identify "
                f"the rows of the array, such as {row.fields[0].name}",
                column=column.name,
                option=reader.key("nested-key"),
            )
        return ColumnAggregate(name, ignore_retract, nested_key=key, null_strategy=strategy)
    sequence = _nested_names("nested-sequence-field", column, row, reader)
    for dependent in ("nested-key-null-strategy", "nested-sequence-field"):
        if not key and reader.is_given(dependent):
            raise InvalidRequestError(
                f"option {reader.key(dependent)} needs option {reader.key('nested-key')}; set it, or remove the option",
                option=reader.key(dependent),
            )
    types = {field.name: field.type for field in row.fields}
    for field_name in sequence:
        if not isinstance(types[field_name], ScalarType):
            raise InvalidRequestError(
                f"option {reader.key('nested-sequence-field')}: field {field_name} of type {types[field_name]} "
                "has no order; name a scalar field",
                option=reader.key("nested-sequence-field"),
            )
    return ColumnAggregate(
        name,
        ignore_retract,
        nested_key=key,
        nested_sequence=sequence,
        null_strategy=strategy,
        count_limit=reader.read("count-limit", parse_int, None),
    )


def _nested_names(name: str, column: DataField, row: RowType, reader: _OptionReader) -> tuple[str, ...]:
    text = reader.options.field_option(column.name, name)
    names = () if text is None else tuple(part.strip() for part in split_names(text))
    known = [field.name for field in row.fields]
    for field_name in names:
        if field_name not in known:
            raise InvalidRequestError(
                f"option {reader.key(name)} names field {field_name!r}, which the rows of column {column.name} "
                f"do not have; fields: {', '.join(known)}",
                option=reader.key(name),
                column=column.name,
            )
    return names


def _null_strategy(text: str) -> str:
    if text.lower() not in _NULL_STRATEGIES:
        raise ValueError(f"expected one of {', '.join(_NULL_STRATEGIES)}")
    return text.lower()


def _check_type(name: AggregateFunction, key: str, column: DataField) -> None:
    capability = CAPABILITIES[name]
    if not capability.takes(column.type):
        own = f"fields.{column.name}.aggregate-function"
        remedy = "choose another function" if key == own else f"give the column a function of its own with {own}"
        raise InvalidRequestError(
            f"option {key} = {name} cannot be used: {name} takes {capability.wanted}, column {column.name} is "
            f"{column.type}; {remedy}, or change the column's type",
            option=key,
            column=column.name,
        )


def _value_row(data_type: DataType) -> RowType | None:
    value = data_type.value if isinstance(data_type, MapType) else None
    return value if isinstance(value, RowType) else None


def _element_row(data_type: DataType) -> RowType | None:
    element = data_type.element if isinstance(data_type, ArrayType) else None
    return element if isinstance(element, RowType) else None


def _any(_: DataType) -> bool:
    return True


def _is_number(data_type: DataType) -> bool:
    return data_type.root in _NUMBERS


def _is_scalar(data_type: DataType) -> bool:
    return isinstance(data_type, ScalarType)


def _is_boolean(data_type: DataType) -> bool:
    return data_type.root is TypeRoot.BOOLEAN


def _is_unbounded_string(data_type: DataType) -> bool:
    return isinstance(data_type, ScalarType) and data_type.root is TypeRoot.VARCHAR and data_type.length == LENGTH_MAX


def _is_array(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType)


def _is_map(data_type: DataType) -> bool:
    return isinstance(data_type, MapType)


def _is_map_of_rows(data_type: DataType) -> bool:
    row = _value_row(data_type)
    return row is not None and len(row.fields) > 1


def _is_array_of_rows(data_type: DataType) -> bool:
    return _element_row(data_type) is not None


def _is_bytes(data_type: DataType) -> bool:
    return data_type.root is TypeRoot.VARBINARY


_SUM: Final = Capability(
    "numbers", _is_number, takes_retracts=True, folds_retracts=True, adds_up=True, keeps_lone_value=True
)
_EXTREME: Final = Capability("values that have an order", _is_scalar, counts_blank=True, keeps_lone_value=True)
_LOGICAL: Final = Capability("BOOLEAN", _is_boolean, keeps_lone_value=True)
_BYTES: Final = Capability("VARBINARY or BYTES", _is_bytes, counts_blank=True)

CAPABILITIES: Final[Mapping[AggregateFunction, Capability]] = {
    _F.SUM: _SUM,
    _F.PRODUCT: replace(_SUM, folds_retracts=False, counts_blank=True),
    _F.MAX: _EXTREME,
    _F.MIN: _EXTREME,
    _F.LAST_VALUE: Capability("", _any, takes_retracts=True, folds_retracts=True, takes_null=True),
    _F.LAST_NON_NULL_VALUE: Capability("", _any, takes_retracts=True),
    _F.FIRST_VALUE: Capability("", _any, counts_blank=True, takes_null=True),
    _F.FIRST_NON_NULL_VALUE: Capability("", _any, counts_blank=True),
    _F.LISTAGG: Capability(
        "STRING without a length", _is_unbounded_string, options=frozenset({"list-agg-delimiter", "distinct"})
    ),
    _F.BOOL_AND: replace(_LOGICAL, counts_blank=True),
    _F.BOOL_OR: _LOGICAL,
    _F.COLLECT: Capability("ARRAY", _is_array, takes_retracts=True, adds_up=True, options=frozenset({"distinct"})),
    _F.MERGE_MAP: Capability("MAP", _is_map, takes_retracts=True, adds_up=True),
    _F.MERGE_MAP_WITH_KEYTIME: Capability(
        "MAP with ROW values of two fields or more", _is_map_of_rows, options=frozenset({"ts-field"})
    ),
    _F.NESTED_UPDATE: Capability(
        "ARRAY of ROW",
        _is_array_of_rows,
        takes_retracts=True,
        adds_up=True,
        options=_NESTED_KEY_OPTIONS | {"nested-sequence-field", "count-limit"},
    ),
    _F.NESTED_PARTIAL_UPDATE: Capability("ARRAY of ROW", _is_array_of_rows, options=_NESTED_KEY_OPTIONS),
    _F.RBM32: _BYTES,
    _F.RBM64: _BYTES,
    _F.HLL_SKETCH: _BYTES,
    _F.THETA_SKETCH: _BYTES,
}
