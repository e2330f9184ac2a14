"""The part of jobs/hybrid_read.py that needs Spark."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from freshet.pipeline.batch.table_sink import table_sink
from freshet.pipeline.config.catalogs import prefixed
from freshet.pipeline.config.stream_options import ISOLATION_OPTION, stream_options, table_for
from freshet.pipeline.config.table_source_rules import why_retractions_stay
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError, brief_reason
from freshet.pipeline.running.signals import when_asked_to_stop
from freshet.pipeline.sources.batch_source import FORMAT, register
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.catalog import Catalog, check_no_secrets

POLL_S: Final = 0.1


def follow(
    options: Mapping[str, str],
    *,
    to: str,
    path: str | None,
    into: str | None,
    checkpoint: str | None,
    name: str,
    every: str | None,
    catalog_options: Mapping[str, str],
) -> None:
    """Runs until it is asked to stop, or everything is read where `every` is None; raises what made it fail.

    Raises `InvalidRequestError` before a session starts where the options make no sense for the tables.
    """
    lowered = {key.lower(): text for key, text in options.items()}
    check_no_secrets(catalog_options)
    _check(lowered, into, catalog_options)
    with session_of_a_command("freshet hybrid-read") as spark:
        register(spark)
        frame = spark.readStream.format(FORMAT).options(**options, **prefixed(catalog_options)).load()
        writer, close = _writer(frame, options["warehouse"], to, path, into, name, catalog_options)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": every}
        stop = threading.Event()
        try:
            query = writer.trigger(**trigger).start()
            with when_asked_to_stop(stop.set):
                while query.isActive and not stop.wait(POLL_S):
                    pass
                while query.isActive and query.status["isTriggerActive"]:
                    threading.Event().wait(POLL_S)
                query.stop()
            failure = query.exception()
        except PySparkException as error:
            failure = error
        finally:
            close()
        if failure is not None:
            raise PipelineFailedError(brief_reason(failure), kind=kind_of(failure)) from failure


def _check(options: Mapping[str, str], into: str | None, catalog_options: Mapping[str, str]) -> None:
    catalog = Catalog(options["warehouse"], options=catalog_options)
    table = table_for(catalog.table(options["table"]), options)
    asked = stream_options(options)
    assert asked is not None
    asked.stream(table)
    if into is None:
        return
    target = catalog.table(into)
    if target.location == table.location:
        raise InvalidRequestError(f"--into {into} is the table that is read: it would follow itself")
    if not target.schema.has_primary_key and table.schema.has_primary_key:
        raise InvalidRequestError(f"--into {into}: a table without a primary key cannot apply updates and deletions")
    if asked.request.isolation == "speculative":
        reason = why_retractions_stay(target.options)
        if reason is not None:
            raise InvalidRequestError(
                f"--into {into}: speculative rows may be retracted, and {reason}; read committed rows "
                f"({ISOLATION_OPTION}=committed)"
            )


def _writer(
    frame: DataFrame,
    warehouse: str,
    to: str,
    path: str | None,
    into: str | None,
    name: str,
    catalog_options: Mapping[str, str],
) -> tuple[Any, Any]:
    """The writer of the stream, and a function that ends what runs in its background."""
    if to == "table":
        sink = table_sink(warehouse, into or "", commit_user=name, catalog_options=catalog_options)
        return frame.writeStream.queryName(name).foreachBatch(sink), sink.close
    if to == "parquet":
        return frame.writeStream.format("parquet").option("path", path or ""), lambda: None
    return frame.writeStream.format("console").option("truncate", "false"), lambda: None
