"""`freshet demo broker`: a broker with the shop's change stream, for pipelines of one's own."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker, any_broker
from freshet.jobs.demo.shop import CUSTOMERS_TOPIC, ORDERS_TOPIC, Shop
from freshet.pipeline.errors.error_kind import EXIT_DONE
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.running.signals import when_asked_to_stop

CUSTOMERS: Final = 20
EVENTS: Final = 1000
_FLUSH_S: Final = 300.0


def serve_shop() -> int:
    """Fills two topics; a broker of our own then runs until Ctrl-C."""
    with any_broker() as broker:
        sent = _fill(broker)
        print(f"topics {', '.join(f'{topic} ({count} records)' for topic, count in sent.items())}")
        if not isinstance(broker, KafkaBroker):
            return EXIT_DONE
        print("the broker runs until Ctrl-C; in another terminal:\n")
        print(f"export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap_servers}", flush=True)
        asked = threading.Event()
        with when_asked_to_stop(asked.set):
            asked.wait()
    return EXIT_DONE


def _fill(broker: ForeignBroker) -> dict[str, int]:
    there = broker.topics()
    for topic in (ORDERS_TOPIC, CUSTOMERS_TOPIC):
        if topic in there:
            raise InvalidRequestError(
                f"topic {topic} at {broker.bootstrap_servers} is there already: delete it, or unset "
                "KAFKA_BOOTSTRAP_SERVERS to start a broker"
            )
        broker.create_topic(topic, kafka_partitions=2)
    shop = Shop()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for message in [*shop.open(CUSTOMERS), *shop.trade(EVENTS)]:
        producer.produce(message.topic, message.value, message.key)
    producer.flush(_FLUSH_S)
    return shop.sent
