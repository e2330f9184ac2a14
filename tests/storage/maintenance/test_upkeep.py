"""What follows a commit: tags that are due, tags whose time is over, then expiry; and the tag that a batch leaves."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshet import Catalog, Table


def make(tmp_path: Path, **options: str) -> Table:
    return Catalog(tmp_path).create_table(
        "db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1", **options}
    )


def commit(table: Table, *numbers: int) -> None:
    with table.writer("u") as writer:
        for number in numbers:
            writer.write([{"id": number}])
            writer.commit(number)


def names(table: Table) -> list[str]:
    return [tag.name for tag in table.tags.list()]


def fail_after_a_commit(table: Table) -> None:
    with table.writer("u") as writer:
        writer.write([{"id": 4}])
        writer.commit()
        raise ZeroDivisionError


DAILY = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}


def yesterday() -> set[str]:
    """Two where the day ends while the test runs."""
    now = datetime.now(UTC)
    return {f"{now - timedelta(days=1):%Y-%m-%d}", f"{now - timedelta(days=1, minutes=5):%Y-%m-%d}"}


def test_a_writer_and_a_compaction_make_what_is_due(tmp_path: Path) -> None:
    table = make(tmp_path / "a", **DAILY)
    commit(table, 1, 2)
    assert set(names(table)) <= yesterday() and len(names(table)) == 1
    late = make(tmp_path / "b", **DAILY, **{"write-only": "true"})
    commit(late, 1, 2)
    assert names(late) == []
    late.with_options({"write-only": "false"}).compact(full=True)
    assert set(names(late)) <= yesterday() and len(names(late)) == 1
    assert late.tags.list()[0].snapshot_id == 1


def test_a_tag_is_made_before_its_snapshot_expires(tmp_path: Path) -> None:
    table = make(tmp_path, **DAILY, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    silent = table.with_options({"write-only": "true"})
    commit(silent, 1, 2, 3)
    commit(table, 4)
    assert [tag.snapshot_id for tag in table.tags.list()] == [1]
    assert [snapshot.id for snapshot in table.snapshots()] == [4]
    assert table.scan(tag=names(table)[0]).to_arrow()["id"].to_pylist() == [1]


def test_nothing_expires_where_tags_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make(tmp_path, **DAILY, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    schema = Path(table.location, "schema", "schema-0")
    schema.write_text(schema.read_text().replace('"UTC"', '"Atlantis"'))
    table = Table.open(table.location)
    with caplog.at_level(logging.WARNING):
        commit(table, 1, 2, 3)
    assert len(table.snapshots()) == 3
    assert "sink.process-time-zone = 'Atlantis' is no time zone that this machine knows" in caplog.text


def test_tags_whose_time_is_over_go_with_what_only_they_name(tmp_path: Path) -> None:
    table = make(tmp_path, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    silent = table.with_options({"write-only": "true"})
    commit(silent, 1)
    table.tags.create("short", retained=timedelta(microseconds=1))
    table.tags.create("long", retained=timedelta(days=1))
    table.tags.create("forever")
    commit(table.with_options({"tag.time-expire-enabled": "false"}), 2)
    assert names(table) == ["forever", "long", "short"]
    commit(silent, 3)
    assert names(table) == ["forever", "long", "short"]
    commit(table, 4)
    assert names(table) == ["forever", "long"]


def test_a_batch_leaves_one_tag_when_it_is_closed(tmp_path: Path) -> None:
    table = make(tmp_path, **{"tag.automatic-creation": "batch", "sink.process-time-zone": "UTC"})
    writer = table.writer("u")
    writer.write([{"id": 1}])
    writer.commit()
    assert names(table) == []
    writer.write([{"id": 2}])
    writer.commit()
    writer.close()
    [tag] = table.tags.list()
    assert tag.name == f"batch-write-{tag.commit_time:%Y-%m-%d}"
    assert table.scan(tag=tag.name).to_arrow()["id"].to_pylist() == [1, 2]
    with table.writer("u"):
        pass
    before = table.tags.list()
    commit(table, 3)
    [tag] = table.tags.list()
    assert before[0].snapshot_id < tag.snapshot_id
    with pytest.raises(ZeroDivisionError):
        fail_after_a_commit(table)
    assert table.tags.list() == (tag,), "a program that failed leaves none"


def test_a_batch_tag_of_a_name_and_the_tags_of_people(tmp_path: Path) -> None:
    options = {"tag.automatic-creation": "batch", "tag.num-retained-max": "2", "sink.process-time-zone": "UTC"}
    table = make(tmp_path / "days", **options, **{"write-only": "true"})
    commit(table.with_options({"tag.automatic-creation": "none"}), 1)
    for name in ("mine", "batch-write-2020-01-01", "batch-write-2020-01-02", "batch-write-mine", "a"):
        table.tags.create(name, 1)
    commit(table, 2)
    [today] = {*names(table)} - {"mine", "batch-write-2020-01-02", "batch-write-mine", "a"}
    assert today > "batch-write-2020-01-02"
    named = make(tmp_path / "named", **{"tag.batch.customized-name": "nightly", **options})
    commit(named, 1)
    commit(named, 2)
    assert [(tag.name, tag.snapshot_id) for tag in named.tags.list()] == [("nightly", 2)]


def test_a_batch_whose_tag_cannot_be_made_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make(tmp_path, **{"tag.automatic-creation": "batch", "tag.batch.customized-name": "a/b"})
    with caplog.at_level(logging.WARNING):
        commit(table, 1)
    assert "the tag of this batch was not made, make one by hand: 'a/b' cannot be the name" in caplog.text
    assert table.scan().to_arrow().num_rows == 1
