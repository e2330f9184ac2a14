"""A pipeline that follows tables, run on the local engine in this process, or on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from freshet import Catalog, Table
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipeline
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from tests.kit.engine import Faults, InlinePool

TEXT = """\
name: copy
sources:
  - table: {{warehouse: "{from}/w", name: db.source{stream}}}
    {select}
table:
  warehouse: "{folder}/w"
  name: db.target
  columns: {columns}
  {key}
  options: {{{options}}}
trigger: {{available_now: true}}
checkpoint: "{folder}/c"
"""
COLUMNS = {"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "STRING"}


class Followed:
    """A table `db.source`, keyed by (p, k), which fills `db.target`."""

    def __init__(self, folder: Path, **said: str) -> None:
        self.folder = folder
        self.said = {
            "stream": "", "select": "", "columns": json.dumps(COLUMNS).replace('"', ""), "key": "primary_key: [p, k]",
            "options": "bucket: 2", "from": str(folder), **said,
        }  # fmt: skip
        self.catalog = Catalog(folder / "w")
        options = {"bucket": "2", "changelog-producer": "lookup"}
        self.source = self.catalog.create_table(
            "db.source", schema=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options=options
        )

    @classmethod
    def like(cls, other: Followed, folder: Path) -> Followed:
        """Another pipeline that follows the same table, with a target and a checkpoint of its own."""
        found = cls.__new__(cls)
        found.folder, found.said, found.catalog, found.source = folder, other.said, Catalog(folder / "w"), other.source
        found.said = {**other.said, "from": str(other.folder)}
        return found

    def put(self, *rows: tuple[str, int, int, str]) -> None:
        """A commit of rows: kind, p, k, v."""
        names = ("_ROW_KIND", "p", "k", "v")
        with self.catalog.table("db.source").writer("w") as writer:
            writer.write([dict(zip(names, row, strict=True)) for row in rows])
            writer.commit()

    @property
    def config(self) -> PipelineConfig:
        path = self.folder / "p.yaml"
        path.write_text(TEXT.format(folder=self.folder, **self.said))
        return load_pipeline(path)

    def run(self) -> list[Progress]:
        """Runs it on the local engine until all is read."""
        found: list[Progress] = []
        Runner(LocalPipelines(InlinePool(Faults())), [self.config], on_progress=found.append).run()
        return found

    @property
    def target(self) -> Table:
        return self.catalog.table("db.target")

    def rows(self, name: str = "db.target") -> list[dict[str, Any]]:
        """The rows of a table, by their key."""
        found = self.catalog.table(name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: json.dumps(row, default=str))

    def offsets(self) -> dict[int, str]:
        """What the checkpoint has of each batch, of its source."""
        files = [each for each in (self.folder / "c" / "offsets").iterdir() if each.name.isdecimal()]
        return {int(each.name): each.read_text().splitlines()[2] for each in files}
