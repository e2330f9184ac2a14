"""PostgreSQL for tests: Debian's package, or what is on the PATH; one cluster, a database for each test.

with postgres_server() as server:
    uri = server.new_database()             jdbc:postgresql://127.0.0.1:PORT/NAME
    server.stop(); server.start()           the same cluster, on the same port
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from freshet.jobs.demo.child_process import start_child
from freshet.jobs.demo.postgres_server import find_programs
from freshet.pipeline.exceptions import InvalidRequestError
from tests.kit.components import missing
from tests.kit.postgres_programs import PROGRAMS, SYSTEM_REMEDY
from tests.kit.s3_server import free_port

PASSWORD = "pg-open-sesame"
USER = "freshet"


class PostgresServer:
    """One cluster. Its user needs a password."""

    def __init__(
        self, programs: Mapping[str, Path], folder: Path, arguments: Sequence[str] = (), *, of: Path | None = None
    ) -> None:
        """`of` is the folder of a server that stands still, which it is a copy of."""
        self._programs = programs
        self._arguments = arguments
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[Any] | None = None
        if of is not None:
            subprocess.run(["cp", "-a", of / "data", folder / "data"], check=True)
            return
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        made = [f"--pgdata={folder / 'data'}", f"--username={USER}", f"--pwfile={password}", "--auth=scram-sha-256"]
        self._run("initdb", *made, "--encoding=UTF8", "--locale=C", "--no-sync")

    @property
    def options(self) -> dict[str, str]:
        """What a catalog is opened with, but for its `uri`."""
        return {"jdbc.user": USER, "jdbc.password": PASSWORD}

    def uri(self, database: str) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str) -> str:
        """What libpq connects with, but for the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URI of an empty database."""
        name = f"d{uuid4().hex[:12]}"
        self.query(f"CREATE DATABASE {name}")
        return self.uri(name)

    def query(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """What a statement gives, in a session of its own, in UTC."""
        with psycopg.connect(self.dsn(database), password=PASSWORD, autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return [] if cursor.description is None else cursor.fetchall()

    def start(self) -> None:
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        texts = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self._folder / "log").open("ab") as log:
            command = [
                *as_postgres("--pdeathsig=QUIT"),  # a change of the user loses the signal of `start_child`
                self._programs["postgres"],
                "-D",
                self._folder / "data",
                *self._arguments,
                *texts,
            ]
            self._process = start_child(command, log=log)
        end = time.monotonic() + 120
        while True:
            try:
                self.query("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < end, (self._folder / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """Ends all sessions at once."""
        if self._process is not None:
            pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, 2)  # SIGINT: fast shutdown
            self._process.wait(60)
            self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        if os.geteuid() == 0:
            self._folder.chmod(0o755)
            (self._folder / "data").mkdir()
            shutil.chown(self._folder / "data", "postgres")
        done = subprocess.run([*as_postgres(), self._programs[program], *arguments], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()


def copied_server(server: PostgresServer, folder: Path) -> PostgresServer:
    """A copy of a server that stands still."""
    return PostgresServer(server._programs, folder, server._arguments, of=server._folder)


@contextmanager
def postgres_server(*arguments: str, programs: Mapping[str, Path] | None = None) -> Iterator[PostgresServer]:
    """A server that ends with the block; `arguments` are more of its program's, `programs` other than the system's."""
    programs = programs or _programs()
    folder = Path(tempfile.mkdtemp(prefix="freshet-postgres-", dir="/tmp"))  # where another user may go
    try:
        server = PostgresServer(programs, folder, arguments)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> dict[str, Path]:
    try:
        return find_programs(PROGRAMS)
    except InvalidRequestError:
        missing("PostgreSQL", SYSTEM_REMEDY)


def as_postgres(*options: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        missing("setpriv (PostgreSQL does not run as root)", "run the tests as another user")
    return ["setpriv", *options, "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
