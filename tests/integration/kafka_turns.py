"""A topic that loses records, read on both engines in turns: across batch 10 and batch 101, after a first batch that
died, with the settings of another session of Spark.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.stream_checkpoint import CONF
from freshet.storage.model.snapshot import CommitKind
from tests.integration.source_world import World
from tests.kit.compacted_topic import offsets_there, produce_compacted
from tests.kit.dying_runs import ENGINES, dying, has_died

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
BATCH = 4
CONF_OF_ANOTHER = {
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
}
LOST = "(is|are) not in Kafka"


class RollingWorld(World):
    """A topic whose oldest records go, and a pipeline that appends its records, so that one that comes twice shows."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        super().__init__(spark, broker, folder)
        self.topic = f"{self.db}.rolling"
        broker.create_topic(self.topic, kafka_partitions=PARTITIONS)
        self.takes_losses = False
        self.sent: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.lost: list[int] = []
        self.firsts = [0] * PARTITIONS
        self._numbers = itertools.count()

    @property
    def text(self) -> str:
        fails = "false" if self.takes_losses else "true"
        return f"""
name: rolling
sources:
  - kafka: {{kafka.bootstrap.servers: '{self.broker.bootstrap_servers}', subscribe: {self.topic},
             startingOffsets: earliest, maxOffsetsPerTrigger: {BATCH}, failOnDataLoss: {fails}}}
    format: json
table: {{warehouse: "{self.folder}/w", name: db.t, columns: {{id: BIGINT}},
         options: {{bucket: -1, snapshot.num-retained.min: 5000, snapshot.num-retained.max: 5000}}}}
dead_letters: db.dead
trigger: {{available_now: true}}
checkpoint: "{self.folder}/c"
"""

    @property
    def checkpoint(self) -> LocalCheckpoint:
        return LocalCheckpoint(self.folder / "c")

    def put(self, batches: int) -> None:
        """Records for so many batches, as many for each partition."""
        for partition in range(PARTITIONS):
            numbers = list(itertools.islice(self._numbers, batches * BATCH // PARTITIONS))
            self.sent[partition] += numbers
            self.send_to_partition(self.topic, partition, [json.dumps({"id": each}).encode() for each in numbers])

    def roll(self, *ends: int) -> None:
        """The records of each partition before an offset go."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        places = [KafkaPartition(self.topic, number, end) for number, end in enumerate(ends)]
        for future in admin.delete_records(places).values():
            future.result(60)
        self.firsts = list(ends)

    def read_to(self) -> list[int]:
        """Where each partition was read to, as the checkpoint says."""
        newest = max(self.checkpoint.numbers("offsets"))
        text = (self.checkpoint.read("offsets", str(newest)) or "").split("\n")[2]
        return [json.loads(text)[self.topic][str(number)] for number in range(PARTITIONS)]

    def conf(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.checkpoint.read("offsets", str(number)) or "").split("\n")[1])["conf"]
        return found

    def check(self) -> None:
        table = self.catalog.table("db.t")
        wanted = Counter(each for numbers in self.sent for each in numbers)
        wanted.subtract(self.lost)
        assert Counter(table.scan().to_arrow()["id"].to_pylist()) == +wanted
        batches = [each.commit_identifier for each in table.snapshots() if each.commit_kind is CommitKind.APPEND]
        assert batches == list(range(len(batches)))


@pytest.fixture
def world(kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path) -> RollingWorld:
    return RollingWorld(kafka_spark, kafka_broker, tmp_path)


def test_a_topic_that_rolls_behind_the_reader(world: RollingWorld) -> None:
    """What was read goes after each run, up to where the batch that died begins."""
    spark, chance = world.spark, random.Random(11)
    world.put(3)
    for name, text in CONF_OF_ANOTHER.items():
        spark.conf.set(name, text)
    with dying("planned"):
        assert has_died(lambda: world.run(on="spark"))
    for name in CONF_OF_ANOTHER:
        spark.conf.unset(name)
    conf = world.conf(0)
    assert CONF_OF_ANOTHER.items() <= conf.items() and conf.keys() >= CONF.keys()
    for newest in (4, 9, 10, 11, 60, 99, 100, 101, 102, 115):
        planned = max(world.checkpoint.numbers("offsets"))
        done = max(world.checkpoint.numbers("commits"), default=-1)
        if done >= 0:
            world.roll(*(each - (BATCH if done < planned else 0) for each in world.read_to()))
        world.put(max(1, newest - planned))
        engines = ["local"] if newest == 60 else list(ENGINES)
        with dying(chance.choice(["planned", "letters", "written"]), after=newest - planned):
            engine = chance.choice(engines)
            has_died(partial(world.run, on=engine))
        assert world.conf(max(world.checkpoint.numbers("offsets"))) == conf
    for engine in ENGINES:
        world.put(2)
        world.run(on=engine)
    assert min(world.checkpoint.numbers("offsets")) > 5, "entries were purged"
    world.check()


@pytest.mark.parametrize("engine", ENGINES)
def test_records_that_go_before_they_are_read(world: RollingWorld, engine: str) -> None:
    """Either engine refuses; where the file takes losses the other one goes on with what is left."""
    [other] = set(ENGINES) - {engine}
    world.put(2)
    world.run(on=other)
    world.put(4)
    gone = [each + 3 for each in world.read_to()]
    world.lost = [each for number, end in enumerate(gone) for each in world.sent[number][end - 3 : end]]
    world.roll(*gone)
    for each in (engine, other, engine):
        with pytest.raises(PipelineFailedError, match=LOST):
            world.run(on=each)
    world.takes_losses = True
    world.run(on=other)
    world.put(1)
    world.run(on=engine)
    world.check()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [0, 2])
def test_records_of_a_batch_that_died_go_before_it_is_run_again(world: RollingWorld, engine: str, batch: int) -> None:
    [other] = set(ENGINES) - {engine}
    world.put(batch + 3)
    world.takes_losses = True
    with dying("planned", after=batch):
        assert has_died(lambda: world.run(on=engine))
    gone = [each - 1 for each in world.read_to()]
    begun = [each - BATCH // PARTITIONS for each in world.read_to()]
    world.lost = [each for number, end in enumerate(gone) for each in world.sent[number][begun[number] : end]]
    assert world.lost
    world.roll(*gone)
    world.run(on=other)
    world.check()


def test_a_topic_that_a_clean_up_goes_through(world: RollingWorld, kafka_broker: ForeignBroker) -> None:
    """Batches begin and end in gaps, and some have no record at all."""
    world.topic = f"{world.db}.compacted"
    chance = random.Random(5)
    produce_compacted(kafka_broker, world.topic, [chance.randrange(9) for _ in range(200)])
    left = offsets_there(kafka_broker, world.topic)
    assert any(end - start > 3 * BATCH for start, end in itertools.pairwise(left))
    world.sent = [left]
    for engine, point in (("local", "planned"), ("spark", "written"), ("local", "letters"), ("spark", "planned")):
        with dying(point, after=9):
            assert has_died(partial(world.run, on=engine))
    world.run(on="local")
    world.check()
