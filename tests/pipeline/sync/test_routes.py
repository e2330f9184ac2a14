"""The first rule that fits the whole name of a source table decides."""

from __future__ import annotations

import pytest

from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.sync.routes import EXCLUDED, NO_RULE, Route, route_of
from tests.pipeline.sync.kit import route_to, sync_config

RULES = [
    {"exclude": "shop.public.tmp_.*"},
    {"from": "shop.public.(orders|items)", "to": "lake.{table}", "primary_key": ["id"], "options": {"bucket": 4}},
    {"from": "shop.public.(.*)_(\\d+)", "to": "lake.$1", "merge": True},
    {"from": "shop.public.(.*)", "to": "{db}.{schema}_{table}"},
    {"from": "topic[.](.*)", "to": "lake.$1"},
    {"from": "mysql.(.*)", "to": "lake.my_$1"},
    {"exclude": "shop.*"},
]


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        (("shop", "public", "orders"), "lake.orders"),
        (("shop", "public", "tmp_orders"), EXCLUDED),
        (("shop", "public", "tmp_1"), EXCLUDED),
        (("shop", "public", "clicks_07"), "lake.clicks"),
        (("shop", "public", "orders_"), "shop.public_orders_"),
        (("shop", "public", "Orders"), "shop.public_Orders"),
        (("shop", "public", "a.b"), "shop.public_a.b"),
        (("shop", "private", "orders"), EXCLUDED),
        (("my_shop", "public", "orders"), NO_RULE),
        (("mysql", "", "users"), "lake.my_users"),
        (("mysql", "x", "users"), "lake.my_x.users"),
        (("", "", "topic.clicks"), "lake.clicks"),
        (("", "", "topics"), NO_RULE),
    ],
)
def test_targets(parts: tuple[str, str, str], target: str) -> None:
    found = route_of(sync_config(RULES).sync, SourceTable(*parts))
    assert (found.target if isinstance(found, Route) else found) == target


def test_what_stands_for_all_tables_and_what_a_rule_says_itself() -> None:
    config = sync_config(
        [
            {
                "from": "shop.public.a",
                "to": "lake.a",
                "options": {"bucket": 4},
                "without_key": "fail",
                "computed_columns": {"dt": "year(b)"},
                "metadata_columns": {"src": "table"},
                "partition_by": ["dt"],
            },
            {"from": ".*", "to": "lake.b"},
        ],
        options={"bucket": 1, "file.format": "orc"},
        without_key="append",
        computed_columns={"dt": "year(a)", "x": "upper(a)"},
        metadata_columns={"src": "db", "op": "op"},
    )
    first, other = route_to(config, "shop.public.a"), route_to(config, "shop.public.b")
    assert first.options == {"bucket": "4", "file.format": "orc"}
    assert other.options == {"bucket": "1", "file.format": "orc"}
    assert (first.without_key, other.without_key) == ("fail", "append")
    assert first.computed_columns == {"dt": "year(b)", "x": "upper(a)"}
    assert first.metadata_columns == {"src": "table", "op": "op"}
    assert (first.rule_index, other.rule_index) == (0, 1)
    assert (first.partition_by, other.partition_by, other.is_merged) == (("dt",), (), False)
