"""A batch that Spark's source reads again under the isolation that it was planned with (`identity.planned_isolation`).

Its consumers are made by parameters that the source holds, and kept by group for the batches that follow: so they have
a group of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from freshet.pipeline.spark.active_query import ActiveQuery

_ISOLATION: Final = "isolation.level"
_GROUP: Final = "group.id"


@contextmanager
def read_under(query: ActiveQuery, isolations: Mapping[int, str]) -> Iterator[None]:
    """The jobs of the block read each Kafka source under its isolation of these."""
    sources = query.kafka_parameters()
    kept = {index: {key: each.get(key) for key in (_ISOLATION, _GROUP)} for index, each in sources.items()}
    for index, parameters in sources.items():
        parameters[_ISOLATION] = isolations[index]
        parameters[_GROUP] = f"{kept[index][_GROUP]}-{isolations[index]}"
    try:
        yield
    finally:
        for index, parameters in sources.items():
            for key, text in kept[index].items():
                parameters[key] = text
