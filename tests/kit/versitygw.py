"""versitygw, an S3 server whose objects are files of a folder: they survive a kill, and signatures are checked.

    python -m tests.kit.versitygw       makes the program, unless it is there (`make versitygw`; five minutes, once)

It is found on the PATH or in `$XDG_CACHE_HOME/freshet/bin` (`~/.cache`), else made there by `go install`. Keys are
files: a key and a folder of one name clash, which S3 allows.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place, free_port, wait_for

VERSION: Final = "v1.8.0"
MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
GO_HOME: Final = "/usr/local/go/bin"
REMEDY: Final = "install Go (https://go.dev/dl) and call make versitygw, or put versitygw on the PATH"


class VersityGateway:
    """A server on one folder and one port; `kill` and `start` as often as wanted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        address, keys = f"127.0.0.1:{self._port}", ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        arguments = ["--port", address, *keys, "--quiet", "--keep-alive", "posix", str(self._folder)]
        log = self._folder.with_suffix(".log")
        with log.open("ab") as output:
            program = [versitygw_program(), *arguments]
            self._process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for(self.endpoint, self._process)

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def new_bucket(self) -> S3Place:
        """A bucket with nothing in it."""
        bucket = f"b{uuid4().hex[:20]}"
        (self._folder / bucket).mkdir()
        return S3Place(self.endpoint, bucket)


@contextmanager
def versity_gateway(folder: Path) -> Iterator[VersityGateway]:
    """A server that ends with the block."""
    gateway = VersityGateway(folder)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.kill()


def versitygw_program() -> str:
    """The program; made where it is not there, which is missing to a test without Go."""
    found = shutil.which("versitygw") or (str(_cached()) if _cached().is_file() else None)
    if found is None and _go() is None:
        from tests.kit.components import missing  # a plugin of pytest, which this module must not import first

        missing("versitygw", REMEDY)
    return found or _make()


def _cached() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "freshet" / "bin" / f"versitygw-{VERSION}"


def _go() -> str | None:
    return shutil.which("go") or shutil.which("go", path=GO_HOME)


def _make() -> str:
    """Of processes that come at once, one makes it and the others wait."""
    target, go = _cached(), _go()
    if go is None:
        raise SystemExit(f"versitygw is missing: {REMEDY}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                subprocess.run([go, "install", MODULE], check=True, env={**os.environ, "GOBIN": folder})
                (Path(folder) / "versitygw").rename(target)
    return str(target)


if __name__ == "__main__":
    found = shutil.which("versitygw") or _make()
    print(f"versitygw: {found}", file=sys.stderr)
