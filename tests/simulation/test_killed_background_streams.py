"""A stream with background compaction, killed and restarted: nothing is lost, emitted twice or left behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

import pytest

from freshet import Catalog, Table
from freshet.jobs.demo.child_process import tail
from tests.kit.changelog_files import changelog, folded
from tests.kit.writer_process import expected, start_process, wait_for_snapshot
from tests.soak.counts import KILLED_STREAMS, chance_of

pytestmark = pytest.mark.soak

USER, FIRST_KEY, COMMITS, ROWS = "stream", 0, 100, 200
STREAM: Final = ("db.t", "stream", USER, FIRST_KEY, COMMITS, ROWS)
COMMITS_PER_ROUND = 7
"""Of each process that is killed: then it waits for that, so that work is left for all rounds on every machine. Thirty
are left for the last process, which is not killed: compaction units are due among them."""
KEPT = {"bucket": "2", "snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "1000"}
PRODUCERS = {
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "7"},
}


@pytest.mark.always("a kill for each producer")
@pytest.mark.parametrize("producer", PRODUCERS)
def test_killed_streams_with_units_tell_everything_once(tmp_path: Path, producer: str) -> None:
    chance = chance_of("killed streams", producer)
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT", "v": "STRING", "n": "INT"},
        primary_keys=["k"],
        options=KEPT | PRODUCERS[producer],
    )
    for _ in range(KILLED_STREAMS.now()):
        before = table.store.snapshots.latest_id() or 0
        child, log = start_process(tmp_path, *STREAM, COMMITS_PER_ROUND)
        wait_for_snapshot(table, before + chance.randint(2, COMMITS_PER_ROUND), [(child, log)])
        time.sleep(chance.random() / 20)
        child.kill()
        assert child.wait(300) == -signal.SIGKILL, tail(log)
    child, log = start_process(tmp_path, *STREAM)
    assert child.wait(300) == 0, tail(log)
    units = sum(snapshot.commit_user == f"{USER}-compact" for snapshot in table.snapshots())
    assert units > 0, "no unit was ever committed"
    table.compact()  # the last full compaction emits the remaining changes
    wanted = expected(USER, FIRST_KEY, COMMITS, ROWS)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len(wanted)
    assert {row["k"]: (row["v"], row["n"]) for row in rows} == wanted
    emitted = folded(changelog(table).values(), is_strict=True)
    assert {key: (row["v"], row["n"]) for (key,), row in emitted.items()} == wanted
    _check_nothing_is_left(table)


def _check_nothing_is_left(table: Table) -> None:
    """What killed processes left goes with the orphans, and nothing that is named goes with them."""
    files = {entry.file.file_name for entry in table.files()}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    table.remove_orphan_files(older_than_ms=-1_000_000)
    assert {path.name for path in Path(table.location).rglob("data-*.parquet")} == files
