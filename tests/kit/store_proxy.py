"""An HTTP proxy between a client and an S3 server: counts requests, slows them down, answers itself, cuts connections.

    with StoreProxy(s3.endpoint) as proxy:          # give the client proxy.endpoint: through(place, proxy)
        proxy.delay_s = 0.02                        # before each request goes on
        proxy.answer(503, "SlowDown", share=0.05)   # instead of the server
        proxy.cut(is_create, AFTER, times=1)        # the server has done it, the client never learns
        held = proxy.hold(is_create); held.arrived(); held.release()
        proxy.requests, proxy.longest_chain(), proxy.most_in_flight()

Rules are asked in the order in which they were made; the first that fits decides. Host and signature pass unchanged,
bodies are streamed. Each connection of a client has one of its own to the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kit.s3_server import S3Place

BEFORE, AFTER = "before", "after"
"""Where a connection is cut: before the server has got the request, or after it has answered."""

_BLOCK: Final = 256 * 1024
_HEAD_MAX: Final = 64 * 1024
_ACCESS_KEY: Final = re.compile(r"Credential=([^/,\s]+)/")
_ERROR: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code} of the proxy</Message>'
    "<Resource>{path}</Resource><RequestId>proxy</RequestId></Error>"
)


@dataclass(eq=False)
class Request:
    """What a client asked for. Times are those of `time.monotonic`; `status` is None where the connection was cut."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    started: float
    ended: float = float("inf")
    status: int | None = None

    @property
    def access_key(self) -> str | None:
        found = _ACCESS_KEY.search(self.headers.get("authorization", ""))
        return found[1] if found else None

    def __str__(self) -> str:
        query = "&".join(f"{name}={text}" for name, text in self.query.items())
        return f"{self.method} {self.bucket}/{self.key}{'?' if query else ''}{query} -> {self.status}"


Filter: TypeAlias = Callable[[Request], bool]


def any_request(request: Request) -> bool:
    return True


def is_create(request: Request) -> bool:
    """An exclusive create."""
    return request.method == "PUT" and "if-none-match" in request.headers


def of_key(part: str, method: str | None = None) -> Filter:
    """Requests whose key has this text."""
    return lambda request: part in request.key and method in (None, request.method)


class Hold:
    """Requests that wait until they are released, at most `HOLD_MAX_S`."""

    HOLD_MAX_S: Final = 300.0

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._released = threading.Event()

    def arrived(self, seconds: float = 120) -> None:
        """Waits until one more request is held."""
        assert self._arrived.acquire(timeout=seconds), "no request came to be held"

    def release(self) -> None:
        """Lets them go on, and those that come later."""
        self._released.set()

    async def wait(self) -> None:
        self._arrived.release()
        end = time.monotonic() + self.HOLD_MAX_S
        while not self._released.is_set() and time.monotonic() < end:
            await asyncio.sleep(0.005)


@dataclass(eq=False)
class _Rule:
    """What happens to requests that fit, `times` of them at most, each with the probability `share`."""

    fits: Filter
    share: float
    times: int | None
    status: int | None = None
    code: str = ""
    cut: str | None = None
    hold: Hold | None = None
    dropped_header: str | None = None
    done: int = 0


