"""Open transactions of Kafka that keep a pipeline from reading on, and waiting for them before it starts.

Under `read_committed` a source reads up to the first record of the oldest transaction that is open, and what lies
behind once that has ended: a pipeline that has come so far stands still, though Kafka has more.

A checkpoint may lie behind that record: it was written under `read_uncommitted`. Spark would plan a batch backwards
from there, fail, and keep that in the checkpoint, so the query is not started before. Clusters that only the Java
client can reach are not asked.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from freshet.logstore.kafka.cluster import ClusterAnswer, KafkaCluster
from freshet.logstore.kafka.java_options import READ_COMMITTED
from freshet.logstore.kafka.partition_offsets import OpenTransaction
from freshet.pipeline.checks.kafka_reach import ASK_S, Brokers, brokers_of, places_read
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.starting_offsets import Place, start_of
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace
from freshet.pipeline.identity.checkpoint_offsets import checkpoint_offsets

LOOK_S: Final = 1.0
"""Between two looks at a transaction that is waited for."""
HELD_S: Final = 60.0
"""How long a transaction holds a pipeline back before that is said while it runs."""
UNKNOWN_MAX: Final = 10
"""How often brokers are asked that do not answer, before the start goes on."""
REMIND_S: Final = 60.0
"""Between two messages about it."""

_REMEDY: Final = (
    "It ends when its producer commits or aborts it, else after the producer's transaction.timeout.ms; "
    "kafka-transactions.sh finds and ends one that hangs. With kafka.isolation.level: read_uncommitted nothing is "
    "waited for, and records of transactions that are aborted are taken too"
)


def waiting_texts(config: PipelineConfig, checkpoint: CheckpointPlace) -> Iterator[str]:
    """For each source that has nothing to read before a transaction ends: since when."""
    for index, source in enumerate(config.sources):
        found = _asked(source)
        held = _standing(found, positions_of(source, index, checkpoint)) if found else ()
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
        found = _asked(source)
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
    """What is said of open transactions while pipelines run: each once, when it has held one back for a while."""

    def __init__(
        self,
        configs: Sequence[PipelineConfig],
        checkpoint_of: Callable[[PipelineConfig], CheckpointPlace],
        say: Callable[[str], None],
    ) -> None:
        self._configs = configs
        self._checkpoint_of = checkpoint_of
        self._say = say
        self._held: dict[tuple[str, int], dict[tuple[Place, int], float]] = {}
        """At the last look, by pipeline and source: partition and offset, and since when; infinite once it was said."""

    def look(self, brokers: Brokers, cluster: KafkaCluster, answer: ClusterAnswer) -> None:
        """Called from time to time, when a cluster has answered."""
        for config in self._configs:
            for index, source in enumerate(config.sources):
                if brokers_of(source) == brokers:
                    self._found(config, index, _open(source, cluster, answer) or ())

    def _found(self, config: PipelineConfig, index: int, found: Sequence[OpenTransaction]) -> None:
        kept = checkpoint_offsets(self._checkpoint_of(config), index) if found else None
        held = _standing(found, {} if kept is None else kept.start)
        before, now_s = self._held.get((config.name, index), {}), time.monotonic()
        since = {(each.place, each.stable): before.get((each.place, each.stable), now_s) for each in held}
        new = [each for each in held if now_s - since[each.place, each.stable] >= HELD_S]
        self._held[config.name, index] = since | {(each.place, each.stable): math.inf for each in new}
        if new:
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


def _standing(found: Sequence[OpenTransaction], positions: Mapping[Place, int]) -> list[OpenTransaction]:
    """Transactions at which a source that has read up to these positions stands still, or which it is behind already; a
    partition that is not among them is read from its first offset."""
    return [each for each in found if positions.get(each.place, each.first) >= each.stable]


def _open(source: SourceConfig, cluster: KafkaCluster, answer: ClusterAnswer) -> list[OpenTransaction] | None:
    """Transactions that a source does not read beyond; None where the brokers do not say it, which others report."""
    if source.isolation != READ_COMMITTED:
        return []
    try:
        return None if answer.failure else cluster.open_transactions(places_read(source, answer), ASK_S)
    except OSError:
        return None


def _asked(source: SourceConfig) -> list[OpenTransaction] | None:
    """The same as `_open` gives, by a client of its own; none of a cluster that only the Java client can reach."""
    brokers = brokers_of(source)
    if brokers is None or brokers.settings.untranslated or source.isolation != READ_COMMITTED:
        return []
    try:
        cluster = KafkaCluster(brokers.settings)
    except ValueError:
        return []
    return _open(source, cluster, cluster.ask(ASK_S))


def _text(held: Sequence[OpenTransaction]) -> str:
    """The text that the oldest of some open transactions is waited for, and what to do."""
    oldest = min(held, key=lambda each: (each.since_ms is None, each.since_ms))
    more = f" (and {len(held) - 1} more partitions)" if len(held) > 1 else ""
    return f"waits for {oldest}{more}. {_REMEDY}"
