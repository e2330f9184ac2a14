"""Modules of commands that import Spark or a Kafka client, loaded when a command needs them: tables need neither."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from freshet.pipeline.exceptions import InvalidRequestError

_OF_AVRO: Final = frozenset(
    {"polars", "polars_avro", "fsspec", "attr", "attrs", "authlib", "cachetools", "certifi", "httpx", "httpx2"}
)
"""What the extra `avro` brings, by the names that are imported."""
_OF_PIPELINES: Final = "running"
"""The module that runs pipelines on Spark, which may run without it."""


def spark_part(name: str, package: str = "freshet.pipeline.commands") -> Any:
    """The module of this name, by default one next to this. Raises `InvalidRequestError` where what it needs is not
    installed."""
    try:
        return import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name == "confluent_kafka":
            raise InvalidRequestError(
                f"this command asks Kafka brokers, and the client is not installed here; {_extra_text('kafka')}"
            ) from error
        if error.name == "psycopg":
            raise InvalidRequestError(
                f"this command connects to PostgreSQL, and psycopg is not installed here; {_extra_text('postgres')}"
            ) from error
        if error.name == "prometheus_client":
            raise InvalidRequestError(
                f"metrics need prometheus_client, which is not installed here; {_extra_text('metrics')}"
            ) from error
        if error.name in _OF_AVRO:
            raise InvalidRequestError(
                f"records in Avro need {error.name}, which is not installed here; {_extra_text('avro')}"
            ) from error
        if error.name not in ("pyspark", "py4j"):
            raise
        without = "; or run without it: run_on: local in the file, or --on local" if name == _OF_PIPELINES else ""
        raise InvalidRequestError(
            f"this command needs Spark, which is not installed here; {_extra_text('spark')}{without}"
        ) from error


def _extra_text(extra: str) -> str:
    """How to install an extra; not by name, which on the package index is another project's."""
    return (
        f"install Freshet's extra {extra!r}: pip install '.[{extra}]' in a clone of it, or "
        f"pip install 'WHEEL[{extra}]' with the path of its wheel"
    )
