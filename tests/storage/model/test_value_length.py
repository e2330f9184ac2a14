"""Values longer than their type, against a rule too simple to be wrong."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.model.value_length import limits_length, longer_than_type


def is_long(value: object, kind: str) -> bool:
    match kind, value:
        case _, None:
            return False
        case (("text" | "bytes"), str() | bytes()):
            return len(value) > 2
        case "list", list():
            return any(is_long(item, "text") for item in value)
        case "map", list():
            return any(is_long(k, "text") or is_long(v, "bytes") for k, v in value)
        case "row", dict():
            return is_long(value["x"], "text") or is_long(value["y"], "list")
    raise AssertionError(kind)


TYPES = {
    "text": "VARCHAR(2)",
    "bytes": "VARBINARY(2)",
    "list": "ARRAY<VARCHAR(2)>",
    "map": "MAP<CHAR(2), BINARY(2)>",
    "row": "ROW<x CHAR(2), y ARRAY<VARCHAR(2)>>",
}


def some(kind: str, dice: random.Random, *, nullable: bool = True) -> object:
    if nullable and dice.random() < 0.2:
        return None
    match kind:
        case "text":
            return "".join(dice.choice("aß€𝄞") for _ in range(dice.choice([0, 1, 2, 2, 2, 3])))
        case "bytes":
            return bytes(dice.choice([0, 1, 2, 2, 2, 3]))
        case "list":
            return [some("text", dice) for _ in range(dice.randrange(3))]
        case "map":
            return [(some("text", dice, nullable=False), some("bytes", dice)) for _ in range(dice.randrange(3))]
    return {"x": some("text", dice), "y": some("list", dice)}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(5))
def test_against_the_simple_rule(kind: str, seed: int) -> None:
    dice = random.Random(seed)
    values = [some(kind, dice) for _ in range(60)]
    data_type = parse_sql_type(TYPES[kind])
    whole = pa.array(values, arrow_type(data_type))
    for column, expected in (
        (whole, values),
        (whole.slice(7, 30), values[7:37]),
        (pa.chunked_array([whole.slice(3, 20), whole.slice(30)]), [*values[3:23], *values[30:]]),
        (whole.slice(0, 0), []),
    ):
        mask = longer_than_type(column, data_type)
        found = np.zeros(len(column), bool) if mask is None else mask
        assert found.tolist() == [is_long(value, kind) for value in expected]
        assert (mask is None) == (not found.any())


@pytest.mark.parametrize("written", ["STRING", "BYTES", "BIGINT", "ARRAY<STRING>", "MAP<STRING, INT>", "ROW<x STRING>"])
def test_types_without_a_limit(written: str) -> None:
    assert not limits_length(parse_sql_type(written))
