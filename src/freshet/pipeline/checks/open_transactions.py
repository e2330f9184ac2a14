"""Open transactions of Kafka that keep a pipeline from reading on, and waiting for them before it starts.

Under `read_committed` a source reads up to the first record of the oldest transaction that is open, and what lies
behind once that has ended: a pipeline that has come so far stands still, though Kafka has more.

A checkpoint may lie behind that record: it was written under `read_uncommitted`. Spark would plan a batch backwards
from there, fail, and keep that in the checkpoint, so the query is not started before. Clusters that only the Java
client can reach are not asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from freshet.logstore.kafka.cluster import ClusterAnswer, KafkaCluster
from freshet.logstore.kafka.java_options import READ_COMMITTED
from freshet.logstore.kafka.open_transactions import OpenTransaction
from freshet.pipeline.checks.kafka_reach import ASK_S, Brokers, brokers_of, places_read
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.starting_offsets import Place, start_of
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace
from freshet.pipeline.identity.checkpoint_offsets import checkpoint_offsets

LOOK_S: Final = 1.0
"""Between two looks at a transaction that is waited for."""
UNKNOWN_MAX: Final = 10
"""How often brokers are asked that do not answer, before the start goes on."""
REMIND_S: Final = 60.0
"""Between two messages about it."""

_REMEDY: Final = (
    "It ends when its producer commits or aborts it, else after the producer's transaction.timeout.ms; "
    "kafka-transactions.sh finds and ends one that hangs. With kafka.isolation.level: read_uncommitted nothing is "
    "waited for, and records of transactions that are aborted are taken too"
)


def held_back(
    source: SourceConfig, positions: Mapping[Place, int], cluster: KafkaCluster, answer: ClusterAnswer
) -> list[OpenTransaction] | None:
    """The open transactions at which a source that has read up to these positions stands still, or which it is behind
    already; a partition that is not among them is read from its first offset. None where the brokers do not say it,
    which is reported elsewhere."""
    if source.isolation != READ_COMMITTED:
        return []
    if answer.failure:
        return None
    try:
        found = cluster.open_transactions(places_read(source, answer), ASK_S)
    except OSError:
        return None
    return [each for each in found if positions.get(each.place, each.first) >= each.stable]


def waiting_texts(config: PipelineConfig, checkpoint: CheckpointPlace) -> Iterator[str]:
    """For each source that has nothing to read before a transaction ends: since when."""
    for index, source in enumerate(config.sources):
        held = _asked(source, positions_of(source, index, checkpoint))
        if held:
            yield f"sources[{index}] {_text(held)}"


def wait_for_transactions(
    pipelines: Iterable[tuple[PipelineConfig, CheckpointPlace]], *, say: Callable[[str], None], stop: threading.Event
) -> bool:
    """Waits until no checkpoint lies behind the first record of an open transaction; False when it was asked to stop
    meanwhile."""
    return all(
        wait_for_ends(source, positions_of(source, index, checkpoint), f"{config.name}: sources[{index}]", say, stop)
        for config, checkpoint in pipelines
        for index, source in enumerate(config.sources)
    )


def wait_for_ends(
    source: SourceConfig,
    positions: Mapping[Place, int],
    name: str,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> bool:
    """Waits until a source may be read up to these positions; False when it was asked to stop meanwhile. `name` is
    what messages call it."""
    stop, said_s, unknown = stop or threading.Event(), None, 0
    while positions and unknown < UNKNOWN_MAX:
        found = _asked(source, positions)
        unknown += found is None
        held = [each for each in found or () if positions.get(each.place, 0) > each.stable]
        if not held and found is not None:
            break
        if held and (said_s is None or time.monotonic() - said_s >= REMIND_S):
            said_s = time.monotonic()
            say(f"{name} {_text(held)}")
        if stop.wait(LOOK_S):
            return False
    return not stop.is_set()


class WatchedTransactions:
    """What is said of open transactions while pipelines run: each once, when two looks have found it."""

    def __init__(
        self,
        configs: Sequence[PipelineConfig],
        checkpoint_of: Callable[[PipelineConfig], CheckpointPlace],
        say: Callable[[str], None],
    ) -> None:
        self._configs = configs
        self._checkpoint_of = checkpoint_of
        self._say = say
        self._held: dict[tuple[str, int], set[tuple[Place, int]]] = {}
        """At the last look, by pipeline and source: partition and offset."""
        self._said: set[tuple[str, int, Place, int]] = set()

    def look(self, brokers: Brokers, cluster: KafkaCluster, answer: ClusterAnswer) -> None:
        """Called from time to time, when a cluster has answered."""
        for config in self._configs:
            for index, source in enumerate(config.sources):
                if source.isolation == READ_COMMITTED and brokers_of(source) == brokers:
                    self._look(config, index, source, cluster, answer)

    def _look(
        self, config: PipelineConfig, index: int, source: SourceConfig, cluster: KafkaCluster, answer: ClusterAnswer
    ) -> None:
        kept = checkpoint_offsets(self._checkpoint_of(config), index)
        held = held_back(source, {} if kept is None else kept.start, cluster, answer) or ()
        before = self._held.get((config.name, index), set())
        self._held[config.name, index] = {(each.place, each.stable) for each in held}
        new = [
            each
            for each in held
            if (each.place, each.stable) in before and (config.name, index, each.place, each.stable) not in self._said
        ]
        if new:
            self._said |= {(config.name, index, each.place, each.stable) for each in new}
            self._say(f"{config.name}: sources[{index}] {_text(new)}")


def positions_of(source: SourceConfig, index: int, checkpoint: CheckpointPlace) -> Mapping[Place, int]:
    """Up to where a source is read, planned batches too, or where its file says that it begins."""
    if source.kafka is None:
        return {}
    kept = checkpoint_offsets(checkpoint, index)
    if kept is not None:
        return {**kept.start, **kept.planned}
    start = start_of(revealed(source.kafka))
    return {} if start is None or start.is_time else {place: each for place, each in start.values.items() if each >= 0}


def _asked(source: SourceConfig, positions: Mapping[Place, int]) -> list[OpenTransaction] | None:
    brokers = brokers_of(source)
    if brokers is None or brokers.settings.untranslated or source.isolation != READ_COMMITTED:
        return []
    try:
        cluster = KafkaCluster(brokers.settings)
    except ValueError:
        return []
    return held_back(source, positions, cluster, cluster.ask(ASK_S))


def _text(held: Sequence[OpenTransaction]) -> str:
    """That the oldest of some open transactions is waited for, and what to do."""
    oldest = min(held, key=lambda each: (each.since_ms is None, each.since_ms))
    more = f" (and {len(held) - 1} more partitions)" if len(held) > 1 else ""
    return f"waits for {oldest}{more}. {_REMEDY}"
