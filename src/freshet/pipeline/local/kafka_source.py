"""The Kafka source of the local engine: plans what Spark would plan, of the same options and the same checkpoint.

| asked | comes from |
|---|---|
| `first` | `sources/<i>/0`, which is written once; before that, from the options |
| `latest` | the ends of all partitions, in one round trip; within the limits per trigger |
| `ranges` | the offsets alone, where no partition is new |
| `refuse_renewed` | the ids of the topics, asked for while the batch is read: a topic that was made again has others |
| `wait` | a client that stands at the ends |

Which topics and partitions there are is asked again after some seconds (`topic_watch.REFRESH_S`), or where one is gone;
Spark asks at each trigger. Offsets that are gone stop the query before the batch is written down where
`failOnDataLoss` is not false; Spark writes it down, and stops each time it is run.

Offsets are texts as Spark writes them, byte for byte, those of the first ones in a file:

    offsets/<N>      {"topic":{"0":5,"1":7}}
    sources/<i>/0    a zero byte, `v1`, a line break, the same

Spark puts topics and partitions into maps of Scala, and writes them in the order in which those hold them: that of
their hashes, of as many buckets as there have been so many entries. Partitions that are numbered from 0 on come in
their order, others and topics need not.

Source: Spark's `JsonUtils`, Scala 2.13's `mutable.HashMap`. tests/integration/test_kafka_as_spark.py compares.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from freshet.logstore.exceptions import LogTruncatedError
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.topic_watch import EARLIEST, LATEST, TopicWatch
from freshet.pipeline.checks.kafka_reach import assigned_places, renewed_topics
from freshet.pipeline.config.model import SourceConfig, revealed
from freshet.pipeline.config.rules import subscribed_pattern, subscribed_topics
from freshet.pipeline.config.starting_offsets import Place, Start, places_of, start_of, start_problems
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.identity.checkpoint_topics import known_topics, renewal_text
from freshet.pipeline.local.kafka_plan import KafkaLimits, is_too_little, limited, losses, planned_ranges
from freshet.pipeline.local.stream_checkpoint import damaged
from freshet.pipeline.query.driver.direct_reads import direct_client
from freshet.pipeline.query.task.kafka_ranges import DirectClient

_LOG: Final = logging.getLogger(__name__)

_TOO_LITTLE_S: Final = 0.2
"""How long until the ends are asked for again where too few records are there for a batch."""
_LONG_S: Final = 0.5
_STARTING_OFFSETS, _EARLIEST = "startingoffsets", "earliest"
K = TypeVar("K", str, int)

_ZERO: Final = "\0"
_VERSION: Final = "v1"
_BUCKETS: Final = 16
_LOAD: Final = 0.75


def kafka_source(config: SourceConfig, folder: WritableCheckpoint, index: int) -> KafkaSource:
    """The source of a pipeline file, whose first offsets lie in `sources/<index>` of its checkpoint; `check` has found
    nothing in its options that librdkafka cannot follow."""
    given = revealed(config.kafka or {})
    options = {key.lower(): text for key, text in given.items()}
    pattern = subscribed_pattern(config)
    topics: Collection[str] | re.Pattern[str] = subscribed_topics(config)
    if pattern is not None:
        try:
            topics = re.compile(pattern.strip())
        except re.error as error:
            raise ConfigurationError(
                f"subscribePattern {pattern} is a regular expression of Java's alone ({error.msg}); write one that "
                "Python knows too, or run on Spark"
            ) from error
    client = replace(direct_client(config), stays=True)
    watch = TopicWatch(
        dict(client.settings),
        topics,
        assigned_places(config),
        attempts=int(options.get("fetchoffset.numretries") or 3),
        pause_s=int(options.get("fetchoffset.retryintervalms") or 1000) / 1000,
    )
    return KafkaSource(watch, client, given, folder, index)


class KafkaSource:
    """A `Source` and `RangeSource` of Kafka; used by the thread of its query alone, but for `leave`."""

    def __init__(
        self,
        watch: TopicWatch,
        client: DirectClient,
        options: Mapping[str, str],
        folder: WritableCheckpoint,
        index: int,
    ) -> None:
        """`options` are those of Spark's source."""
        self._watch = watch
        self._client = client
        self._options = options
        self._limits = KafkaLimits.of({key.lower(): text for key, text in options.items()})
        self._folder = folder
        self._names = ("sources", str(index), "0")
        self._is_bound = False
        self._bound: dict[Place, int] | None = None
        self._ends: dict[Place, int] | None = None
        self._triggered_ms = 0
        self._is_delayed = False
        self._ids: dict[str, str] | None = None
        self._asked: tuple[set[str], float, Callable[[], dict[str, str]]] | None = None
        """The topics of the batch, when their ids were asked for, and what gives the answer."""

    @property
    def client(self) -> DirectClient:
        """`RangeSource.client`."""
        return self._client

    def first(self) -> str:
        """`Source.first`."""
        place = self._folder.place(*self._names)
        try:
            text = self._folder.read(*self._names)
            if text is None:
                found = offsets_text(self._begin())
                if self._folder.create(*self._names, text=first_text(found)):
                    return found
                text = self._folder.read(*self._names) or ""
        except UnicodeDecodeError as error:
            raise damaged(place, "Where no batch is below offsets, remove it: the source is begun anew") from error
        return offsets_of_first(text, place)

    def latest(self, start: str | None) -> str | None:
        """`Source.latest`."""
        begun = _offsets(start)
        if self._bound is not None:
            ends = self._bound
        else:
            ends = self._watch.ends(begun, fresh=self._is_bound)
            self._bound = ends if self._is_bound else None
        self._ends = ends
        if not ends:
            return start
        self._is_delayed = self._waits_for_more(begun, ends)
        if self._is_delayed or ends == begun:
            return start
        firsts = self._firsts(begun, ends)
        self._report(begun, ends, firsts)
        if self._limits.most is not None:
            ends = limited(self._limits.most, begun, ends, firsts)
        return offsets_text(ends)

    def bound(self) -> None:
        """`Source.bound`."""
        self._is_bound = True

    def ranges(self, start: str | None, end: str) -> Sequence[OffsetRange]:
        """`RangeSource.ranges`."""
        begun, ends = _offsets(start), _offsets(end)
        firsts = self._firsts(begun, ends)
        self._report(begun, ends, firsts)
        found = planned_ranges(begun, ends, firsts, self._limits)
        if found:
            topics = {each.topic for each in found}
            self._asked = (topics, time.monotonic(), self._watch.ask_ids(topics))
        return found

    def refuse_renewed(self) -> None:
        """`RenewableSource.refuse_renewed`. What was answered before a long read is asked again."""
        if self._asked is None:
            return
        (topics, asked_s, answer), self._asked = self._asked, None
        if time.monotonic() - asked_s > _LONG_S:
            answer = self._watch.ask_ids(topics)
        if self._ids is None:
            self._ids = known_topics(self._folder)
        if renewed := renewed_topics(self._ids, answer()):
            folder = self._folder.place()
            raise InvalidRequestError(
                f"Nothing of the batch was committed: while it ran {renewal_text(folder, renewed)}"
            )

    def done(self, end: str) -> None:
        """`Source.done`."""

    def lag(self, end: str) -> int | None:
        """`Source.lag`."""
        if self._ends is None:
            return None
        reached = _offsets(end)
        return sum(max(0, latest - reached.get(place, latest)) for place, latest in self._ends.items())

    def wait(self, start: str | None, timeout_s: float) -> bool:
        """`Source.wait`."""
        starts = _offsets(start)
        if self._is_delayed or not starts:
            time.sleep(min(timeout_s, _TOO_LITTLE_S))
            return self._is_delayed
        return self._watch.wait(starts, timeout_s)

    def leave(self) -> None:
        """`PatientSource.leave`."""
        self._watch.leave()

    def close(self) -> None:
        """`Source.close`."""
        self._watch.close()

    def _begin(self) -> dict[Place, int]:
        """Where the query begins, as its options say."""
        start = start_of(self._options)
        if start is None:
            said = {text.strip().lower() for key, text in self._options.items() if key.lower() == _STARTING_OFFSETS}
            if _EARLIEST not in said:
                return self._watch.ends({}, fresh=True)
            return self._watch.offsets(dict.fromkeys(self._watch.places(fresh=True), EARLIEST))
        places = set(self._watch.places(fresh=True))
        matches = self._watch.offsets(start.times(places))
        firsts = self._watch.offsets(dict.fromkeys(places, EARLIEST))
        ends = self._watch.offsets(dict.fromkeys(places, LATEST))
        self._check(start, firsts, ends, matches)
        given = matches if start.is_time else start.values
        return {place: {EARLIEST: firsts[place], LATEST: ends[place]}.get(at, at) for place, at in given.items()}

    def _check(
        self, start: Start, firsts: Mapping[Place, int], ends: Mapping[Place, int], matches: dict[Place, int]
    ) -> None:
        bounds = {place: (first, ends[place]) for place, first in firsts.items()}
        problems = [*start_problems(start, bounds, matches, takes_losses=self._client.takes_losses)]
        if problems:
            raise ConfigurationError(f"{start.option}: {'; '.join(problems)}")

    def _waits_for_more(self, begun: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
        """Whether a batch is left for later, as too few records are there."""
        if self._limits.least is None:
            return False
        now_ms = time.time_ns() // 1_000_000
        is_due = now_ms - self._triggered_ms >= self._limits.delay_ms
        if not is_due and is_too_little(self._limits.least, begun, ends):
            return True
        self._triggered_ms = now_ms
        return False

    def _firsts(self, begun: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
        """The first offsets of partitions that are new."""
        new = ends.keys() - begun.keys()
        return self._watch.offsets(dict.fromkeys(new, EARLIEST)) if new else {}

    def _report(self, begun: Mapping[Place, int], ends: Mapping[Place, int], firsts: Mapping[Place, int]) -> None:
        for text in losses(begun, ends, firsts):
            if not self._client.takes_losses:
                raise LogTruncatedError(text)
            _LOG.warning("%s; going on without it, as failOnDataLoss is false", text)


@lru_cache(64)
def _offsets(text: str | None) -> Mapping[Place, int]:
    """The offsets that a text has; most texts come again."""
    return {} if text is None else places_of(text)


def offsets_text(offsets: Mapping[Place, int]) -> str:
    """The offsets as Spark writes them."""
    partitions: dict[str, list[int]] = {}
    for topic, number in sorted(offsets):
        partitions.setdefault(topic, []).append(number)
    put = [topic for topic, numbers in partitions.items() for _ in numbers]  # Spark puts a topic at each of them
    found = {
        topic: {str(number): offsets[topic, number] for number in _in_scala_order(partitions[topic])}
        for topic in _in_scala_order(put)
    }
    return json.dumps(found, separators=(",", ":"))


def first_text(offsets: str) -> str:
    """The file of the first offsets."""
    return f"{_ZERO}{_VERSION}\n{offsets}"


def offsets_of_first(text: str, place: str) -> str:
    """The offsets in the file of the first ones, which lies at `place`; raises `ConfigurationError` where a later
    version of Spark has written it."""
    version, line_break, offsets = text.removeprefix(_ZERO).partition("\n")
    if not line_break or version != _VERSION:
        raise ConfigurationError(
            f"{place} is of version {version[:20]!r}, and {_VERSION} is what can be read here. Go on with the Spark "
            "that has written it"
        )
    return offsets


def _in_scala_order(keys: Iterable[K]) -> list[K]:
    """The keys in the order of a `mutable.HashMap` that they were put into one after the other, some more than once."""
    found: set[K] = set()
    size = _BUCKETS
    for key in keys:
        if len(found) + 1 >= int(size * _LOAD):  # also where the key is there already
            size *= 2
        found.add(key)
    hashes = {key: _hash(key) for key in sorted(found)}
    return sorted(hashes, key=lambda key: (hashes[key] & (size - 1), _signed(hashes[key])))


def _hash(key: str | int) -> int:
    """Scala's improvement of Java's hash; names of topics are ASCII."""
    hashed = key if isinstance(key, int) else 0
    for character in () if isinstance(key, int) else key:
        hashed = (31 * hashed + ord(character)) & 0xFFFF_FFFF
    return hashed ^ (hashed >> 16)


def _signed(hashed: int) -> int:
    return hashed - (1 << 32) if hashed >> 31 else hashed
