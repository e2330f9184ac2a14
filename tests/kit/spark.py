"""One Spark session for all tests of a run: two cores, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.spark.session import SHORT_LIVED, create_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; stopped at the end of the run."""
    session = create_session("freshet-tests", settings=SHORT_LIVED, master="local[2]")
    yield session
    session.stop()
