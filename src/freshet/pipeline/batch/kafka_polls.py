"""How many records a poll of Kafka's client takes, from batch to batch, as the sizes of the records change.

Spark takes `max.poll.records` when a query starts. The consumers of each batch are made by the parameters that the
source holds, or taken from those that are kept. They are kept by group, and must have the parameters that their group
had at first. So another number comes with another group; what is kept of the old one goes after some idle minutes.

A number that is not half or twice the other is left as it is.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from py4j.protocol import Py4JError

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.fetch_sizes import CLIENT_POLL_RECORDS, FETCH_MIN_BYTES, poll_records

_LOG: Final = logging.getLogger(__name__)
_POLL: Final = "max.poll.records"
_FETCH: Final = "max.partition.fetch.bytes"
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
