"""Several Freshet writers, a compactor and Apache Paimon commit to one table at the same time, each in its own process.

No commit is lost, none counts twice, snapshot ids are contiguous. Paimon claims snapshots through an exclusive hard
link here and writes only: its own rename is not exclusive across processes.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.model.snapshot import CommitKind
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.writer_process import expected

pytestmark = [pytest.mark.judge, pytest.mark.slow]

COLUMNS = {"k": "BIGINT", "v": "STRING", "n": "INT"}
COMMITS = 12
ROWS = 200


def _start(warehouse: Path, what: str, user: str, *numbers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.kit.writer_process", what, str(warehouse), "db.t", user, *map(str, numbers)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def _rows(table: Table) -> dict[int, tuple[str, int]]:
    rows = table.scan().to_arrow()
    assert len(set(rows["k"].to_pylist())) == rows.num_rows
    return {row["k"]: (row["v"], row["n"]) for row in rows.to_pylist()}


def test_no_commit_is_lost_and_none_counts_twice(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["k"],
        options={"bucket": "2", "snapshot.num-retained.min": "1000", "num-sorted-run.compaction-trigger": "3"},
    )
    judge = paimon.table(table.location, options={"write-only": "true"}, exclusive=True)
    users = [(f"writer-{number}", number * 1_000_000) for number in range(3)]
    children = [_start(tmp_path, "write", user, first, COMMITS, ROWS) for user, first in users]
    children.append(_start(tmp_path, "compact", "compactor", 6))

    def paimon_writes() -> None:
        for number in range(COMMITS):
            rows = [(9_000_000 + key, "paimon", number) for key in range(number * ROWS // 2, number * ROWS // 2 + ROWS)]
            judge.write(rows, user="paimon", identifier=number)

    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(paimon_writes)
        outcomes = [(child.wait(timeout=600), child.communicate()[1].decode()) for child in children]
        pending.result(timeout=600)
    assert [code for code, _ in outcomes] == [0] * len(children), [text for _, text in outcomes]

    want: dict[int, tuple[str, int]] = expected("paimon", 9_000_000, COMMITS, ROWS)
    for user, first in users:
        want |= expected(user, first, COMMITS, ROWS)
    assert _rows(table) == want
    read_by_paimon = judge.read_arrow()
    assert {row["k"]: (row["v"], row["n"]) for row in read_by_paimon.to_pylist()} == want

    snapshots = table.snapshots()
    assert [snapshot.id for snapshot in snapshots] == list(range(1, len(snapshots) + 1))
    commits = Counter(
        (snapshot.commit_user, snapshot.commit_identifier)
        for snapshot in snapshots
        if snapshot.commit_kind is CommitKind.APPEND
    )
    assert commits == Counter({(user, number): 1 for user in (*dict(users), "paimon") for number in range(COMMITS)})


def test_the_sequence_field_decides_between_writers_of_the_same_keys(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["k"],
        options={"bucket": "1", "sequence.field": "n,v", "num-sorted-run.compaction-trigger": "3"},
    )
    users = ["writer-0", "writer-1", "writer-2"]
    children = [_start(tmp_path, "write", user, 0, COMMITS, ROWS) for user in users]
    outcomes = [(child.wait(timeout=600), child.communicate()[1].decode()) for child in children]
    assert [code for code, _ in outcomes] == [0] * len(children), [text for _, text in outcomes]
    # The highest (n, v) wins: of the three writers' rows of one commit, the last user's.
    assert _rows(table) == expected("writer-2", 0, COMMITS, ROWS)
