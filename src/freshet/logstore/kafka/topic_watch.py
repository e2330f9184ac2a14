"""The partitions that a source reads, and what they hold: one client that asks, and one that waits.

| asked | costs |
|---|---|
| the ends of all partitions | a round trip to their brokers: 1 ms for eight of one broker, 0.25 ms of processor time |
| which partitions there are | a round trip, again after `REFRESH_S`, or where a broker does not know one any more |
| the ids of the topics of a batch | a request of a client of its own, beside the job: 1 ms, 0.5 ms of processor time |
| whether something comes | the client stands at the ends, and fetches little: 0.3 % of a core |

Nothing can be asked of a client while it waits: a broker answers the requests of a connection in their order, and a
fetch for which it has nothing only after `WAIT_MS`. So the ends are asked for by another client. Measured, bursts of 42
records with nothing behind them: with one client a look at the ends took 20 ms in the mean and 101 ms in each tenth
case, with two 2 and 5 ms. A partition that is waited for stays where it is as long as it goes on there.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka.cluster import asked_ids
from freshet.logstore.kafka.connection import LastError, error_text, made_client

T = TypeVar("T")
Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Kafka's own times: the first offset, and the end."""

REFRESH_S: Final = 2.0
"""How long it is believed which topics and partitions there are."""
ASK_S: Final = 20.0
"""How long the brokers have for an answer, in each attempt."""
PATIENCE_S: Final = 6.8
"""How long one question waits: none can be ended, and supervisors kill a run ten seconds after its SIGTERM. The client
connects meanwhile, so the next one goes on where it was."""
IDS_S: Final = 2.0
"""The same for the ids of topics, without which a batch goes on."""
WAIT_MS: Final = 100
"""How long a broker keeps a fetch for which it has nothing."""

_ALL_FROM: Final = 8
"""So many topics are asked for all at once, with those that nobody reads."""
_AT_ONCE: Final = 1000
_POLL_MIN_S: Final = 0.001
"""The client takes less for nothing, and would be asked again and again."""
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_CLIENT: Final[Mapping[str, Any]] = {
    "group.id": "freshet-ends",  # wanted by the client; nothing is kept of it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "enable.sparse.connections": False,  # it asks all leaders; else the second is often asked only after 50 ms
    "log_level": 0,
    "fetch.wait.max.ms": WAIT_MS,
    "fetch.message.max.bytes": 16 << 10,
    "queued.max.messages.kbytes": 256,
    "queued.min.messages": 100,
    "fetch.queue.backoff.ms": 5,
}
_REFUSALS: Final = (
    KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION,
)  # fmt: skip


