"""One behaviour of every catalog: databases and tables are made, listed, altered, renamed and dropped."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from freshet import (
    AddColumn,
    AlreadyExistsError,
    Catalog,
    InvalidRequestError,
    NotFoundError,
    SetOption,
    Table,
    UnsupportedFeatureError,
)
from freshet.storage.catalogs.claims import ClaimAnswer
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.exceptions import MissingFileError
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from tests.kit.folders import contents

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@dataclass(frozen=True)
class Kind:
    """A catalog, and what it can do."""

    name: str
    options: Mapping[str, str]
    in_memory: bool = False
    """The files of its tables."""
    keeps_properties: bool = False
    renames: bool = True


KINDS = (
    Kind("filesystem", {}),
    Kind("filesystem-memory", {"metastore": "filesystem"}, in_memory=True, renames=False),
    Kind("jdbc", {"metastore": "jdbc"}, keeps_properties=True),
    Kind("jdbc, locked", {"metastore": "jdbc", "lock.enabled": "true"}, keeps_properties=True),
    Kind("jdbc-memory", {"metastore": "jdbc"}, in_memory=True, keeps_properties=True, renames=False),
)


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def opened(kind: Kind, tmp_path: Path) -> Callable[[], Catalog]:
    """Opens the catalog of the test; each call as another program of the process would."""
    warehouse = f"memory:/{uuid.uuid4()}" if kind.in_memory else f"{tmp_path}/w"
    uri = {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db"} if kind.name.startswith("jdbc") else {}
    return lambda: Catalog(warehouse, options={**kind.options, **uri})


@pytest.fixture
def catalog(opened: Callable[[], Catalog]) -> Catalog:
    return opened()


def create(catalog: Catalog, name: str = "shop.orders", **arguments: Any) -> Table:
    given = {"schema": COLUMNS, "primary_keys": ["id"], "options": {"bucket": 1}, **arguments}
    return catalog.create_table(name, **given)


def put(table: Table, *ids: int) -> None:
    with table.writer("loader") as writer:
        writer.write([{"id": number, "v": f"v{number}"} for number in ids])
        writer.commit()


def held(table: Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def kept(catalog: Catalog, database: str) -> dict[str, str]:
    """Properties of a database, without what a catalog adds by itself."""
    properties = catalog.database_properties(database)
    properties.pop("location", None)
    return properties


def test_databases_are_listed_in_order(catalog: Catalog) -> None:
    assert catalog.list_databases() == []
    for name in ("b", "c", "a"):
        catalog.create_database(name)
    assert catalog.list_databases() == ["a", "b", "c"]
    assert catalog.list_tables("a") == []


def test_a_database_is_created_once(catalog: Catalog) -> None:
    catalog.create_database("shop")
    create(catalog)
    with pytest.raises(AlreadyExistsError, match="shop"):
        catalog.create_database("shop")
    catalog.create_database("shop", if_not_exists=True)
    assert catalog.list_tables("shop") == ["orders"]


def test_properties_of_a_database(catalog: Catalog, kind: Kind) -> None:
    if not kind.keeps_properties:
        with pytest.raises(UnsupportedFeatureError, match="owner"):
            catalog.create_database("shop", properties={"owner": "me"})
        assert catalog.list_databases() == []
        catalog.create_database("shop")
        with pytest.raises(UnsupportedFeatureError, match="owner"):
            catalog.alter_database("shop", {"owner": "me"})
        assert catalog.database_properties("shop") == {}
        return
    catalog.create_database("shop", properties={"owner": "me", "comment": "orders"})
    catalog.create_database("shop", properties={"owner": "you"}, if_not_exists=True)
    assert kept(catalog, "shop") == {"owner": "me", "comment": "orders"}, "the first one counts"
    catalog.alter_database("shop", {"owner": "you", "comment": None, "team": "a", "never": None})
    assert kept(catalog, "shop") == {"owner": "you", "team": "a"}


def test_a_database_that_is_missing_is_named(catalog: Catalog) -> None:
    catalog.create_database("shop")
    calls: list[Callable[[], object]] = [
        lambda: catalog.list_tables("nowhere"),
        lambda: catalog.database_properties("nowhere"),
        lambda: catalog.alter_database("nowhere", {"a": "b"}),
        lambda: catalog.drop_database("nowhere"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match="no database 'nowhere'"):
            call()
    catalog.drop_database("nowhere", if_exists=True)
    assert not catalog.has_table("nowhere.orders")


def test_a_database_is_dropped_when_it_is_empty_or_with_its_tables(catalog: Catalog) -> None:
    create(catalog)
    table = create(catalog, "shop.items")
    with pytest.raises(InvalidRequestError, match=r"items, orders.*cascade"):
        catalog.drop_database("shop")
    assert catalog.list_tables("shop") == ["items", "orders"]
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []
    with pytest.raises(NotFoundError, match="while it was open"):
        put(table, 1)
    catalog.create_database("shop")
    assert catalog.list_tables("shop") == []
    catalog.drop_database("shop")
    assert catalog.list_databases() == []


def test_a_table_is_created_with_its_database_and_seen_by_others(
    catalog: Catalog, opened: Callable[[], Catalog]
) -> None:
    put(create(catalog, comment="all orders"), 1, 2)
    create(catalog, "shop.items")
    other = opened()
    assert (other.list_databases(), other.list_tables("shop")) == (["shop"], ["items", "orders"])
    assert other.has_table("shop.orders")
    table = other.table("shop.orders")
    assert (table.name, table.schema.comment, table.schema.primary_keys) == ("shop.orders", "all orders", ("id",))
    assert dict(table.schema.options) == {"bucket": "1"}
    assert held(table) == [1, 2]


def test_a_table_with_snapshots_and_no_schema_names_the_lost_file(catalog: Catalog) -> None:
    table = create(catalog)
    put(table, 1)
    table.store.env.file_io.delete_prefix(table.store.paths.schema_folder)
    with pytest.raises(MissingFileError, match="restore schema-0") as caught:
        catalog.table("shop.orders")
    assert caught.value.path == table.store.paths.schema(0)
    catalog.drop_table("shop.orders")
    with pytest.raises(NotFoundError, match=r"no table shop\.orders"):
        catalog.table("shop.orders")


@pytest.mark.parametrize("linked", ["table", "database"])
@pytest.mark.parametrize("is_table_dropped", [True, False], ids=["drop_table", "drop_database"])
def test_what_a_folder_that_is_a_link_leads_to_stays_when_it_is_dropped(
    kind: Kind, catalog: Catalog, linked: str, is_table_dropped: bool, tmp_path: Path
) -> None:
    """A table is dropped where it is in a database that is a link: it lies in no link itself."""
    table = create(catalog)
    put(table, 1)
    if kind.in_memory:
        return
    folder = Path(table.location) if linked == "table" else Path(table.location).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    if is_table_dropped:
        catalog.drop_table("shop.orders")
    else:
        catalog.drop_database("shop", cascade=True)
    assert not catalog.has_table("shop.orders")
    is_in_a_linked_database = linked == "database" and is_table_dropped
    assert (contents(tmp_path / "elsewhere") == before) is not is_in_a_linked_database


def test_a_name_is_given_once(catalog: Catalog) -> None:
    table = create(catalog)
    with pytest.raises(AlreadyExistsError, match=rf"shop\.orders exists already at {table.location}.*if_not_exists"):
        create(catalog)
    same = create(catalog, if_not_exists=True, schema={"other": "INT"}, primary_keys=["other"])
    assert same.schema == table.schema


def test_of_creators_at_once_one_wins(catalog: Catalog, opened: Callable[[], Catalog]) -> None:
    def attempt(number: int) -> str | None:
        try:
            return create(opened(), comment=str(number)).schema.comment
        except AlreadyExistsError:
            return None

    with ThreadPoolExecutor(8) as pool:
        [winner] = [found for found in pool.map(attempt, range(16)) if found is not None]
    assert catalog.table("shop.orders").schema.comment == winner


def test_a_wrong_table_leaves_nothing(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="bucket"):
        create(catalog, options={"bucket": "four"})
    assert catalog.list_databases() == []


def test_a_table_that_is_missing_is_named(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match=r"no table shop\.orders: no database 'shop'"):
        catalog.table("shop.orders")
    create(catalog)
    calls: list[Callable[[], object]] = [
        lambda: catalog.table("shop.customers"),
        lambda: catalog.drop_table("shop.customers"),
        lambda: catalog.rename_table("shop.customers", "shop.clients"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match=r"shop\.customers.*: orders"):
            call()
    catalog.drop_table("shop.customers", if_exists=True)
    catalog.rename_table("shop.customers", "shop.clients", if_exists=True)
    assert catalog.list_tables("shop") == ["orders"]


def test_a_dropped_table_is_gone_and_the_next_of_its_name_is_another(catalog: Catalog) -> None:
    table = create(catalog)
    put(table, 1)
    catalog.drop_table("shop.orders")
    assert catalog.list_tables("shop") == []
    assert catalog.list_databases() == ["shop"]
    for late in (
        lambda: put(table, 2),
        lambda: held(table),
        lambda: table.alter(AddColumn("x", "INT")),
        table.engine.created_ms,
    ):
        with pytest.raises(NotFoundError, match="while it was open"):
            late()
    with pytest.raises(NotFoundError):
        catalog.drop_table("shop.orders")
    assert held(create(catalog)) == []


@pytest.mark.parametrize("left", ["snapshot", "changelog", "tag", "branch", "consumer"])
def test_what_an_interrupted_drop_has_left_does_not_show_in_a_new_table(
    catalog: Catalog, kind: Kind, left: str
) -> None:
    table = create(catalog)
    files, paths = table.store.env.file_io, table.store.paths
    remains = {
        "snapshot": paths.latest_hint,
        "changelog": paths.changelog_latest_hint,
        "tag": paths.tag("t"),
        "branch": paths.branch("b").snapshot(1),
        "consumer": paths.consumer("c"),
    }
    catalog.drop_table("shop.orders")
    files.create_exclusive(remains[left], b"1")
    with pytest.raises(InvalidRequestError, match="of an earlier table.*drop_table"):
        create(catalog)
    catalog.drop_table("shop.orders")
    assert held(create(catalog)) == []


def test_changes_of_a_schema_follow_each_other(catalog: Catalog, opened: Callable[[], Catalog]) -> None:
    table = create(catalog)
    put(table, 1)
    changed = table.alter(AddColumn("w", "INT"), SetOption("write-only", "true"))
    assert (changed.schema.id, changed.options.write_only) == (1, True)
    assert opened().table("shop.orders").schema == changed.schema
    with ThreadPoolExecutor(4) as pool:  # all from one old schema
        list(pool.map(lambda number: table.alter(AddColumn(f"c{number}", "INT")), range(4)))
    latest = opened().table("shop.orders").schema
    assert latest.id == 5
    assert set(latest.column_names) == {"id", "v", "w", "c0", "c1", "c2", "c3"}
    with pytest.raises(InvalidRequestError, match="v"):
        table.alter(AddColumn("v", "INT"))
    put(changed, 2)
    assert held(changed) == [1, 2]


def test_a_renamed_table_is_the_same_table(catalog: Catalog, kind: Kind) -> None:
    made = create(catalog)
    created_ms = made.engine.created_ms()
    put(made, 1)
    put(made, 2)
    catalog.create_database("archive")
    if not kind.renames:
        with pytest.raises(UnsupportedFeatureError, match=r"shop\.orders cannot be renamed"):
            catalog.rename_table("shop.orders", "shop.old")
        assert held(catalog.table("shop.orders")) == [1, 2]
        return
    catalog.rename_table("shop.orders", "shop.old")
    catalog.rename_table("shop.old", "archive.orders")
    assert (catalog.list_tables("shop"), catalog.list_tables("archive")) == ([], ["orders"])
    table = catalog.table("archive.orders")
    assert (table.name, table.engine.created_ms()) == ("archive.orders", created_ms)
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2]
    put(table, 3)
    assert held(table) == [1, 2, 3]
    assert held(create(catalog)) == [], "the old name is free"


def test_a_name_that_is_taken_or_nowhere_is_not_given(catalog: Catalog, kind: Kind) -> None:
    put(create(catalog), 1)
    put(create(catalog, "shop.items"), 2)
    with pytest.raises(AlreadyExistsError, match=r"shop\.orders cannot be renamed: there is a table shop\.items"):
        catalog.rename_table("shop.orders", "shop.items")
    with pytest.raises(AlreadyExistsError):
        catalog.rename_table("shop.orders", "shop.orders")
    with pytest.raises(NotFoundError, match="no database 'nowhere'"):
        catalog.rename_table("shop.orders", "nowhere.orders")
    for name, said in (("a$files", "system table"), ("a$b", "cannot be used")):
        with pytest.raises(InvalidRequestError, match=said):
            catalog.rename_table("shop.orders", f"shop.{name}")
    assert (held(catalog.table("shop.orders")), held(catalog.table("shop.items"))) == ([1], [2])


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("what", ["drop", "rename"])
def test_a_commit_that_is_overtaken_between_its_last_look_and_its_claim(
    catalog: Catalog, kind: Kind, what: str, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog)
    if what == "rename" and not kind.renames:
        with pytest.raises(UnsupportedFeatureError):
            catalog.rename_table("shop.orders", "shop.old")
        return
    for number in range(commits):
        put(table, number)
    claim = table.store.claims.claim_snapshot

    def overtaken(snapshot: Snapshot) -> ClaimAnswer:
        monkeypatch.undo()
        catalog.drop_table("shop.orders") if what == "drop" else catalog.rename_table("shop.orders", "shop.old")
        return claim(snapshot)

    monkeypatch.setattr(table.store.claims, "claim_snapshot", overtaken)
    with pytest.raises(NotFoundError, match="while it was open"):
        put(table, 9)
    if what == "rename":
        assert held(catalog.table("shop.old")) == [*range(commits)]
    assert held(create(catalog)) == [], "nothing of the old table is left under its name"


@pytest.mark.parametrize("what", ["drop", "rename"])
def test_a_change_of_the_schema_that_is_overtaken_makes_no_table(
    catalog: Catalog, kind: Kind, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog)
    claim = table.store.claims.claim_schema
    is_lost = what == "drop" or kind.renames

    def overtaken(schema: TableSchema) -> bool:
        monkeypatch.undo()
        if what == "drop":
            catalog.drop_table("shop.orders")
        elif kind.renames:
            catalog.rename_table("shop.orders", "shop.old")
        return claim(schema)

    monkeypatch.setattr(table.store.claims, "claim_schema", overtaken)
    if is_lost:
        with pytest.raises(NotFoundError, match="while it was open"):
            table.alter(AddColumn("w", "INT"))
    else:
        assert table.alter(AddColumn("w", "INT")).schema.id == 1
    left = {"drop": [], "rename": ["old"] if kind.renames else ["orders"]}[what]
    assert catalog.list_tables("shop") == left
    assert [catalog.table(f"shop.{name}").schema.id for name in left] == [0 if is_lost else 1] * len(left)


def test_of_tables_that_are_given_one_name_at_once_one_gets_it(catalog: Catalog, kind: Kind) -> None:
    for number in range(8):
        put(create(catalog, f"shop.t{number}"), number)

    def attempt(number: int) -> bool:
        try:
            catalog.rename_table(f"shop.t{number}", "shop.one")
        except (AlreadyExistsError, UnsupportedFeatureError):
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, is_won in enumerate(pool.map(attempt, range(8))) if is_won]
    assert len(won) == (1 if kind.renames else 0)
    assert [held(catalog.table("shop.one")) for _ in won] == [[number] for number in won]
    assert len(catalog.list_tables("shop")) == 8


def test_who_comes_too_late_gets_an_error(catalog: Catalog, kind: Kind) -> None:
    """What the port answers where others were faster than the look before."""
    metastore, table = catalog._metastore, create(catalog)
    create(catalog, "shop.items")
    orders, items, gone = (TableName("shop", name) for name in ("orders", "items", "gone"))
    assert not metastore.create_database("shop", {})
    assert not metastore.create_table(orders, table.schema)
    assert not metastore.drop_table(gone)
    assert metastore.find_table(gone) is None
    with pytest.raises(AlreadyExistsError if kind.renames else UnsupportedFeatureError):
        metastore.rename_table(orders, items)
    with pytest.raises(NotFoundError if kind.renames else UnsupportedFeatureError):
        metastore.rename_table(gone, TableName("shop", "other"))
    assert catalog.list_tables("shop") == ["items", "orders"]


def test_whoever_has_a_table_open_when_it_is_renamed(catalog: Catalog, kind: Kind) -> None:
    table = create(catalog)
    put(table, 1)
    with table.writer("open") as writer:
        writer.write([{"id": 2, "v": "x"}])
        if not kind.renames:
            with pytest.raises(UnsupportedFeatureError):
                catalog.rename_table("shop.orders", "shop.old")
            writer.commit()
            assert held(table) == [1, 2], "is not concerned"
            return
        catalog.rename_table("shop.orders", "shop.old")
        with pytest.raises(NotFoundError, match="while it was open"):
            writer.commit()
        writer.abort()
    assert held(catalog.table("shop.old")) == [1]
    assert held(create(catalog)) == [], "nothing of the old table is left under its name"
