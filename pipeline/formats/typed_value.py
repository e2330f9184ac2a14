"""JSON values into declared types: SQL text that yields the carrier of a type, or NULL where the value does not fit.

A value arrives as a VARIANT (numbers exact up to 38 digits, strings, objects told apart) and as its text. A conversion
is a list of steps; each step may read the value and the result of the step before it, so that nothing is computed
twice: a caller gives every step a column of its own.

| type | accepted | refused (NULL) |
|---|---|---|
| BOOLEAN | true, false, 0, 1 | all else |
| TINYINT … BIGINT | whole numbers in range, as number or text; 5.0 is 5 | fractions, out of range |
| FLOAT, DOUBLE | numbers, NaN, Infinity by any of their usual names | text; finite numbers that overflow |
| DECIMAL(p, s) | exact at scale s: numbers, texts, base64, {scale, value} | inexact, NaN, Infinity, over p digits |
| CHAR, VARCHAR(n) | everything; objects and arrays as JSON text | longer than n characters |
| BINARY, VARBINARY(n) | base64, url-safe base64 or hex, as configured | other text, longer than n bytes |
| DATE | days since 1970, ISO text, a trailing Z | outside years 1-9999 |
| TIME(p) | a number by its unit, ISO text | outside one day, finer than p digits or than milliseconds |
| TIMESTAMP(p), LTZ | a number by its unit, ISO text; no zone is UTC | outside years 1-9999, finer than p digits |
| TIMESTAMP(7-9) | the same | outside 1677-2262 as well |
| ARRAY, MAP, ROW | JSON arrays and objects, or text holding one | any element that does not fit |

The format stores TIME in milliseconds, hence the refusal of finer ones. The unit of a number that is a time comes from
the type name in the record's schema; without one from the declared precision, as Debezium's `time.precision.mode` says.
Carriers are those of `batch.arrow_bridge`. Nothing here depends on `spark.sql.ansi.enabled` (conversions are tried,
ranges are tested before arithmetic); the time zone must be UTC when Spark analyses the texts (`transforms` sees to it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from freshet.pipeline.formats.time_value import time_steps
from freshet.pipeline.formats.value import Dialect, Leaf, Step, member_leaf
from freshet.pipeline.sql_text import case, literal, name, one_of
from freshet.storage.model.data_type import LENGTH_MAX, ArrayType, DataType, MapType, RowType, ScalarType, TypeRoot

CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"

_INTS: Final = {
    TypeRoot.TINYINT: "TINYINT",
    TypeRoot.SMALLINT: "SMALLINT",
    TypeRoot.INT: "INT",
    TypeRoot.BIGINT: "BIGINT",
}
_TWO_TO_64: Final = "18446744073709551616BD"
_HEX_64: Final = 16
"""Hexadecimal digits of 64 bits."""


def steps_for(data_type: DataType, dialect: Dialect) -> list[Step]:
    """The steps that turn a value into the carrier of `data_type`; at least one."""
    match data_type:
        case ArrayType():
            return _array(data_type, dialect)
        case MapType():
            return _map(data_type, dialect)
        case RowType():
            return _row(data_type, dialect)
    root = data_type.root
    match root:
        case TypeRoot.BOOLEAN:
            return [lambda leaf, _: f"CASE {leaf.text} {_BOOLEANS} END"]
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _floating(root)
        case TypeRoot.DECIMAL:
            return _decimal(data_type.precision or 10, data_type.scale or 0, dialect)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return [lambda leaf, _: _within(leaf.text, leaf.text, data_type)]
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return [lambda leaf, _: _octets(leaf.text, dialect), lambda _, last: _within(last, last, data_type)]
        case TypeRoot.DATE | TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return time_steps(data_type, dialect)
        case _:
            return [lambda leaf, _: _whole(leaf.text, _INTS[root])]


def expression_for(data_type: DataType, dialect: Dialect, leaf: Leaf) -> str:
    """All steps in one expression, for values inside others, where a step cannot have a column of its own.

    The result of a step becomes the variable of a lambda over an array of one: without it the text would double with
    every use.
    """
    steps = steps_for(data_type, dialect)
    expression = steps[0](leaf, "NULL")
    for number, step in enumerate(steps[1:]):
        last = f"s{leaf.depth}_{number}"
        expression = f"get(transform(array({expression}), {last} -> {step(leaf, last)}), 0)"
    return expression


_BOOLEANS: Final = " ".join(
    f"WHEN '{text}' THEN {value}" for value, texts in (("true", "true 1 TRUE True"), ("false", "false 0 FALSE False"))
    for text in texts.split()
)  # fmt: skip


def _whole(text: str, target: str) -> str:
    decimal_zeros = f"substring_index({text}, '.', 1)"
    return (
        f"coalesce(try_cast({text} AS {target}), "
        f"CASE WHEN {text} RLIKE '^-?[0-9]+[.]0+$' THEN try_cast({decimal_zeros} AS {target}) END)"
    )


def _floating(root: TypeRoot) -> list[Step]:
    def parse(leaf: Leaf, _: str) -> str:
        last = f"substr({leaf.text}, -1)"
        return case(
            [
                (f"{last} BETWEEN '0' AND '9' OR {last} = '.'", f"try_cast({leaf.text} AS {root})"),
                (one_of(leaf.text, ("NaN", "NAN")), f"CAST('NaN' AS {root})"),
                (one_of(leaf.text, ("Infinity", "+Infinity", "POSITIVE_INFINITY")), f"CAST('Infinity' AS {root})"),
                (one_of(leaf.text, ("-Infinity", "NEGATIVE_INFINITY")), f"CAST('-Infinity' AS {root})"),
            ]
        )

    def refuse_overflow(leaf: Leaf, last: str) -> str:
        return (
            f"CASE WHEN abs({last}) < CAST('Infinity' AS {root}) OR {leaf.text} RLIKE '^[-+A-Za-z_]+$' THEN {last} END"
        )

    return [parse, refuse_overflow]


def _decimal(precision: int, scale: int, dialect: Dialect) -> list[Step]:
    """(1) hexadecimal digits of a binary value, (2) plain text, perhaps with an exponent, (3) the exact number."""

    def digits(leaf: Leaf, _: str) -> str:
        inner = f"try_variant_get({leaf.variant}, '$.value', 'string')"
        coded = f"(CASE WHEN startswith({leaf.text}, '{{') THEN {inner} ELSE {leaf.text} END)"
        return f"CASE WHEN {_is_coded(leaf, dialect)} THEN hex(try_to_binary({coded}, 'base64')) END"

    def plain(leaf: Leaf, last: str) -> str:
        own_scale = (
            f"CASE WHEN startswith({leaf.text}, '{{') THEN try_variant_get({leaf.variant}, '$.scale', 'int') ELSE "
        )
        own_scale += f"coalesce(try_cast({leaf.schema_scale} AS INT), {scale}) END"
        return case(
            [(f"{last} IS NOT NULL", f"concat({_unscaled(last)}, 'E', -({own_scale}))"), (_is_number(leaf), leaf.text)]
        )

    def number(_: Leaf, last: str) -> str:
        exact = f"^[-+]?(?:[0-9]+[.]?[0-9]{{0,{scale}}}0*|[.][0-9]{{1,{max(scale, 1)}}}0*|[0-9]+E{-scale})$"
        target = f"try_cast({last} AS DECIMAL({precision}, {scale}))"
        # What the step before made of base64, without a regular expression: it is most of all decimals.
        coded = f"endswith({last}, 'E{-scale}') AND NOT contains({last}, '.')"
        return case([(coded, target), (f"{last} RLIKE '{exact}'", target), (_is_exact(last, scale), target)])

    if not dialect.coded_decimals:
        return [lambda leaf, _: case([(_is_number(leaf), leaf.text)]), number]
    return [digits, plain, number]


def _is_coded(leaf: Leaf, dialect: Dialect) -> str:
    """True for base64 of the unscaled number, which is a JSON string; whether it is base64 is found out by reading it.

    A point or a sign cannot stand in base64. A text of digits alone can be either: the dialect says which.
    """
    looks = (
        f"{leaf.is_string} AND length({leaf.text}) % 4 = 0 AND NOT contains({leaf.text}, '.') "
        f"AND NOT contains({leaf.text}, '-') AND {leaf.text} <> 'Infinity'"
    )
    if not dialect.digits_are_coded:
        looks += f" AND NOT {leaf.text} RLIKE '^[0-9]+$'"
    return case(
        [
            (f"{leaf.schema_name} = '{CONNECT_DECIMAL}'", leaf.is_string),
            (f"startswith({leaf.text}, '{{')", "true"),
            (f"{leaf.schema_name} IS NOT NULL", "false"),
        ],
        f"({looks})",
    )


def _is_number(leaf: Leaf) -> str:
    """Refuses a JSON number that went through a double: it has an exponent and more digits than a double keeps."""
    lossy = f"{leaf.text} RLIKE '[0-9][.][0-9]{{15,}}E' AND schema_of_variant({leaf.variant}) = 'DOUBLE'"
    return f"NOT ({lossy})"


def _unscaled(digits: str) -> str:
    """The number written by big-endian two's complement `digits`, as text; NULL above 128 bits."""
    sign = f"CASE WHEN substr({digits}, 1, 1) >= '8' THEN 'F' ELSE '0' END"
    low = f"CAST(conv(right({digits}, {_HEX_64}), 16, 10) AS DECIMAL(20, 0))"
    top = f"conv(lpad(substr({digits}, 1, length({digits}) - {_HEX_64}), {_HEX_64}, {sign}), 16, -10)"
    high = f"CAST({top} AS DECIMAL(20, 0))"
    # Rounded towards zero, so that the product of the high part stays within 38 digits whenever the whole does.
    wide = case(
        [(f"{sign} = '0'", f"CAST(try_add(try_multiply({high}, {_TWO_TO_64}), {low}) AS STRING)")],
        f"CAST(try_add(try_multiply({high} + 1BD, {_TWO_TO_64}), {low} - {_TWO_TO_64}) AS STRING)",
    )
    return case(
        [
            (f"length({digits}) BETWEEN 1 AND {_HEX_64}", f"conv(lpad({digits}, {_HEX_64}, {sign}), 16, -10)"),
            (f"length({digits}) BETWEEN 1 AND {2 * _HEX_64}", wide),
        ]
    )


