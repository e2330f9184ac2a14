"""Queries of SQL statements in Spark: each table is a temporary view over the data source `freshet`, with the columns
and the filter that the query needs of it, for Spark tells a Python source of neither."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Final
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from freshet._frozen import Frozen
from freshet.pipeline.config.catalogs import prefixed
from freshet.pipeline.config.frame_options import FILTER_OPTION, SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION
from freshet.pipeline.exceptions import brief_reason
from freshet.pipeline.sources.batch_source import FORMAT, is_registered, register
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.sql.run import Query, TableRead

_ZONE_CONF: Final = "spark.sql.session.timeZone"
_UTC_NAMES: Final = frozenset({"UTC", "Z", "Etc/UTC", "GMT", "+00:00", "UTC+00:00", "GMT+00:00"})
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_TRAVEL: Final = {"snapshot_id": SNAPSHOT_OPTION, "tag": TAG_OPTION, "timestamp_ms": TIMESTAMP_OPTION}


class SparkQueryEngine(Frozen, dict=True):
    """A `QueryEngine` of a session; the session's own views and functions may be named as well."""

    session: SparkSession

    @cached_property
    def zone(self) -> tzinfo:
        """The time zone of the session."""
        return _zone(str(self.session.conf.get(_ZONE_CONF)))

    def knows(self, name: str) -> bool:
        """Whether the session has a view or a table of this name."""
        return bool(self.session.catalog.tableExists(f"`{name.replace('`', '``')}`"))

    def takes_function(self, name: str) -> bool:
        """Spark says itself which functions it has."""
        del name
        return True

    def run(self, query: Query) -> SparkRows:
        """The rows of the query; Spark computes them when they are asked for."""
        if query.reads and not is_registered(self.session):  # Spark warns of a source that is made known twice
            register(self.session)
        prefix = f"freshet_{uuid4().hex}_"
        views = [f"{prefix}{read.label}" for read in query.reads]
        try:
            for read, view in zip(query.reads, views, strict=True):
                self._frame(read).createOrReplaceTempView(view)
            return SparkRows(self.session.sql(query.sql("spark", prefix)))
        except PySparkException as error:
            raise InvalidRequestError(f"SQL: Spark cannot compute it: {brief_reason(error)}") from error
        finally:
            for view in views:
                self.session.catalog.dropTempView(view)

    def _frame(self, read: TableRead) -> DataFrame:
        reader = self.session.read.format(FORMAT).option("warehouse", read.catalog.warehouse)
        reader = reader.option("table", read.identifier).options(**prefixed(read.catalog.options))
        if read.filter is not None:
            reader = reader.option(FILTER_OPTION, read.filter)
        for key, value in read.travel.items():
            reader = reader.option(_TRAVEL[key], str(value))
        if read.named_snapshot_id is not None:
            reader = reader.option(SNAPSHOT_OPTION, str(read.named_snapshot_id))
        fields = read.table.scan(read.columns, **read.travel).fields
        return reader.schema(spark_struct(fields)).load()


class SparkRows(Frozen, dict=True):
    """Rows of a DataFrame; as Arrow they are brought to this process, all at once."""

    frame: DataFrame

    @property
    def given_names(self) -> Sequence[str]:
        """Names of the columns as the query has them."""
        return self.frame.columns

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns that come out."""
        zone = str(self.frame.sparkSession.conf.get(_ZONE_CONF))
        found: pa.Schema = to_arrow_schema(self.frame.schema, timezone=zone)
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        yield from self.frame.toArrow().cast(self.schema).to_batches()


def _zone(text: str) -> tzinfo:
    if text in _UTC_NAMES:
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-span if offset[1] == "-" else span)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidRequestError(
            f"{_ZONE_CONF}={text} is no time zone that Python knows; set one such as Europe/Berlin or +01:00"
        ) from error
