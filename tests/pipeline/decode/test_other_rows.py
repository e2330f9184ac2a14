"""What each of two rows of one record carries of the other one, where Spark computes columns."""

from __future__ import annotations

from typing import Any

from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcome_batches import other_columns
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.planning import plan_decoding
from tests.pipeline.records import change, pipeline_of, run

AMOUNT = frozenset({("amount",)})


def plan_of(**more: Any) -> DecodePlan:
    config = pipeline_of(
        {"id": "BIGINT", "n": "INT"}, select={"id": "id", "n": "CAST(reverse(reverse(amount)) AS INT)"},
        schema={"amount": "STRING"}, **more,
    )  # fmt: skip
    return plan_decoding(config, 0, {"n": AMOUNT})


def test_each_row_of_a_pair_has_the_fields_of_the_other_and_single_rows_have_none() -> None:
    plan = plan_of(options={"changelog-producer": "input"})
    assert list(other_columns(plan)) == ["_other_kind", "_other_unavailable", "_other_p0"]
    records = [
        change("c", None, {"id": 1, "amount": "5"}),
        change("u", {"id": 1, "amount": "5"}, {"id": 1, "amount": "x"}),
        change("d", {"id": 2, "amount": "x"}),
        change("u", {"id": 1, "amount": "8"}, {"id": 1, "amount": "10"}),
    ]
    rows = [row for each in run(RecordDecoder(plan), records).rows for row in each if row["_tag"] == 0]
    rows.sort(key=lambda row: (row["_offset"], row["_sub"]))
    names = ("_offset", "_sub", "_kind", "_p0", "_other_kind", "_other_p0")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 0, INSERT, "5", None, None),
        (1, 0, UPDATE_BEFORE, "5", UPDATE_AFTER, "x"),
        (1, 1, UPDATE_AFTER, "x", UPDATE_BEFORE, "5"),
        (2, 0, DELETE, "x", None, None),
        (3, 0, UPDATE_BEFORE, "8", UPDATE_AFTER, "10"),
        (3, 1, UPDATE_AFTER, "10", UPDATE_BEFORE, "8"),
    ]


def test_nothing_is_carried_where_no_record_has_two_rows() -> None:
    assert other_columns(plan_of(format="json")) == {}
    assert other_columns(plan_of(options={"ignore-delete": "true"})) == {}


def test_nothing_is_carried_where_a_record_may_have_any_number_of_rows() -> None:
    options = {"changelog-producer": "input"}
    assert other_columns(plan_of(format="canal-json", options=options)) == {}
    assert other_columns(plan_of(format="maxwell-json", options=options))
