"""What NULL and a deletion mean to each merge engine, column by column."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from freshet.pipeline.config.engine_rules import EngineRules, engine_rules
from freshet.pipeline.config.model import TableConfig

COLUMNS = {"k": "BIGINT", "a": "INT", "b": "STRING", "c": "INT", "s": "BIGINT", "t": "BIGINT"}
GROUP = {"fields.s.sequence-group": "a,b"}


def _rules(engine: str, options: Mapping[str, str]) -> EngineRules:
    given = {"bucket": "1", "merge-engine": engine, **options}
    table = TableConfig(warehouse="/w", name="d.t", columns=COLUMNS, primary_key=("k",), options=given)
    return engine_rules(table.table_schema, table.core_options)


@pytest.mark.parametrize(
    ("engine", "options", "column", "kept"),
    [
        ("deduplicate", {}, "a", False),
        ("first-row", {}, "a", False),
        ("partial-update", {}, "a", True),
        ("partial-update", {"fields.a.aggregate-function": "last_non_null_value"}, "a", True),
        ("partial-update", GROUP, "a", False),
        ("partial-update", GROUP, "c", True),
        ("partial-update", GROUP, "s", False),
        ("partial-update", {**GROUP, "fields.a.aggregate-function": "sum"}, "a", True),
        ("partial-update", {**GROUP, "fields.a.aggregate-function": "last_value"}, "a", False),
        ("partial-update", {**GROUP, "fields.a.aggregate-function": "first_value"}, "a", False),
        ("partial-update", {**GROUP, "fields.a.aggregate-function": "last_non_null_value"}, "a", True),
        ("aggregation", {}, "a", True),
        ("aggregation", {"fields.a.aggregate-function": "max"}, "a", True),
        ("aggregation", {"fields.a.aggregate-function": "last_value"}, "a", False),
        ("aggregation", {"fields.a.aggregate-function": "first_value"}, "a", False),
        ("aggregation", {"sequence.field": "s"}, "s", False),
    ],
)
def test_what_null_means(engine: str, options: dict[str, str], column: str, kept: bool) -> None:
    assert _rules(engine, options).keeps_on_null(column) is kept


def test_the_groups_that_a_source_fills() -> None:
    rules = _rules("partial-update", {**GROUP, "fields.t.sequence-group": "c"})
    assert rules.ordering_columns == {"s", "t"}
    assert [group.ordering for group in rules.filled_groups(["k", "a", "s"])] == [("s",)]
    assert [group.ordering for group in rules.filled_groups(["k", "c"])] == [("t",)]
    assert [group.ordering for group in rules.filled_groups(["k"])] == []
    assert rules.group_of("k") is None
    assert rules.group_of("s") is None


def test_columns_that_add_up_and_columns_that_take_nothing_back() -> None:
    functions = {
        f"fields.{name}.aggregate-function": text for name, text in (("a", "sum"), ("b", "listagg"), ("c", "max"))
    }
    rules = _rules("aggregation", functions)
    assert rules.needs_before == ("a",)
    assert rules.refuses_retracts == ("b", "c")
    relieved = _rules("aggregation", {**functions, **{f"fields.{name}.ignore-retract": "true" for name in "abc"}})
    assert relieved.needs_before == relieved.refuses_retracts == ()
