"""`$commits` and `$compactions`: counts against the changes that readers get, reasons, what others wrote, and that
nothing depends on whether the snapshots are still there."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table, sql
from freshet.storage.codec.commit_facts import FACTS_PROPERTY
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.model.commit_facts import BatchFacts
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.sim_env import SimDisk

KINDS = {"+I": "inserts", "-U": "updates_before", "+U": "updates_after", "-D": "deletes"}
VARYING = ("commit_time", "duration_ms", "expired", "bytes_added", "bytes_deleted", "changelog_bytes")


def made(env: Env, producer: str, **options: str) -> Table:
    return Catalog("/w", env=env).create_table(
        "shop.orders",
        schema={"id": "INT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "2", "changelog-producer": producer, **options},
    )


def written(table: Table, seed: int = 1, rounds: int = 12) -> Counter[tuple[int, str]]:
    """Inserts, updates and deletes of 40 keys, of one commit each key once; how many of each kind, by commit."""
    counts: Counter[tuple[int, str]] = Counter()
    chance = random.Random(seed)
    with table.writer("writer") as writer:
        for number in range(rounds):
            keys = chance.sample(range(40), 12)
            kinds = [chance.choice(["+I", "+U", "+U", "-D"]) for _ in keys]
            rows = {"id": pa.array(keys, pa.int32()), "v": [f"{number}" for _ in keys], "_ROW_KIND": kinds}
            writer.write(pa.table(rows))
            writer.commit(identifier=number)
            counts.update((number, KINDS[kind]) for kind in kinds)
    return counts


def rows_of(table: Table, noun: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.system(noun).scan().to_arrow().to_pylist()
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_counts_by_kind_are_those_of_the_changes(tmp_path: Path, producer: str) -> None:
    options = {"full-compaction.delta-commits": "3"} if producer == "full-compaction" else {}
    table = made(Env(MemoryFileIO(), str(tmp_path)), producer, **options)
    expected, by = written(table), "commit_identifier"
    if producer != "none":
        changes = table.changelog(from_snapshot=1).to_arrow().to_pylist()
        expected, by = Counter((row["_SNAPSHOT_ID"], KINDS[row["_ROW_KIND"]]) for row in changes), "snapshot_id"
    commits = rows_of(table, "commits")
    assert {(row[by], name): row[name] for row in commits for name in KINDS.values() if row[name]} == expected
    assert commits[-1]["total_record_count"] == table.snapshots()[-1].total_record_count
    live = sum(row["files_added"] - row["files_deleted"] for row in commits)
    assert live == table.system("files").scan().count()
    size = sum(row["bytes_added"] - row["bytes_deleted"] for row in commits)
    assert size == sum(row["file_size_in_bytes"] for row in rows_of(table, "files"))
    compacted = {row["snapshot_id"] for row in rows_of(table, "compactions")}
    assert compacted == {each.id for each in table.snapshots() if each.commit_kind == "COMPACT"}


def test_nothing_depends_on_expiry(tmp_path: Path) -> None:
    """One table keeps all snapshots, the other the last one, and expires after each commit."""
    found = {}
    for kept in ("1", "1000"):
        retained = {f"snapshot.num-retained.{end}": kept for end in ("min", "max")}
        table = made(Env(MemoryFileIO(), str(tmp_path / kept)), "lookup", **retained)
        written(table, rounds=12)
        table.store.env.finish_later()
        assert len(table.snapshots()) == min(int(kept), 24)
        nouns = [rows_of(table, noun) for noun in ("commits", "compactions")]
        varying = (*VARYING, "bytes_in", "bytes_out")
        found[kept] = [[{k: v for k, v in row.items() if k not in varying} for row in rows] for rows in nouns]
    assert len(found["1"][0]) == 24
    assert found["1"] == found["1000"]


def test_the_same_rows_before_and_after(tmp_path: Path) -> None:
    table = made(Env(MemoryFileIO(), str(tmp_path)), "lookup")
    written(table, rounds=4)
    before = [table.system(noun).scan().to_arrow() for noun in ("commits", "compactions")]
    table.expire_snapshots(retain_max=1)
    after = [table.system(noun).scan().to_arrow() for noun in ("commits", "compactions")]
    for one, other in zip(before, after, strict=True):
        assert one.drop_columns(["expired"]) == other.drop_columns(["expired"])
    assert after[0]["expired"].to_pylist() == [True] * 7 + [False]
    catalog = Catalog("/w", env=table.store.env)
    found = sql("SELECT reason, sum(files_in) AS n FROM shop.orders$compactions GROUP BY reason", catalog=catalog)
    assert found.to_arrow().to_pylist() == [{"reason": "lookup", "n": sum(after[1]["files_in"].to_pylist())}]


def test_of_another_program(tmp_path: Path) -> None:
    """What its snapshots say is there, the rest is NULL; text that nobody understands is as none."""
    table = made(Env(MemoryFileIO(), str(tmp_path)), "none")
    written(table, rounds=3)
    store = table.store
    for snapshot in table.snapshots()[:2]:
        assert snapshot.properties is not None
        properties = dict(snapshot.properties) | {FACTS_PROPERTY: '{"files": 7}'}
        if snapshot.id == 1:
            del properties[FACTS_PROPERTY]
        data = encode_snapshot(type(snapshot)(**{**_fields(snapshot), "properties": properties}))
        store.env.file_io.overwrite(store.paths.snapshot(snapshot.id), data)
    rows = rows_of(Catalog("/w", env=store.env).table("shop.orders"), "commits")
    assert [row["commit_user"] for row in rows] == ["writer"] * 3
    assert [row["rows_written"] for row in rows] == [None, None, 12]
    assert [row["inserts"] is None for row in rows] == [True, True, False]


def _fields(snapshot: Any) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in type(snapshot).__dataclass_fields__}


def test_what_a_commit_met() -> None:
    """Another user takes the id that a commit was about to claim."""
    store = make_table(SimDisk().boot(), options={"write-only": "true"})
    ours, theirs = Committer(store, "ours"), Committer(store, "theirs")
    first = [message(store, new=[new_file(store, "a")])]

    def commit_between(_: object) -> None:
        if not store.snapshots.list_ids():
            theirs.commit(0, [message(store, new=[new_file(store, "b", bucket=1)], bucket=1)])

    batch = BatchFacts(7, {"not a number (column id)": 2}, (1_000, 3_000), {"job": 12})
    ours.commit(0, first, check=commit_between, batch=batch)
    rows = Catalog("/warehouse", env=store.env).table("db.t").system("commits").scan().to_arrow().to_pylist()
    mine = next(row for row in rows if row["commit_user"] == "ours")
    assert (mine["tries"], mine["conflicts"], mine["conflicts_with"]) == (2, 1, ["theirs"])
    assert (mine["records"], mine["dead_letters"]) == (7, 2)
    assert dict(mine["dead_letter_causes"]) == batch.dead_letters
    assert dict(mine["phases_ms"]) == batch.phases_ms
    assert (mine["event_time_last"] - mine["event_time_first"]).total_seconds() == 2


def reasons(table: Table) -> set[str]:
    return {row["reason"] for row in rows_of(table, "compactions")}


def test_reasons_of_verbs(tmp_path: Path) -> None:
    keyed = made(Env(MemoryFileIO(), str(tmp_path)), "none", **{"write-only": "true"})
    written(keyed, rounds=2)
    keyed.compact(full=True)
    assert reasons(keyed) == {"forced"}
    keyed.rescale(3)
    assert next(row for row in rows_of(keyed, "compactions") if row["reason"] == "rescale")["buckets"] == 2
    rows = [row for row in rows_of(keyed, "compactions") if row["reason"] == "forced"]
    assert sum(row["rows_dropped"] for row in rows) == sum(row["rows_in"] for row in rows) - keyed.scan().count()
    plain = Catalog("/w", env=keyed.store.env).create_table("shop.log", schema={"a": "INT"}, options={"bucket": "-1"})
    for number in range(3):
        plain.append([{"a": number}])
    plain.compact(full=True)
    plain.sort_compact(["a"])
    assert reasons(plain) == {"forced", "sort"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"deletion-vectors.enabled": "true"}, "vectors"),
        ({"merge-engine": "first-row"}, "lookup"),
        ({"num-sorted-run.compaction-trigger": "2"}, "size ratio"),
        ({"full-compaction.delta-commits": "1"}, "full by schedule"),
        ({"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}, "waiting rows"),
    ],
)
def test_reasons_of_options(tmp_path: Path, options: dict[str, str], reason: str) -> None:
    table = made(Env(MemoryFileIO(), str(tmp_path)), "none", **options)
    with table.writer("writer") as writer:
        for number in range(4):
            writer.write([{"id": key, "v": str(number)} for key in range(10 * (number + 1))])
            writer.commit(identifier=number)
    if options.get("bucket") == "-2":
        table.compact()
    assert reason in reasons(table)


def test_a_table_of_the_same_name_has_a_history_of_its_own(tmp_path: Path) -> None:
    table = made(Env(MemoryFileIO(), str(tmp_path)), "none")
    written(table, rounds=4)
    table.expire_snapshots(retain_max=1)
    catalog = Catalog("/w", env=table.store.env)
    catalog.drop_table("shop.orders")
    again = made(table.store.env, "none")
    assert rows_of(again, "commits") == []
    written(again, rounds=2)
    assert len(rows_of(again, "commits")) == 2


def test_a_branch_has_a_history_of_its_own(tmp_path: Path) -> None:
    table = made(Env(MemoryFileIO(), str(tmp_path)), "none", **{"write-only": "true"})
    table.branches.create("side")
    side = Catalog("/w", env=table.store.env).table("shop.orders$branch_side")
    written(side, rounds=3)
    side.expire_snapshots(retain_max=1)
    assert [row["expired"] for row in rows_of(side, "commits")] == [True, True, False]
    assert rows_of(table, "commits") == []
    assert not table.remove_orphan_files(older_than_ms=-60_000).files
    assert len(rows_of(side, "commits")) == 3
