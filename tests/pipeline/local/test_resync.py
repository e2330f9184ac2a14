"""A table of many that is read anew by the local engine, from brokers that librdkafka mocks."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from freshet import Catalog
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.sync.ledger import RESUMED, read_ledger
from freshet.pipeline.sync.resume import resume_table
from tests.kit.engine import Faults, InlinePool, local_jobs
from tests.kit.mock_kafka import mock_kafka

TEXT = """\
name: shop
sync:
  source:
    kafka: {kafka.bootstrap.servers: "SERVERS", subscribe: "a,b", startingOffsets: earliest}
    format: json
  schema: infer
  tables: [{from: ".*", to: "lake.{table}", primary_key: [id], options: {bucket: 2}}]
warehouse: "FOLDER/w"
checkpoint: "FOLDER/c"
dead_letters: lake.dead
trigger: {available_now: true}
"""


def test_a_table_is_dropped_and_read_from_the_first_offset(tmp_path: Path) -> None:
    with mock_kafka(topics={"a": 2, "b": 1}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(20):
            producer.produce("ab"[number % 2], json.dumps({"id": number, "n": number}).encode())
        producer.flush(10)
        file = tmp_path / "p.yaml"
        file.write_text(TEXT.replace("FOLDER", str(tmp_path)).replace("SERVERS", cluster.bootstrap_servers))
        (config,) = load_pipelines([file])
        assert isinstance(config, SyncPipelineConfig)
        Runner(LocalPipelines(InlinePool(Faults())), [config], on_progress=lambda progress: None).run()
        catalog = Catalog(tmp_path / "w")
        wanted = catalog.table("lake.a").scan().to_arrow().sort_by("id").to_pylist()
        assert len(wanted) == 10
        done = resume_table(local_jobs(), config, "lake.a", anew=True)
        assert (done.batch, done.row_count, done.dead_count) == (0, 10, 0)
        assert catalog.table("lake.a").scan().to_arrow().sort_by("id").to_pylist() == wanted
        assert read_ledger(catalog.table(config.ledger_name))["lake.a"].state == RESUMED