def _is_exact(text: str, scale: int) -> str:
    """True for a number with an exponent that has no digit beyond `scale`."""
    shape = "^[-+]?([0-9]*)[.]?([0-9]*)[eE]([-+]?[0-9]{1,4})$"
    whole, fraction, exponent = (f"regexp_extract({text}, '{shape}', {group})" for group in (1, 2, 3))
    digits = f"concat({whole}, {fraction})"
    kept = f"length(rtrim('0', {digits}))"
    places = f"length({fraction}) - try_cast({exponent} AS INT) - (length({digits}) - {kept})"
    return f"({text} RLIKE '{shape}' AND ({kept} = 0 OR {places} <= {scale}))"


def _octets(text: str, dialect: Dialect) -> str:
    match dialect.binary_mode:
        case "hex":
            return f"try_to_binary({text}, 'hex')"
        case "base64-url-safe":
            plain = f"rpad(translate({text}, '-_', '+/'), CAST(ceil(length({text}) / 4) * 4 AS INT), '=')"
            return f"CASE WHEN {text} RLIKE '^[A-Za-z0-9_-]*={{0,2}}$' THEN try_to_binary({plain}, 'base64') END"
        case _:
            return f"CASE WHEN length({text}) % 4 = 0 THEN try_to_binary({text}, 'base64') END"


