"""Waiting for topics that are not there yet: a run does before it makes anything, and gives up after a while.

Spark ends a query whose topic is not there. A pipeline that is started before its connector has made the topic needs a
run that waits; a mistyped name is in the first line. A pattern may match nothing: Spark looks again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from freshet.logstore.kafka.cluster import KafkaCluster
from freshet.pipeline.checks.kafka_reach import ASK_S, Brokers, Clusters, brokers_of, clusters
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.rules import subscribed_topics
from freshet.storage.exceptions import RetryableError

REMIND_S: Final = 10.0
"""Between two messages about topics that are not there."""

LOOK_S: Final = 1.0
"""Between two looks."""


def wait_for_topics(
    configs: Sequence[PipelineConfig],
    *,
    wait_s: float,
    say: Callable[[str], None],
    stop: threading.Event,
    look_s: float = LOOK_S,
    clock: Callable[[], float] = time.monotonic,
    clients: Clusters | None = None,
) -> bool:
    """Waits until every topic that a source names is there; False when `stop` was set meanwhile.

    Raises `RetryableError` where one is not there after `wait_s`. Brokers that do not answer are none of its matters.
    """
    clients = clients or Clusters()
    asked = [(brokers, clients.of(brokers)) for brokers in _asked(configs)]
    begun = clock()
    reported_at: float | None = None
    while True:
        missing = [text for brokers, client in asked for text in _missing(configs, brokers, client)]
        if not missing:
            if reported_at is not None:
                say("all topics are there")
            return not stop.is_set()
        left_s = begun + wait_s - clock()
        text = "there is no topic " + ", ".join(missing)
        if left_s <= 0:
            waited = f" after {wait_s:.0f} s" if wait_s else ""
            raise RetryableError(
                f"{text}{waited}; nothing was started. Create it, start what does (the connector), or mend the name; "
                "--wait-for-topics says how long a run waits"
            )
        if reported_at is None or clock() - reported_at >= REMIND_S:
            reported_at = clock()
            say(f"{text}; waiting for it, {left_s:.0f} s at most")
        if stop.wait(min(look_s, max(left_s, 0))):
            return False


def _asked(configs: Iterable[PipelineConfig]) -> list[Brokers]:
    return [brokers for brokers in clusters(configs) if not brokers.settings.untranslated]


def _missing(configs: Iterable[PipelineConfig], brokers: Brokers, client: KafkaCluster) -> list[str]:
    """The topics of a cluster that are not there, and the pipelines that read them."""
    answer = client.ask(ASK_S)
    if answer.failure:
        return []
    return [
        f"{topic} at {brokers.servers} ({config.name})"
        for config in configs
        for topic in sorted(
            set().union(*(subscribed_topics(each) for each in config.sources if brokers_of(each) == brokers))
            - answer.topics
        )
    ]
