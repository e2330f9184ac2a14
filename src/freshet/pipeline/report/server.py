"""Serves a report on this machine alone, made anew at each load. Nothing that is asked changes anything."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from freshet.pipeline.exceptions import InvalidRequestError, PipelineError
from freshet.pipeline.report.page import policy
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import printable_lines

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """The base class would look up the name of the host: that may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks may hang up."""


def report_server(make: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Answers with what `make` makes, once `serve_forever` is called. Raises `InvalidRequestError` where the port is
    taken."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """The report."""
            # A page of elsewhere may give its name the address of this machine: it would be asked for by that name.
            if self.headers.get("Host", "").rpartition(":")[0] not in _NAMES:
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"ask for http://{HOST}:{self.server.server_port}/")  # type: ignore[attr-defined]
            elif self.path != "/":
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "the report is at /")
            else:
                try:
                    with one_at_a_time:
                        text = make()
                except (StorageError, PipelineError, OSError) as error:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", printable_lines(str(error)))
                else:
                    self._answer(HTTPStatus.OK, "text/html", text)

        do_HEAD = do_GET  # noqa: N815  # as the base class calls it

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            content = text.encode("utf-8", "backslashreplace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", f"{policy()}; frame-ancestors 'none'")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class has it
            """Nothing."""

    try:
        return _Server((HOST, port), Handler)
    except OSError as error:
        raise InvalidRequestError(
            f"the report cannot be served at {HOST}:{port}: {error.strerror or error}; choose another --port, or end "
            "what listens there"
        ) from error
