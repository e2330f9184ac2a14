"""PgBouncer in front of a server of a test: Debian's package.

with pgbouncer(server, ignore="options") as dsn: …      where it listens, for any database of the server
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlparse

import psycopg

from freshet.jobs.demo.child_process import start_child
from tests.kit.components import missing
from tests.kit.postgres_server import PASSWORD, USER, PostgresServer, as_postgres
from tests.kit.s3_server import free_port

REMEDY = "sudo apt-get install pgbouncer"


@contextmanager
def pgbouncer(server: PostgresServer, database: str, *, ignore: str = "") -> Iterator[str]:
    """`ignore` are startup parameters that it takes without a word."""
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        missing("PgBouncer", REMEDY)
    port, place = free_port(), urlparse(server.dsn(database))
    with tempfile.TemporaryDirectory(prefix="freshet-pgbouncer-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        (folder / "settings").write_text(
            f"[databases]\n* = host={place.hostname} port={place.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nauth_type = plain\nauth_file = {folder / 'users'}\nunix_socket_dir =\n"
            f"ignore_startup_parameters = {ignore}\n"
        )
        with (folder / "log").open("wb") as log:
            process = start_child([*as_postgres("--pdeathsig=KILL"), program, folder / "settings"], log=log)
        try:
            dsn = f"postgresql://{USER}@127.0.0.1:{port}/{database}"
            _await(dsn, process, folder / "log")
            yield dsn
        finally:
            process.kill()
            process.wait(60)


def _await(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn, password=PASSWORD):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
