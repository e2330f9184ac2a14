"""librdkafka's mock cluster, with brokers that answer as a test sets them to.

    with mock_kafka(topics={"t": 2}) as cluster:
        … cluster.bootstrap_servers …
        cluster.fail(PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS, times=3)     the next answers of this kind
        cluster.set_up(False)                                               the broker is gone, or back
        cluster.set_round_trip_ms(300)

It is in the library that confluent-kafka brings along, called through ctypes. It knows no transactions' isolation, no
idempotence and no topics of the admin client: those are for a real broker.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka

from tests.kit.components import missing

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
"""Kinds of requests, by their numbers in the protocol."""

_PRODUCER_TYPE = 0

FOLDER = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
"""Where wheels for Linux have the library."""


def _library(folder: Path = FOLDER) -> ctypes.CDLL:
    path = next(folder.glob("librdkafka-*.so*"), None)
    if path is None:
        missing(
            f"librdkafka in {folder}, whose mock cluster is needed,", "install confluent-kafka from its wheel for Linux"
        )
    library = ctypes.CDLL(str(path))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, ctypes.c_int]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [pointer]),
        ("rd_kafka_mock_topic_create", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]),
        ("rd_kafka_mock_push_request_errors_array", None, [pointer, ctypes.c_int16, ctypes.c_size_t, pointer]),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_rtt", ctypes.c_int, [pointer, ctypes.c_int32, ctypes.c_int]),
    ):  # fmt: skip
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockKafka:
    """A cluster of one broker."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library, self._cluster = library, cluster
        self.bootstrap_servers: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def create_topic(self, name: str, partition_count: int = 1) -> None:
        """The admin client cannot: the mock knows no such request."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partition_count, 1) == 0

    def fail(self, request: int, error: int, *, times: int) -> None:
        """What the next requests of a kind are answered with."""
        errors = (ctypes.c_int * times)(*[error] * times)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, times, errors)

    def set_up(self, is_up: bool) -> None:
        """Brings the broker down, or back."""
        call = self._library.rd_kafka_mock_broker_set_up if is_up else self._library.rd_kafka_mock_broker_set_down
        assert call(self._cluster, 1) == 0

    def set_round_trip_ms(self, milliseconds: int) -> None:
        """How long each answer takes from now on."""
        assert self._library.rd_kafka_mock_broker_set_rtt(self._cluster, 1, milliseconds) == 0


@contextlib.contextmanager
def mock_kafka(topics: Mapping[str, int]) -> Iterator[MockKafka]:
    """A running cluster with these topics and their numbers of partitions."""
    library = _library()
    text = ctypes.create_string_buffer(512)
    settings = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(settings, b"log_level", b"0", text, len(text))
    host = library.rd_kafka_new(_PRODUCER_TYPE, settings, text, len(text))
    assert host, text.value
    cluster = library.rd_kafka_mock_cluster_new(host, 1)
    try:
        found = MockKafka(library, cluster)
        for name, count in topics.items():
            found.create_topic(name, count)
        yield found
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(host)
