"""Which catalog there is: by its option, and by the handle of a table that travels."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.catalogs import registry
from freshet.storage.catalogs.claims import FileClaims, LockedClaims
from freshet.storage.catalogs.filesystem import FilesystemMetastore
from freshet.storage.catalogs.metastore import FoundTable, TableName
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.table import Table

LOCK = threading.Lock()


class LockedFolder(FilesystemMetastore):
    """A catalog that other processes can open, and whose ids are claimed with a lock."""

    def find_table(self, name: TableName) -> FoundTable | None:
        found = super().find_table(name)
        return found and replace(found, claims=LockedClaims(found.claims, lambda: LOCK))


@pytest.fixture(autouse=True)
def with_a_locked_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = {"locked": lambda env, warehouse, options: LockedFolder(env, warehouse)}
    monkeypatch.setattr(registry, "METASTORES", {**registry.METASTORES, **locked})


def table_of(warehouse: object, metastore: str) -> Table:
    catalog = Catalog(str(warehouse), options={"metastore": metastore})
    return catalog.create_table("shop.a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1})


def test_a_catalog_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"metastore=hive.*filesystem, memory"):
        Catalog(tmp_path, options={"metastore": "hive"})
    with pytest.raises(InvalidRequestError, match="metastor:.*leave it out"):
        Catalog(tmp_path, options={"metastor": "memory"})


def test_a_table_that_travels_names_its_catalog_and_is_claimed_there(tmp_path: Path) -> None:
    table = table_of(tmp_path, "locked")
    assert dict(table.handle.settings.catalog) == {"metastore": "locked", "warehouse": str(tmp_path)}
    there = pickle.loads(pickle.dumps(table.store))
    assert isinstance(there.claims, LockedClaims)
    assert isinstance(there.with_options({"write-only": "true"}).claims, LockedClaims)
    Catalog(tmp_path).rename_table("shop.a.b", "shop.other")
    with pytest.raises(NotFoundError, match="dropped after this was planned"):
        Table.of(table.handle)


def test_a_table_of_a_folder_says_where_it_is_and_no_more(tmp_path: Path) -> None:
    table = table_of(tmp_path, "filesystem")
    assert table.handle.settings.catalog == ()
    assert isinstance(pickle.loads(pickle.dumps(table.store)).claims, FileClaims)


def test_a_table_of_a_catalog_in_memory_stays_in_its_process(tmp_path: Path) -> None:
    table = table_of(tmp_path, "memory")
    with pytest.raises(InvalidRequestError, match=r"shop\.a\.b cannot be sent to another process.*LockedClaims"):
        pickle.dumps(table.store)
