"""Modules of commands that import Spark or a Kafka client, loaded when a command needs them: tables need neither."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from freshet.pipeline.exceptions import InvalidRequestError

_OF_AVRO: Final = (
    *("polars", "polars_avro", "fsspec", "attr", "attrs", "authlib", "cachetools", "certifi", "httpx", "httpx2"),
)
_MISSING: Final = {
    "confluent_kafka": ("kafka", "this command asks Kafka brokers, and the client is"),
    "psycopg": ("postgres", "this command connects to PostgreSQL, and psycopg is"),
    "prometheus_client": ("metrics", "metrics need {}, which is"),
    **dict.fromkeys(_OF_AVRO, ("avro", "records in Avro need {}, which is")),
    **dict.fromkeys(("pyspark", "py4j"), ("spark", "this command needs Spark, which is")),
}
"""The extra that brings a library, by the name that is imported, and what is said where it is missing."""
_OF_PIPELINES: Final = "running"
"""The module that runs pipelines on Spark, which may run without it."""


def spark_part(name: str, package: str = "freshet.pipeline.commands") -> Any:
    """The module of this name, by default one next to this. Raises `InvalidRequestError` where what it needs is not
    installed."""
    try:
        return import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name not in _MISSING:
            raise
        extra, text = _MISSING[error.name]
        is_run = extra == "spark" and name == _OF_PIPELINES
        without = "; or run without it: run_on: local in the file, or --on local" if is_run else ""
        raise InvalidRequestError(
            f"{text.format(error.name)} not installed here; {_extra_text(extra)}{without}"
        ) from error


def _extra_text(extra: str) -> str:
    """How to install an extra; not by name, which on the package index is another project's."""
    return (
        f"install Freshet's extra {extra!r}: pip install '.[{extra}]' in a clone of it, or "
        f"pip install 'WHEEL[{extra}]' with the path of its wheel"
    )
