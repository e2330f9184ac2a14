"""One Spark session for all tests of a run: two cores, started when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.pipeline.spark.table_sink import QUERY_ID_PROPERTY

PRELOADED = Path(__file__).with_name("preloaded")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; stopped at the end of the run."""
    path = os.environ.get("PYTHONPATH")
    with pytest.MonkeyPatch.context() as patch:  # the JVM hands it to all Python processes that it starts
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PRELOADED), path])))
        session = create_session("freshet-tests", settings=SHORT_LIVED, master="local[2]")
    yield session
    session.stop()


@contextmanager
def inside_query(spark: SparkSession, query_id: str = "query-1") -> Iterator[None]:
    """This thread looks to a sink as the thread of a streaming query does: Spark sets the query's id on it."""
    spark.sparkContext.setLocalProperty(QUERY_ID_PROPERTY, query_id)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(QUERY_ID_PROPERTY, None)  # type: ignore[arg-type]
