"""MariaDB for tests: Debian's package, or what is on the PATH; a server of its own, on loopback, with a binary log.

    with MariadbServer.start("shop") as server:
        server.run("CREATE TABLE …; INSERT INTO …")
        server.rows("t", {"id": "id", "at": "DATE_FORMAT(at, '%H')"})      {"id": Decimal(1), "at": "07"} of each row

Its log says what Debezium needs: whole rows, and the names of their columns. It ends with its parent process, however
that ends. MariaDB refuses to run as root: then it runs as `mysql`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self

from freshet.jobs.demo.child_process import free_ports, start_child, stop_child, tail
from tests.kit.components import missing

USER: Final = "freshet"
PASSWORD: Final = "maria-open-sesame"
START_TIMEOUT_S: Final = 120.0
PROGRAMS: Final = ("mariadb-install-db", "mariadbd", "mariadb")
REMEDY: Final = (
    "sudo apt-get install mariadb-server (10.11 or newer; no server has to run), or put mariadb-install-db, mariadbd "
    "and mariadb on the PATH"
)
SETTINGS: Final = (
    "--bind-address=127.0.0.1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--server-id=1",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_unicode_ci",
    "--default-time-zone=+00:00",
    "--innodb-flush-log-at-trx-commit=0",  # nobody needs its files after the test
    "--innodb-buffer-pool-size=16M",
    "--skip-name-resolve",
)


class MariadbServer:
    """One server with one database; `start` gives one that answers."""

    def __init__(self, folder: Path, database: str) -> None:
        self.database = database
        [self.port] = free_ports(1)
        self._folder = folder
        self._programs = _programs()
        self._child: subprocess.Popen[Any] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, database: str) -> Iterator[Self]:
        """Makes and starts a server, and finally stops it; its files go away too."""
        folder = Path(tempfile.mkdtemp(prefix="freshet-mariadb-", dir="/tmp"))  # short: a socket lies in it
        try:
            server = cls(folder, database)
            server._initialise()
            try:
                server._launch()
                yield server
            finally:
                if server._child is not None:
                    stop_child(server._child)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, statements: str, *, database: str | None = None) -> str:
        """What the client prints of these statements, rows without their heading; the first that fails ends them."""
        command = [self._programs["mariadb"], "--no-defaults", "--batch", "--raw", "--skip-column-names"]
        command += ["--host=127.0.0.1", "--protocol=tcp", f"--port={self.port}", f"--user={USER}"]
        command += ["--default-character-set=utf8mb4", database or self.database]
        done = subprocess.run(
            list(map(str, command)), input=statements, capture_output=True, text=True, encoding="utf-8",
            env={**os.environ, "MYSQL_PWD": PASSWORD}, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"MariaDB refused: {done.stderr.strip()}\nin:\n{statements[:2000]}")
        return done.stdout

    def rows(self, table: str, columns: Mapping[str, str]) -> list[dict[str, Any]]:
        """The rows of a table, as JSON shows these expressions by their names; numbers are `Decimal`."""
        members = ", ".join(f"'{name}', {expression}" for name, expression in columns.items())
        lines = self.run(f"SELECT JSON_OBJECT({members}) FROM {table}").split("\n")
        return [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in lines if line]

    def types(self, table: str) -> dict[str, str]:
        """The types of a table's columns, by their names and in their order."""
        found = self.run(
            "SELECT JSON_ARRAY(column_name, column_type) FROM information_schema.columns "
            f"WHERE table_schema = '{self.database}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return dict(json.loads(line) for line in found.splitlines())

    def _initialise(self) -> None:
        data, start = self._folder / "data", self._folder / "start.sql"
        temporary = self._folder / "tmp"  # that of the tests may be closed to another user
        data.mkdir()
        temporary.mkdir()
        start.write_text(
            f"CREATE DATABASE {self.database};\n"
            f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1';\n"
            "ALTER USER root@localhost ACCOUNT LOCK;\n"
        )
        if _as_mysql():
            self._folder.chmod(0o755)
            shutil.chown(data, "mysql")
            shutil.chown(temporary, "mysql")
        command = [*_as_mysql(), self._programs["mariadb-install-db"], "--no-defaults", f"--datadir={data}"]
        command += ["--skip-test-db", "--auth-root-authentication-method=normal"]
        env = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=data, env=env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _launch(self) -> None:
        data, log_file = self._folder / "data", self._folder / "log"
        with log_file.open("ab") as log:
            command: list[str | Path] = [*_as_mysql(), self._programs["mariadbd"], "--no-defaults", *SETTINGS]
            command += [f"--datadir={data}", f"--socket={data / 's'}", f"--port={self.port}"]
            command += [f"--init-file={self._folder / 'start.sql'}", f"--tmpdir={self._folder / 'tmp'}"]
            self._child = start_child(command, log=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.run("SELECT 1")
                return
            except RuntimeError as error:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"MariaDB does not start:\n{tail(log_file)}") from error
                time.sleep(0.1)


def _programs() -> dict[str, Path]:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])  # Debian has the server there
    found = {name: shutil.which(name, path=search) for name in PROGRAMS}
    if not all(found.values()):
        missing("MariaDB", REMEDY)
    return {name: Path(path) for name, path in found.items() if path is not None}


def _as_mysql() -> list[str]:
    """What to put before a command of the server's. A change of the user loses the death signal: it is set again."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        missing("setpriv (MariaDB does not run as root)", "run the tests as another user")
    return ["setpriv", "--pdeathsig=KILL", "--reuid=mysql", "--regid=mysql", "--init-groups"]
