"""Tags beside other programs and branches, and what maintenance does with odd values: nothing that is named goes."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.cleaning.orphan_files import remove_orphan_files

WATERMARKS = (2**63 - 1, 1_790_000_000_000_000, -(2**63))


def written(folder: Path, count: int, **options: str) -> Table:
    table = Catalog(folder).create_table(
        "db.t", schema={"id": "INT", "n": "INT"}, primary_keys=["id"], options={"bucket": "1", **options}
    )
    for n in range(count):
        with table.writer("w") as writer:
            writer.write([{"id": number, "n": n} for number in range(3)])
            writer.commit()
        table.compact()
    return table


def readable(table: Table) -> bool:
    return all(
        Table.open(table.location).scan(snapshot_id=each.id).to_arrow().num_rows == 3 for each in table.snapshots()
    )


@pytest.mark.parametrize("missing", ["uuid", "operation", "properties"])
def test_a_tag_of_another_program_lacks_fields_of_its_snapshot(tmp_path: Path, missing: str) -> None:
    table = written(tmp_path, 4)
    latest = table.latest_snapshot()
    assert latest is not None
    folder = tmp_path / "db.db" / "t"
    content = json.loads((folder / "snapshot" / f"snapshot-{latest.id - 2}").read_text())
    content.pop(missing, None)
    (folder / "tag").mkdir(exist_ok=True)
    (folder / "tag" / "tag-theirs").write_text(json.dumps(content))
    table.tags.delete("theirs")
    assert readable(table)


def test_a_branch_is_made_of_a_tag_that_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path, 4)
    table.tags.create("x", snapshot_id=1)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    remove = type(table.store.snapshots.tags).remove

    def branched(tags: object, name: str) -> bool:
        Table.open(table.location).branches.create("b", from_tag="x")
        return remove(tags, name)  # type: ignore[arg-type]

    monkeypatch.setattr("freshet.storage.metadata.tag_store.TagStore.remove", branched)
    table.tags.delete("x")
    monkeypatch.undo()
    assert Catalog(tmp_path).table("db.t$branch_b").scan().to_arrow().num_rows == 3


def test_orphans_are_collected_while_a_branch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path, 1)
    table.branches.create("b")
    branch = Catalog(tmp_path).table("db.t$branch_b")

    def commit(n: int) -> None:
        with branch.writer("w") as writer:
            writer.write([{"id": number, "n": n} for number in range(3)])
            writer.commit()
        branch.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)

    commit(0)
    list_ids, calls = type(table.store.snapshots).list_ids, []

    def late(snapshots: object) -> list[int]:
        ids = list_ids(snapshots)  # type: ignore[arg-type]
        if not calls:
            calls.append(ids)
            commit(1)
            commit(2)
        return ids

    monkeypatch.setattr("freshet.storage.metadata.snapshot_store.SnapshotStore.list_ids", late)
    remove_orphan_files(table.store, older_than_ms=0)
    monkeypatch.undo()
    assert calls
    assert Catalog(tmp_path).table("db.t$branch_b").scan().to_arrow().num_rows == 3


def test_the_location_of_a_branch_opens_the_branch(tmp_path: Path) -> None:
    table = written(tmp_path, 1)
    table.branches.create("b")
    branch = Table.open(Catalog(tmp_path).table("db.t$branch_b").location)
    with branch.writer("w") as writer:
        writer.write([{"id": 7, "n": 7}])
        writer.commit()
    assert Catalog(tmp_path).table("db.t$branch_b").scan().to_arrow()["id"].to_pylist() == [7]
    assert len(table.scan().to_arrow()) == 3


@pytest.mark.parametrize("watermark", WATERMARKS)
def test_watermarks_that_are_no_times_stop_no_expiry(tmp_path: Path, watermark: int) -> None:
    options = {
        "tag.automatic-creation": "watermark", "snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1",
        "snapshot.time-retained": "1 ms",
    }  # fmt: skip
    table = written(tmp_path, 0, **options)
    committer = table.engine.committer("w")
    for number in range(4):
        committer.commit(number, [], watermark=watermark)
        table.store.env.finish_later()
        time.sleep(0.01)
    assert len(table.snapshots()) <= 2


def test_the_end_of_a_program_takes_nothing_from_what_follows_its_commit(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.t",
        schema={"dt": "STRING", "n": "INT"},
        partition_keys=["dt"],
        options={
            "tag.automatic-creation": "process-time",
            "partition.expiration-time": "7 d",
            "end-input.check-partition-expire": "true",
        },
    )
    with table.writer("w") as writer:
        writer.write([{"dt": "2001-01-01", "n": 1}, {"dt": str(datetime.date.today()), "n": 2}])
        writer.commit()
    assert len(table.tags.list()) == 1
    assert table.scan().to_arrow()["n"].to_pylist() == [2]
