"""`freshet run` of the database of a random client, killed twenty times, the copy among it, on a disk and in S3.

Each snapshot of a table has what the client knows of the moment that its batch ends at; in the end all is compared once
more, with the database too, and Apache Paimon reads the same.

The client's markers are transactions without rows. What it knows at one is what it knows at the transaction before, so
a snapshot that holds a marker, and none that came later, has been compared with what there was at that marker if its
batch ends there, and with what there was later else: markers need no comparison of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from freshet import Catalog
from freshet.jobs.demo.child_process import tail
from freshet.pipeline.local.postgres_offset import PostgresOffset
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.postgres_client import RandomClient, Rows
from tests.kit.postgres_source import PostgresSource
from tests.kit.s3_server import S3Place
from tests.soak.counts import KILLED_DATABASES, chance_of

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.timeout(3600)]

BEHIND_COPIES = 8
"""So many batches of each pipeline, at least, come when the rows that were there are in the lake."""
KEPT = "snapshot.num-retained.min: 5000, snapshot.num-retained.max: 5000"
DATABASE = """\
name: database
run_on: local
sync:
  source: {{postgres: {source}}}
  tables:
    - {{from: "[^.]*.public.d", to: lake.d}}
    - {{from: "[^.]*.public.s", to: lake.s, options: {{merge-engine: aggregation, changelog-producer: lookup,
        fields.v.aggregate-function: sum, fields.w.aggregate-function: sum}}}}
  options: {{bucket: 2, {kept}}}
warehouse: "{warehouse}"
checkpoint: "{folder}/c-database"
dead_letters: lake.dead
trigger: {trigger}
"""
WIDE = """\
name: wide
run_on: local
sources:
  - postgres: {first}
    select: {{id: id, a: a, big: big}}
  - postgres: {second}
    select: {{id: id, b: b, c: c}}
table:
  warehouse: "{warehouse}"
  name: lake.wide
  columns: {{id: BIGINT, a: INT, big: STRING, b: INT, c: STRING}}
  primary_key: [id]
  options: {{bucket: 2, merge-engine: partial-update, {kept}}}
checkpoint: "{folder}/c-wide"
dead_letters: lake.dead_wide
trigger: {trigger}
"""
SMALL_CHUNKS = """
import sys
from freshet.pipeline.postgres import copied_table
from freshet.pipeline.local import postgres_copy
copied_table.CHUNK_ROWS_MIN, copied_table.CHUNK_ROWS_MAX, postgres_copy.CHUNKS_MAX = 30, 60, 2
from freshet.__main__ import main
sys.argv = ["freshet", "run", *sys.argv[1:]]
main()
"""


class Run:
    """Two pipelines of one database, in a process that is killed."""

    def __init__(self, folder: Path, source: PostgresSource, warehouse: str, options: Mapping[str, str]) -> None:
        self._folder, self._source, self._warehouse = folder, source, warehouse
        self.catalog = Catalog(warehouse, options=dict(options))
        self._environment = {
            **os.environ, "FRESHET_CATALOG_OPTIONS": json.dumps(dict(options)), "CLIENT_PASSWORD": source.password
        }  # fmt: skip
        self.log = folder / "log.txt"
        self.offsets: dict[str, dict[int, list[PostgresOffset]]] = {"database": {}, "wide": {}}
        """Of batches, as they were planned: the checkpoint forgets them."""

    def files(self, trigger: str) -> list[Path]:
        def source(name: str, *tables: str) -> str:
            document = {
                "dsn": self._source.dsn, "password": "env:CLIENT_PASSWORD", "publication": "p",
                "tables": [f"public.{table}" for table in tables], "slot": f"{self._source.database}_{name}",
            }  # fmt: skip
            return json.dumps(document)

        texts = {"warehouse": self._warehouse, "folder": self._folder, "kept": KEPT, "trigger": trigger}
        paths = [self._folder / "database.yaml", self._folder / "wide.yaml"]
        paths[0].write_text(DATABASE.format(source=source("all", "d", "s"), **texts))
        paths[1].write_text(WIDE.format(first=source("w1", "w1"), second=source("w2", "w2"), **texts))
        return paths

    @contextmanager
    def process(self, trigger: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs until the block ends, which kills it."""
        command = [sys.executable, "-c", SMALL_CHUNKS, *map(str, self.files(trigger)), "--progress", "json"]
        with self.log.open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment, start_new_session=True)
        try:
            yield child
        finally:
            child.kill()
            child.wait()

    def resync(self) -> None:
        """Copies the tables of the database's pipeline again."""
        command = [sys.executable, "-m", "freshet", "resync", str(self._folder / "database.yaml"), "--yes"]
        subprocess.run(command, check=True, env=self._environment)

    @property
    def batches_behind_copies(self) -> int:
        """How many each pipeline has planned since the rows that were there are in the lake."""
        return min(
            sum(all(end.copy is None for end in ends) for ends in known.values()) for known in self.offsets.values()
        )

    def note_offsets(self) -> int:
        """Reads what was planned since; gives the number of the last batch of the database's pipeline."""
        for name, known in self.offsets.items():
            for file in (self._folder / f"c-{name}" / "offsets").glob("*"):
                if file.name.isdecimal():
                    with suppress(FileNotFoundError):  # forgotten meanwhile
                        lines = file.read_text().splitlines()[2:]
                        if lines:  # else it is being written
                            known[int(file.name)] = [PostgresOffset.of(line) for line in lines if line.startswith("{")]
        return max(self.offsets["database"], default=-1)


