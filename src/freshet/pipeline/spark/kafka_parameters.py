"""Parameters of Kafka's client that change while a query runs, for the batches of Spark's source.

| parameter | changes |
|---|---|
| `max.poll.records` | as the sizes of the records do, where it is half or twice the other |
| `isolation.level` | for a batch that was planned under another one (`identity.planned_isolation`) |

Spark takes them when a query starts. The consumers of each batch are made by the parameters that the source holds, or
taken from those that are kept. They are kept by group, and must have the parameters that their group had at first. So
another value comes with another group; what is kept of the old one goes after some idle minutes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.fetch_sizes import CLIENT_POLL_RECORDS, FETCH_MIN_BYTES, poll_records

_LOG: Final = logging.getLogger(__name__)
_POLL: Final = "max.poll.records"
_FETCH: Final = "max.partition.fetch.bytes"
_ISOLATION: Final = "isolation.level"
_GROUP: Final = "group.id"
_MARK: Final = re.compile(r"-poll\d+$")


def follow_sizes(query: ActiveQuery, sizes: RecordSizes) -> None:
    """The next batch of a query polls as these sizes ask for. Of several sources none gets more than it has: which
    of them has the large records is not known."""
    try:
        sources = query.kafka_parameters().values()
        for parameters in sources:
            now = int(parameters.get(_POLL) or CLIENT_POLL_RECORDS)  # a map of the JVM knows no default
            wanted = poll_records(int(parameters.get(_FETCH) or FETCH_MIN_BYTES), sizes)
            if 2 * wanted <= now or (len(sources) == 1 and wanted >= 2 * now):
                parameters[_GROUP] = f"{_MARK.sub('', str(parameters.get(_GROUP)))}-poll{wanted}"
                parameters[_POLL] = str(wanted)
    except Py4JError as error:
        _LOG.warning("polls keep their number of records: %s", error)


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
