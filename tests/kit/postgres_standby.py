"""A standby of a server of a test, which may be promoted; of 16 and later its log can be decoded.

with postgres_standby(server) as standby: …         another `PostgresServer`; `server` is started anew for it
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.postgres_server import PASSWORD, USER, PostgresServer, copied_server

PHYSICAL = "standby"


@contextmanager
def postgres_standby(server: PostgresServer) -> Iterator[PostgresServer]:
    server.query(f"SELECT pg_create_physical_replication_slot('{PHYSICAL}')")
    folder = Path(tempfile.mkdtemp(prefix="freshet-postgres-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        server.stop()
        standby = copied_server(server, folder)
        data = folder / "data"
        shutil.rmtree(data / "pg_replslot" / PHYSICAL)
        (data / "standby.signal").touch()
        reached = f"host=127.0.0.1 port={server.port} user={USER} password={PASSWORD} dbname=postgres"
        with (data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write(
                f"primary_conninfo = '{reached}'\nprimary_slot_name = '{PHYSICAL}'\nsync_replication_slots = on\n"
            )
        server.start()
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def await_replay(server: PostgresServer, standby: PostgresServer) -> None:
    """Returns once the standby has what the server has now."""
    ((wanted,),) = server.query("SELECT pg_current_wal_lsn()")
    end = time.monotonic() + 60
    while standby.query(f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'") != [(True,)]:
        assert time.monotonic() < end
        time.sleep(0.02)
