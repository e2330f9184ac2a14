"""What objects show of themselves, by repr and in a notebook: escaped, short, cheap, and without an error ever."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet
from freshet import Catalog, Table, Tag, col
from freshet.storage.model.display import ids_text
from freshet.storage.model.shown import ROWS_MAX, Shown
from freshet.storage.model.tag import Snapshots, Tags
from freshet.storage.scan import preview
from freshet.storage.scan.split_reader import SplitReader

ODD = 'a<script>alert("x")</script>&'


class _Tags(HTMLParser):
    """Counts what is open: a page whose tags do not pair is no page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def html(what: Any) -> str:
    text: str = what._repr_html_()
    parser = _Tags()
    parser.feed(text)
    assert not parser.open
    assert parser.seen <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p", "em"}
    return text


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "w")


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": 1, "kafka.password": "env:KAFKA_WORD"},
        comment="orders & more",
    )
    made.append([{"id": n, "v": f"v{n}"} for n in range(25)])
    return made


def every_object(catalog: Catalog, table: Table) -> Iterator[Any]:
    """One of each that is held by people."""
    yield from (catalog, table, table.scan(), table.scan(["id"], "id > 3", limit=2), table.snapshots())
    yield from (table.latest_snapshot(), table.tags.create("one"), table.tags.list(), table.tags, table.branches)
    yield from (table.append([{"id": 100, "v": None}]), table.delete("id = 1"), table.update({"v": "x"}, "id = 2"))
    yield from (table.delete("id < 5", dry_run=True), table.rollback(1, dry_run=True), table.compact())
    with table.writer("u") as writer:
        writer.write([{"id": 7, "v": "w"}])
        yield writer
        yield writer.commit()
    yield from (table.changes_between(0, 1, mode="delta"), table.remove_orphan_files(dry_run=True), table.check())
    yield from (
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0),
        table.tags.delete("one", dry_run=True),
        table.engine,
    )
    yield table.merge([{"id": 1, "v": "x"}], on=["id"]).when_matched_update_all()
    for noun in ("snapshots", "schemas", "options", "files", "partitions", "buckets", "tags", "branches"):
        yield from (table.system(noun), table.system(noun).scan())
    for noun in ("consumers", "manifests", "audit_log", "ro"):
        yield from (table.system(noun), table.system(noun).scan())


def test_every_object_has_a_short_repr_and_those_with_much_to_say_a_page(catalog: Catalog, table: Table) -> None:
    for each in every_object(catalog, table):
        assert 0 < len(repr(each)) < 400, each
        assert " object at 0x" not in repr(each)
        if hasattr(each, "_repr_html_"):
            assert len(html(each)) < 20_000
            assert " object at 0x" not in html(each)
    assert repr(table).startswith("Table('shop.orders' at ")


def test_the_page_of_a_table(table: Table) -> None:
    text = html(table)
    for part in (
        "shop.orders",
        "orders &amp; more",
        "BIGINT NOT NULL",
        "primary key",
        "kafka.password",
        "env:KAFKA_WORD",
        "25",
    ):
        assert part in text
    assert "1: APPEND by" in text


def test_names_and_values_are_escaped(catalog: Catalog) -> None:
    name = ODD.replace("/", "|")
    table = catalog.create_table(
        f"shop.{name}", schema={name: "STRING", "v\x1b[31m": "STRING"}, comment=name, options={"owner": name}
    )
    table.append([{name: name, "v\x1b[31m": "\x1b[31m"}])
    table.tags.create("t<b>")
    catalog.create_database("d<b>")
    with table.writer("u<b>") as writer:
        writer.write([{name: "x", "v\x1b[31m": None}])
        writer.commit()
    shown = [catalog, table, table.scan(), table.scan(filter=col(name) == "x"), table.tags.list(), table.snapshots()]
    shown += [table.tags.get("t<b>"), table.latest_snapshot(), table.changelog(), table.system("options").scan()]
    for each in shown:
        text = html(each)  # no other tags than ours
        assert "\x1b" not in text + repr(each)
        assert "&lt;" in text


def test_a_scan_shows_its_first_rows(table: Table) -> None:
    text = html(table.scan())
    assert "the first 10 rows" in text
    assert "v9<" in text and "v10<" not in text
    assert "all rows: 2" in html(table.scan(filter="id IN (3, 4)"))
    assert "no rows" in html(table.scan(filter="v = 'nothing'"))
    assert "all rows: 3" in html(table.scan(limit=3))
    assert "all rows: 0" not in html(table.scan(limit=0))
    text = html(table.scan(["v"], filter=col("id") == 20))
    assert "v20" in text and ">20<" not in text


