"""The command `demo`; the demos themselves, which use the commands, are loaded when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from freshet.pipeline.commands.arguments import RunsOn
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.exceptions import InvalidRequestError

DEMOS = "freshet.jobs.demo"


def demo(
    which: Annotated[
        Literal["shop", "join", "database", "broker"],
        typer.Argument(
            help="shop: a change stream becomes two tables, two readers follow its log, and the writer is killed; "
            "join: three change streams make one wide row each, by one query and by several; database: the tables of a "
            "PostgreSQL database become tables of a lake while they change, with neither broker nor JVM; broker: a "
            "broker with the shop's change stream, for pipelines of your own, which runs until Ctrl-C."
        ),
    ] = "shop",
    output: Annotated[
        Path | None,
        typer.Option(help="A new folder for tables, checkpoints and logs. Default: demo-output/ below this one."),
    ] = None,
    variant: Annotated[
        Literal["one", "several", "both"] | None, typer.Option(help="Of join: one query, several, or both [default].")
    ] = None,
    debezium: Annotated[
        bool, typer.Option("--debezium", help="Of database: Debezium reads it, into Kafka; Apache Paimon judges.")
    ] = False,
    on: RunsOn = None,
) -> int:
    """Play a demo on a real Kafka broker or PostgreSQL, and compare its tables with what should be in them; takes up to
    some minutes.

    Broker, Debezium and Apache Paimon run in JVMs of their own, from pinned jars that are fetched once; PostgreSQL must
    be installed. KAFKA_BOOTSTRAP_SERVERS names another broker to use. Exit code 1 says that something was different,
    130 that Ctrl-C came before all was compared.
    """
    if variant and which != "join":
        raise InvalidRequestError("--variant belongs to `freshet demo join`")
    if debezium and which != "database":
        raise InvalidRequestError("--debezium belongs to `freshet demo database`")
    if on == "spark" and which == "database" and not debezium:
        raise InvalidRequestError("a database is read without Spark; `freshet demo database --debezium` plays with it")
    if on is not None and which == "broker":
        raise InvalidRequestError("--on belongs to the other demos; broker runs no pipeline")
    if output and which == "broker":
        raise InvalidRequestError("--output belongs to the other demos; a broker's topics go when it ends")
    if which == "join":
        code: int = spark_part("join_demo", DEMOS).play_join(output, variant or "both", on or "spark")
    elif which == "broker":
        code = spark_part("shop_demo", DEMOS).serve_shop()
    elif which == "database" and debezium:
        code = spark_part("debezium_demo", DEMOS).play_debezium(output, on or "spark")
    elif which == "database":
        code = spark_part("database_demo", DEMOS).play_database(output)
    else:
        code = spark_part("shop_demo", DEMOS).play_shop(output, on or "spark")
    return code