@dataclass
class _Head:
    """The first lines of a message, as bytes that can be sent on."""

    first: str
    fields: list[tuple[str, str]]
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {name.lower(): text for name, text in self.fields}

    def without(self, *names: str) -> _Head:
        return _Head(self.first, [(name, text) for name, text in self.fields if name.lower() not in names])

    def to_bytes(self) -> bytes:
        lines = [self.first, *(f"{name}: {text}" for name, text in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")


class StoreProxy:
    """A proxy on a port of its own, in a thread of this process, for the length of a `with` block."""

    def __init__(self, endpoint: str, *, seed: int = 0) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname, parts.port)
        self._chance = random.Random(seed)
        self._rules: list[_Rule] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store-proxy", daemon=True)
        self.requests: list[Request] = []
        self.delay_s = 0.0
        self.endpoint = ""

    def __enter__(self) -> Self:
        self._thread.start()
        listener = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_BLOCK), self._loop
        ).result()
        self.endpoint = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        self._listener = listener
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def answer(
        self,
        status: int,
        code: str = "InternalError",
        fits: Filter = any_request,
        *,
        share: float = 1,
        times: int | None = None,
    ) -> None:
        """The proxy answers with an error of S3, and the server does not get the request."""
        self._rules.append(_Rule(fits, share, times, status=status, code=code))

    def cut(self, fits: Filter, where: str, *, share: float = 1, times: int | None = None) -> None:
        """The client gets no answer."""
        self._rules.append(_Rule(fits, share, times, cut=where))

    def hold(self, fits: Filter, *, times: int | None = None) -> Hold:
        """Requests wait before they go on to the server."""
        hold = Hold()
        self._rules.append(_Rule(fits, 1, times, hold=hold))
        return hold

    def drop_header(self, name: str, fits: Filter = any_request) -> None:
        """The server does not get this header; for a server that checks no signature."""
        self._rules.append(_Rule(fits, 1, None, dropped_header=name.lower()))

    def clear(self) -> None:
        """Neither rules nor requests of before."""
        self._rules.clear()
        self.requests.clear()

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The list gets the requests that came within the block, once it has ended and they have: a client has the
        last byte of an answer before the proxy has noted it."""
        found: list[Request] = []
        start = len(self.requests)
        yield found
        found += self._noted(self.requests[start:])

    def longest_chain(self, requests: Sequence[Request] | None = None) -> int:
        """How many requests followed one another: each began after the one before had its answer."""
        length, end = 0, float("-inf")
        for request in sorted(self._noted(requests), key=lambda request: request.ended):
            if request.started >= end:
                length, end = length + 1, request.ended
        return length

    def most_in_flight(self, requests: Sequence[Request] | None = None) -> int:
        """The most requests that were under way at one moment."""
        steps = sorted(
            step for request in self._noted(requests) for step in ((request.started, 1), (request.ended, -1))
        )
        most = now = 0
        for _, step in steps:
            now += step
            most = max(most, now)
        return most

    def _noted(self, requests: Sequence[Request] | None = None) -> Sequence[Request]:
        """The requests, or all, when they have ended; those that are held are waited for no longer than a second."""
        requests, deadline = self.requests if requests is None else requests, time.monotonic() + 1
        while any(request.ended == float("inf") for request in requests) and time.monotonic() < deadline:
            time.sleep(0.001)
        return requests

    async def _end(self) -> None:
        self._listener.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        """One connection of a client, until either side closes it."""
        server_out: asyncio.StreamWriter | None = None
        try:
            server_in, server_out = await asyncio.open_connection(*self._server, limit=_BLOCK)
            while await self._one(client_in, client_out, server_in, server_out):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the connection ends, on both sides
        finally:
            for side in (client_out, server_out):
                if side is not None:
                    side.transport.abort()

    async def _one(
        self,
        client_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
        server_in: asyncio.StreamReader,
        server_out: asyncio.StreamWriter,
    ) -> bool:
        """One request; False where the connection ends with it."""
        head = await _head(client_in)
        request = _request(head)
        self.requests.append(request)
        try:
            if head.headers.get("expect", "").lower() == "100-continue":
                client_out.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                head = head.without("expect")
            rule = self._rule(request)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if rule.hold is not None:
                await rule.hold.wait()
            if rule.cut == BEFORE:
                return False
            if rule.status is not None:
                await _body(client_in, None, head)
                request.status = rule.status
                client_out.write(_error(rule, request))
                await client_out.drain()
                return True
            if rule.dropped_header:
                head = head.without(rule.dropped_header)
            server_out.write(head.to_bytes())
            await _body(client_in, server_out, head)
            answer = await _head(server_in)
            status = int(answer.first.split()[1])
            if rule.cut == AFTER:
                await _answer_body(server_in, None, request, status, answer)
                return False
            request.status = status  # before the client has the answer, and may look
            client_out.write(answer.to_bytes())
            ends = await _answer_body(server_in, client_out, request, status, answer)
            await client_out.drain()
            return not ends
        finally:
            request.ended = time.monotonic()

    def _rule(self, request: Request) -> _Rule:
        for rule in self._rules:
            if (rule.times is None or rule.done < rule.times) and rule.fits(request):
                if rule.share < 1 and self._chance.random() >= rule.share:
                    continue
                rule.done += 1
                return rule
        return _Rule(any_request, 1, None)


def through(place: S3Place, proxy: StoreProxy) -> S3Place:
    """The same bucket, reached through the proxy."""
    return replace(place, endpoint=proxy.endpoint)


def _request(head: _Head) -> Request:
    method, target, _ = head.first.split(" ", 2)
    parts = urlsplit(target)
    bucket, _, key = parts.path.lstrip("/").partition("/")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method, unquote(bucket), unquote(key), query, head.headers, time.monotonic())


def _error(rule: _Rule, request: Request) -> bytes:
    body = _ERROR.format(code=rule.code, path=f"/{request.bucket}/{request.key}").encode()
    head = f"HTTP/1.1 {rule.status} Error\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (b"" if request.method == "HEAD" else body)


async def _head(source: asyncio.StreamReader) -> _Head:
    """The head of the next message."""
    text = (await source.readuntil(b"\r\n\r\n"))[:_HEAD_MAX].decode("latin-1")
    first, *lines = text.rstrip("\r\n").split("\r\n")
    fields = [(name, rest.strip()) for name, _, rest in (line.partition(":") for line in lines)]
    return _Head(first, fields)


async def _answer_body(
    source: asyncio.StreamReader, target: asyncio.StreamWriter | None, request: Request, status: int, head: _Head
) -> bool:
    """Sends on what follows the head of an answer; True where the connection ends with it."""
    headers = head.headers
    ends = headers.get("connection", "").lower() == "close" or head.first.startswith("HTTP/1.0")
    if request.method == "HEAD" or status in (204, 304):
        return ends
    if "content-length" in headers or "chunked" in headers.get("transfer-encoding", ""):
        await _body(source, target, head)
        return ends
    while block := await source.read(_BLOCK):
        await _send(target, block)
    return True


async def _body(source: asyncio.StreamReader, target: asyncio.StreamWriter | None, head: _Head) -> None:
    """Sends on the body of a message, or reads it only."""
    if "chunked" in head.headers.get("transfer-encoding", ""):
        size = 1
        while size:
            line = await source.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            await _send(target, line)
            await _send_exactly(source, target, size)
            await _send(target, await source.readuntil(b"\r\n"))
    else:
        await _send_exactly(source, target, int(head.headers.get("content-length", 0)))


async def _send_exactly(source: asyncio.StreamReader, target: asyncio.StreamWriter | None, size: int) -> None:
    while size:
        block = await source.read(min(size, _BLOCK))
        if not block:
            raise EOFError
        size -= len(block)
        await _send(target, block)


async def _send(target: asyncio.StreamWriter | None, data: bytes) -> None:
    if target is not None:
        target.write(data)
        await target.drain()
