"""What the commands ask of Kafka brokers; imports the Kafka client."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.kafka.cluster import ClusterAnswer
from freshet.logstore.kafka.connection import log_client_settings
from freshet.logstore.kafka.java_options import ClientSettings
from freshet.logstore.kafka.log_client import KafkaLogClient
from freshet.logstore.protocol.client import TopicFacts
from freshet.logstore.protocol.control import CONTROL_SUFFIX, ControlKind
from freshet.logstore.protocol.topic import NEW_TABLE, check_topic, refuse_foreign
from freshet.pipeline.checks import kafka_reach, offset_check
from freshet.pipeline.checks.kafka_reach import Brokers, Clusters, ask_once, brokers_of, first_read, sample_records
from freshet.pipeline.checks.open_transactions import WatchedTransactions, waiting_texts
from freshet.pipeline.checks.unread_records import refuse_wrong_places
from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.exceptions import Problem
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.options import CoreOptions

SERVERS = "kafka.bootstrap.servers"
TOPIC = "kafka.topic"

_CLIENTS: Final = Clusters()
wait_for_brokers = partial(kafka_reach.wait_for_brokers, clients=_CLIENTS)
wait_for_topics = partial(kafka_reach.wait_for_topics, clients=_CLIENTS)
offset_problems = partial(offset_check.offset_problems, clients=_CLIENTS)
topic_ids = partial(kafka_reach.topic_ids, clients=_CLIENTS)
watched_brokers = partial(kafka_reach.watched_brokers, clients=_CLIENTS)

__all__ = [
    "WatchedTransactions", "broker_problems", "log_problems", "offset_problems", "refuse_wrong_places",
    "sample_records", "topic_ids", "wait_for_brokers", "wait_for_topics", "waiting_texts", "watched_brokers",
]  # fmt: skip


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
                problems.append(config.origin.placed(Problem(key_path, config.without_secrets(text))))
                continue
            for topic in sorted(subscribed_topics(source) - answer.topics):
                complain(f"{config.name}: warning: there is no topic {topic} at {brokers.servers}")
    return problems


def log_problems(configs: Sequence[PipelineConfig], *, asks_for_silence: bool = True) -> list[Problem]:
    """What keeps the tables that have a log from having it: options, brokers that do not answer, topics that do not
    fit or are another's. A topic that is not there yet is none: the writer makes it. The configurations have the
    options of their tables, where these are there (`with_table`).

    Without `asks_for_silence` brokers that do not answer are no problem: opening the log reports that they are away.
    """
    problems = []
    for config in configs:
        options = config.table.written_options
        if not options.has_log:
            continue
        found = _log_problem(config, options, asks_for_silence=asks_for_silence)
        if found is not None:
            option, text = found
            section = "write_options" if option in config.table.write_options else "options"
            is_written = option in getattr(config.table, section)
            key_path = ("table", section, option) if is_written else ("table", section)
            problems.append(config.origin.placed(Problem(key_path, config.without_secrets(text))))
    return problems


def _failure_text(where: str, answer: ClusterAnswer) -> str:
    if answer.is_refused_setting:
        return f"the options kafka.* for {where} are refused: {answer.failure}"
    return f"no broker answers at {where} ({answer.failure}); start it, or check with --offline"


def _log_problem(config: PipelineConfig, options: CoreOptions, *, asks_for_silence: bool) -> tuple[str, str] | None:
    """The option that is wrong, and what about it."""
    table = config.table.name
    try:
        brokers = Brokers(options.given.get(SERVERS, ""), ClientSettings(log_client_settings(options.given)))
    except LogConfigError as error:
        return error.option or SERVERS, str(error)
    answer = ask_once(brokers)
    if answer.failure:
        is_reported = asks_for_silence or answer.is_refused_setting
        where = f"{brokers.servers}, where the log of {table} goes"
        return (SERVERS, _failure_text(where, answer)) if is_reported else None
    topic = options.given.get(TOPIC, "").strip()
    read = _read_by_source(config, brokers, answer, [topic, topic + CONTROL_SUFFIX])
    if read is not None:
        return TOPIC, (
            f"{read}, where the log of {table} is to go: the pipeline would read what it logs. Set kafka.topic to a "
            f"name that no source reads, nor as that of the control topic, which ends with {CONTROL_SUFFIX}"
        )
    try:
        if topic in answer.partition_counts and options.bucket > 0:
            check_topic(TopicFacts(topic, "", answer.partition_counts[topic], {}), options.bucket, table=table)
        _check_owner(config, options, topic)
    except InvalidRequestError as error:
        return error.option or TOPIC, str(error)
    except RetryableError as error:
        return (SERVERS, str(error)) if asks_for_silence else None
    return None


def _check_owner(config: PipelineConfig, options: CoreOptions, topic: str) -> None:
    """Raises where the topic holds what is not the log of the table, which may not be there yet."""
    catalog = target_catalog(config)
    if catalog.has_table(config.table.name):
        catalog.table(config.table.name).with_options(dict(config.table.write_options)).engine.log.check()
        return
    client = KafkaLogClient.of_options(options.given)
    kind = ControlKind.PUBLISHED if options.publishes_changes else ControlKind.RECOVER
    try:
        refuse_foreign(client, topic, table=config.table.name, table_id=NEW_TABLE, is_known=False, kind=kind)
    finally:
        client.close()


def _read_by_source(
    config: PipelineConfig, brokers: Brokers, answer: ClusterAnswer, topics: Sequence[str]
) -> str | None:
    """Which source of the pipeline reads which of these topics of a cluster; None where none does."""
    for index, source in enumerate(config.sources):
        own, topic = brokers_of(source), first_read(source, topics)
        if own is None or topic is None:
            continue
        asked = own.servers != brokers.servers and not own.settings.untranslated
        other = ask_once(own).cluster_id if asked else None
        if own.servers == brokers.servers or (other is not None and other == answer.cluster_id):
            return f"sources[{index}] reads topic {topic}"
    return None
