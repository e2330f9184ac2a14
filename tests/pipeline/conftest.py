"""Fixtures of the pipeline's tests."""

from __future__ import annotations

import pytest

from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.local_pipeline import LocalPipelines
from tests.kit.spark import spark

__all__ = ["engine", "spark"]


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest) -> PipelineEngine:
    """What runs the pipelines of a test: each engine in turn, Spark among the slow tests."""
    if request.param == "local":
        return LocalPipelines(WorkerPool(0))
    from freshet.pipeline.running.spark_pipeline import SparkPipelines

    return SparkPipelines(request.getfixturevalue("spark"))
