"""The command `exporter`: metrics of tables, and of pipelines, by their files alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from freshet.pipeline.commands.arguments import CatalogOption, Places
from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.publishing import address_of
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.commands.status import look_of
from freshet.pipeline.config.sections import METRICS_PORT
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.running.signals import when_asked_to_stop

DETAILED_MAX: Final = 100
"""Tables of a warehouse of which levels and history are read, the worst first; of the others what costs little."""


def exporter(
    places: Places,
    port: Annotated[str, typer.Option(metavar="[HOST:]PORT", help="Where /metrics is. Default host: 127.0.0.1.")] = str(
        METRICS_PORT
    ),
    file: Annotated[
        Path | None,
        typer.Option(
            help="Write the metrics into this file, replaced as a whole, and end: for the textfile collector of a "
            "node exporter, whose files are called *.prom.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(min=1, help="With --file: write again after so many seconds, until Ctrl-C.", show_default=False),
    ] = None,
    catalog_option: CatalogOption = None,
) -> None:
    """Publish metrics of tables and pipelines that are read from their files, for Prometheus, until Ctrl-C; or write
    them into a file.

    Files are read when somebody asks, at most every 5 seconds and a fifth of the time. Of a warehouse the 100 tables
    that are furthest behind have all metrics, others those that cost little.
    """
    if every is not None and file is None:
        raise InvalidRequestError("--every is of --file; by HTTP the files are read when somebody asks")
    host, number = address_of(port)
    metrics = spark_part("metrics", "freshet.pipeline.running")
    look = look_of(places, catalog_option, detailed=DETAILED_MAX, may_wait=True)
    look()  # what cannot be read from the beginning is refused; later it is absent until it can
    collector = metrics.FreshetCollector(metrics.KeptLook(look, share=metrics.SHARE_OF_EXPORTER))
    stop = threading.Event()
    with when_asked_to_stop(stop.set):
        if file is not None:
            _write(metrics, metrics.registry_of(collector), file, every, stop)
            return

        def ready() -> tuple[bool, str]:
            is_readable = collector.is_readable()
            return is_readable, "ready" if is_readable else "the files cannot be read; the log says why"

        probes = {"ready": ready, "live": lambda: (True, "live")}
        with metrics.serving(metrics.registry_of(collector), host, number, **probes) as address:
            complain(f"metrics are at {address}")
            stop.wait()


def _write(metrics: Any, registry: Any, file: Path, every_s: float | None, stop: threading.Event) -> None:
    metrics.written(registry, file)
    while every_s is not None and not stop.wait(every_s):
        metrics.written(registry, file)
