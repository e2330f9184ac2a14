"""A schema registry in this process: the documented HTTP API, as far as readers and a writer of records use it.

    with SchemaRegistry() as registry:
        schema_id = registry.register("orders-value", {"type": "record", …})
        registry.url
        registry.failure = 503                 # instead of every answer; None: it answers again
        registry.asked                         # paths, in order

Schemas of one text have one id, whatever their subjects, as in the real one.

Source: the HTTP API of Confluent's Schema Registry: paths, media type, error codes 40401 (subject), 40402 (version),
40403 (schema).
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_BY_ID: Final = re.compile(r"/schemas/ids/(\d+)")
_VERSION: Final = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)")
_VERSIONS: Final = re.compile(r"/subjects/([^/]+)/versions")

Answer = tuple[int, Any]


class SchemaRegistry:
    """A server in a thread, for the length of a `with` block."""

    def __init__(self, *, user: str | None = None) -> None:
        """With `user` (`name:password`) it wants basic authentication."""
        self.failure: int | None = None
        self.asked: list[str] = []
        self._user = user
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="registry", daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def register(
        self, subject: str, schema: Any, *, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Adds a version (a text, or what JSON takes); references are (name, subject, version). Gives its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        named = [{"name": name, "subject": of, "version": version} for name, of, version in references]
        return self._add(unquote(subject), {"schema": text, "schemaType": kind, "references": named})

    def _add(self, subject: str, document: dict[str, Any]) -> int:
        known = next((number for number, each in self._schemas.items() if each == document), None)
        schema_id = len(self._schemas) + 1 if known is None else known
        self._schemas[schema_id] = document
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _get(self, path: str) -> Answer:
        if path == "/subjects":
            return 200, sorted(self._subjects)
        if found := _BY_ID.fullmatch(path):
            document = self._schemas.get(int(found[1]))
            return (404, _error(40403, "Schema not found")) if document is None else (200, _shown(document))
        if found := _VERSION.fullmatch(path):
            subject = unquote(found[1])
            versions = self._subjects.get(subject)
            if versions is None:
                return 404, _error(40401, f"Subject '{subject}' not found.")
            version = len(versions) if found[2] == "latest" else int(found[2])
            if not 1 <= version <= len(versions):
                return 404, _error(40402, f"Version {version} not found.")
            schema_id = versions[version - 1]
            return 200, {"subject": subject, "version": version, "id": schema_id, **_shown(self._schemas[schema_id])}
        return 404, _error(404, "HTTP 404 Not Found")

    def _post(self, path: str, body: dict[str, Any]) -> Answer:
        found = _VERSIONS.fullmatch(path)
        if found is None:
            return 404, _error(404, "HTTP 404 Not Found")
        document = {
            "schema": body["schema"], "schemaType": body.get("schemaType", "AVRO"),
            "references": body.get("references", []),
        }  # fmt: skip
        return 200, {"id": self._add(unquote(found[1]), document)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(lambda path: registry._get(path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(lambda path: registry._post(path, body))

            def _answer(self, find: Any) -> None:
                path = urlsplit(self.path).path
                registry.asked.append(path)
                if registry.failure is not None:
                    status, document = registry.failure, _error(registry.failure * 100 + 3, "the registry is away")
                elif not self._is_allowed():
                    status, document = 401, _error(401, "Unauthorized")
                else:
                    status, document = find(path)
                octets = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", _MEDIA_TYPE)
                self.send_header("Content-Length", str(len(octets)))
                self.end_headers()
                self.wfile.write(octets)

            def _is_allowed(self) -> bool:
                if registry._user is None:
                    return True
                wanted = "Basic " + base64.b64encode(registry._user.encode()).decode()
                return self.headers.get("Authorization") == wanted

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        return Handler


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """As the API answers: the type is left out of Avro, references where there are none."""
    shown = {"schema": document["schema"]}
    if document["schemaType"] != "AVRO":
        shown["schemaType"] = document["schemaType"]
    if document["references"]:
        shown["references"] = document["references"]
    return shown


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}
