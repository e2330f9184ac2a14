"""The metrics of some pipelines and tables, as Prometheus reads them: computed when somebody asks.

What is read from files is kept for `KEPT_S` seconds, so that asking often costs little, and up to `KEPT_MAX_S` where
looks would take more than their share of a processor otherwise.

They are served by HTTP from a thread of their own: `/metrics`, and the probes `/ready` and `/live`. It is started once
the workers of a run have been forked: a process with threads must not fork.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from freshet._version import __version__
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError, PipelineError
from freshet.pipeline.running.metric_list import (
    BUILD_INFO,
    HISTOGRAMS,
    LOOK_SECONDS,
    LOOK_SUCCESS,
    OWN,
    PIPELINE_GAUGES,
    PREFIX,
    TABLE_GAUGES,
    MetricOf,
    Shown,
)
from freshet.pipeline.running.pipeline_status import pipeline_statuses
from freshet.pipeline.running.run_note import RunState
from freshet.pipeline.running.run_totals import RunTotals
from freshet.pipeline.running.seen import Seen
from freshet.storage.exceptions import StorageError
from freshet.storage.status.table_status import TableStatus

KEPT_S: Final = 5.0
KEPT_MAX_S: Final = 60.0
SHARE_OF_RUN: Final = 0.01
"""Of its time a process that runs pipelines looks at files."""
SHARE_OF_EXPORTER: Final = 0.2
"""The same of one that does nothing else."""

_LOG: Final = logging.getLogger(__name__)
READY: Final = (RunState.RUNNING, RunState.IDLE)


Probe = Callable[[], tuple[bool, str]]
"""Whether all is well, and a text for people."""


class KeptLook:
    """A look at files whose result is kept for a while; called from several threads, and looks in one at a time."""

    def __init__(
        self,
        look: Callable[[], Seen],
        *,
        share: float,
        clock_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent_s` is the processor time of the thread that asks."""
        self._look, self._share, self._clock_s, self._spent_s = look, share, clock_s, spent_s
        self._seen: Seen | None = None
        self._until_s: float | None = None
        self._took_s = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> tuple[Seen | None, float]:
        """What was seen, and how long the look took; None where it failed."""
        with self._lock:
            begun_s, spent_s = self._clock_s(), self._spent_s()
            if self._until_s is None or begun_s >= self._until_s:
                self._seen = self._looked()
                now_s = self._clock_s()
                self._took_s = now_s - begun_s
                rest_s = (self._spent_s() - spent_s) / self._share
                self._until_s = now_s + min(KEPT_MAX_S, max(KEPT_S, rest_s))
            return self._seen, self._took_s

    def _looked(self) -> Seen | None:
        try:
            return self._look()
        except (OSError, ValueError, StorageError, PipelineError) as error:
            _LOG.warning("metrics of tables and pipelines are absent, since their files cannot be read: %s", error)
            return None


class FreshetCollector(Collector):
    """Gives the metrics of what a look sees, and of the pipelines of this process that are named."""

    def __init__(self, look: KeptLook, totals: RunTotals | None = None, pipelines: Sequence[str] = ()) -> None:
        self._look, self._totals, self._pipelines = look, totals, pipelines

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families of one scrape."""
        seen, took_s = self._look()
        yield _gauge(LOOK_SUCCESS, OWN[LOOK_SUCCESS], seen is not None)
        yield _gauge(LOOK_SECONDS, OWN[LOOK_SECONDS], took_s)
        info = GaugeMetricFamily(f"{PREFIX}{BUILD_INFO}", OWN[BUILD_INFO], labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        if seen is not None:
            yield from families_of(seen)
        if self._totals is not None:
            yield from _counters(self._totals, self._pipelines)
            yield from _histograms(self._totals, self._pipelines)

    def is_readable(self) -> bool:
        """Whether the files could be read at the last look."""
        return self._look()[0] is not None


def registry_of(collector: FreshetCollector) -> CollectorRegistry:
    """A registry of its own: what else a process registers is not mixed with it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def families_of(seen: Seen) -> Iterator[Metric]:
    """The metrics that show what was seen."""
    for of_pipeline in PIPELINE_GAUGES:
        yield _family(of_pipeline, ["pipeline"], (([it.name], of_pipeline.value(it)) for it in seen.pipelines))
    placed = [(each.name, table) for each in seen.pipelines for table in each.tables]
    placed += [("", table) for table in seen.tables]
    for of_table in TABLE_GAUGES:
        values = (([pipeline, *_names(table)], of_table.value(table)) for pipeline, table in placed)
        yield _family(of_table, ["pipeline", "database", "table"], values)


def _names(table: TableStatus) -> list[str]:
    database, _, name = table.name.partition(".")
    return [database, name]


