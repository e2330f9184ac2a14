"""Commits, identities, manifest merging, expiry and orphan cleaning of one side, judged by the other."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, InvalidRequestError, Table, UnknownOutcomeError
from freshet.storage.commit.committer import Committer
from tests.kit.paimon_changes import set_option
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

pytestmark = pytest.mark.judge

FOREVER = {"write-only": "true"}
"""No expiry by commits."""
SMALL_MANIFESTS = {
    "manifest.target-file-size": "4 kb",
    "manifest.full-compaction-threshold-size": "24 kb",
    "manifest.merge-min-count": "3",
}


def make(tmp_path: Path, paimon: PaimonJudge, **options: str) -> tuple[Table, PaimonTable]:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"p": "INT", "id": "BIGINT", "v": "STRING"},
        primary_keys=["p", "id"],
        partition_keys=["p"],
        options={"bucket": 2, "num-sorted-run.compaction-trigger": 2, **options},
    )
    return table, paimon.table(table.location)


def rows(number: int) -> pa.Table:
    chance = random.Random(number)
    keys = [(chance.randrange(3), chance.randrange(20)) for _ in range(8)]
    kinds = [chance.choice(["+I", "+U", "-D"]) for _ in keys]
    return pa.table(
        {
            "p": pa.array([p for p, _ in keys], pa.int32()),
            "id": pa.array([key for _, key in keys], pa.int64()),
            "v": [f"{number}-{index}" for index in range(len(keys))],
            "_ROW_KIND": kinds,
        }
    )


def ours(table: Table, **arguments: object) -> list[tuple[object, ...]]:
    found = table.scan(**arguments).to_arrow()  # type: ignore[arg-type]
    return sorted(tuple(row.values()) for row in found.to_pylist())


def theirs(table: PaimonTable) -> list[tuple[object, ...]]:
    return sorted(table.read_rows())


def load(table: Table, commits: range, user: str = "loader") -> None:
    with table.writer(user) as writer:
        for number in commits:
            writer.write(rows(number))
            writer.commit(number)


def test_tags_and_branches_of_paimon_outlive_expiry_of_freshet(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(3))
    judge.create_tag("tagged")
    tagged = ours(table)
    load(table, range(3, 6))
    judge.create_tag("branching")
    judge.create_branch("side", tag="branching")
    branched = ours(table)
    side = paimon.table(table.location, branch="side")
    side.write([(0, 1, "on the branch")])
    on_branch = theirs(side)
    assert on_branch != branched
    load(table, range(6, 12))
    expected = ours(table)
    table.compact(full=True)
    judge.delete_tag("branching")

    result = table.expire_snapshots(retain_max=1)
    assert result.data_file_count > 5
    assert result.failed_delete_count == 0
    assert len(table.snapshots()) == 1
    assert theirs(judge) == ours(table) == expected
    assert theirs(judge.copy({"scan.tag-name": "tagged"})) == ours(table, tag="tagged") == tagged
    assert theirs(paimon.table(table.location, branch="side")) == on_branch
    table.remove_orphan_files(older_than_ms=-60_000)
    assert theirs(judge.copy({"scan.tag-name": "tagged"})) == tagged
    assert theirs(paimon.table(table.location, branch="side")) == on_branch
    assert theirs(judge) == expected


def test_either_expires_and_the_other_reads_and_goes_on(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(5))
    judge.expire(retain_max=2, retain_min=2)
    assert len(table.snapshots()) == 2
    expected = ours(table)
    assert not table.remove_orphan_files(older_than_ms=-60_000, dry_run=True).files, "Paimon left nothing behind"
    judge.write([(0, 100, "by paimon")], compact="full")
    table.expire_snapshots(retain_max=1)
    judge.write([(0, 101, "by paimon")])
    judge.expire(retain_max=1, retain_min=1)
    with pytest.raises(UnknownOutcomeError, match="snapshots have expired"):
        load(table, range(5, 6))  # every snapshot of ours is gone, and those of Paimon carry no history on
    load(table, range(3), user="loader-2")
    judge.expire(retain_max=1, retain_min=1)
    table = Catalog(str(tmp_path)).table("db.t")
    assert theirs(judge) == ours(table)
    assert {(0, 100, "by paimon"), (0, 101, "by paimon")} <= set(ours(table))
    assert len(expected) > 0
    assert not table.remove_orphan_files(older_than_ms=-60_000).files
    assert theirs(judge) == ours(table)


def test_consumer_of_paimon_holds_its_snapshot(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(4))
    judge.reset_consumer("reader", 3)
    table.expire_snapshots(retain_max=1)
    assert next(snapshot.id for snapshot in table.snapshots()) == 3


def test_merged_manifests_are_read_and_merged_on_by_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    """Small thresholds, so that minor and full merges both happen many times."""
    table, judge = make(tmp_path, paimon, **SMALL_MANIFESTS, **FOREVER)
    table = table.with_options({"write-only": "false", "snapshot.num-retained.min": "100"})
    merges = {"minor": 0, "full": 0}
    before: tuple[str, ...] = ()
    for number in range(40):
        load(table, range(number, number + 1))
        latest = table.snapshots()[-1]
        base = table.store.manifests.read_manifest_list(latest.base_manifest_list)
        names = tuple(meta.file_name for meta in base)
        if before[: len(names)] != names[: len(before)]:
            merges["full" if sum(meta.num_deleted_files for meta in base) == 0 else "minor"] += 1
        before = names
        assert all(meta.num_added_files + meta.num_deleted_files for meta in base)
        if number % 8 == 7:
            assert theirs(judge) == ours(table)
            judge.write([(number % 3, 100 + number, "by paimon")])
    assert merges["minor"] > 0
    assert merges["full"] > 0
    judge.compact_manifests()
    load(table, range(40, 44))
    assert theirs(judge) == ours(table)
    assert len([row for row in ours(table) if row[2] == "by paimon"]) == 5
    assert judge.system("manifests").num_rows > 0


def test_manifests_that_we_merge_by_hand_are_read_and_merged_on_by_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **FOREVER)
    for number in range(5):
        load(table, range(number, number + 1))
        judge.write([(number % 3, 100 + number, "by paimon")])
    expected = ours(table)
    assert theirs(judge) == expected
    merged = table.compact_manifests()
    assert (merged.after.count, merged.after.deleted_count) == (1, 0)
    assert judge.system("manifests").num_rows == 1
    assert theirs(judge) == ours(table) == expected
    load(table, range(9, 11))
    judge.write([(0, 200, "later")])
    judge.compact_manifests()
    latest = table.latest_snapshot()
    assert table.compact_manifests().snapshot_id is None, "Paimon has merged them"
    assert table.latest_snapshot() == latest
    assert theirs(judge) == ours(table)
    assert (0, 200, "later") in ours(table)


def test_identity_across_the_libraries(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **FOREVER)
    judge.write([(0, 1, "a")], user="shared", identifier=5)
    with table.writer("shared") as writer:
        writer.write(rows(1))
        assert writer.commit(5).already_committed, "Paimon committed 5 under this user"
        writer.write(rows(2))
        assert writer.commit(6).snapshots
    assert judge.write([(0, 1, "again")], user="shared", identifier=6, filter_committed=True)["committed"] == 0
    with pytest.raises(InvalidRequestError, match="checkpoint"):
        Committer(table.store, "shared", "query-1").has_committed(7)
    for number in range(3):
        judge.write([(1, number, "between")], user="someone")
    with table.writer("shared") as writer:
        assert writer.commit(6).already_committed, "found behind the snapshots of Paimon"


def test_rollback_by_paimon_under_an_open_table(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **FOREVER)
    load(table, range(4))
    expected = ours(table, snapshot_id=2)
    judge.rollback(2)
    judge.write([(0, 100, "after")], user="paimon")
    with table.writer("other") as writer:
        writer.write(pa.table({"p": pa.array([0], pa.int32()), "id": [101], "v": ["ours"]}))
        assert writer.commit(0).snapshots[0].id == 4
    expected = sorted([*expected, (0, 100, "after"), (0, 101, "ours")])
    assert theirs(judge) == expected
    assert ours(Catalog(str(tmp_path)).table("db.t")) == expected
    with table.writer("loader") as writer:
        assert not writer.commit(2).already_committed, "the rollback undid what was committed as 2"


def test_a_purged_table_is_empty_for_both_and_goes_on(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **{"changelog-producer": "lookup"})
    for number in range(4):
        table.upsert([{"p": number % 2, "id": 1, "v": str(number)}])
    table.tags.create("kept")
    table.branches.create("side", from_tag="kept")
    table.purge()
    assert judge.read_rows() == [] and not table.check().damage
    judge.write([("+I", 0, 1, "theirs")], identifier=1)
    table.upsert([{"p": 1, "id": 2, "v": "ours"}])
    assert sorted(judge.read_rows()) == [(0, 1, "theirs"), (1, 2, "ours")]
    rows = table.scan().to_arrow().sort_by("p").to_pylist()
    assert rows == [{"p": 0, "id": 1, "v": "theirs"}, {"p": 1, "id": 2, "v": "ours"}]


def test_orphan_cleaning_of_paimon_leaves_the_history_of_commits(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **FOREVER)
    load(table, range(4))
    before = table.system("commits").scan().to_arrow().drop_columns(["expired"])
    table.expire_snapshots(retain_max=1)
    stray = Path(table.location) / "manifest" / f"manifest-{'0' * 8}-stray"
    stray.write_bytes(b"")
    assert judge.remove_orphans(2**62) == 1, "the stray file, and no other"
    assert table.system("commits").scan().to_arrow().drop_columns(["expired"]) == before
    judge.write([(0, 100, "by paimon")])
    judge.expire(retain_max=1, retain_min=1)
    judge.remove_orphans(2**62)
    rows = table.system("commits").scan().to_arrow().to_pylist()
    assert [row["rows_written"] is None for row in rows] == [*[False] * 3, True], "what Paimon expired is not noted"
    assert theirs(judge) == ours(table)


def test_options_of_ours_do_not_stop_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    """It opens, alters and writes a table that has them, and leaves them where they are."""
    table, judge = make(tmp_path, paimon, **{"freshet.freshness-target": "5 min", "freshet.history-retained": "2 d"})
    load(table, range(2))
    judge.alter(set_option("snapshot.num-retained.max", "50"))
    judge.write([(0, 100, "by paimon")], compact="full")
    again = Catalog(str(tmp_path)).table("db.t")
    status = again.status()
    assert status.target_ms == 300_000
    assert status.newest is not None and status.newest.commit_user != "loader"
    assert not status.is_behind
    assert status.live_bytes == sum(entry.file.file_size_bytes for entry in again.files())
    assert theirs(judge) == ours(again)
