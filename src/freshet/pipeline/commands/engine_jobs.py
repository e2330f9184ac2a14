"""The engine that a command opens for jobs of its own: that of the pipeline file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.query.driver.jobs import Jobs

OpenJobs = Callable[[PipelineConfig, str], AbstractContextManager[Jobs]]
"""Opens the engine of a file; the text says what for."""


def started(configs: Sequence[PipelineConfig], workers: int | None = None) -> AbstractContextManager[Any]:
    """The workers of the local engine; of Spark nothing, a session starts once the files are known to be right.

    Belongs before a look at a table or a broker: that may start threads, and workers are forked from this process.
    """
    is_local = all(config.is_local for config in configs)
    found: AbstractContextManager[Any] = (
        spark_part("local_running").started(workers, configs) if is_local else nullcontext()
    )
    return found


@contextmanager
def engine_of(config: PipelineConfig) -> Iterator[OpenJobs]:
    """What opens the jobs of a pipeline; belongs where `started` does. What it gives raises `InvalidRequestError` where
    Spark is not installed."""
    with started([config]) as workers:

        def open_jobs(config: PipelineConfig, purpose: str) -> AbstractContextManager[Jobs]:
            engine = spark_part("local_running" if config.is_local else "running")
            found: AbstractContextManager[Jobs] = engine.jobs(workers, config, purpose)
            return found

        yield open_jobs
