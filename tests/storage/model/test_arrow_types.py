"""Column types to Arrow and back, field ids of new tables, and what input is taken."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type, conform, data_type_from_arrow, fields_from_arrow
from freshet.storage.model.data_type import ArrayType, DataField, DataType, RowType, parse_data_type
from freshet.storage.model.sql_type import parse_sql_type

ARROW_OF = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10, 2)": pa.decimal128(10, 2),
    "DECIMAL(38, 10)": pa.decimal128(38, 10),
    "CHAR(3)": pa.string(),
    "VARCHAR(3)": pa.string(),
    "STRING": pa.string(),
    "BINARY(3)": pa.binary(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME(0)": pa.time32("ms"),
    "TIME(9)": pa.time32("ms"),
    "TIMESTAMP(0)": pa.timestamp("s"),
    "TIMESTAMP(1)": pa.timestamp("ms"),
    "TIMESTAMP(3)": pa.timestamp("ms"),
    "TIMESTAMP(4)": pa.timestamp("us"),
    "TIMESTAMP(6)": pa.timestamp("us"),
    "TIMESTAMP(7)": pa.timestamp("ns"),
    "TIMESTAMP(9)": pa.timestamp("ns"),
    "TIMESTAMP(0) WITH LOCAL TIME ZONE": pa.timestamp("s", "UTC"),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": pa.timestamp("us", "UTC"),
}


@pytest.mark.parametrize("text", ARROW_OF)
def test_scalars(text: str) -> None:
    assert arrow_type(parse_data_type(text)) == ARROW_OF[text]


@pytest.mark.parametrize(
    "text",
    ["BOOLEAN", "TINYINT", "INT", "BIGINT NOT NULL", "DOUBLE", "DECIMAL(7, 3)", "STRING", "BYTES", "DATE"]
    + [f"TIMESTAMP({p})" for p in (0, 3, 6, 9)]
    + ["TIMESTAMP(9) WITH LOCAL TIME ZONE NOT NULL", "TIME(3)"],
)
def test_types_come_back(text: str) -> None:
    data_type = parse_data_type(text)
    assert data_type_from_arrow(arrow_type(data_type), data_type.nullable) == data_type


def test_nested_types_keep_names_and_nullability() -> None:
    row = RowType((DataField(1, "a", parse_data_type("INT NOT NULL")),))
    assert arrow_type(ArrayType(row)) == pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False)]))


def test_ids_of_new_columns() -> None:
    """The worked example of FORMAT.md §2.2, shifted to the second column."""
    inner = pa.struct([("p", pa.int8()), ("q", pa.string())])
    schema = pa.schema([("k", pa.int64()), ("r", pa.struct([("x", pa.int32()), ("y", inner), ("z", pa.int8())]))])
    (key, row), highest = fields_from_arrow(schema, ["k"])
    assert (key.id, str(key.type), row.id, highest) == (0, "BIGINT NOT NULL", 1, 6)
    assert isinstance(row.type, RowType)
    x, y, z = row.type.fields
    assert isinstance(y.type, RowType)
    assert [x.id, *(child.id for child in y.type.fields), y.id, z.id] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("schema", "keys", "message"),
    [
        (pa.schema([("a", pa.int32())]), ["b"], "'b'"),
        (pa.schema([("a", pa.int32()), ("a", pa.int32())]), [], "unique"),
        (pa.schema([("t", pa.time64("us"))]), [], "'t'"),
        (pa.schema([("u", pa.uint64())]), [], "'u'"),
        (pa.schema([("n", pa.null())]), [], "'n'"),
        (pa.schema([("d", pa.decimal256(50, 2))]), [], "'d'"),
    ],
)
def test_refused_schemas(schema: pa.Schema, keys: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        fields_from_arrow(schema, keys)


def column(data_type: DataType | str, array: pa.Array) -> pa.ChunkedArray:
    resolved = parse_data_type(data_type) if isinstance(data_type, str) else data_type
    return conform(pa.table({"c": array}), [DataField(0, "c", resolved)])["c"]


@pytest.mark.parametrize(
    ("text", "array", "expected"),
    [
        ("BIGINT", pa.array([1, None], pa.int32()), [1, None]),
        ("TINYINT", pa.array([1], pa.int64()), [1]),
        ("INT", pa.array([1], pa.uint64()), [1]),
        ("STRING", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("STRING", pa.array(["a"], pa.string_view()), ["a"]),
        ("STRING", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("BYTES", pa.array([b"abc"], pa.binary(3)), [b"abc"]),
        ("DECIMAL(10, 2)", pa.array([3], pa.int64()), [Decimal("3.00")]),
        ("DECIMAL(10, 2)", pa.array([Decimal("1.2")]), [Decimal("1.20")]),
        ("FLOAT", pa.array([0.5, float("inf"), None]), [0.5, float("inf"), None]),
        ("DOUBLE", pa.array([0.1], pa.float32()), [0.10000000149011612]),
        ("DATE", pa.array([86_400_000], pa.date64()), [19358]),
        ("STRING", pa.array([None]), [None]),
    ],
)
def test_input_that_fits(text: str, array: pa.Array, expected: list[object]) -> None:
    converted = column(text, array)
    assert converted.type == arrow_type(parse_data_type(text))
    values = converted.to_pylist()
    assert values == expected if text != "DATE" else converted.cast(pa.int32()).to_pylist() == [1]


def test_zoned_timestamps_keep_their_instant() -> None:
    zoned = pa.array([1500], pa.timestamp("ms", "Europe/Berlin"))
    assert column("TIMESTAMP(6) WITH LOCAL TIME ZONE", zoned).cast(pa.int64()).to_pylist() == [1_500_000]


@pytest.mark.parametrize(
    ("text", "array", "message"),
    [
        ("TINYINT", pa.array([300]), "does not fit"),
        ("INT", pa.array(["1"]), "cast it before"),
        ("INT", pa.array([1.5]), "1.5"),
        ("INT", pa.array([True]), "cast it before"),
        ("STRING", pa.array([1]), "cast it before"),
        ("FLOAT", pa.array([0.1]), "does not fit"),
        ("DOUBLE", pa.array([2**53 + 1]), "does not fit"),
        ("DECIMAL(4, 1)", pa.array([Decimal("1.25")]), "does not fit"),
        ("DECIMAL(3, 1)", pa.array([100]), "does not fit"),
        ("TIMESTAMP(3)", pa.array([1], pa.timestamp("us")), "does not fit"),
        ("TIMESTAMP(6)", pa.array([1], pa.timestamp("us", "UTC")), "cast it before"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([1], pa.timestamp("us")), "cast it before"),
        ("DATE", pa.array([1], pa.date64()), "does not fit"),
        ("INT NOT NULL", pa.array([1, None], pa.int32()), "NOT NULL"),
    ],
)
def test_input_that_does_not_fit_names_the_column(text: str, array: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'c'.*{message}"):
        column(text, array)


def test_list_views_are_refused_since_their_cast_loses_values() -> None:
    with pytest.raises(InvalidRequestError, match="'c'"):
        column(ArrayType(parse_data_type("INT")), pa.array([[1]], pa.list_view(pa.int32())))
    with pytest.raises(UnsupportedFeatureError):
        data_type_from_arrow(pa.list_view(pa.int32()))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1, None]], pa.list_(pa.int32())),
        pa.array([None, [1], [None]], pa.list_(pa.int32())).slice(2),
    ],
)
def test_nulls_inside_not_null_elements_are_refused(array: pa.Array) -> None:
    with pytest.raises(InvalidRequestError, match="NOT NULL"):
        column(ArrayType(parse_data_type("INT NOT NULL")), array)


def test_equal_types_are_not_copied() -> None:
    array = pa.array([1, 2, 3])
    converted = column("BIGINT", array).chunk(0)
    assert converted.buffers()[1].address == array.buffers()[1].address


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidRequestError, match=r"lacks column 'c' \(INT\)"):
        conform(pa.table({"x": [1]}), [DataField(0, "c", parse_data_type("INT"))])


STRUCT = "ROW<a BIGINT, b ROW<c INT, d STRING>>"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.array([{"a": 1}, None], pa.struct([("a", pa.int16())])), [{"a": 1, "b": None}, None]),
        (pa.array([{"b": {"d": "x"}, "a": 1}]), [{"a": 1, "b": {"c": None, "d": "x"}}]),
        (pa.array([{"a": 1.0, "b": {"c": 2.0}}]), [{"a": 1, "b": {"c": 2, "d": None}}]),
    ],
)
def test_structs_widen_inside(given: pa.Array, expected: list[object]) -> None:
    row, wrapped = parse_sql_type(STRUCT), parse_sql_type(f"ARRAY<{STRUCT}>")
    assert column(row, given).to_pylist() == expected
    assert column(wrapped, pa.array([given.to_pylist()], pa.list_(given.type))).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.array([{"a": 1, "e": 1}]), "e: int64"),
        (pa.array([{"a": 1.5}]), "1.5"),
        (pa.array([{"b": {"c": 2**40}}]), "1099511627776"),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "a: int64, a: int64"),
    ],
)
def test_other_structs_are_refused(given: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'c'.*{message}"):
        column(parse_sql_type(STRUCT), given)


def test_a_field_that_is_not_null_is_not_left_out() -> None:
    with pytest.raises(InvalidRequestError, match="NOT NULL"):
        column(parse_sql_type("ROW<a INT, b INT NOT NULL>"), pa.array([{"a": 1}]))
