"""Fixtures of files that run in processes of their own, with a session that has the jars of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import create_session
from tests.integration.other_driver import SETTINGS, OtherDriver
from tests.integration.source_world import SyncWorld


@pytest.fixture(scope="session")
def kafka_spark() -> Iterator[SparkSession]:
    """One session for all files of the process."""
    session = create_session("sources", settings=SETTINGS, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def other_driver() -> Iterator[OtherDriver]:
    """One for all files of the process; it starts while the test does what comes first."""
    with OtherDriver.start() as driver:
        yield driver


@pytest.fixture
def world(kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path) -> SyncWorld:
    """A source of many tables."""
    return SyncWorld(kafka_spark, kafka_broker, tmp_path)
