"""`full-compaction.delta-commits`: at every n-th commit the whole table, also buckets that other writers wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from tests.kit.changelog_files import changelog, folded, texts_of


def create(folder: Path, **options: str) -> Table:
    spelled = {"bucket": "4", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "3", **options}
    return Catalog(str(folder)).create_table(
        "db.t", schema={"k": "INT NOT NULL", "v": "INT"}, primary_keys=["k"], options=spelled
    )


def levels(table: Table) -> set[int]:
    return {entry.file.level for entry in table.files()}


def test_buckets_that_the_commit_did_not_touch_are_compacted_too(tmp_path: Path) -> None:
    table = create(tmp_path)
    for identifier in range(1, 7):  # each by a process of its own, each into one bucket or two
        with table.writer("u") as writer:
            writer.write({"k": [identifier], "v": [identifier]})
            writer.commit(identifier)
        assert levels(table) == ({5} if identifier % 3 == 0 else {0} if identifier < 3 else {0, 5})
    emitted = {number: sorted(texts_of(changes)) for number, changes in changelog(table).items()}
    assert list(emitted.values()) == [["+I 1,1", "+I 2,2", "+I 3,3"], ["+I 4,4", "+I 5,5", "+I 6,6"]]


def test_an_empty_commit_compacts_what_others_wrote(tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.with_options({"write-only": "true"}).writer("others") as writer:
        writer.write({"k": list(range(20)), "v": [0] * 20})
        writer.commit(6)
    assert levels(table) == {0}
    with table.writer("u") as writer:
        writer.commit(3)
    assert levels(table) == {5}
    assert len(folded(changelog(table).values())) == 20


def test_writers_that_share_a_commit_leave_the_other_buckets_to_the_committer(tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.with_options({"write-only": "true"}).writer("others") as writer:
        writer.write({"k": list(range(20)), "v": [0] * 20})
        writer.commit(1)
    committer = table.engine.committer("stream")
    for identifier in (2, 3):
        latest = table.latest_snapshot()
        task = table.engine.task_writer(base_snapshot_id=None if latest is None else latest.id)
        task.write(pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([identifier], pa.int32())}))
        messages = list(task.prepare_commit(identifier))
        task.close()
        assert len(messages) == 1
        rest = table.engine.complete_compaction(identifier, messages)
        assert len(rest) == (3 if identifier == 3 else 0)
        committer.commit(identifier, [*messages, *rest])
    assert levels(table) == {5}
    (changes,) = changelog(table).values()
    assert sorted(texts_of(changes)) == sorted(f"+I {k},{3 if k == 1 else 0}" for k in range(20))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"changelog-producer": "lookup", "write-only": "true"}, "write-only=true"),
        ({"write-only": "true"}, "write-only=true"),
        ({"changelog-producer": "lookup", "lookup-wait": "false"}, "lookup-wait=false"),
        ({"changelog-producer": "input", "write-only": "true"}, None),
    ],
)
def test_a_changelog_that_nobody_makes_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], words: str | None
) -> None:
    producer = {"changelog-producer": "full-compaction", **options}
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "INT NOT NULL"}, primary_keys=["k"], options={"bucket": "1", **producer}
    )
    table.writer("u").close()
    assert [words in record.message for record in caplog.records] == ([] if words is None else [True])


@pytest.mark.parametrize("given", [None, "1"])
def test_every_commit_compacts_where_nothing_else_is_said(tmp_path: Path, given: str | None) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "INT NOT NULL", "v": "INT"},
        primary_keys=["k"],
        options={
            "bucket": "1",
            "changelog-producer": "full-compaction",
            **({"full-compaction.delta-commits": given} if given else {}),
        },
    )
    with table.writer("u") as writer:
        for identifier in (1, 2):
            writer.write({"k": [1], "v": [identifier]})
            writer.commit(identifier)
    assert [texts_of(changes) for changes in changelog(table).values()] == [["+I 1,1"], ["-U 1,1", "+U 1,2"]]
