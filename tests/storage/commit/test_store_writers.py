"""Writers of one table in a bucket, threads and processes at once, with `exclusive-put`: each row is there once."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from freshet import Catalog
from freshet.storage.commit.foreign_writers import ADOPTED_PROPERTY
from tests.kit.s3_server import S3Place

COMMITS, THREADS, PROCESSES = 4, 3, 2

_PROGRAM = """
import sys
from freshet import Catalog
user, commits = sys.argv[2], int(sys.argv[3])
with Catalog(sys.argv[1]).table("shop.sums").writer(user) as writer:
    for number in range(commits):
        writer.write([{"k": key, "n": 1} for key in range(3)])
        writer.commit(number)
"""


@pytest.mark.slow
def test_sums_are_right_after_threads_and_processes_have_written_at_once(s3: S3Place) -> None:
    warehouse = f"{s3.root}/w"
    catalog = Catalog(warehouse, options=s3.options)
    options = {"bucket": 1, "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    options |= {"commit.max-retries": 100}
    catalog.create_table("shop.sums", schema={"k": "INT", "n": "BIGINT"}, primary_keys=["k"], options=options)

    environment = os.environ | {"FRESHET_CATALOG_OPTIONS": orjson.dumps(s3.options).decode()}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, warehouse, f"process-{number}", str(COMMITS)], env=environment
        )
        for number in range(PROCESSES)
    ]

    def write(number: int) -> None:
        with Catalog(warehouse, options=s3.options).table("shop.sums").writer(f"thread-{number}") as writer:
            for commit in range(COMMITS):
                writer.write([{"k": key, "n": 1} for key in range(3)])
                writer.commit(commit)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(THREADS)))
    assert [process.wait(timeout=300) for process in processes] == [0] * PROCESSES

    table = catalog.table("shop.sums")
    expected = (THREADS + PROCESSES) * COMMITS
    assert table.scan().to_arrow().to_pylist() == [{"k": key, "n": expected} for key in range(3)]
    appended = [each for each in table.store.snapshots.all() if each.commit_kind == "APPEND"]
    assert len({(each.commit_user, each.commit_identifier) for each in appended}) == len(appended)
    assert not any(ADOPTED_PROPERTY in (each.properties or {}) for each in table.store.snapshots.all())
    assert table.lost_commits() == []
    assert not table.check().damage
