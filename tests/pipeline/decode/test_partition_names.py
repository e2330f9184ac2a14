"""Records whose partition no folder can be named after are dead letters, of one table and of many."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.row_rules import FOLDER_TOO_LONG
from tests.pipeline.records import change, decoded, pipeline_of
from tests.pipeline.sync.kit import many_plan, run, schema_of, sync_config

COLUMNS = {"id": "BIGINT", "p": "STRING", "n": "INT"}
GOOD = {"id": 1, "p": "a", "n": 1}
LONG = {"id": 2, "p": "x" * 300, "n": 2}
DEAD = f"dead p: {FOLDER_TOO_LONG}"


def _partitioned(key: tuple[str, ...] = ("id", "p"), **source: Any) -> PipelineConfig:
    options = {} if set(key) == {"id", "p"} else {"bucket": -1}
    return pipeline_of(COLUMNS, primary_key=key, partition_by=["p"], options=options, **source)


@pytest.mark.parametrize("key", [("id", "p"), ("id",), ()])
@pytest.mark.parametrize(
    "source",
    [{}, {"select": {"id": "id", "p": "concat(p, '')", "n": "n"}, "schema": COLUMNS}],
    ids=["fields", "select"],
)
def test_rows_and_deletions_of_such_a_partition_are_dead_letters(key: tuple[str, ...], source: dict[str, Any]) -> None:
    records = [{"id": 1, "p": "/" * 84, "n": 1}, LONG, GOOD, {**GOOD, "p": " " * 300}, {**GOOD, "p": "/" * 85}]
    found = decoded(_partitioned(key, format="json", **source), records).shown
    assert [each == DEAD for each in found] == [False, True, False, False, True], found
    if key:
        changes = [change("c", None, GOOD), change("c", None, LONG), change("d", LONG), change("d", GOOD)]
        found = decoded(_partitioned(key, **source), changes).shown
        assert [each == DEAD for each in found] == [False, True, True, False], found


def test_records_of_many_tables() -> None:
    rule = {"from": "shop.public.(.*)", "to": "lake.$1", "partition_by": ["p"], "primary_key": ["id", "p"]}
    plan = many_plan(sync_config([rule]), {"shop.public.t": schema_of(COLUMNS, ("id", "p"), partition_by=("p",))})
    rows = [change("c", None, row, table="t") for row in (GOOD, LONG)]
    assert run(plan, rows).texts(1) == ["+I(1, a, 1)", DEAD]
