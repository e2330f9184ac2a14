"""Modules of commands that import Spark or a Kafka client, loaded when a command needs them: tables need neither."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from freshet.pipeline.exceptions import InvalidRequestError


def spark_part(name: str) -> Any:
    """The module of this name beside this one; raises `InvalidRequestError` where what it needs is not installed."""
    try:
        return import_module(f"freshet.pipeline.commands.{name}")
    except ModuleNotFoundError as error:
        if error.name == "confluent_kafka":
            raise InvalidRequestError(
                "this command asks Kafka brokers, and the client is not installed here; install it with: "
                "pip install 'freshet[kafka]'"
            ) from error
        if error.name not in ("pyspark", "py4j"):
            raise
        raise InvalidRequestError(
            "this command needs Spark, which is not installed here; install it with: pip install 'freshet[spark]'"
        ) from error
