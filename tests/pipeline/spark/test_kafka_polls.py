"""Another number of records in a poll, and when there is one."""

from __future__ import annotations

from collections import UserDict
from typing import Any

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.job import follow_sizes

FETCH = str(8 << 20)
SMALL, LARGE = RecordSizes(1000, 1000), RecordSizes(1_000_000, 1_000_000)


class Parameters(UserDict[str, str]):
    """As a map of the JVM: None for what is not there, whatever default is given."""

    def get(self, key: str, default: object = None) -> Any:
        return self.data.get(key)


class Query(ActiveQuery):
    """A query with such sources."""

    def __init__(self, *sources: dict[str, str]) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self.sources = [Parameters() for _ in sources]
        for parameters, source in zip(self.sources, sources, strict=True):
            parameters.data = source  # the test looks at what it gave

    def kafka_parameters(self) -> dict[int, Any]:
        return dict(enumerate(self.sources))


def test_another_number_comes_with_another_group() -> None:
    source = {"group.id": "g", "max.partition.fetch.bytes": FETCH}
    query = Query(source)
    follow_sizes(query, RecordSizes(12_000, 12_000))
    assert source == {"group.id": "g", "max.partition.fetch.bytes": FETCH}, "699 is not twice the client's 500"
    follow_sizes(query, SMALL)
    assert (source["max.poll.records"], source["group.id"]) == ("8388", "g-poll8388")
    follow_sizes(query, LARGE)
    assert (source["max.poll.records"], source["group.id"]) == ("8", "g-poll8")


def test_of_several_sources_none_gets_more() -> None:
    one, other = ({"group.id": name, "max.poll.records": count} for name, count in (("a", "4"), ("b", "8000")))
    follow_sizes(Query(one, other), SMALL)
    assert (one["max.poll.records"], other["max.poll.records"]) == ("4", "500")
