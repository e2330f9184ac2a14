"""A process that stands still before it commits, while another one goes on for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import ALWAYS, SYNC, Streamed

pytestmark = pytest.mark.slow

SILENT_S = 10
"""Instead of 60: how long the server takes a silent client for alive (wal_sender_timeout)."""
STANDS_STILL = """
import os, signal, sys
from freshet.storage.commit.committer import Committer
commit = Committer.commit
def stopped(self, identifier, *arguments, **more):
    if self._store.location.rstrip("/").endswith("/t"):
        Committer.commit = commit
        os.kill(os.getpid(), signal.SIGSTOP)
    return commit(self, identifier, *arguments, **more)
Committer.commit = stopped
sys.argv = ["freshet", "run", "--workers", "1", "--restart", "0", sys.argv[1]]
from freshet.__main__ import main
main()
"""


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_one_that_was_overtaken_writes_nothing(tmp_path: Path, postgres: PostgresSource, goes_on: bool) -> None:
    """With `goes_on` its successor has more batches, and still reads the slot."""
    postgres.run(
        "CREATE TABLE t (id bigint, v bigint)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    rules = '[{from: "[^.]*.public.t", to: "db.t", without_key: append, options: {bucket: "-1"}}]'
    dsn = f"{postgres.dsn}?options=-c%20wal_sender_timeout%3D{SILENT_S}s"
    streamed = Streamed(tmp_path, postgres, rules=rules, options="", dsn=dsn)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1, 1)")
    streamed.run(SYNC)
    streamed.config(SYNC, trigger=ALWAYS)
    path, log = tmp_path / "p.yaml", tmp_path / "log"
    with log.open("wb") as file:
        old = subprocess.Popen([sys.executable, "-c", STANDS_STILL, str(path)], stdout=file, stderr=subprocess.STDOUT)
    try:
        postgres.run("INSERT INTO t VALUES (2, 2)")
        until = time.monotonic() + 300
        while not _is_stopped(old):
            assert old.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        with pytest.raises(PipelineFailedError, match="is read by another process") as refused:
            streamed.run(SYNC)
        assert refused.value.kind is ErrorKind.RETRYABLE
        active = f"SELECT FROM pg_replication_slots WHERE slot_name = '{streamed.slot}' AND active"
        while postgres.rows(active):
            assert time.monotonic() < until
            time.sleep(0.1)
        streamed.run(SYNC)
        if goes_on:
            postgres.run("INSERT INTO t VALUES (3, 3)")
            streamed.run(SYNC)
        table = Catalog(tmp_path / "w").table("db.t")
        slot = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{streamed.slot}'"
        before = table.latest_snapshot(), postgres.rows(slot)
        old.send_signal(signal.SIGCONT)
        assert old.wait(300) == 75, log.read_text()
        assert (Catalog(tmp_path / "w").table("db.t").latest_snapshot(), postgres.rows(slot)) == before
    finally:
        old.kill()
        old.wait()
    found = sorted((row["id"], row["v"]) for row in streamed.rows("db.t"))
    assert found == postgres.rows("SELECT * FROM t ORDER BY id")