@pytest.mark.parametrize("place", ["a disk", "s3"])
def test_each_snapshot_has_what_the_client_knows(
    place: str, tmp_path: Path, postgres: PostgresSource, paimon: PaimonJudge, request: pytest.FixtureRequest
) -> None:
    chance = chance_of("killed databases", place)
    s3: S3Place | None = request.getfixturevalue("s3") if place == "s3" else None
    warehouse, options = (f"{tmp_path}/w", {}) if s3 is None else (f"{s3.root}/w", s3.sent_options)
    client = RandomClient(postgres, chance)
    run = Run(tmp_path, postgres, warehouse, options)
    with _writing(client, chance) as writer:
        kills = 0
        while not writer.done() and (kills < KILLED_DATABASES.now() or run.batches_behind_copies < BEHIND_COPIES):
            assert _run_and_kill(run, chance, writer), tail(run.log)
            kills += 1
            client.alters = 0.05 if run.batches_behind_copies else 0  # what a copy has then depends on its chunks
    _run_to_the_end(run)
    client.close()
    _compare(run, client, postgres, paimon if s3 is None else None)


def test_columns_change_while_tables_are_copied(tmp_path: Path, postgres: PostgresSource) -> None:
    """A row is as the table had it at some moment since it last changed; or the run stops, and says what to do."""
    chance = chance_of("altered copies", 0)
    client = RandomClient(postgres, chance, rows=200)
    run = Run(tmp_path, postgres, f"{tmp_path}/w", {})
    client.alters, copies = 0.03, 1
    with _writing(client, chance) as writer:
        while not writer.done() and run.batches_behind_copies < 3:
            if _run_and_kill(run, chance, writer) or "the copy makes way, and goes on after it" in tail(run.log):
                continue
            assert "freshet resync" in tail(run.log), tail(run.log)
            client.alters, copies = client.alters / 2, copies + 1
            run.resync()
    _run_to_the_end(run)
    client.close()
    found = _shown(run.catalog.table("lake.d").scan().to_arrow().to_pylist())
    assert found.keys() == client.lake["d"].keys()
    for key, row in found.items():
        assert row in [_shown_rows({key: each})[key] for each in client.copied(key)], (key, copies)
    others = {"s": client.lake["s"], "wide": _wide(client.lake["w1"], client.lake["w2"])}
    for name, rows in others.items():
        assert _shown(run.catalog.table(f"lake.{name}").scan().to_arrow().to_pylist()) == _shown_rows(rows), name
    assert run.catalog.table("lake.dead").scan().count() == 0


