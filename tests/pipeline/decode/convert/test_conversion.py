# ruff: noqa: E501 - one line per case
"""JSON values into declared types: what each type takes, alone and in columns; what does not fit never wraps around."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from freshet.pipeline.decode.change import facts_of
from freshet.pipeline.decode.convert.by_type import converter_for
from freshet.pipeline.decode.convert.converter import LOST, Converter
from freshet.pipeline.decode.convert.decimals import CONNECT_DECIMAL
from freshet.pipeline.decode.dialect import PLAIN_TEXT, Dialect, Fact
from freshet.pipeline.decode.json_value import kind_of, parse_json
from freshet.storage.model.sql_type import parse_sql_type

DEBEZIUM = Dialect(coded_decimals=True, digits_are_coded=True, numeric_times="adaptive", binary_mode="base64")
STRINGS = Dialect(coded_decimals=True, digits_are_coded=False, numeric_times="adaptive", binary_mode="hex")
CONNECT = Dialect(coded_decimals=True, digits_are_coded=True, numeric_times="connect", binary_mode="base64-url-safe")
MICROS = Dialect(True, True, "adaptive_time_microseconds", "base64")

# (type, dialect, schema name, schema scale) -> pairs of JSON text and the value as Spark shows it, None = refused
CASES: dict[tuple[str, Dialect, str | None, str | None], list[tuple[str, str | None]]] = {
    ("BOOLEAN", DEBEZIUM, None, None): [("true", "true"), ("0", "false"), ("1", "true"), ('"false"', "false"), ("2", None)],
    ("TINYINT", DEBEZIUM, None, None): [("127", "127"), ("128", None), ("-128", "-128"), ("1.5", None), ("3.0", "3")],
    ("INT", DEBEZIUM, None, None): [("2147483647", "2147483647"), ("2147483648", None), ('"12"', "12"), ('"x"', None)],
    ("BIGINT", DEBEZIUM, None, None): [
        ("9223372036854775807", "9223372036854775807"), ("9223372036854775808", None), ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", None), ("{}", None), ("true", None), ('"1e3"', None),
    ],
    ("DOUBLE", DEBEZIUM, None, None): [
        ("1.5", "1.5"), ('"NaN"', "NaN"), ('"POSITIVE_INFINITY"', "Infinity"), ('"1d"', None), ("1", "1.0"), ('"1e400"', None),
        ('"-Infinity"', "-Infinity"), ("1e-5", "1.0E-5"), ('"abc"', None),
    ],
    ("FLOAT", DEBEZIUM, None, None): [("0.1", "0.1"), ("1e39", None), ('"NAN"', "NaN"), ("3.4028235e38", "3.4028235e+38"), ("-3.40282350e38", "-3.4028235e+38")],
    ("DECIMAL(14,4)", DEBEZIUM, None, None): [
        ('"BNIA"', "31.5904"), ("1.5", "1.5000"), ("1.23456", None), ("1.23450", "1.2345"), ('"-12.3"', "-12.3000"),
        ("12345678901", None), ('"NaN"', None), ('"NAN"', None), ('"POSITIVE_INFINITY"', None), ('"Infinity"', None),
        ('"/w=="', "-0.0001"), ('"1234"', "-265.8824"), ("1234", "1234.0000"), ('{"scale": 2, "value": "BNI="}', "12.3400"),
        ('{"scale": 5, "value": "AQ=="}', None), ('"AAAAAAAAAAAAAAAAAAAAAAE="', None), ("1.0E3", "1000.0000"), ("1E-9", None),
        ('""', None), ("true", None), ('"true"', "-480.1634"), ("1e-4", "0.0001"), ('"not base64"', None),
    ],
    ("DECIMAL(38,0)", DEBEZIUM, None, None): [
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ('"SztMqFqGxHoJiiI//////w=="', "99999999999999999999999999999999999999"),
        ('"tMSzV6V5O4X2dd3AAAAAAQ=="', "-99999999999999999999999999999999999999"),
        ('"AP//////////"', "18446744073709551615"), ('"//////////8="', "-1"), ('"gAAAAAAAAAA="', "-9223372036854775808"),
        ("123456789012345678901234567890123456789", None), ('"f////////////////////w=="', None),
    ],
    ("DECIMAL(38,20)", DEBEZIUM, None, None): [
        ("123456789012345678.12345678901234567890", "123456789012345678.12345678901234567890"),
        ("1.50000000000000000001", "1.50000000000000000001"), ("1.2345678901234567890E-7", None),
    ],
    ("DECIMAL(10,2)", DEBEZIUM, CONNECT_DECIMAL, "2"): [('"BNI="', "12.34"), ('"1234"', "-26588.24")],
    ("DECIMAL(11,4)", DEBEZIUM, CONNECT_DECIMAL, "2"): [('"BNI="', "12.3400")],
    ("DECIMAL(9,1)", DEBEZIUM, CONNECT_DECIMAL, "2"): [('"BNI="', None), ('"BM4="', "12.3")],
    ("DECIMAL(8,2)", DEBEZIUM, "", None): [('"1234"', "1234.00"), ('"BNI="', None), ("7.5", "7.50")],
    ("DECIMAL(7,2)", STRINGS, None, None): [('"1234"', "1234.00"), ('"12.34"', "12.34"), ('"BNI="', None)],
    ("DECIMAL(38,10)", STRINGS, None, None): [('"1e99"', None), ('"1e10"', "10000000000.0000000000"), ('"+1e2"', "100.0000000000")],
    ("STRING", DEBEZIUM, None, None): [
        ('"x"', "x"), ("5", "5"), ('{"a": [1, 2.50, null]}', '{"a":[1,2.50,null]}'), ("[1]", "[1]"), ("true", "true"), ('""', ""),
    ],
    ("VARCHAR(3)", DEBEZIUM, None, None): [('"abc"', "abc"), ('"abcd"', None), ('"äöü"', "äöü")],
    ("BYTES", DEBEZIUM, None, None): [('"q80="', "ABCD"), ('"q8"', None), ('"!!!!"', None), ('""', "")],
    ("BYTES", STRINGS, None, None): [('"abcd"', "ABCD"), ('"xyz"', None)],
    ("BYTES", CONNECT, None, None): [('"_-8="', "FFEF"), ('"_-8"', "FFEF"), ('"+/8="', None)],
    ("VARBINARY(1)", DEBEZIUM, None, None): [('"q80="', None), ('"qw=="', "AB")],
    ("DATE", DEBEZIUM, None, None): [
        ("19782", "2024-02-29"), ('"2024-02-29"', "2024-02-29"), ('"2024-02-30"', None), ('"2024-02-29Z"', "2024-02-29"),
        ("2932897", None), ("-719162", "0001-01-01"), ('"2024"', None), ("2147483648", None), ('"+10000-01-01"', None),
    ],
    ("DATE", PLAIN_TEXT, None, None): [('"2024-02-29"', "2024-02-29"), ("19782", None)],
    ("TIME(3)", DEBEZIUM, None, None): [
        ("86399999", "86399999"), ("86400000", None), ("-1", None), ('"23:59:59.999Z"', "86399999"), ('"24:00:00"', None),
        ('"10:00"', "36000000"), ('"10:00:00.1234"', None), ('"10:00:00.120"', "36000120"),
    ],
    ("TIME(6)", DEBEZIUM, None, None): [("36000000000", "36000000"), ("36000000001", None)],
    ("TIME(0)", MICROS, None, None): [("36000000000", "36000000"), ("36000500000", None)],
    ("TIME(0)", CONNECT, "io.debezium.time.MicroTime", None): [("36000000000", "36000000")],
    ("TIMESTAMP(3)", DEBEZIUM, None, None): [
        ("1700000000123", "2023-11-14 22:13:20.123"), ("253402300800000", None), ('"2023-11-14T22:13:20.123Z"', "2023-11-14 22:13:20.123"),
        ('"2023-11-14T22:13:20.1234"', None), ("9223372036854775807", None),
    ],
    ("TIMESTAMP(6)", DEBEZIUM, None, None): [
        ("1700000000123456", "2023-11-14 22:13:20.123456"), ("-62135596800000000", "0001-01-01 00:00:00"),
        ("-62135596800000001", None), ('"2023-11-14T23:13:20.123456+01:00"', "2023-11-14 22:13:20.123456"),
        ('"2023-11-14 22:13:20"', "2023-11-14 22:13:20"), ('"2023-11-14"', "2023-11-14 00:00:00"), ('"2023-02-30T00:00:00Z"', None),
        ('"2023-11-14T22:13:20.1234567"', None), ('"2023-11-14T22:13:20.1234560"', "2023-11-14 22:13:20.123456"),
        ('"2023-11-14T22:13"', None), ('"1700000000123456"', None), ('"now"', None),
    ],
    ("TIMESTAMP(0)", DEBEZIUM, "io.debezium.time.MicroTimestamp", None): [("1700000000000000", "2023-11-14 22:13:20"), ("1700000000500000", None)],
    ("TIMESTAMP(6)", DEBEZIUM, "io.debezium.time.Timestamp", None): [("1700000000123", "2023-11-14 22:13:20.123")],
    ("TIMESTAMP(6)", DEBEZIUM, "io.debezium.time.NanoTimestamp", None): [
        ("1700000000123456000", "2023-11-14 22:13:20.123456"), ("1700000000123456789", None),
    ],
    ("TIMESTAMP(6)", CONNECT, None, None): [("1700000000123", "2023-11-14 22:13:20.123")],
    ("TIMESTAMP(6)", PLAIN_TEXT, None, None): [("1700000000123456", None)],
    ("TIMESTAMP_LTZ(6)", DEBEZIUM, None, None): [('"2023-11-14T22:13:20.123456Z"', "2023-11-14 22:13:20.123456")],
    ("TIMESTAMP(9)", DEBEZIUM, None, None): [
        ("1700000000123456789", "1700000000123456789"), ('"2023-11-14T22:13:20.123456789"', "1700000000123456789"),
        ('"2263-01-01T00:00:00"', None), ('"2023-11-14T22:13:20.5Z"', "1700000000500000000"),
    ],
    ("TIMESTAMP(7)", DEBEZIUM, None, None): [("1700000000123456700", "1700000000123456700"), ("1700000000123456789", None)],
    ("TIMESTAMP(9)", DEBEZIUM, "io.debezium.time.MicroTimestamp", None): [("1700000000123456", "1700000000123456000"), ("9223372036854775807", None)],
    ("ARRAY<INT>", DEBEZIUM, None, None): [("[1,null,3]", "[1, null, 3]"), ('[1,"x"]', None), ('"[4,5]"', "[4, 5]"), ("7", None), ("[]", "[]")],
    ("ARRAY<INT NOT NULL>", DEBEZIUM, None, None): [("[1,null]", None), ("[1]", "[1]")],
    ("ARRAY<DECIMAL(6,2)>", DEBEZIUM, None, None): [('["BNI=", 1.5]', "[12.34, 1.50]"), ("[1.555]", None)],
    ("ARRAY<ARRAY<BIGINT>>", DEBEZIUM, None, None): [("[[1],[2,3]]", "[[1], [2, 3]]"), ('[[1],["a"]]', None)],
    ("MAP<STRING,INT>", DEBEZIUM, None, None): [('{"a":1}', "{a -> 1}"), ('{"a":"b"}', None), ("[1]", None)],
    ("MAP<INT,TIMESTAMP(3)>", DEBEZIUM, None, None): [('{"1":1700000000123}', "{1 -> 2023-11-14 22:13:20.123}"), ('{"1":0,"01":0}', None)],
    ("ROW<a INT, b ROW<c STRING, d DATE>>", DEBEZIUM, None, None): [
        ('{"a":1,"b":{"c":"x","d":19782}}', "{1, {x, 2024-02-29}}"), ('{"a":1,"b":{"d":"never"}}', None), ('{"b":null}', "{null, null}"),
    ],
}  # fmt: skip


def _converter(key: tuple[str, Dialect, str | None, str | None]) -> Converter:
    type_text, dialect, name, scale = key
    fact = None if name is None else Fact(name, None if scale is None else int(scale))
    return converter_for(parse_sql_type(type_text), dialect, fact)


def shown(value: Any) -> str | None:
    """A value as Spark showed it when it did the conversions."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case float():
            text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
            return "1.0E-5" if text == "1e-05" else text
        case bytes():
            return value.hex().upper()
        case Decimal():
            return f"{value:f}"
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case list() if value and isinstance(value[0], tuple):
            return "{" + ", ".join(f"{shown(key)} -> {shown(item)}" for key, item in value) + "}"
        case list():
            return "[" + ", ".join(shown(item) or "null" for item in value) + "]"
        case dict():
            return "{" + ", ".join(shown(item) or "null" for item in value.values()) + "}"
        case _:
            return str(value)


