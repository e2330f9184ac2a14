"""Processes that write, compact and rescale one table, killed amid their work: nothing lost or emitted twice."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.jobs.demo.child_process import tail
from tests.kit.changelog_files import changelog, folded
from tests.kit.writer_process import AND_WAIT, expected, start_process, wait_for_snapshot
from tests.soak.counts import KILLED_WRITERS, chance_of
from tests.storage.write.test_deletion_vector_writes import check_marks

pytestmark = pytest.mark.soak

COMMITS, ROWS = 30, 200
FIRST_KEYS = {"left": 0, "right": 1_000_000}
OPTIONS = {"bucket": "2", "commit.max-retries": "1000", "snapshot.num-retained.min": "1000"}
VECTORS = {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"}


@dataclass(frozen=True)
class Kind:
    """Options of a table, and whether it is rescaled meanwhile."""

    options: dict[str, str] = field(default_factory=dict)
    is_rescaled: bool = True


KINDS = {
    "none": Kind(),
    "lookup": Kind({"changelog-producer": "lookup"}),
    "full-compaction": Kind({"changelog-producer": "full-compaction"}),
    "vectors": Kind(VECTORS),
    "vectors of small files": Kind(
        {**VECTORS, "num-sorted-run.compaction-trigger": "3", "target-file-size": "16 kb"}, is_rescaled=False
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_killed_writers_lose_nothing_and_emit_every_change_once(tmp_path: Path, name: str) -> None:
    chance, kind, killed_rounds = chance_of("killed writers", name), KINDS[name], KILLED_WRITERS.now()
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT", "v": "STRING", "n": "INT"},
        primary_keys=["k"],
        options={**OPTIONS, **kind.options},
    )
    how = "route" if kind.is_rescaled else "write"
    writers = [(how, user, first, COMMITS, ROWS) for user, first in FIRST_KEYS.items()]
    for round_number in range(killed_rounds + 1):
        is_last = round_number == killed_rounds
        rounds = 3 if is_last else 1000
        others = [("compact", "compactor", 3 if kind.is_rescaled else rounds)]
        others += [("rescale", "r" * (round_number + 1), rounds)] * kind.is_rescaled
        wait = () if is_last else (AND_WAIT,)
        before = table.store.snapshots.latest_id() or 0
        children = [start_process(tmp_path, "db.t", *arguments, *wait) for arguments in (*writers, *others)]
        if is_last:
            for child, log in children:
                assert child.wait(300) == 0, tail(log)
            break
        wait_for_snapshot(table, before + chance.randint(3, 9), children)
        time.sleep(chance.random() / 20)
        for child, log in children:
            child.kill()
            assert child.wait(300) == -signal.SIGKILL, tail(log)
    if kind.is_rescaled:
        Table.open(table.location).rescale(5)
    table = Table.open(table.location)
    table.compact()  # an aborted compaction leaves level 0, which readers of vectors do not see, to the next one
    wanted = {}
    for user, first in FIRST_KEYS.items():
        wanted |= expected(user, first, COMMITS, ROWS)
    _check_rows(table, wanted)
    assert {entry.total_buckets for entry in table.files()} == {5 if kind.is_rescaled else 2}
    assert not table.check().damage
    if "changelog-producer" in kind.options:
        emitted = folded(changelog(table).values(), is_strict=True)
        assert {key: (row["v"], row["n"]) for (key,), row in emitted.items()} == wanted
    _check_vectors(table)
    files = {entry.file.file_name for entry in table.files()}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    table.remove_orphan_files(older_than_ms=-1_000_000)
    left = {path.name for path in Path(table.location).rglob("data-*.parquet")}
    assert left == files, "killed processes left orphans, which are gone"
    _check_rows(table, wanted)


def _check_rows(table: Table, wanted: dict[int, tuple[str, int]]) -> None:
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len(wanted) and {row["k"]: (row["v"], row["n"]) for row in rows} == wanted


def _check_vectors(table: Table) -> None:
    """Rows are marked in files that are there only, and the files without marks are what readers see."""
    if table.options.deletion_vectors_enabled:
        check_marks(table.store)
        marked = sum(split.marked_row_count or 0 for split in table.scan().plan())
        stored = sum(entry.file.row_count for entry in table.files() if entry.file.level > 0)
        assert stored - marked == table.scan().count()
