"""Renames and drops that crash, or whose disk fails, at each mutation and at each named point: a table is there with
all rows, or it is not there, and the same call ends what was begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, InvalidRequestError, NotFoundError
from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import CrashPoint, Env
from tests.kit.sim_env import Crash, Fault, FaultKind, SimDisk

WAREHOUSE = "/w"
ROWS = [{"id": n, "v": None if n < 3 else "w"} for n in range(5)]

CALLS: dict[str, Callable[[Catalog], object]] = {
    "rename": lambda catalog: catalog.rename_table("shop.a", "old.b", if_exists=True),
    "drop table": lambda catalog: catalog.drop_table("shop.a", if_exists=True),
    "drop database": lambda catalog: catalog.drop_database("shop", cascade=True, if_exists=True),
}


def fill(catalog: Catalog) -> None:
    """Two schemas, two snapshots, a tag; another table in the same database."""
    catalog.create_database("old")
    for name in ("shop.a", "shop.other"):
        table = catalog.create_table(name, schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1})
        table.append([{"id": n} for n in range(3)])
        table = table.alter(AddColumn("v", "STRING"))
        table.append([{"id": n, "v": "w"} for n in range(3, 5)])
        table.tags.create("t", 1)


def rows_of(catalog: Catalog, name: str) -> list[dict[str, object]] | None:
    """None where it is not there."""
    if not catalog.has_table(name):
        return None
    rows: list[dict[str, object]] = catalog.table(name).scan().to_arrow().sort_by("id").to_pylist()
    return rows


def check(catalog: Catalog, call: str) -> None:
    """What the crash has left, and what the same call makes of it."""
    if call == "rename":
        found = [rows_of(catalog, "shop.a"), rows_of(catalog, "old.b")]
        assert found in ([ROWS, None], [None, ROWS]), found
        CALLS[call](catalog)
        assert [rows_of(catalog, "shop.a"), rows_of(catalog, "old.b")] == [None, ROWS]
    else:
        with suppress(StorageError):  # some of its schemas are gone: it is refused, and shows no other rows
            assert rows_of(catalog, "shop.a") in (ROWS, None)
        CALLS[call](catalog)
        assert rows_of(catalog, "shop.a") is None
    if call != "drop database":
        assert rows_of(catalog, "shop.other") == ROWS
    made = catalog.create_table("shop.a", schema={"n": "INT"})
    assert made.scan().count() == 0 and made.snapshots() == [], "nothing of the old one shows under its name"


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_each_mutation(call: str) -> None:
    disk = SimDisk(1)
    fill(Catalog(WAREHOUSE, env=disk.boot()))
    number = 0
    while True:
        is_hit = False
        for kind in FaultKind:
            for takes_effect in (False, True):
                tried = disk.copy()
                env = tried.boot(Fault(kind, at=number, takes_effect=takes_effect))
                with suppress(Crash, StorageError):
                    CALLS[call](Catalog(WAREHOUSE, env=env))
                if env.file_io.mutation_count > number:
                    is_hit = True
                    check(Catalog(WAREHOUSE, env=tried.boot()), call)
        if not is_hit:
            break
        number += 1
    assert number >= (1 if call == "rename" else 5)


@pytest.mark.parametrize("call", ["drop table"])
def test_each_named_point_of_a_folder(call: str) -> None:
    disk = SimDisk(1)
    fill(Catalog(WAREHOUSE, env=disk.boot()))
    env = disk.boot(Fault(point=CrashPoint.TABLE_SCHEMAS_REMOVED))
    with pytest.raises(Crash):
        CALLS[call](Catalog(WAREHOUSE, env=env))
    catalog = Catalog(WAREHOUSE, env=disk.boot())
    assert catalog.list_tables("shop") == ["other"]
    check(catalog, call)


@pytest.mark.parametrize(
    ("call", "point"),
    [
        ("rename", CrashPoint.TABLE_ROW_RENAMED),
        ("drop table", CrashPoint.TABLE_ROW_REMOVED),
        ("drop table", CrashPoint.TABLE_SCHEMAS_REMOVED),
        ("drop database", CrashPoint.TABLE_ROW_REMOVED),
        ("drop database", CrashPoint.TABLE_SCHEMAS_REMOVED),
    ],
)
def test_each_named_point_of_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, point: CrashPoint
) -> None:
    catalog = Catalog(f"jdbc:sqlite:{tmp_path}/catalog.db", warehouse=tmp_path / "w")
    fill(catalog)

    def die(self: Env, reached: CrashPoint) -> None:
        if reached is point:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Env, "reach", die)
        with pytest.raises(Crash):
            CALLS[call](catalog)
    if point is CrashPoint.TABLE_ROW_RENAMED:
        with pytest.raises(NotFoundError, match="register_table"):
            catalog.table("old.b")
        catalog.drop_table("old.b")
        catalog.register_table("shop.a")
    elif point is CrashPoint.TABLE_ROW_REMOVED:
        assert not catalog.has_table("shop.a")
        with pytest.raises(NotFoundError, match="register_table"):
            catalog.table("shop.a")
        for name in ("shop.a", *(["shop.other"] if call == "drop database" else [])):
            assert catalog.register_table(name).scan().count() == 5
    elif call == "drop database":  # no row says that there was one: the error names the call that ends it
        with pytest.raises(InvalidRequestError, match="remove them with drop_table"):
            catalog.create_table("shop.a", schema={"n": "INT"})
        catalog.drop_table("shop.a")
    check(catalog, call)
