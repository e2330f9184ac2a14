"""A batch that Spark reads under another isolation than its sources have, and what follows it."""

from __future__ import annotations

from typing import Any

from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.job import read_under


class Query(ActiveQuery):
    """A query with files as its first source, and one that is Kafka."""

    def __init__(self) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self.parameters = {"isolation.level": "read_committed", "group.id": "g", "other": "x"}

    def kafka_parameters(self) -> dict[int, Any]:
        return {1: self.parameters}


def test_another_isolation_comes_with_another_group_and_goes_with_it() -> None:
    query = Query()
    before = dict(query.parameters)
    with read_under(query, {0: "-", 1: "read_uncommitted"}):
        now = {"isolation.level": "read_uncommitted", "group.id": "g-read_uncommitted"}
        assert query.parameters == before | now
    assert query.parameters == before
