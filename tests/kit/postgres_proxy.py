"""A TCP proxy in front of a server of a test, which cuts its connections, or makes them wait.

with postgres_proxy(server) as proxy:
    proxy.dsn(database)
    proxy.cut(after=10_000)     once the server has sent so many bytes more, in the middle of whatever it sends
    proxy.hold(); proxy.let_go()
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlparse

from tests.kit.postgres_server import PostgresServer

_PIECE = 1000


class PostgresProxy:
    """Connections that are open when it cuts end; new ones are taken."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._left: int | None = None
        self.cuts = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def dsn(self, database: str) -> str:
        there, here = (f"127.0.0.1:{each}" for each in (self._port, self._listener.getsockname()[1]))
        return self._server.dsn(database).replace(there, here)

    def cut(self, after: int = 0) -> None:
        with self._lock:
            self._left = after

    def hold(self) -> None:
        self._goes_on.clear()

    def let_go(self) -> None:
        self._goes_on.set()

    def close(self) -> None:
        self._listener.close()
        self.let_go()
        self._cut_all()

    @property
    def _port(self) -> int:
        port = urlparse(self._server.dsn("postgres")).port
        assert port is not None
        return port

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                with self._lock:
                    self._pairs.append((near, far))
                threading.Thread(target=self._pass_on, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                self._goes_on.wait()
                if is_counted and self._is_used_up(len(data)):
                    self._cut_all()
                    return
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _is_used_up(self, size: int) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= size
            if self._left > 0:
                return False
            self._left = None
            self.cuts += 1
            return True

    def _cut_all(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


@contextmanager
def postgres_proxy(server: PostgresServer) -> Iterator[PostgresProxy]:
    proxy = PostgresProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