class TopicWatch:
    """What a source reads of one cluster; used by one thread, but for `leave`.

    Calls raise `LogUnavailableError` where brokers do not answer or a topic that is named is not there, and
    `LogConfigError` where they refuse; both after so many `attempts`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Collection[str] | re.Pattern[str],
        assigned: Collection[Place] | None = None,
        *,
        attempts: int = 3,
        pause_s: float = 1.0,
    ) -> None:
        """`topics` are names, or what is found in the names; of `assigned`, only these partitions are read.

        `settings` are those of librdkafka for the connection, and its `isolation.level`: ends are those that a reader
        comes to under it.
        """
        self._topics = topics
        self._assigned = assigned
        self._name = f"topics like {topics.pattern}" if isinstance(topics, re.Pattern) else ", ".join(sorted(topics))
        self._attempts = max(1, attempts)
        self._pause_s = pause_s
        self._is_left = threading.Event()
        self._patience_s = PATIENCE_S
        self._last_error = LastError(settings)
        self._places: frozenset[Place] | None = None
        self._asked_s = 0.0
        self._stands: dict[Place, int] = {}
        """The offset of the record that comes next, of each partition that the client waits for."""
        self._connection = {key: text for key, text in settings.items() if key != "isolation.level"} | {"log_level": 0}
        self._settings = {**settings, **_CLIENT, "error_cb": self._last_error.keep}
        self._consumer = made_client(Consumer, self._settings)
        self._waiting: Consumer | None = None
        self._describing: AdminClient | None = None

    def places(self, *, fresh: bool = False) -> frozenset[Place]:
        """The partitions that are there and that the source reads, as of a moment ago unless `fresh`."""
        if fresh:
            self._places = None
        return self._attempted(self._known, "are not known")

    def ends(self, least: Mapping[Place, int], *, fresh: bool = False) -> dict[Place, int]:
        """The ends of all partitions. Where one lies before `least`, all are asked for again, as often as is allowed: a
        leader that has just changed does not know at once how far its partition goes."""
        if fresh:
            self._places = None
        for attempt in range(1, self._attempts + 1):
            found = self._attempted(
                lambda: self._offsets(dict.fromkeys(self._known(), LATEST)), "have ends that are not known"
            )
            if attempt == self._attempts or all(end >= least.get(place, end) for place, end in found.items()):
                return found
            time.sleep(self._pause_s)
            self._places = None
        raise AssertionError("unreachable")

    def offsets(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """The first offset of each partition that is as late as its time in ms, -1 where there is none; or the first
        and the end (`EARLIEST`, `LATEST`). Partitions that are not there are left out."""
        return self._attempted(
            lambda: self._offsets({place: each for place, each in times.items() if place in self._known()}),
            "have offsets that are not known",
        )

    def ask_ids(self, topics: Collection[str]) -> Callable[[], dict[str, str]]:
        """Asks for the ids of topics (`KafkaCluster.topic_ids`); what it gives waits for the answer."""
        if self._describing is None:
            self._describing = made_client(AdminClient, self._connection)
        return asked_ids(self._describing, topics, IDS_S)

    def wait(self, starts: Mapping[Place, int], timeout_s: float) -> bool:
        """Waits for a record at or behind these offsets; False after the time."""
        deadline = time.monotonic() + timeout_s
        if self._waiting is None:
            self._waiting = made_client(Consumer, self._settings)
        try:
            self._drain(self._waiting, 0)
            if self._is_beyond(starts):
                return True
            self._stand(self._waiting, starts)
            while (left := deadline - time.monotonic()) > _POLL_MIN_S:
                self._drain(self._waiting, left)
                if self._is_beyond(starts):
                    return True
        except KafkaException as error:
            self._stands.clear()
            raise self._error(error, "cannot be waited for") from error
        return False

    def leave(self) -> None:
        """Has calls that fail not be tried again; for any thread."""
        self._is_left.set()

    def close(self) -> None:
        """Ends its connections."""
        self._consumer.close()
        if self._waiting is not None:
            self._waiting.close()

    def _attempted(self, ask: Callable[[], T], what: str) -> T:
        for attempt in range(1, self._attempts + 1):
            until_s = time.monotonic() + ASK_S
            is_silent = True
            while is_silent:
                begun_s = time.monotonic()
                self._patience_s = min(PATIENCE_S, until_s - begun_s)
                try:
                    found = ask()
                    self._last_error.last = None
                    return found
                except KafkaException as error:
                    self._places = None
                    asked_s = time.monotonic() - begun_s
                    is_silent = asked_s >= 0.9 * self._patience_s and until_s - begun_s > PATIENCE_S
                    if self._is_left.is_set() or (attempt == self._attempts and not is_silent):
                        raise self._error(error, what) from error
            self._is_left.wait(self._pause_s)
        raise AssertionError("unreachable")

    def _error(self, error: KafkaException, what: str) -> LogUnavailableError | LogConfigError:
        for client in filter(None, (self._consumer, self._waiting)):
            client.poll(0)  # delivers what `LastError` is to hear
        heard = self._last_error.last
        codes = {found.code() for found in (error.args[0], heard) if isinstance(found, KafkaError)}
        text = f"the partitions of {self._name} {what}"
        if codes.isdisjoint(_REFUSALS):
            return self._last_error.unavailable(text, error)
        return LogConfigError(f"{text}: {error_text(error)}{self._last_error.text()}", option="kafka.*")

    def _known(self) -> frozenset[Place]:
        now_s = time.monotonic()
        if self._places is None or now_s - self._asked_s > REFRESH_S:
            self._places, self._asked_s = self._listed(), now_s
        return self._places

    def _listed(self) -> frozenset[Place]:
        """The partitions, as the brokers list them now."""
        names = self._topics
        if isinstance(names, re.Pattern) or len(names) > _ALL_FROM:
            found = self._consumer.list_topics(timeout=self._patience_s).topics
        else:
            found = {}
            for name in names:
                found |= self._consumer.list_topics(name, timeout=self._patience_s).topics
        if isinstance(names, re.Pattern):
            taken = [name for name in found if names.search(name) and name not in _INTERNAL]
        else:
            taken = [name for name in names if name not in _INTERNAL]
        places = set()
        for name in taken:
            error = found[name].error if name in found else KafkaError(KafkaError._UNKNOWN_TOPIC)
            if error is not None:
                raise KafkaException(KafkaError(error.code(), f"topic {name}: {error.str()}"))
            places |= {(name, number) for number in found[name].partitions}
        return frozenset(places if self._assigned is None else places.intersection(self._assigned))

    def _offsets(self, times: Mapping[Place, int]) -> dict[Place, int]:
        if not times:
            return {}
        asked = [KafkaPartition(*place, time_ms) for place, time_ms in times.items()]
        found = self._consumer.offsets_for_times(asked, timeout=self._patience_s)
        for each in found:
            if each.error is not None:
                text = f"topic {each.topic} partition {each.partition}: {each.error.str()}"
                raise KafkaException(KafkaError(each.error.code(), text))
        return {(each.topic, each.partition): each.offset for each in found}

    def _stand(self, client: Consumer, starts: Mapping[Place, int]) -> None:
        """Has the client wait at these offsets."""
        if gone := [KafkaPartition(*place) for place in self._stands if self._stands[place] != starts.get(place)]:
            client.incremental_unassign(gone)
        for each in gone:
            del self._stands[each.topic, each.partition]
        if new := {place: offset for place, offset in starts.items() if place not in self._stands}:
            client.incremental_assign([KafkaPartition(*place, offset) for place, offset in new.items()])
            self._stands.update(new)

    def _drain(self, client: Consumer, timeout_s: float) -> None:
        """Takes what has come, after some time at most. A partition that cannot be read is for those who read it."""
        message = client.poll(timeout_s)
        if message is None:
            return
        for each in (message, *client.consume(_AT_ONCE, 0)):
            place = (each.topic() or "", each.partition() or 0)
            if each.error() is None and place in self._stands:
                self._stands[place] = (each.offset() or 0) + 1

    def _is_beyond(self, starts: Mapping[Place, int]) -> bool:
        return any(offset > starts.get(place, offset) for place, offset in self._stands.items())