def _from_arrow(array: pa.Array, place: int) -> str | None:
    if pa.types.is_float32(array.type) and array[place].is_valid:
        return shown(float(str(array.to_numpy(zero_copy_only=False)[place])))
    return shown(array[place].as_py())


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("key", CASES, ids=[f"{key[0]}-{place}" for place, key in enumerate(CASES)])
def test_every_value_becomes_what_the_declared_type_says(key: tuple[str, Dialect, str | None, str | None]) -> None:
    converter = _converter(key)
    wrong = []
    for source, expected in CASES[key]:
        one = converter.one(parse_json(source))
        found = None if one is LOST else _from_arrow(pa.array([one], converter.arrow), 0)
        if found != expected:
            wrong.append(f"{source}: {found!r}, expected {expected!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("key", CASES, ids=[f"{key[0]}-{place}" for place, key in enumerate(CASES)])
def test_a_column_converts_as_its_values_do(key: tuple[str, Dialect, str | None, str | None]) -> None:
    """Each kind of value in its conversion, in a column with NULLs; what msgspec refuses takes the careful path."""
    converter = _converter(key)
    by_kind: dict[str, list[tuple[str, str | None]]] = {}
    for source, expected in CASES[key]:
        by_kind.setdefault(kind_of(parse_json(source)), []).append((source, expected))
    for kind, cases in by_kind.items():
        conversion = converter.conversion(frozenset({kind}))
        values, expectations = [conversion.default], [None]
        for source, expected in cases:
            try:
                values.append(msgspec.json.decode(source, type=conversion.annotation))
            except msgspec.ValidationError:
                assert expected is None or kind != "string", (source, "was refused, but it is right")
                continue
            expectations.append(expected)
        array, bad = conversion.convert(values)
        assert array.type == converter.arrow
        for place, expected in enumerate(expectations):
            found = None if bad is not None and bad[place] else _from_arrow(array, place)
            assert found == expected, (kind, place)
            if place:
                assert (found is None) == (bad is not None and bad[place]), (kind, place)


@pytest.mark.parametrize("type_text", ["STRING", "VARCHAR(3)"])
def test_a_column_of_texts_takes_every_kind_at_once(type_text: str) -> None:
    """Numbers and plain texts in one go, the others one by one: each as it is alone."""
    converter = _converter((type_text, PLAIN_TEXT, None, None))
    conversion = converter.conversion(frozenset({"number", "string", "bool", "nested"}))
    given = [
        "1", "-1.50", "1E5", "-0", "null", "true", '""', '"a"', '"n"', '"1"', '"\\u00e4"', '"a\\\\b"', '"ä"', "[1, 2]",
        '{"a": 1.0}', '"long enough"', "12345", '"\\"x"',
    ]  # fmt: skip
    for sources in (given, given[:4], given[:5], given[6:10], given[5:6], given[10:12], ["null"], []):
        values = [conversion.default, *(msgspec.json.decode(each, type=conversion.annotation) for each in sources)]
        array, bad = conversion.convert(values)
        assert array.type == converter.arrow
        found = [None if bad is not None and bad[place] else array[place].as_py() for place in range(len(array))]
        ones = [None if each == "null" else converter.one(parse_json(each)) for each in sources]
        assert found == [None, *(None if one is LOST else one for one in ones)]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "type_text", ["DECIMAL(38,22)", "DECIMAL(38,36)", "DECIMAL(38,0)", "DECIMAL(37,29)", "DECIMAL(21,2)"]
)
@pytest.mark.parametrize("kind", ["number", "string"])
def test_a_decimal_that_does_not_fit_is_refused_by_columns_too(type_text: str, kind: str) -> None:
    """Arrow's cast wraps around where a number has more than 38 digits on the way, and drops digits far to the right."""
    converter = _converter((type_text, PLAIN_TEXT, None, None))
    conversion = converter.conversion(frozenset({kind}))
    draw = random.Random(type_text)
    for _ in range(400):
        digits = str(draw.randrange(1, 10 ** draw.randint(1, 45)))
        point = draw.randint(1, len(digits))
        text = draw.choice(["", "-"]) + digits[:point] + (f".{digits[point:]}" if point < len(digits) else "")
        text += draw.choice(["", f"e{draw.randint(-45, 45)}"])
        value = msgspec.json.decode(text if kind == "number" else f'"{text}"', type=conversion.annotation)
        array, bad = conversion.convert([value])
        found = None if bad is not None and bad[0] else array[0].as_py()
        one = converter.one(parse_json(text if kind == "number" else f'"{text}"'))
        assert found == (None if one is LOST else one), text
        assert found is None or found == Decimal(text), text


