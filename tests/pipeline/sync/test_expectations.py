"""Rules of `expect` in `sync`: each table by the columns that it has, shares of its own records, what waits is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.query.driver.broken_rules import TableRules, broken_counts, stopping_text
from freshet.pipeline.query.wire.read_count import ReadCount
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.sync.table_decoding import TableDecoding, plan_table
from tests.pipeline.sync.change_records import KNOWN, ORDERS, USERS, plain
from tests.pipeline.sync.kit import many_plan, route_to, run, schema_of, sync_config
from tests.pipeline.sync.test_sync_tables import World, seen

EXPECT = {"positive": {"sql": "n >= 0"}, "named": {"sql": "length(name) > 1", "or": "drop"}}


def config_of(expect: dict[str, Any]) -> Any:
    return sync_config([{"from": "shop.public.(.*)", "to": "lake.$1", "expect": expect}])


def test_each_table_is_judged_by_the_rules_of_which_it_has_the_columns() -> None:
    config = config_of(EXPECT)
    rows: list[tuple[Any, Any]] = [
        (ORDERS, {"id": 1, "n": -1}),
        (ORDERS, {"id": 2, "n": 2}),
        (USERS, {"id": 3, "name": "x"}),
    ]
    found = run(many_plan(config, KNOWN), [plain(*each) for each in rows] + [plain(ORDERS, {"id": 1, "n": -1}, "d")])
    assert found.texts(1) == ["quarantine n: positive", "+I(2, 2)", "-D(1, -1)"]
    assert found.texts(2) == ["drop name: named"]


def test_a_rule_begins_with_the_column_that_it_waits_for() -> None:
    config = config_of({"priced": {"sql": "price > 0"}})
    route = route_to(config, "shop.public.orders")
    before = plan_table(config, route, schema_of({"id": "BIGINT", "n": "INT"}), 1, frozenset())
    after = plan_table(config, route, schema_of({"id": "BIGINT", "n": "INT", "price": "INT"}), 1, frozenset())
    assert (before.plan.rules, [rule.name for rule in after.plan.rules]) == ((), ["priced"])


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("n + 1", "table lake.orders: expect.rule: 'n [+] 1' is INT, and a rule is a condition"),
        ("size(array(n)) > 0", "table lake.orders: expect.rule: only Spark computes"),
    ],
)
def test_a_rule_that_does_not_fit_the_types_of_a_table_stops_before_its_records_are_decoded(
    sql: str, wanted: str
) -> None:
    with pytest.raises(ConfigurationError, match=wanted):
        many_plan(config_of({"rule": {"sql": sql}}), KNOWN)


def test_a_rule_that_waits_for_a_column_is_said_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    rule = {"from": "shop.public.(.*)", "to": "lake.$1", "expect": {"priced": {"sql": "price > 0"}}}
    tables = world.run(rule)
    tables.follow([seen("shop.public.a")], 0, {})
    tables.take_events({})
    for _ in range(2):
        tables.round(0, {})
        tables.now()
    assert tables.take_events({}) == (
        "table lake.a has no column price: the rule priced of expect waits until it has one",
    )
    tables.follow([seen("shop.public.a", {"id": "BIGINT", "n": "INT", "price": "INT"})], 1, {})
    tables.round(1, {})
    (decoding,) = tables.plan().tables.values()
    assert isinstance(decoding, TableDecoding) and [each.name for each in decoding.plan.rules] == ["priced"]
    assert [(each.name, list(each.rules)) for each in tables.rules()] == [("", []), ("lake.a", ["priced"])]


def test_a_share_is_of_the_records_of_the_table() -> None:
    rule = Expectation.model_validate({"sql": "n >= 0", "share": 0.1})
    tables = [TableRules("", {}), TableRules("lake.a", {"positive": rule}), TableRules("lake.b", {"positive": rule})]
    result = TaskResult(
        broken={"1:positive": 11, "2:positive": 11}, of_tables={"1": 1000, "2": 100}, read=ReadCount(tallied=1100)
    )
    text = stopping_text(result, tables, judges_shares=True)
    assert text is not None
    assert text.startswith("11 of the 100 records of the batch for table lake.b break the rule positive of expect")
    assert stopping_text(result, tables, judges_shares=False) is None
    assert broken_counts(result, tables) == {"lake.a.positive": 11, "lake.b.positive": 11}
