"""A value that does not fit costs its own row, and is found by column: its record does not take the careful path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from freshet.pipeline.decode.inputs import inputs_of
from freshet.pipeline.decode.json.reader import FastRead, FastReader
from tests.pipeline.records import change, decoder_of, flat_with_schema, octets, pipeline_of, run

COLUMNS = {
    "id": "BIGINT", "i": "INT", "s": "VARCHAR(3)", "total": "DECIMAL(6,2)", "day": "DATE", "at": "TIMESTAMP(3)",
    "t": "TIME(3)", "b": "BOOLEAN",
}  # fmt: skip
GOOD: dict[str, Any] = {
    "id": 1, "i": 5, "s": "abc", "total": "12.50", "day": 19782, "at": 1700000000123, "t": 36000000, "b": True,
}  # fmt: skip
MISFITS = [
    ("i", "many"), ("i", 2**31), ("i", 1.5), ("i", [1]), ("s", "abcd"), ("total", "much"), ("total", "1.234"),
    ("total", "12345.6"), ("total", 3.5e9), ("day", 10**9), ("day", "2024-02-30"), ("at", 10**18), ("at", "never"),
    ("t", -1), ("b", "maybe"), ("id", "x"),
]  # fmt: skip


def _read(records: list[Any], columns: dict[str, str] = COLUMNS, **options: Any) -> FastRead:
    plan = decoder_of(pipeline_of(columns, **options)).plan
    reader = FastReader(plan, inputs_of(plan, None), {}, [])
    return reader.read([octets(each) or b"" for each in records], np.arange(len(records)))


@pytest.mark.parametrize(("name", "value"), MISFITS)
def test_a_misfit_is_a_dead_letter_of_its_column_without_the_careful_path(name: str, value: Any) -> None:
    records = [change("c", None, {**GOOD, "id": key}) for key in range(60)]
    for place in range(0, 60, 3):
        records[place] = change("c", None, {**GOOD, "id": place, name: value})
    read = _read(records)
    assert not len(read.careful)
    assert sorted(read.dead) == list(range(0, 60, 3))
    assert {column for _, column in read.dead.values()} == {name}
    (images,) = read.images
    assert images.records.tolist() == [place for place in range(60) if place % 3]


def test_a_form_that_fits_is_read_by_a_detour() -> None:
    records = [change("c", None, {**GOOD, "id": key, **({"i": "7"} if key % 3 == 0 else {})}) for key in range(60)]
    read = _read(records)
    assert not len(read.careful) and not read.dead
    assert read.detoured.tolist() == list(range(0, 60, 3))
    found = run(decoder_of(pipeline_of(COLUMNS)), records)
    assert [rows[0]["_d1"] for rows in found.rows] == [7 if key % 3 == 0 else 5 for key in range(60)]


def test_few_misfits_and_deletions_take_the_careful_path() -> None:
    records = [change("c", None, {**GOOD, "id": key}) for key in range(40)]
    records[3] = change("c", None, {**GOOD, "i": "many"})
    records[5] = change("d", {**GOOD, "total": "much"}, None)
    read = _read(records)
    assert read.careful.tolist() == [3, 5] and not read.dead


@pytest.mark.few(2)
@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("form", ["debezium-json", "json"])
def test_misfits_of_all_kinds_among_others_are_what_the_careful_path_makes_of_them(form: str, producer: str) -> None:
    records: list[Any] = []
    for number in range(400):
        name, value = MISFITS[number % len(MISFITS)]
        row = {**GOOD, "id": number % 50}
        bad = {**row, name: value}
        if number % 5 == 0:
            bad = {**bad, "i": "many", "total": "much"}
        if form == "json":
            records.append(row if number % 3 else bad)
            continue
        records += [
            change("c", None, row if number % 3 else bad),
            change("u", row, bad),
            change("u", bad, row),
            change("u", None, bad),
            change("d", bad, None),
            change("c", None, {**row, "id": None}),
            change("c", None, {"id": number, "new": 1, name: value}),
        ]
    config = pipeline_of(COLUMNS, options={"changelog-producer": producer}, format=form)
    fast = decoder_of(config)
    found, expected = run(fast, records), run(replace(fast, is_careful=True), records)
    assert found.shown == expected.shown
    assert found.rows == expected.rows
    assert found.tally == expected.tally


def test_misfits_behind_a_schema() -> None:
    fields = [{"type": "int64", "field": "id"}, {"type": "int32", "field": "i"}]
    records = [flat_with_schema({"id": key, "i": "many" if key % 4 == 0 else key}, fields) for key in range(200)]
    config = pipeline_of({"id": "BIGINT", "i": "INT"}, format="debezium-unwrapped")
    found = run(decoder_of(config), records)
    expected = ["dead i: the value of field i does not fit INT" if k % 4 == 0 else f"+I({k}, {k})" for k in range(200)]
    assert found.shown == expected


@pytest.mark.parametrize("columns", [{"id": "BIGINT", "v": kind} for kind in ("DATE", "TIMESTAMP(6)", "TIMESTAMP(9)")])
def test_one_odd_text_leaves_the_others_of_its_column_as_they_are(columns: dict[str, str]) -> None:
    texts = [
        "2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31", "2024-04-31", "1677-01-01", "2024-01-01Z",
        "2024-01-01ZZ", "2024-02-28T10:00:00", "2024-02-28T10:00:00.123456Z", "2024-02-29T10:00:00.1234567",
        "2024-02-28T24:00:00",
        "1500-02-28T00:00:00", "2024-02-28 10:00:00", "2024-02-28T10:00:00+01:00", "2024-02-28T10:00:00ZZ", "",
    ]  # fmt: skip
    records = [change("c", None, {"id": key, "v": texts[key % len(texts)]}) for key in range(len(texts) * 4)]
    fast = decoder_of(pipeline_of(columns, time_precision_mode="isostring"))
    assert run(fast, records).shown == run(replace(fast, is_careful=True), records).shown
