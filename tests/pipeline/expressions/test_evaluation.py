"""Expressions over blocks: DuckDB plans them once, and forgets them together when there are too many."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pyarrow as pa

from freshet.pipeline.expressions import evaluation
from freshet.pipeline.expressions.evaluation import ExpressionSql, evaluate
from freshet.storage.scan.locked_duckdb import LockedDuckDb


def _values(texts: list[str], added: int) -> list[int | None]:
    columns = {0: pa.array(texts, pa.string())}
    (found,) = evaluate(columns, len(texts), [ExpressionSql(f"length(c0) + {added}")])
    values: list[int | None] = found.values.to_pylist()
    return values


def test_expressions_are_planned_once_for_all_blocks() -> None:
    prepare = LockedDuckDb.prepare
    with (
        patch.object(evaluation, "_OWN", threading.local()),
        patch.object(evaluation, "_QUERIES_MAX", 2),
        patch.object(LockedDuckDb, "prepare", autospec=True, side_effect=prepare) as planned,
        patch.object(LockedDuckDb, "close", autospec=True, side_effect=LockedDuckDb.close) as closed,
    ):
        assert [_values(texts, 0) for texts in (["a", "bc"], [], ["abc"])] == [[1, 2], [], [3]]
        assert _values(["a"], 1) == [2]
        assert (planned.call_count, closed.call_count) == (2, 0)
        assert _values(["a"], 2) == [3]
        assert (planned.call_count, closed.call_count) == (3, 1)
        assert _values(["a"], 0) == [1]
        assert planned.call_count == 4
