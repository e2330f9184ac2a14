"""Which catalog there is, by its option and by the handle of a table that travels; who takes which option."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.catalogs import registry
from freshet.storage.catalogs.claims import FileClaims, LockedClaims
from freshet.storage.catalogs.filesystem import FilesystemMetastore
from freshet.storage.catalogs.metastore import FoundTable, Metastore, TableName
from freshet.storage.catalogs.registry import CatalogKind
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env, local_env
from freshet.storage.table import Table
from tests.kit.kit_store import PASSWORD, VARIABLE, in_fresh_process, kit_store

LOCK = threading.Lock()
LOCK_OPTION = {"lock.password": f"env:{VARIABLE}"}


class LockedFolder(FilesystemMetastore):
    """A catalog that other processes can open, and whose ids are claimed with a lock."""

    def find_table(self, name: TableName) -> FoundTable | None:
        found = super().find_table(name)
        return found and replace(found, claims=LockedClaims(found.claims, lambda: LOCK))


def _opened(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    assert options == {"lock.password": PASSWORD}, "a catalog gets what it takes, resolved"
    return LockedFolder(env, warehouse)


def _folder(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    return _opened(env, warehouse, options) if options else FilesystemMetastore(env, warehouse)


METASTORES = {
    **registry.METASTORES,
    "filesystem": CatalogKind(_folder, ("lock.*",)),
    "locked": CatalogKind(_opened, ("lock.*",)),
    "keyless": CatalogKind(lambda env, warehouse, options: LockedFolder(env, warehouse)),
}


@pytest.fixture(autouse=True)
def with_locked_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METASTORES", METASTORES)


@pytest.fixture
def store_options(tmp_path: Path) -> Iterator[dict[str, str]]:
    with kit_store(tmp_path) as settings:
        yield dict(settings.catalog)


def table_of(warehouse: object, options: Mapping[str, str], env: Env | None = None) -> Table:
    catalog = Catalog(str(warehouse), options=options, env=env)
    return catalog.create_table("shop.a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1})


def test_a_catalog_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"metastore=hive.*filesystem, jdbc"):
        Catalog(tmp_path, options={"metastore": "hive"})


def test_the_place_of_a_catalog_is_a_warehouse_or_a_database_with_one() -> None:
    uri = "jdbc:sqlite:/c.db"
    with_uri = {"uri": uri}
    for place, warehouse, options in (
        (uri, "/w", {}),
        (uri, None, {"warehouse": "/w"}),
        ("/w", None, with_uri),
        (None, "/w", with_uri),
        ("/w", "/w", with_uri),
    ):
        assert registry.place_of_catalog(place, warehouse, options) == ("/w", with_uri)
    assert registry.place_of_catalog("/w", None, {}) == ("/w", {})
    assert (registry.metastore_name(with_uri), registry.metastore_name({})) == ("jdbc", "filesystem")
    for place, warehouse, message in (
        (uri, None, r'needs the warehouse.*warehouse="s3://'),
        (None, None, "a catalog has a warehouse: give a path"),
        ("/w", "/v", "'/w' and '/v' are given.*leave one out"),
        ("jdbc:sqlite:/d.db", "/w", "option uri=jdbc:sqlite:/c.db is not jdbc:sqlite:/d.db"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            registry.place_of_catalog(place, warehouse, {} if place is None else with_uri)


@pytest.mark.parametrize(
    ("key", "place", "known"),
    [
        ("metastor", "/w", "metastore, lock.*, local-cache.*;"),
        ("kit.password", "/w", "metastore, lock.*, local-cache.*;"),
        ("kitt.password", "kit://me:secret@lake/w", "metastore, lock.*, kit.*, local-cache.*;"),
    ],
)
def test_an_option_that_nobody_takes_is_refused(
    store_options: dict[str, str], key: str, place: str, known: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"option {key}: neither.*takes it; they take") as caught:
        Catalog(place, options=(store_options if place.startswith("kit") else {}) | {key: PASSWORD})
    assert f"{known} leave it out" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.option == key


def test_an_option_of_the_store_is_refused_where_the_env_does_not_have_it(store_options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="kit.folder is one of the store, which env= reaches without it"):
        Catalog("kit://lake/w", options=store_options, env=local_env())


def test_a_variable_that_is_missing_is_named_by_who_needs_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=f"lock.password is taken from the environment variable {VARIABLE}"):
        Catalog(tmp_path, options=LOCK_OPTION)


def _found_there(pickled: list[bytes]) -> list[Any]:
    """In a new process: the claims of each table, what it is reached with, and its rows."""
    registry.METASTORES = METASTORES  # type: ignore[misc]
    stores = [pickle.loads(each) for each in pickled]
    return [
        (type(store.claims), dict(store.env.settings.catalog), Table(store).scan().to_arrow()["id"].to_pylist())
        for store in stores
    ]


@pytest.mark.dear("a new process")
def test_options_of_catalog_and_store_reach_every_process(store_options: dict[str, str]) -> None:
    """A folder, a folder with an option of its own, another catalog: each divides its options with the store."""
    kinds = [{}, LOCK_OPTION, {"metastore": "locked", **LOCK_OPTION}]
    tables = [table_of(f"kit://lake/w{n}", options | store_options) for n, options in enumerate(kinds)]
    for number, table in enumerate(tables):
        with table.writer("test") as writer:
            writer.write([{"id": number}])
            writer.commit()
    pickled = [pickle.dumps(table.store) for table in tables]
    names = [{}, *({"warehouse": f"kit://lake/w{n}"} for n in (1, 2))]
    settings = [kind | store_options | name for kind, name in zip(kinds, names, strict=True)]
    assert [dict(table.handle.settings.catalog) for table in tables] == settings
    claims = [FileClaims, LockedClaims, LockedClaims]
    assert in_fresh_process(_found_there, pickled) == list(zip(claims, settings, [[0], [1], [2]], strict=True))
    for text in (*map(repr, (table.handle for table in tables)), *map(str, pickled)):
        assert PASSWORD not in text
        assert f"env:{VARIABLE}" in text


@pytest.mark.parametrize("key", ["kit.password", "lock.password"])
def test_a_secret_that_was_given_in_full_stays_here_and_is_not_shown(store_options: dict[str, str], key: str) -> None:
    table = table_of("kit://lake/w", store_options | LOCK_OPTION | {key: PASSWORD})
    assert PASSWORD not in repr(table.handle)
    with pytest.raises(InvalidRequestError, match=f"option {key} holds a secret") as caught:
        pickle.dumps(table)
    assert PASSWORD not in str(caught.value)


def test_a_table_that_travels_names_its_catalog_and_is_claimed_there(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"metastore": "keyless"})
    assert dict(table.handle.settings.catalog) == {"metastore": "keyless", "warehouse": str(tmp_path)}
    there = pickle.loads(pickle.dumps(table.store))
    assert isinstance(there.claims, LockedClaims)
    assert isinstance(there.with_options({"write-only": "true"}).claims, LockedClaims)
    Catalog(tmp_path).rename_table("shop.a.b", "shop.other")
    with pytest.raises(NotFoundError, match="dropped after this was planned"):
        Table.of(table.handle)


def test_a_table_of_a_folder_says_where_it_is_and_no_more(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"metastore": "filesystem"})
    assert table.handle.settings.catalog == ()
    assert isinstance(pickle.loads(pickle.dumps(table.store)).claims, FileClaims)


def test_claims_that_other_processes_cannot_make_stay_here(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"metastore": "keyless"}, local_env())
    message = r"shop\.a\.b cannot be sent to another process.*LockedClaims.*open it with Catalog\(warehouse, options="
    with pytest.raises(InvalidRequestError, match=message):
        pickle.dumps(table.store)
