"""Records that have a field nobody reads, however its name is written; and what they say of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from freshet.pipeline.decode.careful import shown_name
from freshet.pipeline.decode.described_table import DescribedTable, records_with
from freshet.pipeline.decode.record_block import block_of
from freshet.pipeline.query.driver.unread_columns import case_variants
from tests.pipeline.records import decoded, pipeline_of, raw_batch


def every_escape(name: str) -> str:
    """The name with each of its UTF-16 units as an escape, in capital letters."""
    units = name.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))


CONFIG = pipeline_of({"id": "BIGINT", "c": "STRING", "n": "INT"}, format="json", on_unknown_field="add")
NAMES = [
    "späť",
    'q"q',
    "c\\d",
    "a/b",
    "t\tt",
    "n\nn\x7f",
    "\\u0061",
    "a.b*[c]+(d)|$^",
    "😀",
    "plain",
    "'\"\n",
    "C:\\xzz",
    "a\\Uzzzzzzzz",
    "a\\U00110000",
    "a\\U0010ffff",
    "a\\ud8000",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_in_every_form(name: str) -> None:
    forms = {json.dumps(name), json.dumps(name, ensure_ascii=False), json.dumps(name).replace("/", r"\/")}
    forms |= {f'"{every_escape(name)}"', f'{json.dumps(name[0])[:-1]}{every_escape(name[1:])}"'}
    for form in sorted(forms):
        as_value, as_name, longer = (
            f'{{"id": 1, "c": {form}}}',
            f'{{"id": 1, {form} : 5}}',
            f'{{"id": 1, "_{form[1:]}: 5}}',
        )
        records = [b'{"id": 1}', None, as_value.encode(), as_name.encode(), longer.encode()]
        found = [where for _, where in records_with(block_of(raw_batch(records)), shown_name(name), 9)]
        assert found == ["shop.public.orders partition 0 offset 3"], form
        assert seen_in(*records[:4]) == {name: "BIGINT"}, form


def test_a_lone_surrogate_is_no_column() -> None:
    assert seen_in(b'{"id": 1, "\\ud800": 5}') is None


def test_names_that_differ_from_a_column_in_case_stay_counted() -> None:
    records = [{"id": 1, "N": 5}, {"id": 2, "Ä": "x", "ä": "y"}]
    assert seen_in(*records) == {"Ä": "STRING", "ä": "STRING"}  # the driver makes a column of the first
    notes = decoded(CONFIG, records).tally.notes
    assert notes == {"unknown field N": 1, "unknown field Ä": 1, "unknown field ä": 1}
    assert case_variants(["id", "c", "n", "Ä"], notes) == {"N": "n", "ä": "Ä"}


def seen_in(*records: Any) -> dict[str, str] | None:
    """The columns that records say are missing; None where they say nothing."""
    seen = decoded(CONFIG, records).tally.seen
    return dict(DescribedTable.of(seen[0].described).columns) if seen else None