def _family(
    gauge: MetricOf[Any], labels: Sequence[str], values: Iterable[tuple[Sequence[str], Shown]]
) -> GaugeMetricFamily:
    by = [] if gauge.by is None else [gauge.by]
    family = GaugeMetricFamily(f"{PREFIX}{gauge.name}", gauge.text, labels=[*labels, *by])
    for place, shown in values:
        for name, value in shown.items() if isinstance(shown, Mapping) else [("", shown)]:
            if value is not None:
                family.add_metric([*place, *([name] if by else [])], value)
    return family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", text, value=value)


def _counters(totals: RunTotals, pipelines: Sequence[str]) -> Iterator[Metric]:
    found: dict[str, CounterMetricFamily] = {}
    for pipeline in pipelines:
        for counter, values in totals.counters(pipeline):
            family = found.setdefault(counter.name, _counter(counter))
            for cause, value in values.items():
                family.add_metric([pipeline, *([cause] if counter.by else [])], value)
    yield from found.values()


def _counter(counter: MetricOf[Any]) -> CounterMetricFamily:
    labels = ["pipeline", *([counter.by] if counter.by else [])]
    return CounterMetricFamily(f"{PREFIX}{counter.name}", counter.text, labels=labels)


def _histograms(totals: RunTotals, pipelines: Sequence[str]) -> Iterator[Metric]:
    families = {
        each.name: HistogramMetricFamily(f"{PREFIX}{each.name}", each.text, labels=["pipeline"]) for each in HISTOGRAMS
    }
    for pipeline in pipelines:
        for each in totals.distributions(pipeline):
            below, buckets = 0.0, []
            for bound, count in zip((*each.of.bounds, float("inf")), each.counts, strict=True):
                below += count
                buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), below))
            families[each.of.name].add_metric([pipeline], buckets, sum_value=each.sum_s)
    yield from families.values()


def written(registry: CollectorRegistry, file: Path) -> None:
    """Writes the metrics into a file, which is replaced as a whole. Raises `InvalidRequestError` where it cannot be."""
    try:
        write_to_textfile(str(file), registry)
    except OSError as error:
        raise InvalidRequestError(f"metrics cannot be written to {file}: {error.strerror or error}") from error


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks may hang up."""
        _LOG.debug("a request for metrics was not answered", exc_info=True)

    def server_bind(self) -> None:
        """The base class would look up the name of the host: that may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections to a run before may linger
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class has it
        """Nothing: scrapes are many."""


@contextmanager
def serving(registry: CollectorRegistry, host: str, port: int, *, ready: Probe, live: Probe) -> Iterator[str]:
    """Serves until the block ends; gives the address, in which a port 0 is replaced. Raises `InvalidRequestError` where
    nothing can be served there."""
    try:
        server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
    except OSError as error:
        raise InvalidRequestError(
            f"metrics cannot be served at {host}:{port}: {error.strerror or error}; choose another port "
            "(--metrics-port, metrics: in the pipeline file, --port of the exporter), or end what listens there"
        ) from error
    server.set_app(_app(make_wsgi_app(registry), {"/ready": ready, "/live": live}))
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="freshet-metrics", daemon=True)
    thread.start()
    try:
        name = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
        yield f"http://{name}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _app(metrics: Callable[..., Iterable[bytes]], probes: Mapping[str, Probe]) -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path in ("/metrics", "/metrics/"):
            return metrics(environ, start_response)
        probe = probes.get(path)
        is_well, text = (False, "ask for /metrics, /ready or /live") if probe is None else probe()
        status = "200 OK" if is_well else "404 Not Found" if probe is None else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return app


@contextmanager
def serving_run(
    configs: Sequence[PipelineConfig], totals: RunTotals, given: tuple[str, int] | None
) -> Iterator[list[str]]:
    """Serves the pipelines of a run that ask for it, or all of them at the `given` host and port; those of one address
    together. Gives the addresses."""
    places: dict[tuple[str, int], list[PipelineConfig]] = {}
    for config in configs:
        place = given or (None if config.metrics is None else (config.metrics.host, config.metrics.port))
        if place is not None:
            places.setdefault(place, []).append(config)
    with ExitStack() as stack:
        yield [stack.enter_context(_serving_some(found, totals, place)) for place, found in places.items()]


@contextmanager
def _serving_some(configs: Sequence[PipelineConfig], totals: RunTotals, place: tuple[str, int]) -> Iterator[str]:
    names = [config.name for config in configs]
    look = KeptLook(lambda: Seen(pipelines=pipeline_statuses(configs)), share=SHARE_OF_RUN)

    def ready() -> tuple[bool, str]:
        states = totals.states(names)
        return all(each in READY for each in states.values()), "\n".join(f"{k}: {v}" for k, v in states.items())

    def live() -> tuple[bool, str]:
        return totals.is_live, "live" if totals.is_live else "nothing looks after the pipelines any more"

    registry = registry_of(FreshetCollector(look, totals, names))
    with serving(registry, *place, ready=ready, live=live) as address:
        yield address