def _within(value: str, measured: str, data_type: ScalarType) -> str:
    if data_type.length in (None, LENGTH_MAX):
        return value
    return f"CASE WHEN length({measured}) <= {data_type.length} THEN {value} END"


def _array(data_type: ArrayType, dialect: Dialect) -> list[Step]:
    """(1) the elements, (2) beside them the elements converted, (3) those, if none was lost."""

    def converted(leaf: Leaf, last: str) -> str:
        return f"struct({last} AS items, {_converted_list(last, data_type.element, dialect, leaf.depth)} AS result)"

    def checked(leaf: Leaf, last: str) -> str:
        lost = _any_lost(f"{last}.items", f"{last}.result", data_type.element, leaf.depth)
        return f"CASE WHEN NOT {lost} THEN {last}.result END"

    return [lambda leaf, _: _opened(leaf, "array<variant>"), converted, checked]


def _map(data_type: MapType, dialect: Dialect) -> list[Step]:
    """(1) the entries, (2) keys and values, (3) these converted, (4) the map, if nothing was lost or is double."""
    key = replace(data_type.key, nullable=False)

    def opened(leaf: Leaf, _: str) -> str:
        return _opened(leaf, "map<string,variant>")

    def split(leaf: Leaf, last: str) -> str:
        variable = f"k{leaf.depth}"
        keys = f"transform(map_keys({last}), {variable} -> CAST({variable} AS VARIANT))"
        return f"CASE WHEN {last} IS NOT NULL THEN struct({keys} AS keys, map_values({last}) AS items) END"

    def converted(leaf: Leaf, last: str) -> str:
        keys = _converted_list(f"{last}.keys", key, dialect, leaf.depth)
        values = _converted_list(f"{last}.items", data_type.value, dialect, leaf.depth)
        return f"struct({last}.keys AS keys, {last}.items AS items, {keys} AS new_keys, {values} AS new_items)"

    def checked(leaf: Leaf, last: str) -> str:
        lost_key = _any_lost(f"{last}.keys", f"{last}.new_keys", key, leaf.depth)
        lost_value = _any_lost(f"{last}.items", f"{last}.new_items", data_type.value, leaf.depth)
        double = f"size(array_distinct({last}.new_keys)) < size({last}.new_keys)"
        result = f"map_from_arrays({last}.new_keys, {last}.new_items)"
        return f"CASE WHEN NOT ({lost_key} OR {lost_value} OR {double}) THEN {result} END"

    return [opened, split, converted, checked]


