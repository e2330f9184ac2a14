"""Replies of the JVM that come at once are the same replies."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.spark.active_query import hasten_replies

pytestmark = pytest.mark.spark


def test_large_replies_and_errors(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    client: Any = spark.sparkContext._gateway._gateway_client
    hasten_replies(spark)
    connection = client.get_thread_connection()
    stream = connection.stream
    assert type(stream.raw).__name__ == "_QuickReader"
    text = "aä\n€𐍈" * 20_000
    for count in (1, 3000, 100_000):
        assert jvm.java.lang.StringBuilder(text[:count]).toString() == text[:count]
    with pytest.raises(Exception, match="For input string"):
        jvm.java.lang.Integer.parseInt("x")
    hasten_replies(spark)
    assert client.get_thread_connection() is connection and connection.stream is stream, "once is enough"
    assert spark.range(5).count() == 5
