"""One pipeline on both engines, by random schedules: runs die at random points, and either engine goes on.

`kit/dying_runs` has the points; a run without one goes to the end. Each file is a batch, so that the log of files and
the log of batches are compacted and purged on the way. In the end the rows, the folded changelog and the dead letters
are those of all files, and no number of a batch is missing or there twice.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.changelog_files import changelog, folded
from tests.kit.dying_runs import ENGINES, POINTS, dying, engine_of, has_died
from tests.logstore.both_readers import BothReaders

RUNS = 11
KEYS = 7
KEPT = "snapshot.num-retained.min: 5000, snapshot.num-retained.max: 5000"
SOURCE = "files: {path: FOLDER/%s, maxFilesPerTrigger: 1}, format: json"
TABLES = {
    "sums": (
        [SOURCE % "a"],
        "primary_key: [id], options: {bucket: 2, changelog-producer: lookup, merge-engine: aggregation, "
        f"fields.a.aggregate-function: sum, fields.b.aggregate-function: sum, {KEPT}}}",
    ),
    "two streams": (
        [SOURCE % "a" + ", select: {id: id, a: a}", SOURCE % "b" + ", select: {id: id, b: b}"],
        f"primary_key: [id], options: {{bucket: 1, changelog-producer: lookup, merge-engine: partial-update, {KEPT}}}",
    ),
    "rows": ([SOURCE % "a"], f"options: {{bucket: -1, {KEPT}}}"),
    "keys anywhere": ([SOURCE % "a"], f"primary_key: [id], options: {{bucket: -1, {KEPT}}}"),
    "logged": (
        [SOURCE % "a"],
        f"primary_key: [id], options: {{bucket: 2, changelog-producer: lookup, {KEPT}, log.system: kafka, "
        "kafka.topic: TOPIC, kafka.bootstrap.servers: 'SERVERS'}",
    ),
}
LOGGED = "logged"
PIPELINE = """
name: turns
sources: [%s]
table: {warehouse: FOLDER/w, name: shop.t, columns: {id: BIGINT, a: BIGINT, b: BIGINT}, %s}
trigger: {available_now: true}
checkpoint: FOLDER/c
dead_letters: shop.dead
"""


class Turns:
    """A pipeline, the files that it reads, and the engines that run it."""

    def __init__(self, root: Path, kind: str, spark: SparkSession, servers: str = "") -> None:
        sources, table = TABLES[kind]
        self._folders = ["a", "b"][: len(sources)]
        for folder in self._folders:
            (root / folder).mkdir()
        file = root / "pipeline.yaml"
        text = PIPELINE % (", ".join(f"{{{each}}}" for each in sources), table)
        marks = {"FOLDER": str(root), "TOPIC": f"log-{uuid4()}", "SERVERS": servers}
        for mark, value in marks.items():
            text = text.replace(mark, value)
        file.write_text(text)
        self._root, self._config, self._spark = root, load_pipeline(file, {}), spark
        self.records: list[dict[str, int]] = []
        self.broken = 0
        self.died: Counter[tuple[str, str]] = Counter()
        self._files = 0

    @property
    def table(self) -> Table:
        return Catalog(str(self._root / "w")).table("shop.t")

    def put(self, chance: random.Random) -> None:
        for folder in self._folders:
            lines = []
            for _ in range(chance.randint(1, 6)):
                number = len(self.records)
                self.records.append({"id": chance.randrange(KEYS), folder: number})
                lines.append(json.dumps(self.records[-1]))
            if chance.random() < 0.3:
                lines.append("no record")
                self.broken += 1
            path = self._root / folder / f"{self._files:04}.json"
            path.write_text("".join(f"{line}\n" for line in lines))
            os.utime(path, (1000 + self._files, 1000 + self._files))
        self._files += 1

    def run(self, engine: str, point: str | None, after: int) -> None:
        """Runs to the end, or until the batch comes that dies at a point."""
        with dying(point, after):
            if has_died(Runner(engine_of(engine, self._spark), [self._config]).run) and point is not None:
                self.died[engine, point] += 1

    def check(self) -> None:
        table = self.table
        found = table.scan().to_arrow().to_pylist()
        batches = [
            each.commit_identifier
            for each in table.snapshots()
            if each.commit_user == "turns" and each.commit_kind is CommitKind.APPEND
        ]
        assert batches == list(range(len(batches)))
        assert Catalog(str(self._root / "w")).table("shop.dead").scan().to_arrow().num_rows == self.broken
        if not table.schema.primary_keys:
            assert Counter((row["id"], row["a"]) for row in found) == Counter(
                (each["id"], each["a"]) for each in self.records
            )
            return
        wanted: dict[int, dict[str, int | None]] = {}
        is_sum = "sum" in str(table.options.merge_engine) or "aggregat" in str(table.options.merge_engine)
        for each in self.records:
            row = wanted.setdefault(each["id"], {"id": each["id"], "a": None, "b": None})
            for name, value in each.items():
                if name != "id":
                    row[name] = (row[name] or 0) + value if is_sum else value
        assert {row["id"]: row for row in found} == wanted
        if table.options.changelog_producer != "none":
            emitted = folded(changelog(table).values(), ["id"], is_strict=True)
            assert {row["id"]: dict(row) for row in emitted.values()} == wanted


def _take_turns(pipeline: Turns, after_each: Callable[[], None]) -> None:
    """Runs of which each point of each engine lets one die, and others at random."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    schedule: list[tuple[str, str | None, int]] = [(engine, point, 0) for engine in ENGINES for point in POINTS]
    chance.shuffle(schedule)
    for _ in range(RUNS - len(schedule)):
        engine = "spark" if chance.random() < 0.35 else "local"
        schedule.append((engine, chance.choice([None, *POINTS]), chance.randint(0, 2)))
    for engine, point, after in schedule:
        for _ in range(chance.randint(1, 5)):
            pipeline.put(chance)
        pipeline.run(engine, point, after)
        after_each()
    assert all(pipeline.died[engine, point] for engine in ENGINES for point in POINTS)
    pipeline.run("local", None, 0)
    pipeline.check()
    for engine in ("spark", "local"):
        pipeline.put(chance)
        pipeline.run(engine, None, 0)
        pipeline.check()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", [each for each in TABLES if each != LOGGED])
def test_either_engine_goes_on(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    _take_turns(Turns(tmp_path, kind, spark), lambda: None)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_readers_of_the_log_beside_both_engines(
    tmp_path: Path, spark: SparkSession, kafka_broker: ForeignBroker
) -> None:
    pipeline = Turns(tmp_path, LOGGED, spark, kafka_broker.bootstrap_servers)
    pipeline.put(random.Random(0))
    for point in ("planned", "letters", None):  # the log has an attempt before there is a snapshot
        pipeline.run("local", point, 0)
    with BothReaders(pipeline.table) as readers:
        _take_turns(pipeline, readers.read)
        readers.check()
