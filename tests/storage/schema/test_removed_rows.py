"""Functions in whose columns a delete would leave something of the row are refused, when created and when altered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, SetOption
from freshet.storage.exceptions import InvalidRequestError

AGGREGATION = {"bucket": "1", "merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}
GROUPS = {
    "bucket": "1",
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "v",
    "partial-update.remove-record-on-sequence-group": "g",
}
REFUSED = [
    ("max", "INT NOT NULL"),
    ("min", "DATE NOT NULL"),
    ("product", "BIGINT NOT NULL"),
    ("bool_and", "BOOLEAN NOT NULL"),
    ("rbm32", "BYTES NOT NULL"),
    ("first_value", "STRING"),
    ("first_non_null_value", "INT NOT NULL"),
]
TAKEN = [
    ("max", "INT"),
    ("sum", "INT NOT NULL"),
    ("last_value", "STRING NOT NULL"),
    ("listagg", "STRING NOT NULL"),
    ("collect", "ARRAY<INT> NOT NULL"),
    ("bool_or", "BOOLEAN NOT NULL"),
]


@pytest.mark.parametrize("options", [AGGREGATION, GROUPS], ids=["aggregation", "groups"])
@pytest.mark.parametrize(("function", "column"), REFUSED)
def test_refused_for_new_tables(tmp_path: Path, function: str, column: str, options: dict[str, str]) -> None:
    columns = {"k": "INT", "g": "INT", "v": column}
    with pytest.raises(InvalidRequestError, match=r"fields\.v\.aggregate-function = .* where deletes remove the row"):
        Catalog(str(tmp_path)).create_table(
            "db.t",
            schema=columns,
            primary_keys=["k"],
            options={**options, "fields.v.aggregate-function": function},
        )


@pytest.mark.parametrize("options", [AGGREGATION, GROUPS], ids=["aggregation", "groups"])
def test_taken_for_new_tables(tmp_path: Path, options: dict[str, str]) -> None:
    for number, (function, column) in enumerate(TAKEN):
        columns = {"k": "INT", "g": "INT", "v": column}
        given = {**options, "fields.v.aggregate-function": function}
        Catalog(str(tmp_path)).create_table(f"db.t{number}", schema=columns, primary_keys=["k"], options=given)


def test_refused_when_altered(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "INT", "v": "INT"}, primary_keys=["k"], options=AGGREGATION
    )
    with pytest.raises(InvalidRequestError, match="such as last_value"):
        table.alter(AddColumn("f", "INT"), SetOption("fields.f.aggregate-function", "first_value"))


LATE = [
    ({"merge-engine": "partial-update", "sequence.field": "g"}, "order columns by a sequence group"),
    ({"merge-engine": "aggregation", "sequence.field": "g"}, "the functions of v depend on the order"),
    (
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "first_value",
        },
        "the functions of v depend on the order",
    ),
    ({"merge-engine": "partial-update", "fields.g.sequence-group": "v"}, None),
    ({"merge-engine": "aggregation", "sequence.field": "g", "fields.v.aggregate-function": "max"}, None),
    ({"sequence.field": "g"}, None),
]


@pytest.mark.parametrize(("options", "expected"), LATE)
def test_what_depends_on_the_layout_is_warned_of(
    tmp_path: Path, options: dict[str, str], expected: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Catalog(str(tmp_path)).create_table(
            "db.t", schema={"k": "INT", "g": "INT", "v": "INT"}, primary_keys=["k"], options={"bucket": "1", **options}
        )
    assert [expected in text for text in caplog.messages] == [True] if expected else caplog.messages == []
