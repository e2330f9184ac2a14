"""The report on this machine alone: made at each load, for who asks by its address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import ThreadingHTTPServer

import pytest

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.report.server import report_server
from freshet.storage.exceptions import CorruptDataError

made: list[str] = []


def make() -> str:
    made.append("x")
    if len(made) == 3:
        raise CorruptDataError("damaged\x1b <b>", path="p")
    return f"report {len(made)}"


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made.clear()
    server = report_server(make, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def asked(
    server: ThreadingHTTPServer, method: str = "GET", path: str = "/", host: str | None = None
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host is not None else {})
    response = connection.getresponse()
    return response, response.read().decode()


def test_made_anew_at_each_load(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    first, text = asked(server)
    assert (first.status, text, first.headers["Content-Type"]) == (200, "report 1", "text/html; charset=utf-8")
    assert first.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert (first.headers["Cache-Control"], first.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    head, text = asked(server, "HEAD")
    assert (head.status, text) == (200, "")
    failed, text = asked(server)
    assert (failed.status, failed.headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert "damaged\\x1b" in text
    assert asked(server)[1] == "report 4"


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/", "evil.example:PORT", 403),
        ("GET", "/", "localhost:PORT", 200),
        ("GET", "/", "", 403),
        ("GET", "/../etc/passwd", None, 404),
        ("GET", "/?x=1", None, 404),
        ("POST", "/", None, 501),
        ("DELETE", "/", None, 501),
    ],
)
def test_who_asks_otherwise(server: ThreadingHTTPServer, method: str, path: str, host: str | None, status: int) -> None:
    named = None if host is None else host.replace("PORT", str(server.server_port))
    assert asked(server, method, path, named)[0].status == status
    assert len(made) == (status == 200)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InvalidRequestError, match="another --port"):
        report_server(make, taken.getsockname()[1])
