"""System tables as people use them: names, columns, filters, what is refused, what happens beside a reader."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet
from freshet import Catalog, InvalidRequestError, NotFoundError, RetryableError, Table, UnsupportedFeatureError
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_STATS, DataFileMeta, SimpleStats
from freshet.storage.system_tables.metadata import duration_text
from freshet.storage.system_tables.system_table import SYSTEM_TABLES, split_system_name
from tests.kit.frames import frame_library

NOW = [noun for noun, each in SYSTEM_TABLES.items() if not each.travels]
OF_SNAPSHOTS = [noun for noun, each in SYSTEM_TABLES.items() if each.travels]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "w"))


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two commits of a keyed table: five rows, then one of them deleted; nothing compacted."""
    table = catalog.create_table(
        "shop.orders",
        schema={"id": "INT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "2", "write-only": "true"},
    )
    with table.writer("writer") as writer:
        writer.write([{"id": number, "v": f"v{number}"} for number in range(5)])
        writer.commit()
        writer.write([{"id": 3, "_ROW_KIND": "-D"}])
        writer.commit()
    return table


@pytest.mark.parametrize("noun", SYSTEM_TABLES)
def test_by_name_and_by_its_table(catalog: Catalog, table: Table, noun: str) -> None:
    named, of_table = catalog.table(f"shop.orders${noun}"), table.system(noun)
    assert isinstance(named, freshet.SystemTable)
    assert named.name == of_table.name == f"shop.orders${noun}"
    scan = of_table.scan()
    assert scan.schema == named.arrow_schema == scan.to_arrow().schema
    assert scan.to_arrow() == named.scan().to_arrow() == table.system(f"${noun.upper()}").scan().to_arrow()
    assert scan.to_reader().read_all() == scan.to_arrow()
    assert scan.count() == scan.to_arrow().num_rows
    frame_library("polars")
    assert scan.to_polars().to_dicts() == scan.to_arrow().to_pylist()
    assert f"shop.orders${noun}" in repr(of_table)
    assert len(repr(of_table)) < 120
    sent = pickle.loads(pickle.dumps(scan))
    assert [batch for part in sent.plan() for batch in sent.read_split(part)] == list(scan.to_batches())


def test_in_pandas_and_duckdb(table: Table) -> None:
    frame_library("pandas")
    frame_library("duckdb")
    scan = table.system("files").scan(["bucket", "min_key"])
    rows = scan.to_arrow().to_pylist()
    assert scan.to_pandas().to_dict("records") == rows
    assert scan.to_duckdb().fetchall() == [tuple(row.values()) for row in rows]


def test_of_a_table_without_a_snapshot(catalog: Catalog) -> None:
    empty = catalog.create_table("shop.empty", schema={"a": "INT"}, options={"bucket": "-1"})
    counts = {noun: empty.system(noun).scan().count() for noun in SYSTEM_TABLES}
    assert {noun: count for noun, count in counts.items() if count} == {"schemas": 1, "options": 1}


def test_columns_filter_and_limit(table: Table) -> None:
    files = table.system("files")
    whole = files.scan().to_arrow()
    assert files.scan(["level", "bucket"]).to_arrow().column_names == ["level", "bucket"]
    some = files.scan(["file_path"], "bucket = 1 and record_count > 1")
    assert some.to_arrow()["file_path"].to_pylist() == [
        row["file_path"] for row in whole.to_pylist() if row["bucket"] == 1 and row["record_count"] > 1
    ]
    assert some.count() == 1
    assert files.scan(limit=2).to_arrow().num_rows == files.scan(limit=2).count() == 2
    assert files.scan(limit=0).to_arrow().num_rows == 0
    assert table.system("options").scan(filter=[("key", "=", "bucket")]).to_arrow().to_pylist() == [
        {"key": "bucket", "value": "2"}
    ]
    assert files.scan(filter="min_key = '[3]' and max_key like '[3%'").count() == 1


def test_the_audit_log_has_kinds_and_filters_them(table: Table) -> None:
    log = table.system("audit_log")
    rows = {row["id"]: row["rowkind"] for row in log.scan().to_arrow().to_pylist()}
    assert rows == {0: "+I", 1: "+I", 2: "+I", 3: "-D", 4: "+I"}
    assert log.scan(filter="rowkind = '-D'").to_arrow()["id"].to_pylist() == [3]
    assert log.scan(["rowkind"], "rowkind <> '-D' and id > 1").to_arrow()["rowkind"].to_pylist() == ["+I", "+I"]
    assert log.scan(["id"], "rowkind = '-D' or id = 0").count() == 2
    assert log.scan(["v"], snapshot_id=1).count() == 5
    assert table.scan().count() == 4


def test_read_optimized_has_what_was_compacted(table: Table) -> None:
    assert table.system("ro").scan().count() == 0
    table.compact()
    assert table.system("ro").scan(["id"], "id > 1").to_arrow()["id"].to_pylist() == [2, 4]
    with table.writer("writer") as writer:
        writer.write([{"id": 9, "v": "new"}])
        writer.commit()
    assert 9 not in table.system("ro").scan().to_arrow()["id"].to_pylist()
    assert table.system("ro").scan(filter="id = 9").count() == 0


@pytest.mark.parametrize("noun", OF_SNAPSHOTS)
def test_of_a_snapshot(table: Table, noun: str) -> None:
    table.snapshots()
    first, second = (table.system(noun).scan(snapshot_id=number).to_arrow() for number in (1, 2))
    assert second == table.system(noun).scan().to_arrow()
    assert (first == second) == (noun == "ro")
    at_time = table.snapshots()[1].time_ms
    assert table.system(noun).scan(timestamp_ms=at_time).to_arrow() == second
    with pytest.raises(NotFoundError, match="99"):
        table.system(noun).scan(snapshot_id=99)


@pytest.mark.parametrize("noun", NOW)
def test_what_is_no_table_of_a_snapshot(table: Table, noun: str) -> None:
    for travel in ({"snapshot_id": 1}, {"tag": "a"}, {"timestamp_ms": 1}):
        with pytest.raises(
            InvalidRequestError, match=rf"shop\.orders\${noun} .* leave {next(iter(travel))} out.*\$files"
        ):
            table.system(noun).scan(**travel)  # type: ignore[arg-type]


def test_names_that_are_none(catalog: Catalog, table: Table) -> None:
    with pytest.raises(NotFoundError, match=r"shop\.orders\$fils.*\$files"):
        catalog.table("shop.orders$fils")
    with pytest.raises(UnsupportedFeatureError, match=r"shop\.orders\$binlog"):
        table.system("binlog")
    with pytest.raises(NotFoundError, match="there is no table shop.nothing"):
        catalog.table("shop.nothing$files")
    with pytest.raises(InvalidRequestError, match="database.table"):
        catalog.table("orders$files")
    with pytest.raises(InvalidRequestError, match=r"shop\.orders\$files"):
        catalog.system_table("shop.orders")
    assert split_system_name("shop.orders$branch_b$files") == ("shop.orders$branch_b", "files")
    assert split_system_name("shop.orders$branch_b") is None


def test_they_are_not_listed(catalog: Catalog, table: Table) -> None:
    assert catalog.list_tables("shop") == ["orders"]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.writer("writer"),
        lambda table: table.compact(),
        lambda table: table.alter(),
        lambda table: table.expire_snapshots(retain_max=1),
        lambda table: table.stream(),
        lambda table: table.engine,
    ],
)
def test_they_are_only_read(catalog: Catalog, table: Table, change: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"shop\.orders\$files is a system table.*do that with shop\.orders"):
        change(catalog.table("shop.orders$files"))


