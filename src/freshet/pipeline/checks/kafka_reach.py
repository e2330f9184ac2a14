"""Whether the brokers of a pipeline's sources answer: asked before a run starts, and while it runs.

Spark's source keeps silent about brokers that it cannot reach, and gives up after minutes. A run therefore waits until
each cluster has answered once, and afterwards says when one stops and when it is back.

A cluster that only the Java client can reach (a JKS key store, Kerberos) is not asked.

A run waits for topics that are not there yet before it makes anything, and gives up after a while. Spark ends a query
whose topic is not there. A pipeline that is started before its connector has made the topic needs a run that waits; a
mistyped name is in the first line. A pattern may match nothing: Spark looks again.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.cluster import ClusterAnswer, KafkaCluster, last_records
from freshet.logstore.kafka.java_options import ClientSettings, client_settings
from freshet.logstore.kafka.record_sizes import SampledRecord
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.rules import subscribed_pattern, subscribed_topics
from freshet.pipeline.config.starting_offsets import Place
from freshet.storage.exceptions import RetryableError

ASK_S: Final = 5.0
"""How long a cluster has to answer."""

PAUSE_S: Final = 2.0
"""Between two questions to a cluster that has not answered yet."""

REMIND_EVERY: Final = 8
"""Unanswered questions between two messages about the same cluster."""

WATCH_S: Final = 10.0
"""Between two questions while pipelines run."""

_CLIENTS_MAX: Final = 8


class Brokers(Frozen):
    """One cluster as some sources name it."""

    servers: str
    settings: ClientSettings


def brokers_of(source: SourceConfig) -> Brokers | None:
    """The cluster of a source; None for files."""
    if source.kafka is None:
        return None
    options = revealed(source.kafka)
    return Brokers(options.get("kafka.bootstrap.servers", ""), client_settings(options))


def clusters(configs: Iterable[PipelineConfig]) -> list[Brokers]:
    """The clusters of some pipelines, each once."""
    found: list[Brokers] = []
    for config in configs:
        for source in config.sources:
            brokers = brokers_of(source)
            if brokers is not None and brokers not in found:
                found.append(brokers)
    return found


class Clusters:
    """The clients of some clusters, one of each for all that is asked of it: a new one takes 5 to 60 ms to connect."""

    def __init__(self) -> None:
        self._kept: list[tuple[Brokers, KafkaCluster]] = []

    def of(self, brokers: Brokers) -> KafkaCluster:
        """Raises `ValueError` for settings that librdkafka refuses."""
        found = next((client for known, client in self._kept if known == brokers), None)
        if found is None:
            found = KafkaCluster(brokers.settings)
            self._kept = [*self._kept[1 - _CLIENTS_MAX :], (brokers, found)]
        return found

    def ask(self, brokers: Brokers, timeout_s: float = ASK_S) -> ClusterAnswer:
        """Its topics; settings that librdkafka refuses are a failure too. One that does not answer is asked by another
        client next time, which connects at once: this one waits longer and longer."""
        try:
            answer = self.of(brokers).ask(timeout_s)
        except ValueError as error:
            return ClusterAnswer(failure=str(error), is_refused_setting=True)
        if answer.failure:
            self._kept = [each for each in self._kept if each[0] != brokers]
        return answer


def ask_once(brokers: Brokers, timeout_s: float = ASK_S) -> ClusterAnswer:
    """Asks a cluster with a client of its own."""
    return Clusters().ask(brokers, timeout_s)


def partition_counts(source: SourceConfig) -> dict[str, int]:
    """The Kafka partitions of the topics that a source reads; none where its cluster cannot be asked or is silent."""
    brokers = brokers_of(source)
    if brokers is None or brokers.settings.untranslated:
        return {}
    answer = ask_once(brokers)
    names = topics_of(source, answer)
    return {name: count for name, count in sorted(answer.partition_counts.items()) if name in names}


def sample_records(source: SourceConfig, count: int) -> list[SampledRecord] | None:
    """Some of the last records of a source; None where its cluster cannot be asked."""
    brokers = brokers_of(source)
    if brokers is None or brokers.settings.untranslated:
        return None
    answer = ask_once(brokers)
    if answer.failure:
        return None
    counts = {name: answer.partition_counts.get(name, 0) for name in topics_of(source, answer)}
    try:
        return last_records(brokers.settings, counts, count=count, timeout_s=ASK_S, isolation=source.isolation)
    except ValueError:
        return None


def first_read(source: SourceConfig, topics: Sequence[str]) -> str | None:
    """The first of these topics that a source names, or that its pattern takes; there or not."""
    pattern, named = subscribed_pattern(source), subscribed_topics(source)
    try:
        read = (topic for topic in topics if topic in named or (pattern and re.search(pattern, topic)))
        return next(read, None)
    except re.error:
        return None  # Java's patterns know more than Python's


def topics_of(source: SourceConfig, answer: ClusterAnswer) -> set[str]:
    """The topics that a source names, there or not, and those of its cluster that its pattern is found in: Spark takes
    `orders` for `shop.orders` too."""
    pattern = subscribed_pattern(source)
    if pattern is None:
        return subscribed_topics(source)
    try:
        found_in = re.compile(pattern.strip()).search
    except re.error:
        return set()  # Java's patterns know more than Python's
    return {topic for topic in answer.topics if found_in(topic)}


def places_read(source: SourceConfig, answer: ClusterAnswer) -> set[Place]:
    """The partitions that a source reads, of those that are there."""
    there = {(topic, n) for topic in topics_of(source, answer) for n in range(answer.partition_counts.get(topic, 0))}
    assigned = assigned_places(source)
    return there if assigned is None else there & assigned


def assigned_places(source: SourceConfig) -> set[Place] | None:
    """The partitions that a source is assigned; None where it reads all of its topics."""
    text = {key.lower(): text for key, text in revealed(source.kafka or {}).items()}.get("assign")
    return None if not text else {(topic, number) for topic, numbers in json.loads(text).items() for number in numbers}


def wait_for_brokers(
    configs: Sequence[PipelineConfig],
    *,
    say: Callable[[str], None],
    stop: threading.Event,
    pause_s: float = PAUSE_S,
    clients: Clusters | None = None,
) -> bool:
    """Waits until every cluster has answered, and says of which it waits; False when `stop` was set meanwhile."""
    clients = clients or Clusters()
    for brokers in clusters(configs):
        if brokers.settings.untranslated:
            continue
        tries = 0
        while (answer := clients.ask(brokers)).failure:
            if tries % REMIND_EVERY == 0:
                say(f"no broker answers at {brokers.servers} ({answer.failure}); trying again until one does")
            tries += 1
            if stop.wait(pause_s):
                return False
        if tries:
            say(f"a broker answers at {brokers.servers}")
    return not stop.is_set()


def topic_ids(
    configs: Sequence[PipelineConfig], *, say: Callable[[str], None], clients: Clusters | None = None
) -> dict[str, dict[str, str]]:
    """By pipeline, the ids of the topics that its sources read; says which of those that they name are not there.

    Topics of two clusters that have one name are left out: their ids could not be distinguished.
    """
    clients = clients or Clusters()
    found: dict[str, dict[str, str]] = {}
    for config in configs:
        asked: Counter[str] = Counter()
        ids: dict[str, str] = {}
        for source in config.sources:
            brokers = brokers_of(source)
            if brokers is None or brokers.settings.untranslated:
                continue
            client = clients.of(brokers)
            answer = client.ask(ASK_S)
            names = topics_of(source, answer)
            for topic in sorted(names - answer.topics if answer.failure is None else ()):
                say(f"{config.name}: warning: there is no topic {topic} at {brokers.servers}")
            asked.update(names)
            ids |= client.topic_ids(names, ASK_S)
        found[config.name] = {topic: each for topic, each in ids.items() if asked[topic] == 1}
    return found


def renewed_topics(known: dict[str, str], found: Mapping[str, str]) -> list[str]:
    """The topics that have another id than before; those that were not known are known from now on."""
    for topic, topic_id in found.items():
        known.setdefault(topic, topic_id)
    return sorted(topic for topic, topic_id in found.items() if known[topic] != topic_id)


@contextmanager
def watched_brokers(
    configs: Sequence[PipelineConfig],
    *,
    say: Callable[[str], None],
    every_s: float = WATCH_S,
    topic_ids: Mapping[str, Mapping[str, str]] | None = None,
    on_renewed: Callable[[PipelineConfig, Sequence[str]], None] | None = None,
    on_answer: Callable[[Brokers, KafkaCluster, ClusterAnswer], None] = lambda brokers, cluster, answer: None,
    clients: Clusters | None = None,
    ended: threading.Event | None = None,
) -> Iterator[None]:
    """Says, while the block runs, when a cluster stops answering and when it is back; until `ended` is set at most.

    `topic_ids` are those of the start by pipeline; `on_renewed` is called, in a thread of its own, where topics of a
    pipeline were deleted and created again; `on_answer` there too, with each answer of a cluster. Batches wait for
    none of this.
    """
    ended = ended or threading.Event()
    watched = [brokers for brokers in clusters(configs) if not brokers.settings.untranslated]
    clients = clients or Clusters()
    known = {config.name: dict((topic_ids or {}).get(config.name, {})) for config in configs}

    def look(brokers: Brokers, cluster: KafkaCluster, answer: ClusterAnswer) -> None:
        on_answer(brokers, cluster, answer)
        if on_renewed is None:
            return
        for config in configs:
            names = _topics_at(config, brokers, answer)
            renewed = renewed_topics(known[config.name], cluster.topic_ids(names, ASK_S)) if names else []
            if renewed and not ended.is_set():
                on_renewed(config, renewed)

    threads = [
        threading.Thread(
            target=_watch, args=(brokers, clients, say, ended, every_s, look), name="freshet-brokers", daemon=True
        )
        for brokers in watched
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(timeout=2 * ASK_S + 1)  # an answer that comes when Python has ended ends it with SIGSEGV


def _topics_at(config: PipelineConfig, brokers: Brokers, answer: ClusterAnswer) -> set[str]:
    """The topics that a pipeline reads at one cluster and names at no other: their ids could not be distinguished."""
    here: set[str] = set()
    elsewhere: set[str] = set()
    for source in config.sources:
        if brokers_of(source) == brokers:
            here |= topics_of(source, answer)
        else:
            elsewhere |= subscribed_topics(source)
    return here - elsewhere


def _watch(
    brokers: Brokers,
    clients: Clusters,
    say: Callable[[str], None],
    ended: threading.Event,
    every_s: float,
    look: Callable[[Brokers, KafkaCluster, ClusterAnswer], None],
) -> None:
    try:
        cluster = clients.of(brokers)
    except ValueError:
        return  # said before the run began
    is_down = False
    while not ended.wait(every_s):
        answer = cluster.ask(ASK_S)
        failure = answer.failure
        if failure and not is_down and not ended.is_set():
            say(f"no broker answers at {brokers.servers} any more ({failure}); trying again until one does")
        elif is_down and not failure:
            say(f"a broker answers at {brokers.servers} again")
        is_down = failure is not None
        if not failure:
            look(brokers, cluster, answer)


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
