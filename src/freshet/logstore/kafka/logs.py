"""The log system `kafka`: topics of a real cluster. The client is loaded when a cluster is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from freshet.logstore.kafka.java_options import PREFIX
from freshet.logstore.protocol.client import LogClient
from freshet.logstore.topic_logs import TopicLogs
from freshet.storage.options import resolved_option


def _open_client(options: Mapping[str, str]) -> LogClient:
    from freshet.logstore.kafka.log_client import KafkaLogClient

    ours = {key: text for key, text in options.items() if key.startswith(PREFIX)}
    return KafkaLogClient.of_options({key: resolved_option(key, text, os.environ) for key, text in ours.items()})


KAFKA_LOGS: Final = TopicLogs(_open_client)