def test_only_so_many_rows_are_looked_at(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog.create_table("shop.big", schema={"id": "BIGINT", "v": "BIGINT"})
    for start in range(4):
        ids = pa.array(range(start * 30_000, (start + 1) * 30_000), pa.int64())
        table.append(pa.table({"id": ids, "v": pa.array(range(0, 60_000, 2), pa.int64())}))
    read = []
    original = SplitReader.read
    monkeypatch.setattr(SplitReader, "read", lambda self, split, executor=None: _counted(read, original(self, split)))
    text = html(table.scan(filter="v = 30001"))
    assert "rows 0 pass the filter" in text
    assert preview.LOOKED_AT_MAX <= sum(read) <= 3 * preview.LOOKED_AT_MAX
    monkeypatch.setattr(preview, "METADATA_BYTES_MAX", 1)
    assert "not shown, since that would take long" in html(table.scan())
    assert "not shown, since that would take long" in html(table.system("files").scan())
    scan = table.scan()
    scan.plan()
    assert "the first 10 rows" in html(scan), "what is planned already is not planned again"


def test_rows_of_many_files_are_not_merged_for_a_cell(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append([{"id": 3, "v": "new"}])
    assert "new" in html(table.scan())
    monkeypatch.setattr(preview, "FILES_MAX", 1)
    assert "not shown, since that would take long" in html(table.scan())
    table.compact()
    assert "new" in html(table.scan())


def _counted(read: list[int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read.append(batch.num_rows)
        yield batch


def test_the_first_changes(catalog: Catalog, table: Table) -> None:
    log = catalog.create_table("shop.log", schema={"id": "BIGINT", "v": "STRING"})
    for n in range(7):
        log.append([{"id": n, "v": f"v{n}"}])
    text = html(log.changelog())
    assert "the first 5 rows" in text and "+I" in text and "snapshots 1 to 7" in text
    assert "all rows: 1" in html(log.changelog(["v"], "id = 2", from_snapshot=3, to_snapshot=3))
    assert "_ROW_KIND" in html(table.changes_between(0, 1, mode="delta"))
    assert "diff" in repr(table.changes_between(0, 1, mode="diff"))


def test_values_that_python_has_no_type_for(catalog: Catalog) -> None:
    table = catalog.create_table("shop.t", schema={"at": "TIMESTAMP(6)", "d": "DATE", "b": "BYTES", "m": "ARRAY<INT>"})
    at = pa.array([2**62, -(2**60), None], pa.timestamp("us"))
    days = pa.array([2**30, -40000, None], pa.date32())
    texts = pa.array([b"\x00<", b"x" * 5000, None])
    table.append(
        pa.table({"at": at, "d": days, "b": texts, "m": pa.array([[1, 2], [None], None], pa.list_(pa.int32()))})
    )
    text = html(table.scan())
    assert str(2**62) in text and "1860-06-26" in text and "NULL" in text and "[1, 2]" in text
    assert len(text) < 3000


def test_a_table_that_is_gone_or_damaged_says_so(catalog: Catalog, table: Table) -> None:
    shown: list[Callable[[], Any]] = [lambda: table, lambda: scan, lambda: table.system("files")]
    scan, changes = table.scan(), table.changes_between(0, 1, mode="delta")
    shown += [lambda: changes, lambda: system]
    system = table.system("snapshots").scan()
    catalog.drop_table("shop.orders")
    for each in shown:
        text = html(each())
        assert repr(each()) != ""
        assert "shop.orders" in text
    assert "was dropped" in html(table) and "was dropped" in html(scan)

    other = catalog.create_table("shop.other", schema={"id": "BIGINT"})
    other.append([{"id": 1}])
    scan = other.scan()
    for file in Path(other.location, "bucket-0").iterdir():
        file.unlink()
    assert "Scan" in html(scan)
    snapshot = Path(other.location, "snapshot", "snapshot-1")
    snapshot.write_text("no json")
    assert "Table(" in html(catalog.table("shop.other"))
    shutil.rmtree(Path(catalog.warehouse))
    html(catalog)


def test_lists_are_lists_and_show_their_end(table: Table) -> None:
    snapshots = table.snapshots()
    assert isinstance(snapshots, list) and snapshots == [table.latest_snapshot()]
    assert table.tags.list() == () and html(table.tags.list()) == "<p><em>no tags</em></p>"
    many = Snapshots(snapshots * 120)
    assert repr(many).count("Snapshot(") == ROWS_MAX and "70 before" in repr(many)
    assert html(many).count("<tr>") == ROWS_MAX + 1 and "the last 50 of 120 snapshots" in html(many)
    tag = Tag("eom", snapshots[0], datetime.datetime(2026, 1, 1), datetime.timedelta(days=3))
    assert "2026-01-04" in html(Tags([tag])) and repr(Tags([tag])) == f"({tag!r},)"
    assert repr(snapshots[0]).startswith("Snapshot(1, APPEND by ") and "25 records, +25" in repr(snapshots[0])


def test_what_cannot_be_shown_says_why() -> None:
    class Broken(Shown):
        def __repr__(self) -> str:
            return "Broken()"

        def _shown(self) -> Any:
            raise RuntimeError("a <b> broke")

    assert html(Broken()) == "<p>Broken()</p><p>a &lt;b&gt; broke</p>"


def test_ids() -> None:
    assert ids_text([]) == "" and ids_text([3]) == "3" and ids_text([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10"


def test_results_that_are_public_show_themselves() -> None:
    for name in (
        "Catalog",
        "Changelog",
        "EditResult",
        "SqlResult",
        "SystemScan",
        "SystemTable",
        "Table",
        "TableScan",
        "Tag",
    ):
        assert hasattr(getattr(freshet, name), "_repr_html_"), name


def test_the_result_of_a_statement_shows_its_first_rows(catalog: Catalog, table: Table) -> None:
    table.append([{"id": each, "v": f"<{each}>"} for each in range(30)])

    def shown(text: str) -> str:
        return html(freshet.sql(text, catalog=catalog))

    found = shown("SELECT v, count(*) AS n FROM shop.orders GROUP BY v ORDER BY v")
    assert "&lt;0&gt;" in found and "the first 10 rows; .to_arrow() reads all" in found
    assert "all rows: 2" in shown("SELECT * FROM shop.orders WHERE id < 2")
    assert "no rows" in shown("SELECT * FROM shop.orders WHERE id < 0")
    assert "orders" in shown("SHOW TABLES IN shop")
    assert "rows deleted" in shown("DELETE FROM shop.orders WHERE id = 1")
    assert "has schema 1 now" in shown("ALTER TABLE shop.orders ADD COLUMN w INT")
    assert "divi" in shown("SELECT error('divided by nothing')")
    wide = ", ".join(f"{each} AS c{each}" for each in range(40))
    assert "30 of 40 columns" in shown(f"SELECT {wide}")
