"""Judge: system tables of tables that something happened to: schema changes, tags, branches, consumers, expiry, buckets
that wait, files elsewhere, rows that are gone; and those of a snapshot of the past."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import pytest

from freshet import AddColumn, ChangeType, DropColumn, RenameColumn, SetComment, SetOption, Table
from freshet.storage.system_tables.system_table import SYSTEM_TABLES
from tests.kit.paimon_changes import add_column, column_type, drop_column, rename_column, set_option
from tests.kit.paimon_judge import PaimonError, PaimonJudge
from tests.storage.system_tables.shapes import DAY, KV, Shape, by_freshet, by_paimon, numbered, rows_of
from tests.storage.system_tables.test_system_tables_judge import compare

pytestmark = pytest.mark.judge

KEYED = Shape("keyed", KV, [numbered(0, 20, "a"), [("-D", 3, "a3")]], ("k",), options={"bucket": "1"})
WRITE_ONLY = Shape("write-only", KV, KEYED.commits, ("k",), options={"bucket": "1", "write-only": "true"})
TRAVELLING = [each.noun for each in SYSTEM_TABLES.values() if each.travels and each.noun != "buckets"]
"""Paimon always gives the buckets of the latest snapshot, whatever is asked for."""

TYPES = {"k": "INT NOT NULL", "i": "INT", "s": "STRING", "d": "DOUBLE", "gone": "INT", "day": "DATE"}
EVOLVING = Shape(
    "evolving",
    TYPES,
    [[(1, 5, "12", 1.5, 7, DAY), (2, -1, None, None, 8, DAY), (3, None, "7", 2.25, None, None)]],
    ("k",),
    options={"bucket": "1", "write-only": "true"},
)


def test_of_our_table_after_changes_of_its_schema(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = by_freshet(EVOLVING, tmp_path)
    for changes in (
        [ChangeType("i", "BIGINT"), AddColumn("new", "STRING", comment='ein "Wort"'), RenameColumn("d", "double")],
        [ChangeType("s", "INT"), DropColumn("gone"), SetComment("orders of a shop")],
        [ChangeType("i", "STRING"), ChangeType("day", "STRING"), AddColumn("gone", "STRING", first=True)],
        [SetOption("snapshot.num-retained.max", "20")],
    ):
        table = table.alter(*changes, allow_lossy=True)
        compare(table, paimon)
    with table.writer("writer") as writer:
        writer.write([{"k": 9, "i": "x", "new": "y"}])
        writer.commit()
    compare(table, paimon)
    old = table.system("files").scan(snapshot_id=1).to_arrow()
    assert old["max_value_stats"].to_pylist() == ["{d=2.25, day=19782, gone=8, i=5, k=3, s=7}"]


def test_of_its_table_after_changes_of_its_schema(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = by_paimon(EVOLVING, tmp_path, paimon)
    for changes in (
        [column_type("i", "BIGINT"), add_column("new", "STRING"), rename_column("d", "double")],
        [column_type("s", "INT"), drop_column("gone")],
        [set_option("snapshot.num-retained.max", 20), set_option("table.password", "secret")],
    ):
        table.alter(*changes)
        nouns = tuple(noun for noun in SYSTEM_TABLES if noun not in ("options", "schemas"))
        compare(Table.open(table.location), paimon, nouns)
    texts = dict(zip(*Table.open(table.location).system("options").scan().to_arrow().to_pydict().values(), strict=True))
    assert texts["table.password"] != "secret"
    assert "secret" not in str(Table.open(table.location).system("schemas").scan().to_arrow())


def test_tags_consumers_and_branches_that_it_made(tmp_path: Path, paimon: PaimonJudge) -> None:
    for table in (
        by_freshet(KEYED, tmp_path / "ours"),
        Table.open(by_paimon(KEYED, tmp_path / "its", paimon).location),
    ):
        theirs = paimon.table(table.location)
        theirs.create_tag("plain", 1)
        for name, retained_s in {"b day": 86400, "a": 5400.25, "short": 0.5, "Zero": 0, "minutes": 90}.items():
            theirs.create_tag(name, 2, retained_ms=int(retained_s * 1000))
        theirs.reset_consumer("reader", 2)
        theirs.reset_consumer("another", 7)
        theirs.create_branch("empty")
        theirs.create_branch("tagged", "plain")
        compare(table, paimon)
        assert len(table.system("tags").scan().to_arrow()) == 6
        assert table.system("branches").scan(["branch_name"]).to_arrow()["branch_name"].to_pylist() == [
            "empty",
            "tagged",
        ]


def test_tags_of_snapshots_that_have_expired(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = by_freshet(WRITE_ONLY, tmp_path)
    theirs = paimon.table(table.location)
    theirs.create_tag("first", 1)
    with table.writer("writer") as writer:
        for number in range(3):
            writer.write([{"k": number, "v": "later"}])
            writer.commit()
    theirs.expire(retain_max=1)
    table = Table.open(table.location)
    assert [snapshot.id for snapshot in table.snapshots()] == [5]
    compare(table, paimon)
    travelled = theirs.copy({"scan.tag-name": "first"})
    for noun in TRAVELLING:
        found = table.system(noun).scan(tag="first").to_arrow()
        assert rows_of(noun, found) == rows_of(noun, travelled.system(noun)), noun


@pytest.mark.parametrize("shape", [KEYED, WRITE_ONLY, EVOLVING], ids=lambda shape: shape.name)
def test_of_snapshots_of_the_past(shape: Shape, tmp_path: Path, paimon: PaimonJudge) -> None:
    table = by_freshet(shape, tmp_path)
    table = table.alter(AddColumn("later", "INT"))
    with table.writer("writer") as writer:
        writer.write([{"k": 77, "later": 1}])
        writer.commit()
    for snapshot in table.snapshots():
        travelled = paimon.table(table.location, options={"scan.snapshot-id": snapshot.id})
        for noun in TRAVELLING:
            expected = travelled.system(noun)
            found = table.system(noun).scan(snapshot_id=snapshot.id).to_arrow()
            assert found.schema == expected.schema, (snapshot.id, noun)
            assert rows_of(noun, found) == rows_of(noun, expected), (snapshot.id, noun)
    of_first = table.system("buckets").scan(snapshot_id=1).to_arrow()["record_count"].to_pylist()
    assert of_first == [table.snapshots()[0].total_record_count]


def test_postponed_buckets(tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    shape = Shape("postponed", KV, [numbered(0, 9, "a")], ("k",), options=options)
    table = by_freshet(shape, tmp_path / "ours")
    compare(table, paimon)
    assert table.system("files").scan().count() == 0
    assert table.system("buckets").scan(["bucket"]).to_arrow()["bucket"].to_pylist() == [-2]
    table.compact()
    with table.writer("writer") as writer:
        writer.write([{"k": 77, "v": "waits"}])
        writer.commit()
    compare(table, paimon)
    theirs = by_paimon(shape, tmp_path / "its", paimon)
    theirs.compact_postponed()
    theirs.write([(77, "waits")])
    compare(Table.open(theirs.location), paimon)


def test_files_elsewhere(tmp_path: Path, paimon: PaimonJudge) -> None:
    outside = {
        "data-file.external-paths": f"file://{tmp_path}/outside",
        "data-file.external-paths.strategy": "round-robin",
    }
    shape = Shape("outside", KV, KEYED.commits, ("k",), options={"bucket": "1", "write-only": "true", **outside})
    table = Table.open(by_paimon(shape, tmp_path, paimon).location)
    compare(table, paimon)
    assert "outside" in table.system("files").scan(["file_path"]).to_arrow()["file_path"][0].as_py()


def test_partitions_that_were_emptied_and_manifests_that_were_merged(tmp_path: Path, paimon: PaimonJudge) -> None:
    columns = {"k": "INT NOT NULL", "p": "INT NOT NULL", "v": "STRING"}
    rows = [[(number, number % 3, f"{batch}") for number in range(12)] for batch in range(4)]
    shape = Shape("overwritten", columns, rows, ("k", "p"), ("p",), {"bucket": "2", "write-only": "true"})
    table = by_freshet(shape, tmp_path)
    theirs = paimon.table(table.location)
    theirs.write([(1, 1, "only")], overwrite={"p": "1"})
    theirs.write((), overwrite={"p": "2"}, identifier=50, options={"dynamic-partition-overwrite": "false"})
    compare(table, paimon)
    assert table.system("partitions").scan().count() == 2
    theirs.compact_manifests()
    compare(table, paimon)
    table.compact()
    compare(table, paimon)


def test_deletes_that_are_dropped_and_vectors_in_partitions(tmp_path: Path, paimon: PaimonJudge) -> None:
    columns = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"}
    first = [(number, "abc"[number % 3], "x") for number in range(30)]
    later = [("-D", 3, "a", None), ("+I", 4, "b", "y"), ("-D", 6, "a", None)]
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    shape = Shape("marked", columns, [first, later], ("k", "p"), ("p",), options, full=(0,))
    for table in (
        by_freshet(shape, tmp_path / "ours"),
        Table.open(by_paimon(shape, tmp_path / "its", paimon).location),
    ):
        compare(table, paimon)
        deleted = table.system("partitions").scan(["deleted_record_count"]).to_arrow().column(0).to_pylist()
        assert deleted == [2, 1, 0]


@pytest.mark.slow  # a JVM of its own
def test_the_wall_clock_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        zone = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=Asia/Kathmandu")
        columns = {"z": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "v": "STRING"}
        with PaimonJudge.start(jvm_options=zone) as paimon:
            moment = datetime.datetime(2024, 1, 1, 20, 0, tzinfo=datetime.UTC)
            table = by_freshet(Shape("zoned", columns, [[(moment, "a")]], (), ("z",)), tmp_path)
            paimon.table(table.location).create_tag("tag", retained_ms=60_000)
            paimon.table(table.location).create_branch("branch")
            nouns = tuple(
                noun for noun in SYSTEM_TABLES if noun != "partitions"
            )  # Paimon cannot read them by this type
            compare(table, paimon, nouns)
            assert table.system("partitions").scan(["partition"]).to_arrow()["partition"].to_pylist() == [
                "z=2024-01-02 01:45:00.000"
            ]
            assert table.system("files").scan(["partition"]).to_arrow()["partition"].to_pylist() == [
                "{2024-01-02 01:45:00.000}"
            ]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rows_that_are_tracked(tmp_path: Path, paimon: PaimonJudge) -> None:
    shape = Shape(
        "tracked", {"a": "INT", "p": "INT"}, [[(1, 1), (2, 2)], [(3, 1)]], (), ("p",), {"row-tracking.enabled": "true"}
    )
    table = Table.open(by_paimon(shape, tmp_path, paimon).location)
    compare(table, paimon)
    assert sorted(table.system("files").scan(["first_row_id"]).to_arrow()["first_row_id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_partitions_by_times(tmp_path: Path, paimon: PaimonJudge, legacy: str) -> None:
    columns = {"t": "TIME(3)", "s": "TIMESTAMP(3)", "v": "INT"}
    moment = datetime.datetime(2024, 2, 29, 12, 30, 7, 120000)
    rows = [
        [(moment.time(), moment, 1), (datetime.time(0), moment.replace(second=0, microsecond=0), 2), (None, None, 3)]
    ]
    shape = Shape("times", columns, rows, (), ("t", "s"), {"partition.legacy-name": legacy})
    table = by_freshet(shape, tmp_path)
    compare(table, paimon, tuple(noun for noun in SYSTEM_TABLES if noun != "partitions"))
    assert table.system("partitions").scan(["partition"]).to_arrow()["partition"].to_pylist() == [
        "t=00:00:00.0/s=2024-02-29 12:30:00.000",
        "t=12:30:07.12/s=2024-02-29 12:30:07.120",
        "t=__DEFAULT_PARTITION__/s=__DEFAULT_PARTITION__",
    ]
    if legacy == "false":
        compare(table, paimon, ("partitions",))
        return
    with pytest.raises(PaimonError, match="DateTimeParseException"):  # it reads its own folder names wrongly
        paimon.table(table.location).system("partitions")
    of_times = Shape("times of day", {"t": "TIME(3)", "v": "INT"}, [[row[::2] for row in rows[0]]], (), ("t",))
    compare(by_freshet(of_times, tmp_path / "times"), paimon)