@contextmanager
def _writing(client: RandomClient, chance: Random) -> Iterator[Future[None]]:
    """Transactions come until the block ends: it gives what is done if they do not."""
    ends, pauses = threading.Event(), Random(chance.random())

    def write() -> None:
        while not ends.is_set():
            client.step()
            time.sleep(pauses.random() * 0.04)

    with ThreadPoolExecutor(1) as other:
        writer = other.submit(write)
        try:
            yield writer
        finally:
            ends.set()
        writer.result()


def _run_and_kill(run: Run, chance: Random, writer: Future[None]) -> bool:
    """Somewhere within, or behind, one of the next batches; False where it ends by itself."""
    wanted = run.note_offsets() + chance.randint(1, 4)
    with run.process("{processing_time: 0 s}") as child:
        while run.note_offsets() < wanted and not writer.done():
            if child.poll() is not None:
                return False
            time.sleep(0.01)
        ends = time.monotonic() + chance.random() * chance.choice((0.02, 0.3, 1))
        while time.monotonic() < ends:
            run.note_offsets()
            time.sleep(0.01)
        return child.poll() is None


def _run_to_the_end(run: Run) -> None:
    with run.process("{available_now: true}") as child:
        while child.poll() is None:
            run.note_offsets()
            time.sleep(0.1)
        assert child.wait() == 0, tail(run.log)
    run.note_offsets()


def _compare(run: Run, client: RandomClient, postgres: PostgresSource, paimon: PaimonJudge | None) -> None:
    wanted = {"d": client.lake["d"], "s": client.lake["s"], "wide": _wide(client.lake["w1"], client.lake["w2"])}
    for name in ("d", "s", "w1", "w2"):
        found = postgres.rows(f"SELECT count(*) FROM {name}")
        assert found == [(len(client.rows[name]),)], name  # the oracle itself
    for name, rows in wanted.items():
        table = run.catalog.table(f"lake.{name}")
        assert _shown(table.scan().to_arrow().to_pylist()) == _shown_rows(rows), name
        if paimon is not None:
            assert _shown(paimon.table(table.location).read_arrow().to_pylist()) == _shown_rows(rows), name
        offsets = run.offsets["wide" if name == "wide" else "database"]
        checked = 0
        for snapshot in table.snapshots():
            ends = offsets[snapshot.commit_identifier]
            if any(end.copy is not None for end in ends):
                continue
            held = (
                client.held(name, ends[0].lsn)
                if name != "wide"
                else _wide(client.held("w1", ends[0].lsn), client.held("w2", ends[1].lsn))
            )
            found = _shown(table.scan(snapshot_id=snapshot.id).to_arrow().to_pylist())
            assert found == _shown_rows(held), f"{name}, snapshot {snapshot.id}, {ends}"
            checked += 1
        assert checked, f"{name}: no snapshot came behind the copy"
    assert run.catalog.table("lake.dead").scan().count() == 0
    assert client.markers > 1


def _wide(first: Rows, second: Rows) -> Rows:
    nothing: dict[str, Any] = {}
    return {key: {**first.get(key, nothing), **second.get(key, nothing)} for key in {*first, *second}}


def _shown_rows(rows: Rows) -> dict[int, dict[str, Any]]:
    return _shown([{"id": key, **row} for key, row in rows.items()])


def _shown(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """By key, without what is NULL: a column that a table has got later is none of a row before."""
    found = {
        row["id"]: {
            name: int(value) if isinstance(value, Decimal) else value
            for name, value in row.items()
            if value is not None
        }
        for row in rows
    }
    assert len(found) == len(rows), "a key is there twice"
    return found
