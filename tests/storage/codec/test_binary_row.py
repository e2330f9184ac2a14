"""Every vector of FORMAT.md §5.1, and the column encoder against the row encoder."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.codec.binary_row_arrays import CHUNK_ROWS, distinct_rows, encode_rows, row_hashes
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataField, DataType, RowType, ScalarType, TypeRoot, parse_data_type
from tests.kit.hypothesis_profile import examples
from tests.storage.codec.murmur_oracle import murmur_hash, row_body

ONE = "00000001 0000000000000000 "
ONE_NULL = "00000001 0001000000000000 "
MICROS_2023 = 1_700_000_000_123_456


def scalar(text: str) -> DataType:
    return parse_data_type(text)


def array_of(text: str) -> DataType:
    return parse_data_type({"type": "ARRAY", "element": text})


VECTORS: list[tuple[list[Any], list[DataType], str, int, tuple[int, int] | None]] = [
    ([], [], "00000000 0000000000000000", -1670924195, None),
    ([0], [scalar("INT")], ONE + "0000000000000000", -300363099, (3, 9)),
    ([1], [scalar("INT")], ONE + "0100000000000000", 1465514398, (2, 8)),
    ([1], [scalar("BIGINT")], ONE + "0100000000000000", 1465514398, (2, 8)),
    ([True], [scalar("BOOLEAN")], ONE + "0100000000000000", 1465514398, (2, 8)),
    ([-1], [scalar("INT")], ONE + "ffffffff00000000", 1133687267, (3, 7)),
    ([42], [scalar("INT")], ONE + "2a00000000000000", 907821237, (1, 7)),
    ([None], [scalar("BIGINT")], ONE_NULL + "0000000000000000", -1748325344, (0, 4)),
    ([None], [scalar("INT")], ONE_NULL + "0000000000000000", -1748325344, (0, 4)),
    ([10000000000], [scalar("BIGINT")], ONE + "00e40b5402000000", 1891290426, (2, 6)),
    ([-1], [scalar("BIGINT")], ONE + "ffffffffffffffff", -821098432, (0, 2)),
    ([""], [scalar("STRING")], ONE + "0000000000000080", 302122119, (3, 9)),
    (["a"], [scalar("STRING")], ONE + "6100000000000081", 943281246, (2, 6)),
    (["hello"], [scalar("STRING")], ONE + "68656c6c6f000085", 243722546, (2, 6)),
    (["1234567"], [scalar("STRING")], ONE + "3132333435363787", 199144172, (0, 2)),
    (["12345678"], [scalar("STRING")], ONE + "0800000010000000 3132333435363738", -391021801, (1, 1)),
    (
        ["abcdefghijklmnopqrst"],
        [scalar("STRING")],
        ONE + "1400000010000000 6162636465666768 696a6b6c6d6e6f70 7172737400000000",
        352247557,
        (1, 7),
    ),
    (["é日本"], [scalar("STRING")], ONE + "0800000010000000 c3a9e697a5e69cac", 194022487, (3, 7)),
    (
        [7, "abc"],
        [scalar("INT"), scalar("STRING")],
        "00000002 0000000000000000 0700000000000000 6162630000000083",
        1593333451,
        (3, 1),
    ),
    (
        [7, "0123456789"],
        [scalar("BIGINT"), scalar("STRING")],
        "00000002 0000000000000000 0700000000000000 0a00000018000000 3031323334353637 3839000000000000",
        1201006568,
        (0, 8),
    ),
    (
        ["a", None],
        [scalar("STRING"), scalar("STRING")],
        "00000002 0002000000000000 6100000000000081 0000000000000000",
        -578290962,
        (2, 2),
    ),
    (
        [Decimal("12.34"), MICROS_2023, datetime.date(2023, 11, 14)],
        [scalar("DECIMAL(10, 2)"), scalar("TIMESTAMP(6)"), scalar("DATE")],
        "00000003 0000000000000000 d204000000000000 40f5060020000000 db4c000000000000 7b68e5cf8b010000",
        703105751,
        (3, 1),
    ),
    ([MICROS_2023 // 1000], [scalar("TIMESTAMP(3)")], ONE + "7b68e5cf8b010000", -1285420957, (1, 7)),
    ([None], [scalar("TIMESTAMP(6)")], ONE_NULL + "0000000010000000 0000000000000000", -340882661, (1, 1)),
    (
        [None],
        [scalar("DECIMAL(38, 10)")],
        ONE_NULL + "0000000010000000" + "00" * 16,
        -1380280760,
        (0, 0),
    ),
    (
        [Decimal("-1.5")],
        [scalar("DECIMAL(38, 10)")],
        ONE + "0500000010000000 fc81ee2a00000000 0000000000000000",
        -1749182803,
        (3, 3),
    ),
    ([-1], [scalar("TINYINT")], ONE + "ff00000000000000", 2004758659, (3, 9)),
    ([-2], [scalar("SMALLINT")], ONE + "feff000000000000", 557672611, (3, 1)),
    ([1.5], [scalar("FLOAT")], ONE + "0000c03f00000000", -173842779, (3, 9)),
    ([1.5], [scalar("DOUBLE")], ONE + "000000000000f83f", 1860889473, (1, 3)),
    ([datetime.date(2023, 11, 14)], [scalar("DATE")], ONE + "db4c000000000000", -1473682919, (3, 9)),
    ([3661000], [scalar("TIME(3)")], ONE + "c8dc370000000000", 37753889, (1, 9)),
    ([b"\1\2\3"], [scalar("BYTES")], ONE + "0102030000000083", 1066645297, (1, 7)),
    (
        [bytes(range(1, 10))],
        [scalar("BYTES")],
        ONE + "0900000010000000 0102030405060708 0900000000000000",
        -171399545,
        (1, 5),
    ),
    (
        [[1, None, 3]],
        [array_of("INT")],
        ONE + "1800000010000000 03000000 02000000 01000000 00000000 03000000 00000000",
        1830759751,
        (3, 1),
    ),
    (
        [["a", None, "0123456789"]],
        [array_of("STRING")],
        ONE + "3000000010000000 03000000 02000000 6100000000000081 0000000000000000 0a00000020000000"
        " 3031323334353637 3839000000000000",
        -1484177473,
        (1, 3),
    ),
    (
        [{"k": 7}],
        [parse_data_type({"type": "MAP", "key": "STRING", "value": "BIGINT"})],
        ONE + "2400000010000000 10000000 01000000 00000000 6b00000000000081 01000000 00000000"
        " 0700000000000000 00000000",
        1122452947,
        (3, 7),
    ),
    (
        [(5, "x")],
        [RowType((DataField(1, "i", scalar("INT")), DataField(2, "s", scalar("STRING"))))],
        ONE + "1800000010000000 0000000000000000 0500000000000000 7800000000000081",
        1858064785,
        (1, 5),
    ),
    ([-1], [scalar("TIMESTAMP(6)")], ONE + "583e0f0010000000 ffffffffffffffff", 1236894319, (3, 9)),
    ([Decimal(0)], [scalar("DECIMAL(38, 10)")], ONE + "0100000010000000" + "00" * 16, 728486185, (1, 5)),
]


def vector_id(vector: tuple[Any, ...]) -> str:
    return f"{vector[0]}-{','.join(str(data_type) for data_type in vector[1])}"


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_bytes_and_hash_of_a_row(vector: tuple[Any, ...]) -> None:
    values, types, text, expected_hash, buckets = vector
    encoded = encode_row(values, types)
    assert encoded.hex() == text.replace(" ", "")
    assert murmur_hash(row_body(encoded)) == expected_hash
    if buckets is not None:
        assert tuple(abs(int(math.fmod(expected_hash, n))) for n in (4, 10)) == buckets
    assert decode_row(encoded, types) == tuple(values)


def arrow_column(values: list[Any], data_type: DataType) -> pa.Array[Any]:
    assert isinstance(data_type, ScalarType)
    kinds: dict[TypeRoot, pa.DataType] = {
        TypeRoot.BOOLEAN: pa.bool_(),
        TypeRoot.TINYINT: pa.int8(),
        TypeRoot.SMALLINT: pa.int16(),
        TypeRoot.INT: pa.int32(),
        TypeRoot.BIGINT: pa.int64(),
        TypeRoot.FLOAT: pa.float32(),
        TypeRoot.DOUBLE: pa.float64(),
        TypeRoot.CHAR: pa.string(),
        TypeRoot.VARCHAR: pa.string(),
        TypeRoot.BINARY: pa.binary(),
        TypeRoot.VARBINARY: pa.binary(),
        TypeRoot.DATE: pa.date32(),
        TypeRoot.TIME: pa.time32("ms"),
    }
    if data_type.root is TypeRoot.DECIMAL:
        return pa.array(values, pa.decimal128(data_type.precision or 0, data_type.scale or 0))
    if data_type.root in kinds:
        return pa.array(values, kinds[data_type.root])
    precision = data_type.precision or 0
    unit = "s" if precision == 0 else "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
    return pa.array(values, pa.timestamp(cast(Any, unit), "UTC" if data_type.root is TypeRoot.TIMESTAMP_LTZ else None))


SCALAR_VECTORS = [vector for vector in VECTORS if vector[1] and all(isinstance(t, ScalarType) for t in vector[1])]


@pytest.mark.parametrize("vector", SCALAR_VECTORS, ids=vector_id)
def test_columns_give_the_same_bytes_hash_and_buckets(vector: tuple[Any, ...]) -> None:
    values, types, text, expected_hash, buckets = vector
    arrays = [arrow_column([value], data_type) for value, data_type in zip(values, types, strict=True)]
    assert encode_rows(arrays, types)[0].hex() == text.replace(" ", "")
    assert row_hashes(arrays, types).tolist() == [expected_hash]
    assert tuple(int(bucket_ids(arrays, types, n)[0]) for n in (4, 10)) == buckets


def test_a_row_of_57_fields_has_a_second_null_unit() -> None:
    types = [scalar("INT")] * 57
    values: list[Any] = [None if index in (0, 55, 56) else index for index in range(57)]
    encoded = encode_row(values, types)
    assert len(encoded) == 4 + 16 + 57 * 8
    assert len(encode_row(values[:56], types[:56])) == 4 + 8 + 56 * 8
    arrays = [arrow_column([value], data_type) for value, data_type in zip(values, types, strict=True)]
    assert encode_rows(arrays, types)[0] == encoded
    assert row_hashes(arrays, types).tolist() == [murmur_hash(row_body(encoded))]
    assert decode_row(encoded, types) == tuple(values)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    )


COLUMNS: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("BOOLEAN", st.booleans()),
    ("TINYINT", integers(8)),
    ("SMALLINT", integers(16)),
    ("INT", integers(32)),
    ("BIGINT", integers(64)),
    ("FLOAT", st.floats(width=32)),
    ("DOUBLE", st.floats()),
    ("STRING", st.text(max_size=30)),
    ("CHAR(5)", st.text(max_size=5)),
    ("BYTES", st.binary(max_size=30)),
    ("DECIMAL(9, 3)", decimals(9, 3)),
    ("DECIMAL(18, 0)", decimals(18, 0)),
    ("DECIMAL(19, 19)", decimals(19, 19)),
    ("DECIMAL(38, 10)", decimals(38, 10)),
    ("DATE", st.dates()),
    ("TIME(3)", st.integers(0, 86_399_999)),
    ("TIMESTAMP(0)", st.integers(-(2**40), 2**40)),
    ("TIMESTAMP(3)", st.integers(-(2**50), 2**50)),
    ("TIMESTAMP(5)", st.integers(-(2**58), 2**58).map(lambda micros: micros // 10 * 10)),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", st.integers(-(2**58), 2**58)),
    ("TIMESTAMP(9)", st.integers(-(2**62), 2**62)),
]


@st.composite
def row_sets(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[DataType]]:
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*[st.none() | values for _, values in chosen]), max_size=12))
    return rows, [scalar(text) for text, _ in chosen]


@given(row_sets(), st.integers(0, 3))
@settings(max_examples=examples(300), deadline=None)
def test_columns_equal_rows(case: tuple[list[tuple[Any, ...]], list[DataType]], skipped: int) -> None:
    rows, types = case
    arrays = [arrow_column([row[i] for row in rows], data_type).slice(skipped) for i, data_type in enumerate(types)]
    expected = [encode_row(row, types) for row in rows[skipped:]]
    assert encode_rows(arrays, types) == expected
    assert row_hashes(arrays, types).tolist() == [murmur_hash(row_body(row)) for row in expected]
    distinct, codes = distinct_rows(arrays, types)
    assert [distinct[code] for code in codes] == expected
    assert len(set(distinct)) == len(distinct)
    for row, encoded in zip(rows[skipped:], expected, strict=True):
        assert str(decode_row(encoded, types)) == str(row)  # as text, so that NaN equals NaN


def test_more_rows_than_one_chunk() -> None:
    count = CHUNK_ROWS * 2 + 5
    types = [scalar("STRING"), scalar("BIGINT")]
    texts = [None if i % 7 == 0 else "k" * (i % 23) + str(i) for i in range(count)]
    arrays: list[Any] = [pa.array(texts), pa.chunked_array([pa.array(range(10)), pa.array(range(10, count))])]
    expected = [encode_row((text, i), types) for i, text in enumerate(texts)]
    assert encode_rows(arrays, types) == expected
    assert row_hashes(arrays, types).tolist() == [murmur_hash(row_body(row)) for row in expected]


def test_no_rows() -> None:
    types = [scalar("STRING")]
    assert row_hashes([pa.array([], pa.string())], types).tolist() == []
    assert encode_rows([pa.array([], pa.string())], types) == []
    distinct, codes = distinct_rows([pa.array([], pa.string())], types)
    assert distinct == []
    assert codes.tolist() == []


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b", None, "a"], pa.large_string()),
        pa.array(["a", "b", None, "a"]).dictionary_encode(),
        pa.array(["a", "b", None, "a"], pa.string_view()),
    ],
    ids=["large", "dictionary", "view"],
)
def test_other_arrow_forms_of_text_hash_alike(array: pa.Array[Any]) -> None:
    types = [scalar("STRING")]
    assert row_hashes([array], types).tolist() == row_hashes([pa.array(["a", "b", None, "a"])], types).tolist()


def test_timestamps_of_a_finer_unit_are_cut_to_the_precision_of_the_type() -> None:
    nanos = pa.array([1_700_000_000_123_456_789, -1], pa.timestamp("ns"))
    for text, ticks in (("TIMESTAMP(3)", [1_700_000_000_123, -1]), ("TIMESTAMP(6)", [1_700_000_000_123_456, -1])):
        expected = [encode_row([tick], [scalar(text)]) for tick in ticks]
        assert encode_rows([nanos], [scalar(text)]) == expected


def test_a_datetime_encodes_like_its_ticks() -> None:
    types = [scalar("TIMESTAMP(6)")]
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
    assert encode_row([moment], types) == encode_row([MICROS_2023], types)
    east = moment.replace(tzinfo=datetime.UTC).astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    assert encode_row([east], types) == encode_row([MICROS_2023], types)
    assert encode_row([datetime.time(1, 1, 1)], [scalar("TIME(0)")]) == encode_row([3661000], [scalar("TIME(0)")])


def test_a_date_outside_the_calendar_of_python_comes_back_as_a_number() -> None:
    types = [scalar("DATE")]
    assert decode_row(encode_row([4_000_000], types), types) == (4_000_000,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (128, "TINYINT"),
        (2**31, "INT"),
        (Decimal(2**63) / 100, "DECIMAL(5, 2)"),
        (Decimal("1e18"), "DECIMAL(19, 2)"),
        (Decimal("0.001"), "DECIMAL(5, 2)"),
        ("x", "INT"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: object, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"fit|fraction"):
        encode_row([value], [scalar(text)])


def test_broken_rows_are_refused() -> None:
    types = [scalar("STRING")]
    good = encode_row(["0123456789"], types)
    for broken in (b"", good[:12], good[:20], encode_row([1, 2], [scalar("INT")] * 2)):
        with pytest.raises(InvalidRequestError, match="binary row"):
            decode_row(broken, types)


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="is not a valid INT"):
        row_hashes([pa.array(["x"])], [scalar("INT")])
    with pytest.raises(UnsupportedFeatureError, match="ARRAY"):
        row_hashes([pa.array([[1]])], [array_of("INT")])


def test_distinct_rows_of_timestamps_finer_than_their_type() -> None:
    types = [scalar("TIMESTAMP(3)")]
    distinct, codes = distinct_rows([pa.array([1_000_001, 1_000_002, 2_000_000], pa.timestamp("ns"))], types)
    assert distinct == [encode_row([1], types), encode_row([2], types)]
    assert codes.tolist() == [0, 0, 1]


def test_distinct_rows_of_columns_with_many_values() -> None:
    types = [scalar("INT"), scalar("STRING"), scalar("INT")]
    count = 5000
    columns = [
        pa.array(range(count)),
        pa.array([f"s{i}" for i in range(count)]),
        pa.array([i % 7 for i in range(count)]),
    ]
    distinct, codes = distinct_rows(
        [column.cast(pa.int32()) if i != 1 else column for i, column in enumerate(columns)], types
    )
    assert len(distinct) == count
    assert [distinct[code] for code in codes[:50]] == [encode_row((i, f"s{i}", i % 7), types) for i in range(50)]
