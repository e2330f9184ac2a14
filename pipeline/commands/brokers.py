"""What the commands ask of Kafka brokers; imports the Kafka client."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.logstore.kafka_client import ClusterAnswer
from freshet.pipeline.commands.output import complain
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.exceptions import Problem
from freshet.pipeline.kafka_reach import Brokers, ask_once, brokers_of, topic_ids, wait_for_brokers, watched_brokers

__all__ = ["broker_problems", "topic_ids", "wait_for_brokers", "watched_brokers"]


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
                place = ("sources", index, "kafka", "kafka.bootstrap.servers")
                text = f"no broker answers at {brokers.servers} ({answer.failure}); start it, or check with --offline"
                problems.append(config.origin.problem(place, config.without_secrets(text)))
                continue
            for topic in sorted(subscribed_topics(source) - answer.topics):
                complain(f"{config.name}: warning: there is no topic {topic} at {brokers.servers}")
    return problems
