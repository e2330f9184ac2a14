"""Changes written by Apache Paimon and read here, and changelogs kept here that Apache Paimon reads and expires."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

pytestmark = pytest.mark.judge

FOREVER = {"snapshot.num-retained.min": "100", "num-sorted-run.compaction-trigger": "3"}


def make(tmp_path: Path, paimon: PaimonJudge, *, keyed: bool = True, **options: str) -> tuple[Table, PaimonTable]:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"id": "BIGINT", "v": "STRING", "n": "DECIMAL(10, 2)"},
        primary_keys=["id"] if keyed else [],
        options={"bucket": "2" if keyed else "-1", **FOREVER, **options},
    )
    return table, paimon.table(table.location)


def rows(number: int, *, keyed: bool = True) -> list[tuple[Any, ...]]:
    chance = random.Random(number)
    keys = chance.sample(range(12), 6) if keyed else range(6)
    kinds = ["+I", "+I", "-D"] if keyed else ["+I"]
    return [(chance.choice(kinds), key, f"{number}", None) for key in keys]


def ours(table: Table, **asked: Any) -> list[tuple[Any, ...]]:
    return emitted(table.changelog(**asked).to_arrow())


def emitted(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((row["_SNAPSHOT_ID"], row["_ROW_KIND"], row["id"], row["v"], row["n"]) for row in found.to_pylist())


def theirs(judge: PaimonTable, *asked: int) -> list[tuple[Any, ...]]:
    """What Paimon's streaming read gives."""
    return emitted(judge.changelog(*asked))


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_changelogs_of_paimon(tmp_path: Path, paimon: PaimonJudge, producer: str) -> None:
    table, judge = make(tmp_path, paimon, **{"changelog-producer": producer})
    for number in range(6):
        compact = "full" if producer == "full-compaction" and number % 2 else None
        judge.write(rows(number), compact=compact)
    found = ours(table)
    assert found == theirs(judge)
    assert len(found) > 12
    assert {kind for _, kind, *_ in found} >= {"+I", "-D"}
    middle = found[len(found) // 2][0]
    assert ours(table, from_snapshot=middle) == theirs(judge, middle)
    state = {}
    for _, kind, key, *values in told_in_order(table):
        if kind in ("+I", "+U"):
            state[key] = values
        elif producer != "input":
            state.pop(key)
    if producer != "input":
        current = table.scan().to_arrow().to_pylist()
        assert {row["id"]: [row["v"], row["n"]] for row in current} == state


def told_in_order(table: Table) -> list[tuple[Any, ...]]:
    found = table.changelog().to_arrow().to_pylist()
    return [(row["_SNAPSHOT_ID"], row["_ROW_KIND"], row["id"], row["v"], row["n"]) for row in found]


def test_appended_rows_and_upserts_of_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path / "append", paimon, keyed=False)
    upserts, keyed = make(tmp_path / "keyed", paimon)
    for number in range(3):
        judge.write(rows(number, keyed=False))
        keyed.write(rows(number))
    assert ours(table) == theirs(judge)
    latest = upserts.snapshots()[-1].id
    assert emitted(upserts.changes_between(0, latest, mode="delta").to_arrow()) == theirs(keyed)


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_changelogs_that_outlive_their_snapshots(tmp_path: Path, paimon: PaimonJudge, producer: str) -> None:
    """Kept here, read by Paimon; more of them expired by Paimon, the rest read here; and the other way round."""
    kept = {"changelog.num-retained.min": "1000", "changelog.num-retained.max": "1000", "write-only": "false"}
    table, judge = make(tmp_path, paimon, **{"changelog-producer": producer, **kept})
    for number in range(8):
        judge.write(rows(number))
    everything = theirs(judge)
    last = table.snapshots()[-1].id
    table.expire_snapshots(retain_max=2, retain_min=2, older_than_ms=0)
    assert [each.id for each in table.snapshots()] == [last - 1, last]
    assert table.store.changelogs.list_ids() == list(range(1, last - 1))
    assert theirs(judge) == everything, "Paimon reads changelogs kept here"
    read = (
        table.changes_between(0, last, mode="delta").to_arrow() if producer == "none" else table.changelog().to_arrow()
    )
    assert emitted(read) == everything
    assert not table.remove_orphan_files(older_than_ms=-60_000, dry_run=True).files
    short = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    short |= {"changelog.num-retained.min": "4", "changelog.num-retained.max": "4", "changelog.time-retained": "1 ms"}
    judge.write(rows(99), options=short)
    left = table.store.changelogs.list_ids()
    assert 0 < len(left) < last - 2, "expired by Paimon"
    since = left[0]
    read = (
        table.changes_between(since - 1, table.snapshots()[-1].id, mode="delta").to_arrow()
        if producer == "none"
        else table.changelog().to_arrow()
    )
    assert emitted(read) == theirs(judge, since)
    table.with_options(short).expire_snapshots()
    since = table.store.changelogs.list_ids()[0]
    found = theirs(judge, since)
    assert found
    # Files of expired changes wait for the snapshot that deleted them; they are not read any more.
    table.remove_orphan_files(older_than_ms=-60_000)
    assert theirs(judge, since) == found
