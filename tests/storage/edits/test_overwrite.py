"""Overwrites, truncates and dropped partitions: what is there afterwards, for us, for Paimon and for who writes on."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.storage.edits.edit_commit import EDIT_USER
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.file_io import Created
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MOVING, arrow, days, make, rows_of, write

HAS_PARTITIONS = [kind for kind in KINDS if KINDS[kind][2]]


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", HAS_PARTITIONS)
def test_the_partitions_of_the_rows_are_replaced(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, KINDS[kind])
    write(table, days(range(30), 1))
    write(table, days(range(10), 2))
    table.compact()
    result = table.overwrite(arrow([(5, "d1", 7), (2000, "d3", 7)]))
    assert result.snapshots[0].commit_kind is CommitKind.OVERWRITE
    kept = [row for row in rows_of(table, snapshot_id=result.snapshots[0].id - 1) if row[1] == "d2"]
    assert kept, "the partition that does not occur in the rows stays"
    assert rows_of(table) == sorted([(5, "d1", 7), (2000, "d3", 7), *kept])
    write(table, [(5, "d1", 8), (6, "d1", 8), (1005, "d2", 8)])
    after = rows_of(table)
    assert (6, "d1", 8) in after
    assert (5, "d1", 8) in after
    assert ((5, "d1", 7) in after) is not bool(table.schema.primary_keys), "of a key the later row counts"


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_table_is_replaced(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, KINDS[kind])
    write(table, days(range(30), 1))
    table.overwrite(arrow([(5, "d1", 7)]), dynamic=False)
    assert rows_of(table) == [(5, "d1", 7)]
    table.overwrite(arrow([]), dynamic=False)
    assert rows_of(table) == []
    count = len(table.snapshots())
    assert table.truncate().snapshots == ()
    assert len(table.snapshots()) == count, "nothing changed: no snapshot"


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_nothing_is_left_of_a_changelog_that_is_not_committed(tmp_path: Path, producer: str) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"id": "INT NOT NULL"},
        primary_keys=["id"],
        options={"bucket": "1", "changelog-producer": producer},
    )
    table.overwrite([{"id": 1}])
    assert table.remove_orphan_files(older_than_ms=-60_000).files == ()


def test_a_partition_is_named(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(30), 1))
    with pytest.raises(InvalidRequestError, match="dt=d2, which is not replaced"):
        table.overwrite(arrow([(5, "d1", 7), (6, "d2", 7)]), partition={"dt": "d1"})
    assert len(rows_of(table)) == 60
    table.overwrite(arrow([]), partition={"dt": "d1"})
    assert {row[1] for row in rows_of(table)} == {"d2"}
    with pytest.raises(InvalidRequestError, match="no partition key 'day'"):
        table.overwrite(arrow([]), partition={"day": "d1"})
    with pytest.raises(InvalidRequestError, match="give one of them"):
        table.overwrite(arrow([]), partition={"dt": "d1"}, dynamic=True)


def test_the_option_decides_unless_the_call_does(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["append"])
    write(table, days(range(3), 1))
    static = table.with_options({"dynamic-partition-overwrite": "false"})
    assert table.overwrite(arrow([])).snapshots == ()
    static.overwrite(arrow([(1, "d1", 2)]), dynamic=True)
    assert {row[1] for row in rows_of(table)} == {"d1", "d2"}
    static.overwrite(arrow([(1, "d1", 3)]))
    assert rows_of(table) == [(1, "d1", 3)]


def test_partitions_are_dropped(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["lookup"])
    write(table, days(range(5), 1, "d1", "d2", "d3"))
    table.drop_partition({"dt": "d1"}, {"dt": "d3"}, {"dt": "never"})
    assert {row[1] for row in rows_of(table)} == {"d2"}
    assert table.drop_partition({"dt": "d1"}).snapshots == ()
    for wrong in ((), ({},)):
        with pytest.raises(InvalidRequestError, match="truncate"):
            table.drop_partition(*wrong)


def test_partitions_of_dates_are_named_as_people_write_them(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.d", schema={"d": "DATE", "n": "INT"}, partition_keys=["d"])
    table.append([{"d": datetime.date(2026, 11, day), "n": day} for day in (21, 22, 23)])
    table.drop_partition({"d": "2026-11-22"})
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [21, 23]
    table.drop_partition({"d": str((datetime.date(2026, 11, 23) - datetime.date(1970, 1, 1)).days)})
    assert table.scan().to_arrow()["n"].to_pylist() == [21]


@pytest.mark.parametrize("value", [datetime.date(2026, 11, 22), 7])
def test_what_is_no_value_of_a_partition_key_is_refused(tmp_path: Path, value: object) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1))
    partition: Any = {"dt": value}
    for call in (
        lambda: table.drop_partition(partition),
        lambda: table.overwrite(arrow([]), partition=partition),
        lambda: table.compact(partition=partition),
    ):
        with pytest.raises(InvalidRequestError, match="partition key 'dt' .* write one value"):
            call()
    with pytest.raises(InvalidRequestError, match=r"such as \{"):
        table.drop_partition("dt=d1")  # type: ignore[arg-type]
    assert len(table.snapshots()) == 1


def test_rows_that_move_between_partitions_are_replaced_as_a_whole(tmp_path: Path) -> None:
    table = make(tmp_path, MOVING)
    write(table, days(range(30), 1))
    with pytest.raises(InvalidRequestError, match="move between partitions"):
        table.overwrite(arrow([(1005, "d1", 7)]))
    table.overwrite(arrow([(1005, "d1", 7)]), dynamic=False)
    write(table, [(1005, "d2", 8)])
    assert rows_of(table) == [(1005, "d2", 8)]


def test_rows_that_are_refused_leave_the_table_as_it_was(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1))
    files = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(InvalidRequestError):
        table.overwrite([{"id": None, "dt": "d1", "n": 1}])
    assert len(rows_of(table)) == 6
    with pytest.raises(InvalidRequestError, match="not replaced"):
        table.overwrite(arrow([(6, "d2", 7)]), partition={"dt": "d1"})
    assert set(tmp_path.rglob("*.parquet")) == files


def test_what_others_commit_before_the_claim_goes_too(tmp_path: Path) -> None:
    """Two at the same time: an overwrite whose claim is lost to a writer, and one that is lost to another edit."""
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1))
    for other in (lambda: write(table, [(77, "d1", 5), (78, "d2", 5)]), lambda: table.drop_partition({"dt": "d2"})):
        slow = Table.open(table.location)
        create, calls = slow.store.env.file_io.create_exclusive, []

        def lost_once(path: str, data: bytes, *, act=other, create=create, calls=calls) -> Created:  # type: ignore[no-untyped-def]
            if not calls:
                calls.append(path)
                act()
            return create(path, data)

        slow.store.env.file_io.create_exclusive = lost_once  # type: ignore[method-assign]
        slow.overwrite(arrow([(1, "d1", 9)]))
        assert calls
        assert [row for row in rows_of(table) if row[1] == "d1"] == [(1, "d1", 9)]
    assert rows_of(table) == [(1, "d1", 9)]
    numbers = [each.commit_identifier for each in table.snapshots() if each.commit_user == EDIT_USER]
    assert numbers == sorted(set(numbers)), "each edit has a number of its own"


def test_streams_follow_as_the_option_says(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["input"])
    write(table, days(range(2), 1, "d1"))
    table.overwrite(arrow([(5, "d1", 7)]))
    write(table, [(6, "d1", 8)])
    plain = list(table.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0))
    ids = [number for batch in plain for number in batch.column("id").to_pylist()]
    assert ids == [0, 1, 6], "an overwrite emits no changes unless streaming-read-overwrite says so"


@pytest.mark.few(4)
@pytest.mark.judge
@pytest.mark.parametrize("kind", KINDS)
def test_paimon_reads_it_and_goes_on(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    table = make(tmp_path, KINDS[kind])
    write(table, days(range(40), 1))
    write(table, days(range(20, 60), 2))
    table.compact()
    judge = paimon.table(tmp_path / "db.db" / "t")
    table.overwrite(arrow(days(range(7), 3, "d1")))
    assert sorted(judge.read_rows()) == rows_of(table)
    if KINDS[kind][2]:
        table.drop_partition({"dt": "d2"})
        assert sorted(judge.read_rows()) == rows_of(table) == days(range(7), 3, "d1")
    write(table, days(range(3), 4, "d1"))
    assert sorted(judge.read_rows()) == rows_of(table)
    if table.options.bucket > 0:
        judge.write([(2, "d1", 9), (500, "d1", 9)])
        assert sorted(judge.read_rows()) == rows_of(table)
    table.truncate()
    assert judge.read_rows() == rows_of(table) == []
