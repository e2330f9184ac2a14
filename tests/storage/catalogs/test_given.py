"""Options of a catalog from its caller and from the environment: which counts, what is refused, what travels."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.catalog import Catalog, taken_options
from freshet.storage.catalogs import registry
from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.catalogs.given import CATALOG_OPTIONS_VARIABLE, given_catalog
from freshet.storage.catalogs.registry import CatalogKind, metastore_name
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table
from tests.kit.kit_store import PASSWORD, VARIABLE, in_fresh_process, kit_store
from tests.storage.catalogs.test_registry import METASTORES

SHAPE: dict[str, Any] = {"schema": {"id": "BIGINT"}, "primary_keys": ["id"], "options": {"bucket": 1}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of the store kit:, secrets by reference."""
    with kit_store(tmp_path / "store") as settings:
        yield dict(settings.catalog)


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the options of the environment."""

    def given(options: object) -> None:
        text = options if isinstance(options, str) else json.dumps(options)
        monkeypatch.setenv(CATALOG_OPTIONS_VARIABLE, text)

    return given


def in_environment(**options: str) -> dict[str, str]:
    return {CATALOG_OPTIONS_VARIABLE: json.dumps({key.replace("_", "."): text for key, text in options.items()})}


def test_the_environment_opens_a_store_and_a_table(store: dict[str, str], variable: Any) -> None:
    variable(store)
    created = Catalog("kit://b/w").create_table("shop.orders", **SHAPE)
    assert Catalog("kit://b/w").list_tables("shop") == ["orders"]
    assert Table.open(created.location).schema == created.schema


def test_the_caller_goes_before_the_environment_key_by_key(store: dict[str, str]) -> None:
    place, options = given_catalog(
        "kit://b/w", None, {"kit.folder": "mine"}, in_environment(kit_folder="other", kit_password="env:P")
    )
    assert (place, options) == ("kit://b/w", {"kit.folder": "mine", "kit.password": "env:P"})


def test_another_name_of_a_key_is_the_same_key() -> None:
    environment = {
        CATALOG_OPTIONS_VARIABLE: json.dumps(
            {"s3a.path.style.access": "true", "fs.s3a.access.key": "env:A", "s3.region": "r"}
        )
    }
    own = {"s3.path-style-access": "false", "s3.access-key": "env:B"}
    assert given_catalog("s3://b/w", None, own, environment)[1] == {**own, "s3.region": "r"}


def test_a_catalog_takes_its_own_of_the_environment(store: dict[str, str], variable: Any, tmp_path: Path) -> None:
    variable(store)
    assert Catalog(tmp_path / "plain").list_databases() == []  # a folder takes none of the store's options
    assert taken_options(str(tmp_path), store) == {}
    assert taken_options("kit://b/w", {**store, "metastore": "jdbc"}) == {**store, "metastore": "jdbc"}


def test_a_caller_who_chooses_the_catalog_gets_no_other_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METASTORES", METASTORES)
    environment = in_environment(metastore="locked", lock_password="env:P")
    assert given_catalog("/w", None, {}, environment)[1] == {"metastore": "locked", "lock.password": "env:P"}
    assert given_catalog("/w", None, {"metastore": "jdbc"}, environment)[1] == {"metastore": "jdbc"}


def test_a_database_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    jdbc = CatalogKind(METASTORES["locked"].open, ("uri", "jdbc.*"))
    monkeypatch.setattr(registry, "METASTORES", {**METASTORES, "jdbc": jdbc})
    environment = in_environment(uri="jdbc:postgresql://lake:hunter2@db/lake", warehouse="/w")
    place, options = given_catalog(None, None, {}, environment)
    assert place == "/w"
    assert options == {"uri": f"env:{CATALOG_OPTIONS_VARIABLE}#uri"}
    assert metastore_name(options) == "jdbc"
    assert given_catalog("jdbc:sqlite:/c.db", None, {}, environment) == ("/w", {"uri": "jdbc:sqlite:/c.db"})
    assert given_catalog("/other", None, {"metastore": "filesystem"}, environment)[1] == {"metastore": "filesystem"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "character 2"),
        ("[]", "it holds a list"),
        ('"s3cret"', "it holds a single value"),
        ('{"kit.password": {"a": "s3cret"}}', "kit.password has an object as its value"),
        ('{"kit.password": null}', "kit.password has null as its value"),
        ('{"kit.pasword": "s3cret"}', "kit.pasword"),
        ('{"s3cret', "character"),
    ],
)
def test_a_malformed_variable_is_refused_by_name(variable: Any, tmp_path: Path, text: str, reason: str) -> None:
    variable(text)
    with pytest.raises(InvalidRequestError, match=CATALOG_OPTIONS_VARIABLE) as refused:
        Catalog(tmp_path)
    assert any(part in str(refused.value) for part in reason.split("|"))
    assert "s3cret" not in str(refused.value)


def test_an_empty_variable_gives_nothing(variable: Any, tmp_path: Path) -> None:
    variable(" ")
    assert Catalog(tmp_path).list_databases() == []


@pytest.mark.dear("a new process")
def test_a_secret_of_the_environment_travels_as_a_reference(store: dict[str, str], variable: Any) -> None:
    variable({**store, "kit.password": PASSWORD})
    table = Catalog("kit://b/w").create_table("shop.orders", **SHAPE)
    sent = pickle.dumps(table)
    assert PASSWORD.encode() not in sent and PASSWORD not in repr(table.handle)
    assert in_fresh_process(_location, table) == table.location  # which has the variable


def test_a_process_without_the_variable_is_refused_by_its_name(
    store: dict[str, str], variable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable({**store, "kit.password": PASSWORD})
    handle = Catalog("kit://b/w").create_table("shop.orders", **SHAPE).handle
    variable({"kit.folder": "x"})
    with pytest.raises(InvalidRequestError, match=f"{CATALOG_OPTIONS_VARIABLE} with kit.password in it"):
        handle.settings.resolved(["kit.*"], {CATALOG_OPTIONS_VARIABLE: "{}"})


def test_with_an_env_the_environment_is_not_looked_at(store: dict[str, str], variable: Any, tmp_path: Path) -> None:
    from_env = Catalog("kit://b/w", options=store)._env
    variable("{")
    assert Catalog("kit://b/w", env=from_env).list_databases() == []


def _location(table: Table) -> str:
    return table.location


class TestByLocation:
    """`Table.open` with options of a catalog."""

    def test_a_store_is_reached_by_its_options(self, store: dict[str, str]) -> None:
        created = Catalog("kit://b/w", options=store).create_table("shop.orders", **SHAPE)
        opened = Table.open(created.location, catalog_options=store)
        write(opened)
        assert opened.scan().to_arrow().num_rows == 1
        assert in_fresh_process(_location, opened) == created.location

    def test_an_option_that_nobody_takes_is_refused(self, tmp_path: Path) -> None:
        created = Catalog(tmp_path).create_table("shop.orders", **SHAPE)
        with pytest.raises(InvalidRequestError, match=r"option s3\.endpoint"):
            Table.open(created.location, catalog_options={"s3.endpoint": "http://x"})

    def test_a_table_is_written_with_the_lock_of_its_catalog(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry, "METASTORES", METASTORES)
        monkeypatch.setenv(VARIABLE, PASSWORD)
        options = {"metastore": "locked", "lock.password": f"env:{VARIABLE}"}
        created = Catalog(tmp_path, options=options).create_table("shop.orders", **SHAPE)
        opened = Table.open(created.location, catalog_options=options)
        assert opened.name == "shop.orders"
        assert type(opened.store.claims) is type(created.store.claims)
        assert opened.store.handle == created.store.handle
        write(opened)

    @pytest.mark.parametrize("by_environment", [False, True])
    def test_a_table_that_the_catalog_does_not_know_is_read_and_not_written(
        self, tmp_path: Path, variable: Any, by_environment: bool
    ) -> None:
        write(plain := Catalog(tmp_path).create_table("shop.orders", **SHAPE))
        options = {"uri": f"jdbc:sqlite:{tmp_path}/c.db"}
        if by_environment:
            variable(options)
        opened = Table.open(plain.location, catalog_options=None if by_environment else options)
        assert opened.scan().to_arrow().num_rows == 1
        with pytest.raises(InvalidRequestError, match="was opened by its location.*around its lock"):
            write(opened)
        assert [each.id for each in plain.snapshots()] == [1]
        with pytest.raises(InvalidRequestError, match="cannot be sent"):
            pickle.dumps(opened)

    def test_a_table_of_a_database_is_written_with_its_lock(self, tmp_path: Path, variable: Any) -> None:
        options = {"uri": f"jdbc:sqlite:{tmp_path}/c.db", "lock.enabled": "true"}
        created = Catalog(tmp_path / "w", options=options).create_table("shop.orders", **SHAPE)
        other = Catalog(tmp_path / "other").create_table("shop.orders", **SHAPE)
        variable({**options, "warehouse": str(tmp_path / "w")})
        opened = Table.open(created.location)
        write(opened)
        assert isinstance(opened.store.claims, type(created.store.claims))
        assert not isinstance(opened.store.claims, FileClaims)
        with pytest.raises(InvalidRequestError, match="around its lock"):
            write(Table.open(other.location))

    def test_either_an_env_or_options(self, tmp_path: Path) -> None:
        env = Catalog(tmp_path)._env
        with pytest.raises(InvalidRequestError, match="not both"):
            Table.open(tmp_path, env=env, catalog_options={"metastore": "filesystem"})


def write(table: Table) -> None:
    with table.writer("loader") as writer:
        writer.write([{"id": 1}])
        writer.commit()
