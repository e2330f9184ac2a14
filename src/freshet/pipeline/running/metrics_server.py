"""Serves metrics by HTTP from a thread of its own: `/metrics`, and the probes `/ready` and `/live`.

It is started once the workers of a run have been forked: a process with threads must not fork.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.running.metrics import SHARE_OF_RUN, FreshetCollector, KeptLook, registry_of
from freshet.pipeline.running.pipeline_status import pipeline_statuses
from freshet.pipeline.running.run_note import RunState
from freshet.pipeline.running.run_totals import RunTotals
from freshet.pipeline.running.seen import Seen

READY: Final = (RunState.RUNNING, RunState.IDLE)

_LOG: Final = logging.getLogger(__name__)

Probe = Callable[[], tuple[bool, str]]
"""Whether all is well, and a text for people."""


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
