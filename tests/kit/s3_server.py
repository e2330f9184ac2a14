"""An S3 server for tests: moto in a process of its own, with data in memory; a fresh bucket for each test.

s3.options      what a catalog is opened with; `store_options` are those that its store takes
s3.root         `s3://bucket` of this test
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

ACCESS_KEY, SECRET_KEY = "access", "secret-of-tests"
_PROGRAM = Path(__file__).with_name("one_write_at_once.py")
VARIABLES = {"FRESHET_TESTS_S3_ACCESS": ACCESS_KEY, "FRESHET_TESTS_S3_SECRET": SECRET_KEY}
"""That processes of tests and all that they start have: what is secret is not sent to them."""


@dataclass(frozen=True)
class S3Place:
    """A bucket with nothing in it."""

    endpoint: str
    bucket: str

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        return {**self.store_options, "commit.coordination": "exclusive-put"}

    @property
    def sent_options(self) -> dict[str, str]:
        """The same for tables that other processes open."""
        access, secret = (f"env:{name}" for name in VARIABLES)
        return {**self.options, "s3.access-key": access, "s3.secret-key": secret}

    @property
    def store_options(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY,
            "s3.path.style.access": "true",
        }


@contextmanager
def moto_server() -> Iterator[str]:
    """The endpoint of a server that ends with the block."""
    port = free_port()
    program = [sys.executable, str(_PROGRAM), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            endpoint = f"http://127.0.0.1:{port}"
            wait_for(endpoint, server)
            yield endpoint
        finally:
            server.kill()


def new_bucket(endpoint: str) -> S3Place:
    """A bucket of a server that asks for no signature, as moto."""
    bucket = f"b{uuid4().hex[:20]}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=60).close()
    return S3Place(endpoint, bucket)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(endpoint: str, server: subprocess.Popen[bytes], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=10).close()
            return
        except urllib.error.HTTPError as refusal:
            refusal.close()  # an answer
            return
        except OSError:
            assert server.poll() is None, f"the server ended with {server.returncode}"
            assert time.monotonic() < end, f"no answer from {endpoint}"
            time.sleep(0.1)