def _row(data_type: RowType, dialect: Dialect) -> list[Step]:
    """(1) the object, (2) beside it the row, (3) the row, if no field was lost."""

    def converted(leaf: Leaf, last: str) -> str:
        fields = [
            f"{literal(field.name)}, {expression_for(field.type, dialect, _field_leaf(last, field.name, leaf.depth))}"
            for field in data_type.fields
        ]
        return f"struct({last} AS source, named_struct({', '.join(fields)}) AS result)"

    def checked(leaf: Leaf, last: str) -> str:
        lost = [f"{last}.source IS NULL"]
        for field in data_type.fields:
            text = _field_leaf(f"{last}.source", field.name, leaf.depth).text
            is_null = f"{last}.result.{name(field.name)} IS NULL"
            lost.append(f"({is_null} AND {text} IS NOT NULL)" if field.type.nullable else is_null)
        return f"CASE WHEN NOT ({' OR '.join(lost)}) THEN {last}.result END"

    return [lambda leaf, _: _opened(leaf, "map<string,variant>"), converted, checked]


def _field_leaf(entries: str, field: str, depth: int) -> Leaf:
    return member_leaf(f"{entries}[{literal(field)}]", depth + 1)


def _opened(leaf: Leaf, shape: str) -> str:
    """The parts of an array or object; a text is read as JSON first."""
    direct = f"try_variant_get({leaf.variant}, '$', '{shape}')"
    return f"coalesce({direct}, try_variant_get(try_parse_json({leaf.text}), '$', '{shape}'))"


def _converted_list(items: str, element: DataType, dialect: Dialect, depth: int) -> str:
    item = f"x{depth}"
    leaf = member_leaf(item, depth + 1)
    return f"transform({items}, {item} -> {expression_for(element, dialect, leaf)})"


def _any_lost(items: str, converted: str, element: DataType, depth: int) -> str:
    """True when the list is missing or an element became NULL that was something (or may not be NULL at all)."""
    item, result = f"x{depth}", f"y{depth}"
    wrong = f"{result} IS NULL"
    if element.nullable:
        wrong += f" AND CAST({item} AS STRING) IS NOT NULL"
    flags = f"zip_with({items}, {converted}, ({item}, {result}) -> {wrong})"
    return f"coalesce(array_contains({flags}, true), true)"
