"""The part of `freshet run`, of `resume` and of replays that does without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from freshet.pipeline.checks.preflight import checkpoint_problems
from freshet.pipeline.commands.command_run import needs_kafka, reporter_of, run_on
from freshet.pipeline.commands.failure_report import Refusals
from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, Problem
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, as_folder
from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
from freshet.pipeline.local.stream_checkpoint import StreamCheckpoint
from freshet.pipeline.local.workers import LocalEngine, WorkerPool
from freshet.pipeline.running.local_pipeline import LocalJobs, LocalPipelines
from freshet.storage.exceptions import StorageError

_OF_WORKERS: Final[tuple[str, ...]] = (
    "freshet.pipeline.decode.decoder",
    "freshet.storage.write.task_writer",
    "numpy.ma",
)

if TYPE_CHECKING:  # what is loaded where metrics are published
    from freshet.pipeline.running.run_totals import RunTotals
"""What tasks load of themselves; the template of the workers does so while this process looks at tables and brokers."""
_OF_KAFKA: Final = ("freshet.logstore.kafka.range_reader",)


def started(workers: int | None, configs: Sequence[PipelineConfig]) -> AbstractContextManager[WorkerPool]:
    """The workers, which are forked before anything starts a thread, as a look at an object store does: by default as
    many as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    loads = _OF_WORKERS
    if needs_kafka(configs):
        spark_part("brokers")  # what both processes need is loaded once
        loads += _OF_KAFKA
    return WorkerPool(workers or cores or 1, loads=loads)


def jobs(pool: WorkerPool, config: PipelineConfig, purpose: str) -> AbstractContextManager[LocalJobs]:
    """Jobs in these workers; `purpose` is what for."""
    return nullcontext(LocalJobs(LocalEngine(pool), lambda _: pipeline_checkpoint(config)))


def look_at_checkpoints(configs: Sequence[PipelineConfig], *, offline: bool = False) -> list[Problem]:
    """Why runs without Spark could not go on with the checkpoints of files; writes nothing. What lies elsewhere than on
    a local disk was not looked at before: that is done here, and unless `offline` its offsets are."""
    problems: list[Problem] = []
    elsewhere: dict[str, CheckpointFolder] = {}
    for config in configs:
        try:
            folder = pipeline_checkpoint(config)
            StreamCheckpoint(folder, len(config.sources), {})
            if as_folder(config.checkpoint) is None:
                elsewhere[config.name] = folder
                problems += checkpoint_problems(config, folder)
        except ConfigurationError as error:
            problems += [each if each.key_path else _of_checkpoint(config, error) for each in error.problems]
        except (PipelineError, StorageError) as error:
            problems.append(_of_checkpoint(config, error))
    remote = [config for config in configs if config.name in elsewhere]
    if needs_kafka(remote) and not offline:
        problems += spark_part("brokers").offset_problems(remote, say=complain, folders=elsewhere)
    return problems


def _of_checkpoint(config: PipelineConfig, error: Exception) -> Problem:
    return config.origin.placed(Problem(("checkpoint",), config.without_secrets(str(error)), kind_of(error)))


def run_pipelines(
    pool: WorkerPool,
    configs: Sequence[PipelineConfig],
    *,
    progress: str,
    refusals: Refusals,
    restarts: int,
    totals: RunTotals | None,
) -> None:
    """Runs the pipelines in this process, as `command_run.run_on` does."""
    reporter = reporter_of(configs, progress, sums_up=True)
    configs = refusals.left(configs, look_at_checkpoints(configs))
    run_on(LocalPipelines(pool), configs, reporter, refusals=refusals, restarts=restarts, totals=totals)
