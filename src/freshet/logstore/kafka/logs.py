"""The log system `kafka`: topics of a real cluster."""

from __future__ import annotations

from typing import Final

from freshet.logstore.kafka.log_client import KafkaLogClient
from freshet.logstore.topic_logs import TopicLogs

KAFKA_LOGS: Final = TopicLogs(KafkaLogClient.of_options)
