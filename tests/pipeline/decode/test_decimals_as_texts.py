"""Decimals in STRING columns: the number, and not the octets that it came as."""

from __future__ import annotations

import base64
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.records import change, decoder_of, pipeline_of, run, with_schema

COLUMNS = {"id": "BIGINT", "n": "STRING"}
VARIABLE = {"type": "struct", "optional": True, "name": "io.debezium.data.VariableScaleDecimal", "field": "n"}


def fixed(scale: int) -> dict[str, Any]:
    return {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "field": "n",
        "parameters": {"scale": str(scale)},
    }  # fmt: skip


def coded(unscaled: int) -> str:
    octets = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return base64.b64encode(octets).decode()


def texts(field: dict[str, Any], *values: Any) -> list[Any]:
    """What both paths make of these values, which is the same."""
    schema = [{"type": "int64", "optional": False, "field": "id"}, field]
    rows = [with_schema(change("c", after={"id": number, "n": value}), schema) for number, value in enumerate(values)]
    decoder = decoder_of(pipeline_of(COLUMNS))
    fast, careful = (run(each, rows).rows for each in (decoder, replace(decoder, is_careful=True)))
    assert fast == careful
    return [row["_d1"] for (row,) in fast]


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        (fixed(4), coded(-12345), "-1.2345"),
        (fixed(0), coded(7), "7"),
        (fixed(-2), coded(7), "700"),
        (fixed(2), coded(10**60 + 1), f"1{'0' * 58}.01"),
        (fixed(2), None, None),
        (VARIABLE, {"scale": 3, "value": coded(1500)}, "1.500"),
        (VARIABLE, {"scale": 0, "value": coded(0)}, "0"),
    ],
)
def test_numbers(field: dict[str, Any], value: Any, wanted: str | None) -> None:
    assert texts(field, value) == [wanted]


@pytest.mark.hypothesis
@given(st.lists(st.integers(-(10**50), 10**50), min_size=1, max_size=20), st.integers(0, 30))
def test_any_number(unscaled: list[int], scale: int) -> None:
    found = texts(fixed(scale), *map(coded, unscaled))
    assert [Decimal(text) for text in found] == [
        Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in unscaled
    ]


def test_texts_beside_it_stay_as_they_are() -> None:
    assert texts({"type": "string", "optional": True, "field": "n"}, coded(5), "1.50") == [coded(5), "1.50"]
