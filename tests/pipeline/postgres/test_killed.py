"""Pipelines of a database whose process is killed: every change once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.storage.exceptions import NotFoundError
from tests.kit.postgres_source import PostgresSource
from tests.kit.s3_server import S3Place
from tests.pipeline.postgres.streamed import ALWAYS, ONCE, SYNC, Streamed

pytestmark = pytest.mark.slow

KILLS = 4
RUN = [sys.executable, "-m", "freshet", "run"]


def _write(postgres: PostgresSource, ends: threading.Event) -> None:
    """Rows that only come, and rows that change, in transactions of several sizes."""
    rng = random.Random(7)
    with postgres.connect(autocommit=False) as connection:
        number = 0
        while not ends.is_set():
            for _ in range(rng.choice((1, 3, 400))):
                number += 1
                connection.execute(b"INSERT INTO a VALUES (%s)", (number,))
                connection.execute(
                    b"INSERT INTO k VALUES (%s, %s, repeat(md5(%s::text), 100)) "
                    b"ON CONFLICT (id) DO UPDATE SET v = k.v + 1",
                    (rng.randrange(200), 1, number),
                )
            if rng.random() < 0.2:
                connection.execute(b"DELETE FROM k WHERE id = %s", (rng.randrange(200),))
            if rng.random() < 0.2:
                connection.execute(
                    b"UPDATE k SET id = id + 1000 WHERE id = %s AND NOT EXISTS (SELECT FROM k WHERE id = %s)",
                    (at := rng.randrange(200), at + 1000),
                )
            connection.commit()
            time.sleep(0.005)


def _batches(folder: Path) -> int:
    return max(int(each.name) for each in (folder / "c" / "commits").iterdir() if each.name.isdecimal())


def test_every_change_is_there_once(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE a (n bigint)",
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "CREATE TABLE k (id bigint PRIMARY KEY, v bigint, big text)",
        "CREATE PUBLICATION p FOR TABLE a, k",
    )
    rules = '[{from: "[^.]*.public.a", to: "db.a", without_key: append, options: {bucket: "-1"}}, '
    rules += '{from: "[^.]*.public.k", to: "db.k", options: {bucket: "1"}}]'
    streamed = Streamed(tmp_path, postgres, rules=rules, options="")
    streamed.run(SYNC)
    streamed.config(SYNC, trigger=ALWAYS)
    ends = threading.Event()
    writer = threading.Thread(target=_write, args=(postgres, ends))
    writer.start()
    try:
        for _ in range(KILLS):
            process = subprocess.Popen(
                [*RUN, str(tmp_path / "p.yaml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            begun = _batches(tmp_path)
            while _batches(tmp_path) < begun + 2:
                assert process.poll() is None, process.stdout and process.stdout.read().decode()
                time.sleep(0.05)
            time.sleep(random.uniform(0, 0.5))  # anywhere
            process.kill()
            process.wait()
    finally:
        ends.set()
        writer.join()
    streamed.run(SYNC)
    catalog = Catalog(tmp_path / "w")
    assert sorted(row["n"] for row in catalog.table("db.a").scan().to_arrow().to_pylist()) == [
        number for (number,) in postgres.rows("SELECT n FROM a ORDER BY n")
    ]
    assert sorted(tuple(row.values()) for row in streamed.rows("db.k")) == postgres.rows("SELECT * FROM k ORDER BY id")
    assert catalog.table("db.a").scan().count() > 1000


def test_a_copy_goes_on_where_it_was(tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.run(
        "CREATE TABLE k (id bigint PRIMARY KEY, v bigint, big text)",
        "CREATE TABLE a (n bigint PRIMARY KEY, v bigint)",
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "INSERT INTO k SELECT i, i, repeat('x', 300) FROM generate_series(1, 20000) i",
        "INSERT INTO a SELECT i, i FROM generate_series(1, 20000) i",
        "CREATE TABLE _log (n bigint, v bigint)",
        "ALTER TABLE _log REPLICA IDENTITY FULL",
        "INSERT INTO _log SELECT i, i FROM generate_series(1, 20000) i",  # without a key, and the first of them
        "CREATE PUBLICATION p FOR TABLE a, k, _log",
    )
    rules = '[{from: "[^.]*.public._log", to: "db._log", without_key: append, options: {bucket: "-1"}}, '
    rules += '{from: "[^.]*.public.k", to: "db.k"}, {from: "[^.]*.public.a", to: "db.a", '
    rules += "options: {merge-engine: aggregation, fields.v.aggregate-function: sum}}]"
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=rules)
    streamed.config(SYNC, trigger=ALWAYS)
    ends = threading.Event()

    def write() -> None:
        with postgres.connect() as connection:
            while not ends.is_set():
                connection.execute(
                    b"UPDATE a SET v = v + 1 WHERE n IN (SELECT (random() * 20000)::int FROM generate_series(1, 9))"
                )
                connection.execute(b"UPDATE k SET v = v + 1 WHERE id = (random() * 20000)::int")
                connection.execute(b"DELETE FROM k WHERE id = (random() * 20000)::int")
                connection.execute(b"INSERT INTO _log VALUES (0, 0)")
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    program = (
        "from freshet.pipeline.postgres import copied_table as c; c.CHUNK_ROWS_MAX = 3000; c.CHUNK_BYTES = 2**18; "
    )
    program += "import freshet.pipeline.local.postgres_copy as p; p.CHUNKS_MAX = 4; import sys; "
    program += "sys.argv = ['freshet', 'run', sys.argv[1]]; from freshet.__main__ import main; main()"
    try:
        for _ in range(KILLS + 1):
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path / "p.yaml")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            begun = _planned(tmp_path)
            while _planned(tmp_path) == begun:
                assert process.poll() is None, process.stdout and process.stdout.read().decode()
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.3))
            process.kill()
            process.wait()
    finally:
        ends.set()
        writer.join()
    streamed.run(SYNC)
    for table in ("k", "a", "_log"):
        found = sorted(tuple(row.values()) for row in streamed.rows(f"db.{table}"))
        assert found == postgres.rows(f"SELECT * FROM {table} ORDER BY 1, 2"), table


def _planned(folder: Path) -> int:
    offsets = folder / "c" / "offsets"
    return (
        max((int(each.name) for each in offsets.iterdir() if each.name.isdecimal()), default=-1)
        if offsets.exists()
        else -1
    )


WIDE = """\
name: wide
run_on: local
sources:
  - postgres: {{dsn: "{dsn}", password: "{password}", tables: ["public.a"], slot: {slot}_a, publication: p}}
    select: {{id: id, va: v}}
  - postgres: {{dsn: "{dsn}", password: "{password}", tables: ["public.b"], slot: {slot}_b, publication: p}}
    select: {{id: id, vb: v}}
