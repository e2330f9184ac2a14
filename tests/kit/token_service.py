"""The security token service of a moto server behind TLS, as the client of stores wants it.

    with TokenService(s3.endpoint, folder) as sts:      # AWS_ENDPOINT_URL_STS=sts.endpoint, AWS_CA_BUNDLE=sts.authority
        sts.refusal = (403, "AccessDenied")             # instead of what moto answers
        sts.issued                                      # access keys, in order

The client sends the parameters of a request in its address, from where they are moved into the body: moto looks there.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_SUBJECT: Final = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
_KEY: Final = re.compile(rb"<AccessKeyId>(\w+)</AccessKeyId>")


class TokenService:
    """A server in a thread, for the length of a `with` block."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.authority = str(folder / "authority.pem")
        self.refusal: tuple[int, str] | None = None
        self.tokens: list[str] = []
        self.issued: list[str] = []
        key = str(folder / "key.pem")
        made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-days", "2"]
        program = ["openssl", "req", "-x509", *made, "-out", self.authority, *_SUBJECT]
        subprocess.run([*program, "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(endpoint))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="token-service", daemon=True
        )
        self.endpoint = f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, endpoint: str, parameters: str) -> tuple[int, bytes]:
        if self.refusal is not None:
            status, code = self.refusal
            return status, f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>".encode()
        self.tokens += re.findall(r"WebIdentityToken=([^&]*)", parameters)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(endpoint, data=parameters.encode(), headers=form)
        with urllib.request.urlopen(request, timeout=60) as response:
            body = bytes(response.read())
        self.issued += [found.decode() for found in _KEY.findall(body)]
        return 200, body

    def _handler(self, endpoint: str) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, body = service._answer(endpoint, self.path.partition("?")[2])
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler
