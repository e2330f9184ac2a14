"""A real run of two pipelines, started by the tests in a process group of its own, that dies where a test wants it to.

    python -m tests.integration.stream_program FOLDER [POINT BATCH]

| point | what happens at that batch |
|---|---|
| before-commit | SIGKILL to the whole group when the tasks are done and nothing is committed |
| after-commit | SIGKILL to the whole group when the snapshot is there, Spark's commit log does not know it |
| in-task | SIGKILL to the whole group from a task whose files are written, before it reports to the driver |
| driver-in-task | the same, but only the driver dies |
| worker-in-task | the worker kills itself, once; the driver lives and Spark tries the task again |
| zombie | the driver stops itself (SIGSTOP) before the commit; a test wakes it up when another has taken over |

The pipelines read FOLDER/input, one file per batch, into a keyed and an append-only table.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import freshet.pipeline.spark.packed_way
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.running.spark_pipeline import spark_runner, spark_settings
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.model.commit_message import CommitMessage

KEYED = "keyed"
APPEND = "append"

PIPELINE = """
name: {name}
sources:
  - files: {{path: "{folder}/input", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: shop.{name}
  columns: {{id: BIGINT, batch: INT, text: STRING}}
  primary_key: {key}
  options: {options}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoints/{name}"
dead_letters: shop.{name}_dead
"""


def pipeline_files(folder: Path) -> list[Path]:
    """Writes the two pipeline files."""
    texts = {
        KEYED: PIPELINE.format(name=KEYED, folder=folder, key="[id]", options="{bucket: 2}"),
        APPEND: PIPELINE.format(name=APPEND, folder=folder, key="[]", options="{}"),
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return [folder / f"{name}.yaml" for name in texts]


@dataclass(frozen=True, slots=True)
class DoomedTask:
    """A task that ends in the middle: its files are written and not reported. It travels as its class does, which no
    module has: a subclass of a struct would not."""

    work: KeptValue[BatchWork]
    point: str = ""
    batch: int = -1
    marker: str = ""
    group: int = 0
    driver: int = 0

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        results = list(WriteTask(self.work).run(batches, place))
        if results and place.pin(0).micro_batch_id == self.batch and not os.path.exists(self.marker):
            Path(self.marker).touch()
            if self.point == "in-task":
                # Workers lead a group of their own, so the group of the driver dies first and takes the JVM along.
                os.killpg(self.group, signal.SIGKILL)
            elif self.point == "driver-in-task":
                os.kill(self.driver, signal.SIGKILL)
                time.sleep(5)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from results


def doom(folder: Path, point: str, batch: int) -> None:
    """Makes this process die at the point; patches what the driver calls."""
    if point in ("in-task", "driver-in-task", "worker-in-task"):

        def doomed(work: KeptValue[BatchWork], **more: Any) -> WriteTask | DoomedTask:
            if work.value.tables[0].pipeline != KEYED:
                return WriteTask(work, **more)
            marker = str(folder / "died")
            return DoomedTask(work, point=point, batch=batch, marker=marker, group=os.getpgid(0), driver=os.getpid())

        freshet.pipeline.spark.packed_way.WriteTask = doomed  # type: ignore[assignment, misc]
        return
    commit = Committer.commit

    def dying(self: Committer, identifier: int, messages: Sequence[CommitMessage], **arguments: Any) -> CommitResult:
        is_here = identifier == batch and self._store.location.endswith(f"/{KEYED}")
        if is_here and point == "before-commit":
            os.killpg(0, signal.SIGKILL)
        if is_here and point == "zombie":
            (folder / "stopped").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        result = commit(self, identifier, messages, **arguments)
        if is_here and point == "after-commit":
            os.killpg(0, signal.SIGKILL)
        return result

    Committer.commit = dying  # type: ignore[method-assign]


def main() -> None:
    """Runs the pipelines to the end of their input."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        doom(folder, sys.argv[2], int(sys.argv[3]))
    configs = load_pipelines(pipeline_files(folder))
    # Three attempts per task: a lone worker that dies must not end the run.
    spark = create_session("stream-program", settings={**SHORT_LIVED, **spark_settings(configs)}, master="local[2,3]")
    spark_runner(spark, configs, say=lambda text: print(text, flush=True)).run()
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main()
