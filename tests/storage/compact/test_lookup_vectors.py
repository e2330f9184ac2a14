"""Vectors 60 to 69 as far as the data goes: what one key is after level 0 was compacted (the changelog comes later)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.model.row_kind import KIND_TEXTS
from tests.storage.compact.test_lookup_compaction import KEY, bucket

VALUE = pa.field("v", pa.int64())
DEDUPLICATE: dict[str, str] = {}
SUM = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}
LAST_VALUE = {"merge_engine": "aggregation", "sequence__field": "v"}
OTHER_KEY = 99


@pytest.mark.parametrize(
    ("number", "options", "stored", "output", "expected"),
    [
        (60, DEDUPLICATE, "2: 1 | 1: 2", 2, "2"),
        (61, DEDUPLICATE, "1: 1 | 0: 2", 1, "2"),
        (62, DEDUPLICATE, "0: +U 2", 1, "+U 2"),
        (63, DEDUPLICATE, "2: 1 | 0: 2", 1, "2"),
        (64, DEDUPLICATE, "2: -D 1 | 0: 2", 1, "2"),
        ("65 miss", DEDUPLICATE, "0: -U 2", 1, "-U 2"),
        ("65 hit", DEDUPLICATE, "2: -D 1 | 0: -D 2", 1, "-D 2"),
        ("65 dropped", DEDUPLICATE, "0: -U 2", 5, ""),
        ("66 input", DEDUPLICATE, "2: 2 | 0: 2", 2, "2"),
        ("66 hit", DEDUPLICATE, "3: 2 | 0: 2", 2, "2"),
        (68, SUM, "3: 1 | 2: 1 | 1: 2 | 0: 2", 3, "4"),
        ("68 lookup", SUM, "3: 1 | 2: 1 | 1: 2 | 0: 2", 1, "4"),
        ("68 lookup above", SUM, "3: 7 | 2: 1 | 0: 2", 1, "3"),
        ("43, no lone rule", SUM, "0: -D 5", 1, "-5"),
        ("69 late", LAST_VALUE, "2: 3 | 0: 2", 1, "3"),
        ("69 both", LAST_VALUE, "2: 2 | 0: 1 | 0: 3", 1, "3"),
    ],
)
def test_the_row_that_is_left(
    tmp_path: Path, number: object, options: dict[str, str], stored: str, output: int, expected: str
) -> None:
    """Rows as `level: kind value`, oldest first; +I where no kind is written."""
    at = bucket(tmp_path, KEY, VALUE, force_lookup="true", **options)
    at.table.place([{"k": OTHER_KEY, "v": 0}], level=5)
    for row in stored.split("|"):
        level, text = row.split(":")
        kind, value = text.split() if len(text.split()) == 2 else ("+I", text)
        at.table.place([{"k": 1, "v": int(value), "_ROW_KIND": kind}], level=int(level))
    rows = [row for row in at.rows(at.compact(output).after) if row["k"] != OTHER_KEY]
    texts = [f"{KIND_TEXTS[row['_VALUE_KIND']]} {row['v']}".removeprefix("+I ") for row in rows]
    assert " | ".join(texts) == expected, number
