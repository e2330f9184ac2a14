"""What the commands ask of Kafka brokers; imports the Kafka client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet.logstore.client import TopicFacts
from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.kafka_client import ClientSettings, ClusterAnswer
from freshet.logstore.kafka_connection import log_client_settings
from freshet.logstore.topic import check_topic
from freshet.pipeline.awaited_topics import wait_for_topics
from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.exceptions import Problem
from freshet.pipeline.kafka_reach import (
    Brokers,
    ask_once,
    brokers_of,
    sample_records,
    topic_ids,
    wait_for_brokers,
    watched_brokers,
)
from freshet.pipeline.offset_check import offset_problems

SERVERS = "kafka.bootstrap.servers"
TOPIC = "kafka.topic"

__all__ = [
    "broker_problems",
    "log_problems",
    "offset_problems",
    "sample_records",
    "topic_ids",
    "wait_for_brokers",
    "wait_for_topics",
    "watched_brokers",
]


def broker_problems(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """Clusters that do not answer are problems; topics that are not there yet are warned of."""
    answers: list[tuple[Brokers, ClusterAnswer]] = []
    problems = []
    for config in configs:
        for index, source in enumerate(config.sources):
            brokers = brokers_of(source)
            if brokers is None:
                continue
            if brokers.settings.untranslated:
                complain(
                    f"{config.name}: the brokers at {brokers.servers} were not asked: only the Java client knows "
                    f"{brokers.settings.untranslated}"
                )
                continue
            answer = next((answer for known, answer in answers if known == brokers), None)
            if answer is None:
                answer = ask_once(brokers)
                answers.append((brokers, answer))
            if answer.failure:
                key_path = ("sources", index, "kafka", "kafka.bootstrap.servers")
                text = _failure_text(brokers.servers, answer)
                problems.append(config.origin.problem(key_path, config.without_secrets(text)))
                continue
            for topic in sorted(subscribed_topics(source) - answer.topics):
                complain(f"{config.name}: warning: there is no topic {topic} at {brokers.servers}")
    return problems


def log_problems(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What keeps the tables that have a log from having it: options, brokers that do not answer, topics that do not
    fit. A topic that is not there yet is none: the writer makes it."""
    problems = []
    for config in configs:
        options = {**config.table.options, **config.table.write_options}
        if options.get("log.system", "none").lower() != "kafka":
            continue
        found = _log_problem(config.table.name, options)
        if found is not None:
            option, text = found
            section = "write_options" if option in config.table.write_options else "options"
            is_written = option in getattr(config.table, section)
            key_path = ("table", section, option) if is_written else ("table", section)
            problems.append(config.origin.problem(key_path, config.without_secrets(text)))
    return problems


def _failure_text(where: str, answer: ClusterAnswer) -> str:
    if answer.is_refused_setting:
        return f"the options kafka.* for {where} are refused: {answer.failure}"
    return f"no broker answers at {where} ({answer.failure}); start it, or check with --offline"


def _log_problem(table: str, options: Mapping[str, str]) -> tuple[str, str] | None:
    """The option that is wrong, and what about it."""
    try:
        brokers = Brokers(options.get(SERVERS, ""), ClientSettings(log_client_settings(options)))
    except LogConfigError as error:
        return error.option or SERVERS, str(error)
    answer = ask_once(brokers)
    if answer.failure:
        return SERVERS, _failure_text(f"{brokers.servers}, where the log of {table} goes", answer)
    topic, buckets = options.get(TOPIC, ""), options.get("bucket", "")
    if topic in answer.partition_counts and buckets.isdecimal():
        try:
            check_topic(TopicFacts(topic, "", answer.partition_counts[topic], {}), int(buckets), table=table)
        except LogConfigError as error:
            return TOPIC, str(error)
    return None
