"""Columns whose unchanged values come as NULL are named before the start, by their type and the modes."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.toast_columns import toast_warnings
from tests.pipeline.records import pipeline_of

COLUMNS = {
    "id": "BIGINT", "t": "STRING", "b": "BYTES", "n": "DECIMAL(38,10)", "money": "DECIMAL(14,4)",
    "texts": "ARRAY<STRING>", "ints": "ARRAY<INT>", "octets": "ARRAY<BYTES>",
    "flags": "ARRAY<BOOLEAN>", "nums": "ARRAY<DECIMAL(20,4)>",
    "ats": "ARRAY<TIMESTAMP(6)>", "map": "MAP<STRING, STRING>", "at": "TIMESTAMP(6)",
}  # fmt: skip
ALWAYS = ["flags", "nums", "ats"]


@pytest.mark.parametrize("form", ["debezium-json", "debezium-unwrapped"])
def test_by_type_and_mode(form: str) -> None:
    def named(**more: object) -> list[str]:
        found = list(toast_warnings(pipeline_of(COLUMNS, format=form, **more)))
        return found[0].partition(":")[0].split(", ") if found else []

    assert named() == ["n", *ALWAYS]
    assert named(decimal_handling_mode="string") == ALWAYS
    assert named(decimal_handling_mode="string", binary_handling_mode="hex") == ["octets", *ALWAYS]
    assert named(binary_handling_mode="base64-url-safe") == ["b", "n", "octets", *ALWAYS]
    assert named(primary_key=()) == []


def test_other_formats_have_no_such_columns() -> None:
    for form in ("json", "canal-json", "maxwell-json"):
        assert list(toast_warnings(pipeline_of(COLUMNS, format=form))) == []