catalog: {catalog}
table:
  warehouse: "{root}/w"
  name: db.t
  columns: {{id: BIGINT, va: BIGINT, vb: BIGINT}}
  primary_key: [id]
  options: {{bucket: "2", merge-engine: partial-update}}
trigger: {trigger}
checkpoint: "{root}/c"
"""


def test_two_sources_of_a_wide_row_in_a_store(tmp_path: Path, postgres: PostgresSource, versitygw: S3Place) -> None:
    """Tables and checkpoint are in the store; each source has a copy, then a stream."""
    for table in ("a", "b"):
        postgres.run(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, v bigint)",
            f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 2000) i",
        )
    postgres.run("CREATE PUBLICATION p FOR TABLE a, b")
    path, slot, catalog = tmp_path / "p.yaml", f"s{postgres.database}", json.dumps(versitygw.sent_options)

    def write_file(trigger: str) -> None:
        given = {"dsn": postgres.dsn, "password": postgres.password, "slot": slot, "trigger": trigger}
        path.write_text(WIDE.format(catalog=catalog, root=versitygw.root, **given))

    def snapshots() -> int:
        with suppress(NotFoundError):
            latest = Catalog(f"{versitygw.root}/w", options=versitygw.options).table("db.t").latest_snapshot()
            return 0 if latest is None else latest.id
        return 0

    ends = threading.Event()

    def change() -> None:
        with postgres.connect() as connection:
            while not ends.is_set():
                for table in ("a", "b"):
                    connection.execute(
                        f"INSERT INTO {table} VALUES ((random() * 3000)::int, 1) "
                        f"ON CONFLICT (id) DO UPDATE SET v = {table}.v + 1".encode()
                    )
                time.sleep(0.002)

    writer = threading.Thread(target=change)
    writer.start()
    write_file(ALWAYS)
    try:
        for _ in range(KILLS):
            with (tmp_path / "log").open("wb") as log:
                process = subprocess.Popen([*RUN, str(path)], stdout=log, stderr=subprocess.STDOUT)
            begun = snapshots()
            while snapshots() < begun + 2:
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
            time.sleep(random.uniform(0, 0.5))
            process.kill()
            process.wait()
    finally:
        ends.set()
        writer.join()
    write_file(ONCE)
    done = subprocess.run([*RUN, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = Catalog(f"{versitygw.root}/w", options=versitygw.options).table("db.t").scan().to_arrow().to_pylist()
    wanted = "SELECT id, a.v, b.v FROM a FULL JOIN b USING (id) ORDER BY id"
    assert sorted((row["id"], row["va"], row["vb"]) for row in rows) == postgres.rows(wanted)
