"""How `freshet run` publishes its metrics; what needs the library is loaded where somebody asks for metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sections import METRICS_HOST
from freshet.pipeline.exceptions import InvalidRequestError

if TYPE_CHECKING:
    from freshet.pipeline.running.run_totals import RunTotals


def address_of(text: str) -> tuple[str, int]:
    """`[HOST:]PORT`; an address of IPv6 in brackets."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidRequestError(f"{text!r} is no address for metrics: write a port, such as 9464, or 0.0.0.0:9464")
    return host.removeprefix("[").removesuffix("]") or METRICS_HOST, int(port)


@contextmanager
def published(configs: Sequence[PipelineConfig], place: tuple[str, int] | None) -> Iterator[RunTotals | None]:
    """Publishes the metrics of the pipelines that ask for it, of all where a host and a port are given; None where none
    are published. Starts a thread: workers have been forked before."""
    if place is None and all(config.metrics is None for config in configs):
        yield None
        return
    metrics = spark_part("metrics", "freshet.pipeline.running")
    from freshet.pipeline.running.run_totals import RunTotals

    totals = RunTotals(config.name for config in configs)
    with metrics.serving_run(configs, totals, place) as addresses:
        for address in addresses:
            complain(f"metrics are at {address}")
        yield totals