@pytest.mark.parametrize(
    ("type_text", "items", "text", "expected"),
    [
        ("ARRAY<TIME(3)>", {"name": "io.debezium.time.MicroTime"}, "[500000, null]", "[500, null]"),
        ("ARRAY<DECIMAL(10,2)>", {"name": CONNECT_DECIMAL, "parameters": {"scale": "4"}}, '["Opg="]', "[1.50]"),
        ("ARRAY<DECIMAL(10,2)>", {"name": CONNECT_DECIMAL, "parameters": {"scale": "4"}}, '["MDk="]', None),
        ("ARRAY<STRING>", {"name": CONNECT_DECIMAL, "parameters": {"scale": "10"}}, '["A34R1gA="]', "[1.5000000000]"),
        ("ARRAY<STRING>", {"name": "io.debezium.data.Uuid"}, '["A34R1gA="]', "[A34R1gA=]"),
        ("ARRAY<TIMESTAMP(6)>", {"name": "io.debezium.time.Timestamp"}, "[1700000000123]", "[1700000000123000]"),
        ("ARRAY<ARRAY<TIME(3)>>", {"items": {"name": "io.debezium.time.MicroTime"}}, "[[1000]]", "[[1]]"),
    ],
)
def test_items_of_an_array_are_read_by_their_own_schema(
    type_text: str, items: dict[str, Any], text: str, expected: str | None
) -> None:
    facts = facts_of([{"field": "v", "type": "array", "items": items}])
    assert facts is not None
    value = converter_for(parse_sql_type(type_text), DEBEZIUM, facts["v"]).one(parse_json(text))
    assert (None if value is LOST else shown(value)) == expected
