"""Offsets of a Kafka source as Spark writes them, byte for byte, and the file of its first ones.

    offsets/<N>      {"topic":{"0":5,"1":7}}
    sources/<i>/0    a zero byte, `v1`, a line break, the same

Spark puts topics and partitions into maps of Scala, and writes them in the order in which those hold them: that of
their hashes, of as many buckets as there have been so many entries. Partitions that are numbered from 0 on come in
their order, others and topics need not.

Source: Spark's `JsonUtils`, Scala 2.13's `mutable.HashMap`. tests/integration/test_kafka_as_spark.py compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from freshet.pipeline.config.starting_offsets import Place, places_of
from freshet.pipeline.exceptions import ConfigurationError

K = TypeVar("K", str, int)

_ZERO: Final = "\0"
_VERSION: Final = "v1"
_BUCKETS: Final = 16
_LOAD: Final = 0.75


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


def offsets_of(text: str) -> dict[Place, int]:
    """What `offsets_text` has written."""
    return places_of(text)


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
    hashes = {key: _improved(key if isinstance(key, int) else _hash(key)) for key in sorted(found)}
    return sorted(hashes, key=lambda key: (hashes[key] & (size - 1), _signed(hashes[key])))


def _improved(hashed: int) -> int:
    return hashed ^ (hashed >> 16)


def _hash(text: str) -> int:
    """Java's hash of a string; names of topics are ASCII."""
    hashed = 0
    for character in text:
        hashed = (31 * hashed + ord(character)) & 0xFFFF_FFFF
    return hashed


def _signed(hashed: int) -> int:
    return hashed - (1 << 32) if hashed >> 31 else hashed
