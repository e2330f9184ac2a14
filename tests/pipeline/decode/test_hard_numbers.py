"""A number whose digits or exponent are beyond all types costs its own record, and next to nothing, in every format."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from freshet.pipeline.decode.sql_types import sql_type_of_mysql
from tests.pipeline.odd_records import COLUMNS, HARD_NUMBERS, MESSAGES, odd_pipeline, odd_record
from tests.pipeline.records import Decoded, decoder_of, run

NUMERIC = [name for name, kind in COLUMNS.items() if kind.startswith(("INT", "BIGINT", "TINY", "DEC", "FLOAT", "DOUB"))]
ZEROS = {"0e99999999", "-0e400", "0e" + "9" * 5000}


def _short(text: str) -> str:
    return text if len(text) < 20 else f"{text[:9]}…{text[-9:]}"


@pytest.mark.parametrize("form", MESSAGES)
def test_hard_numbers_are_converted_or_dead_letters(form: str) -> None:
    decoder = decoder_of(odd_pipeline(form))
    values = [(name, text) for number in HARD_NUMBERS for name in NUMERIC for text in (number, json.dumps(number))]
    records = [odd_record(form, {name: text}) for name, text in values]
    started = time.process_time()
    fast = run(decoder, records, in_both_forms=False)
    careful = run(replace(decoder, is_careful=True), records, in_both_forms=False)
    assert time.process_time() - started < 1 + 2 * len(records) / 1000
    assert fast.shown == careful.shown
    dead = {value for value, shown in zip(values, fast.shown, strict=True) if shown.startswith("dead")}
    assert not dead & {(name, zero) for name in NUMERIC for zero in ZEROS}


VALUES = [
    ("int", "0e99999999", "0"), ("int", "1e-99999999", None), ("int", "5." + "0" * 5000, "5"),
    ("int", "1" + "0" * 5000 + "e-5000", "1"), ("int", "1e" + "0" * 5000 + "1", "10"), ("long", "9" * 5000, None),
    ("dec", "9" * 5000, None), ("dec", "0e99999999", "0.0000"), ("dec", "1e-99999999", None),
    ("dec", "5." + "0" * 5000, "5.0000"), ("dec", "-12.5" + "0" * 5000 + "e0", "-12.5000"),
    ("whole", "1e37", "1" + "0" * 37), ("whole", "1e38", None), ("small", "1e-38", "1E-38"), ("small", "1e-39", None),
    ("small", "0", "0E-38"), ("float", "1" + "0" * 5000 + "e-5000", "1.0"), ("float", "1e-99999999", "0.0"),
    ("double", "0e99999999", "0.0"),
    # Half way between two floats, and a little more than that in the last of many digits.
    ("float", "16777217." + "0" * 5000, "16777216.0"), ("float", "16777217." + "0" * 5000 + "1", "16777218.0"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "number", "expected"), VALUES, ids=[f"{c} {_short(n)}" for c, n, _ in VALUES])
def test_values(column: str, number: str, expected: str | None) -> None:
    decoder = decoder_of(odd_pipeline("debezium-json"))
    for each in (decoder, replace(decoder, is_careful=True)):
        found = run(each, [odd_record("debezium-json", {column: number})])
        assert _value(found, column) == expected


def _value(found: Decoded, column: str) -> str | None:
    ((row,),) = found.rows
    value = row[f"_d{list(COLUMNS).index(column)}"]
    return None if value is None else str(value)


def test_a_type_of_mysql_with_thousands_of_digits_says_nothing() -> None:
    assert sql_type_of_mysql(f"decimal({'9' * 5000})") == "STRING"
    assert sql_type_of_mysql(f"datetime({'9' * 5000})") == "TIMESTAMP(6)"
