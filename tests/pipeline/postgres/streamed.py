"""A pipeline that reads a database, run on the local engine in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from freshet import Catalog
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipeline
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource

SOURCE = """{{postgres: {{dsn: "{dsn}", password: "{password}", tables: {tables}, slot: {slot}, publication: p,
    snapshot: {snapshot}{failover}}}{more}}}"""
ONE = """\
name: shop
run_on: local
sources:
  - {of}
table: {{warehouse: "{folder}/w", name: db.t, columns: {columns}, primary_key: [{key}], options: {{{options}}}}}
trigger: {trigger}
checkpoint: "{folder}/c"
"""
SYNC = """\
name: shop
run_on: local
warehouse: "{folder}/w"
dead_letters: db.dead_letters
sync:
  source: {of}
  tables: {rules}
  options: {{{options}}}
trigger: {trigger}
checkpoint: "{folder}/c"
"""
ONCE, ALWAYS = "{available_now: true}", "{processing_time: 0 s}"


class Streamed:
    """A pipeline over the tables of a database."""

    def __init__(self, folder: Path, source: PostgresSource, **said: str) -> None:
        self.folder, self.source = folder, source
        self.said = {
            "dsn": source.dsn,
            "tables": '["public.*"]', "snapshot": "never", "failover": "", "more": "",
            "slot": f"s{uuid4().hex[:12]}", "key": "id",
            "columns": "{id: BIGINT}", "options": 'bucket: "1"', "trigger": ONCE,
            "rules": '[{from: "[^.]*.public.(.*)", to: "db.{table}"}]', **said,
        }  # fmt: skip

    @property
    def slot(self) -> str:
        return self.said["slot"]

    def config(self, template: str = ONE, **said: str) -> PipelineConfig:
        texts = {**self.said, **said, "folder": str(self.folder)}
        of = SOURCE.format(password=self.source.password, **texts)
        path = self.folder / "p.yaml"
        path.write_text(template.format(of=of, **texts))
        return load_pipeline(path, {})

    def run(self, template: str = ONE, **said: str) -> list[Progress]:
        """Runs it until all is read that was there."""
        found: list[Progress] = []
        config = self.config(template, **said)
        Runner(LocalPipelines(WorkerPool(0)), [config], on_progress=found.append).run()
        return found

    @contextmanager
    def running(self, template: str = ONE, **said: str) -> Iterator[threading.Event]:
        """Runs it meanwhile; the event is set by each batch."""
        came = threading.Event()
        config = self.config(template, trigger=ALWAYS, **said)
        pipelines, rule = LocalPipelines(WorkerPool(0)), RestartRule(9, first_wait_s=0.5)
        runner = Runner(pipelines, [config], on_progress=lambda progress: came.set(), restarts=rule)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            yield came
        finally:
            runner.request_stop()
            thread.join(300)
            assert not thread.is_alive()

    def rows(self, name: str = "db.t") -> list[dict[str, Any]]:
        found = Catalog(self.folder / "w").table(name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str))