def test_they_are_neither_made_nor_dropped(catalog: Catalog, table: Table) -> None:
    for call in (
        lambda: catalog.create_table("shop.orders$files", schema={"a": "INT"}),
        lambda: catalog.drop_table("shop.orders$files"),
        lambda: catalog.rename_table("shop.orders", "shop.b$files"),
    ):
        with pytest.raises(InvalidRequestError, match="system table"):
            call()
    assert catalog.list_tables("shop") == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["level", "levl"]}, r"'levl' in shop\.orders\$files"),
        ({"columns": "level"}, "list"),
        ({"columns": []}, "at least|one at least"),
        ({"columns": ["level", "level"]}, "once"),
        ({"filter": "levl = 1"}, "levl"),
        ({"filter": "level = 'a'"}, "level"),
        ({"limit": -1}, "limit"),
    ],
)
def test_bad_arguments(table: Table, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        table.system("files").scan(**arguments)


def test_secrets_are_hidden(catalog: Catalog) -> None:
    options = {"bucket": "-1", "log.sasl.password": "xyzzy"}
    table = catalog.create_table("shop.secret", schema={"a": "INT"}, options={"bucket": "-1"})
    schema_file = Path(table.location) / "schema" / "schema-0"
    schema_file.write_text(schema_file.read_text().replace('"-1"', '"-1", "log.sasl.password": "xyzzy"'))
    table = catalog.table("shop.secret")
    assert dict(table.schema.options) == options
    for noun in ("options", "schemas"):
        shown = str(table.system(noun).scan().to_arrow().to_pylist())
        assert "log.sasl.password" in shown
        assert "xyzzy" not in shown


def test_a_snapshot_that_expires_while_it_is_read(table: Table) -> None:
    scans = {noun: table.system(noun).scan(snapshot_id=1) for noun in OF_SNAPSHOTS}
    others = Table.open(table.location)
    others.compact()
    others.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    fresh = Table.open(table.location)
    for noun, scan in scans.items():
        sent = pickle.loads(pickle.dumps(scan))  # nothing that it has read before
        with pytest.raises(RetryableError, match="snapshot 1 of .*orders expired"):
            sent.to_arrow()
        with pytest.raises(NotFoundError):
            fresh.system(noun).scan(snapshot_id=1)


def test_a_table_that_is_dropped_meanwhile(catalog: Catalog, table: Table) -> None:
    scan = table.system("files").scan()
    reopened = pickle.dumps(table.system("files").scan())
    catalog.drop_table("shop.orders")
    for noun in SYSTEM_TABLES:
        with pytest.raises(NotFoundError, match="orders was dropped"):
            table.system(noun).scan()
    with pytest.raises(NotFoundError, match="dropped"):
        pickle.loads(reopened)
    assert scan.snapshot is not None


def test_texts_of_durations() -> None:
    texts = {
        "0": "PT0S",
        "1": "PT1S",
        "60": "PT1M",
        "86400.000000000": "PT24H",
        "3661.5": "PT1H1M1.5S",
        "0.000001": "PT0.000001S",
        "100": "PT1M40S",
        "7200.250": "PT2H0.25S",
    }
    assert {seconds: duration_text(timedelta(seconds=float(seconds))) for seconds in texts} == texts


@pytest.mark.parametrize(
    ("more", "times"),
    [
        ({}, (None, None)),
        ({"tagCreateTime": None, "tagTimeRetained": None}, (None, None)),
        ({"tagCreateTime": [1970, 1, 1, 0, 0]}, (0, None)),
        ({"tagCreateTime": [1970, 1, 2, 0, 0, 1], "tagTimeRetained": 60}, (86_401_000, "PT1M")),
        ({"tagCreateTime": [1970, 1, 1, 0, 0, 0, 7999999], "tagTimeRetained": "PT7H"}, (7, "PT7H")),
        ({"tagCreateTime": "1970-01-01T00:01:00.5", "tagTimeRetained": 86400.0}, (60_500, "PT24H")),
    ],
)
def test_times_of_tags(table: Table, more: dict[str, Any], times: tuple[int | None, str | None]) -> None:
    write_tag(table, more)
    rows = table.system("tags").scan(["create_time", "time_retained"]).to_arrow()
    made_ms = rows.column("create_time").cast("int64").to_pylist()
    assert list(zip(made_ms, rows.column("time_retained").to_pylist(), strict=True)) == [times]


@pytest.mark.parametrize(
    "more", [{"tagCreateTime": [2024]}, {"tagTimeRetained": [1]}, {"tagTimeRetained": "x", "tagCreateTime": "y"}]
)
def test_times_that_cannot_be_read(table: Table, more: dict[str, Any]) -> None:
    write_tag(table, more)
    with pytest.raises(CorruptDataError, match="tag-a"):
        table.system("tags").scan().to_arrow()


def write_tag(table: Table, more: dict[str, Any]) -> None:
    """A tag with keys besides those of its snapshot."""
    folder = Path(table.location)
    (folder / "tag").mkdir()
    content = json.loads((folder / "snapshot" / "snapshot-1").read_bytes())
    (folder / "tag" / "tag-a").write_text(json.dumps(content | more))


def test_a_tag_that_is_deleted_while_they_are_listed(table: Table) -> None:
    folder = Path(table.location) / "tag"
    folder.mkdir()
    content = (Path(table.location) / "snapshot" / "snapshot-1").read_bytes()
    (folder / "tag-a").write_bytes(content)
    (folder / "tag-gone").symlink_to(folder / "nowhere")
    (folder / "tag-success-file").mkdir()
    assert table.system("tags").scan(["tag_name", "record_count"]).to_arrow().to_pylist() == [
        {"tag_name": "a", "record_count": 5}
    ]


def test_bytes_are_hexadecimal_digits(catalog: Catalog) -> None:
    table = catalog.create_table(
        "shop.raw", schema={"k": "VARBINARY(8)", "n": "INT"}, primary_keys=["k"], options={"bucket": "1"}
    )
    with table.writer("writer") as writer:
        writer.write(pa.table({"k": [b"\x01\xff", b"a"], "n": pa.array([1, 2], pa.int32())}))
        writer.commit()
    row = table.system("files").scan(["min_key", "max_value_stats"]).to_arrow().to_pylist()[0]
    assert row == {"min_key": "[01ff]", "max_value_stats": "{k=61, n=2}"}


def with_files(table: Table, change: Callable[[DataFileMeta], DataFileMeta]) -> Table:
    """The table, whose files are named by entries that are changed so."""
    entries = list(table.store.live.at(table.latest_snapshot()).entries())
    changed = CommitMessage(b"\0" * 12, 0, 2, new_files=tuple(change(entry.file) for entry in entries))
    table.store.env.checks_claims = False
    Committer(table.store, "changed").commit(1, [changed])
    return Table.open(table.location)


def test_statistics_that_are_broken_are_damage(table: Table) -> None:
    broken = SimpleStats(b"\0\0\0\2" + b"\0" * 5, b"\0\0\0\2" + b"\0" * 5, (0, 0))
    damaged = with_files(table, lambda file: replace(file, file_name=f"b{file.file_name}", value_stats=broken))
    with pytest.raises(CorruptDataError, match=r"orders hold keys or statistics .*compact the table"):
        damaged.system("files").scan().to_arrow()
    assert damaged.system("files").scan(["file_path", "null_value_counts"]).count() == 6


@pytest.mark.parametrize(
    ("change", "counts", "bounds"),
    [
        ({"value_stats": EMPTY_STATS, "value_stats_cols": ()}, "{id=null, v=null}", "{id=null, v=null}"),
        ({"value_stats": EMPTY_STATS, "value_stats_cols": None}, "{}", "{}"),
        ({"value_stats_cols": ("id", "_ROW_ID")}, "{id=null, v=null}", "{id=null, v=null}"),
    ],
)
def test_statistics_of_other_writers(table: Table, change: dict[str, Any], counts: str, bounds: str) -> None:
    other = with_files(table, lambda file: replace(file, file_name=f"b{file.file_name}", **change))
    columns = ["null_value_counts", "min_value_stats", "max_value_stats"]
    rows = [row for row in other.system("files").scan().to_arrow().to_pylist() if "/bdata" in row["file_path"]]
    assert [tuple(row[column] for column in columns) for row in rows] == [(counts, bounds, bounds)] * 3
