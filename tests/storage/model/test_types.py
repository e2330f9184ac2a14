"""Type texts and field ids: what schema files hold, read and written back."""

from __future__ import annotations

import pytest

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import ArrayType, DataField, MapType, RowType, parse_data_type, type_to_json
from freshet.storage.model.schema import assign_ids
from freshet.storage.model.sql_type import parse_sql_type

TEXTS = [
    ("BOOLEAN", "BOOLEAN"),
    ("integer", "INT"),
    ("NUMERIC(12,3)", "DECIMAL(12, 3)"),
    ("DEC", "DECIMAL(10, 0)"),
    ("DOUBLE  PRECISION", "DOUBLE"),
    ("CHAR", "CHAR(1)"),
    ("VARCHAR(2147483647)", "STRING"),
    ("BYTES NOT NULL", "BYTES NOT NULL"),
    ("TIME", "TIME(0)"),
    ("TIMESTAMP", "TIMESTAMP(6)"),
    ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"),
    ("TIMESTAMP_LTZ(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
    ("TIMESTAMP(0) WITH LOCAL TIME ZONE NOT NULL", "TIMESTAMP(0) WITH LOCAL TIME ZONE NOT NULL"),
    ("BIGINT NULL", "BIGINT"),
]


@pytest.mark.parametrize(("text", "canonical"), TEXTS)
def test_scalar_text_is_read_and_written_canonically(text: str, canonical: str) -> None:
    parsed = parse_data_type(text)
    assert type_to_json(parsed) == canonical
    assert parse_data_type(canonical) == parsed


@pytest.mark.parametrize(
    "text", ["DECIMAL(39, 2)", "DECIMAL(4, 5)", "TIMESTAMP(10)", "BIGINT(3)", "INTT", "", "INT(1,2)"]
)
def test_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_data_type(text)


@pytest.mark.parametrize(
    "source", ["VARIANT", "BLOB NOT NULL", "MULTISET<INT>", {"type": "MULTISET NOT NULL", "element": "INT"}]
)
def test_types_not_supported_are_named(source: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match="VARIANT|BLOB|MULTISET"):
        parse_data_type(source)  # type: ignore[arg-type]


def test_constructed_types_survive_json() -> None:
    nested = parse_sql_type(
        "ROW<a INT NOT NULL, b: MAP<STRING NOT NULL, ARRAY<DECIMAL(10, 2)>>, `odd name` DATE> NOT NULL"
    )
    assert isinstance(nested, RowType)
    assert [field.name for field in nested.fields] == ["a", "b", "odd name"]
    assert isinstance(nested.fields[1].type, MapType)
    assert isinstance(nested.fields[1].type.value, ArrayType)
    assert parse_data_type(type_to_json(nested)) == nested  # type: ignore[arg-type]


def test_ids_of_a_row_nested_in_a_row_come_before_its_own() -> None:
    row = parse_sql_type("ROW<x INT, y ROW<p INT, q INT>, z INT>")
    (column,), highest = assign_ids([DataField(0, "r", row)], 30)
    assert column.id == 30 and highest == 35
    assert isinstance(column.type, RowType)
    x, y, z = column.type.fields
    assert isinstance(y.type, RowType)
    assert (x.id, [field.id for field in y.type.fields], y.id, z.id) == (31, [32, 33], 34, 35)
