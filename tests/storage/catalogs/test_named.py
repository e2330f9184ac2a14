"""Places and names of catalogs: what a word means, what a file and variables say of it, what is refused."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.catalog import Catalog, absolute_place, known_catalogs, warehouse_location
from freshet.storage.catalogs.given import given_catalog, is_word
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.catalogs_file import CATALOG_PREFIX, CATALOGS_FILE_VARIABLE
from freshet.storage.table import Table
from tests.kit.kit_store import PASSWORD, in_fresh_process, kit_store

LAKE = {"warehouse": "kit://b/lake"}
SHAPE: dict[str, Any] = {"schema": {"id": "BIGINT"}, "primary_keys": ["id"], "options": {"bucket": 1}}

WriteFile = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder is the current one; the user's own catalogs are those of `file`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.delenv(CATALOGS_FILE_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def file(here: Path) -> WriteFile:
    def write(catalogs: object, mode: int = 0o600) -> Path:
        path = here / ".config" / "freshet" / "catalogs.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(catalogs if isinstance(catalogs, str) else json.dumps(catalogs))  # JSON is YAML
        path.chmod(mode)
        return path

    return write


@pytest.fixture
def store(here: Path) -> Iterator[dict[str, str]]:
    with kit_store(here / "store") as settings:
        yield dict(settings.catalog)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("lake", True),
        ("my-lake.2", True),
        ("s3://b/lake", False),
        ("jdbc:sqlite:x.db", False),
        ("data/lake", False),
        ("/lake", False),
        ("./lake", False),
        ("..", False),
        ("~", False),
        ("", False),
        (Path("lake"), False),
    ],
)
def test_what_a_word_is(place: object, expected: bool) -> None:
    assert is_word(place) is expected


def test_a_word_is_a_folder_where_no_catalog_has_the_name(here: Path) -> None:
    Catalog("lake").create_table("shop.orders", **SHAPE)
    assert (here / "lake" / "shop.db" / "orders").is_dir()
    assert Catalog("lake").warehouse == str(here / "lake")


def test_a_name_opens_its_catalog(store: dict[str, str], file: WriteFile) -> None:
    file({"lake": {**LAKE, **store}})
    Catalog("lake").create_table("shop.orders", **SHAPE)
    assert Catalog("kit://b/lake", options=store).list_tables("shop") == ["orders"]
    assert (absolute_place("lake"), absolute_place("pond")) == ("lake", os.path.abspath("pond"))
    assert warehouse_location("lake", {}) == "kit://b/lake"


def test_a_catalog_and_a_folder_of_one_name_are_refused(store: dict[str, str], file: WriteFile, here: Path) -> None:
    path = file({"lake": {**LAKE, **store}})
    (here / "lake").mkdir()
    with pytest.raises(InvalidRequestError, match=r"write \./lake for the folder") as refused:
        Catalog("lake")
    assert all(part in str(refused.value) for part in ("kit://b/lake", str(path), str(here / "lake")))
    for folder in ("./lake", str(here / "lake"), Path("lake")):
        assert Catalog(folder).warehouse == str(here / "lake")


def test_a_variable_goes_before_the_file_and_the_caller_before_both(
    store: dict[str, str], file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file({"my-lake": {**LAKE, "kit.folder": "of-file", "kit.password": "env:FILE"}})
    monkeypatch.setenv(f"{CATALOG_PREFIX}MY_LAKE__KIT__FOLDER", "of-variable")
    assert given_catalog("my-lake", None, {}, os.environ) == (
        "kit://b/lake",
        {"kit.folder": "of-variable", "kit.password": "env:FILE"},
    )
    assert given_catalog("my-lake", None, {"kit.password": "env:MINE"}, os.environ)[1]["kit.password"] == "env:MINE"
    assert given_catalog("my-lake", "/elsewhere", {"kit.folder": "x"}, os.environ)[0] == "/elsewhere"


def test_a_name_goes_before_options_for_all_catalogs(
    store: dict[str, str], file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file({"lake": {**LAKE, "kit.folder": "of-file"}})
    monkeypatch.setenv("FRESHET_CATALOG_OPTIONS", json.dumps({"kit.folder": "of-all", "kit.password": "env:ALL"}))
    assert given_catalog("lake", None, {}, os.environ)[1] == {"kit.folder": "of-file", "kit.password": "env:ALL"}


@pytest.mark.dear("a new process")
def test_variables_alone_make_a_catalog(store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for key, text in {
        "WAREHOUSE": "kit://b/lake",
        "KIT__FOLDER": store["kit.folder"],
        "KIT__PASSWORD": PASSWORD,
    }.items():
        monkeypatch.setenv(f"{CATALOG_PREFIX}LAKE__{key}", text)
    table = Catalog("lake").create_table("shop.orders", **SHAPE)
    assert PASSWORD.encode() not in pickle.dumps(table)
    assert in_fresh_process(_location, table) == table.location
    assert [(each.name, each.place, each.shown["kit.password"], each.source) for each in known_catalogs()] == [
        ("lake", "kit://b/lake", "***", "the environment")
    ]


@pytest.mark.dear("a new process")
def test_a_secret_of_the_file_travels_as_a_reference(store: dict[str, str], file: WriteFile) -> None:
    path = file({"lake": {**LAKE, **store, "kit.password": PASSWORD}})
    table = Catalog("lake").create_table("shop.orders", **SHAPE)
    assert PASSWORD.encode() not in pickle.dumps(table)
    assert PASSWORD not in f"{table.handle} {known_catalogs()}"
    assert in_fresh_process(_location, table) == table.location
    path.unlink()
    with pytest.raises(InvalidRequestError, match=r"the catalog lake with kit\.password in it"):
        table.handle.settings.resolved(["kit.*"], os.environ)


def test_a_database_is_a_place_of_a_name(file: WriteFile) -> None:
    file({"lake": {"uri": "jdbc:postgresql://lake:hunter2@db/lake", "warehouse": "s3://b/lake", "catalog-key": "k"}})
    place, options = given_catalog("lake", None, {}, os.environ)
    assert (place, options) == ("s3://b/lake", {"uri": "catalogs:lake#uri", "catalog-key": "k"})
    assert "hunter2" not in str(known_catalogs())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lake: [s3cret", "is not YAML, line 1"),
        ("- s3cret", "line 1: expected names of catalogs"),
        ("lake: s3cret", "line 1: expected options of the catalog lake"),
        ("lake:\n  warehouse: [s3cret]", "line 2: lake.warehouse is one text"),
        ("lake:\n  uri: s3cret\n  uri: b", "line 3: uri is given twice"),
        ("lake: {}\nlake: {}", "line 2: lake is given twice"),
        ("lake: {warehouse: /w, kit.pasword: s3cret}", "no option kit.pasword of a catalog or a store"),
        ("lake: {warehouse: /w, comit.coordination: s3cret}", "did you mean 'commit.coordination'"),
        ("lake: {commit.coordination: single-writer}", "says neither its warehouse nor the uri"),
        ("lake: {warehouse: pond}", "its warehouse is a URI, or a path"),
        ("lake: {uri: 'jdbc:sqlite:/c.db'}", "needs the warehouse"),
    ],
)
def test_a_file_of_another_form_is_refused(file: WriteFile, text: str, reason: str) -> None:
    path = file(text)
    with pytest.raises(InvalidRequestError) as refused:
        Catalog("lake")
    assert reason in str(refused.value)
    assert str(path) in str(refused.value) or "needs the warehouse" in reason
    assert "s3cret" not in str(refused.value)


def test_a_wrong_file_does_not_keep_places_from_being_opened(file: WriteFile, here: Path) -> None:
    file("- nonsense")
    assert Catalog(here / "w").list_databases() == []
    assert Catalog("./w").list_databases() == []


def test_a_wrong_variable_is_refused_by_its_name(file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{CATALOG_PREFIX}LAKE__WAREHOUSE", "/w")
    monkeypatch.setenv(f"{CATALOG_PREFIX}LAKE__S3__ENDPOINTS", "s3cret")
    monkeypatch.setenv(f"{CATALOG_PREFIX}LAKE__METASTOR", "s3cret")
    with pytest.raises(InvalidRequestError, match=f"{CATALOG_PREFIX}LAKE__METASTOR.*no option metastor"):
        Catalog("lake")
    monkeypatch.setenv(f"{CATALOG_PREFIX}LAKE", "s3cret")
    with pytest.raises(InvalidRequestError, match="names no option of a catalog"):
        Catalog("lake")


def test_another_file_by_a_variable(file: WriteFile, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file({"lake": {"warehouse": "/one"}})
    other = here / "other.yaml"
    other.write_text("lake: {warehouse: /two}")
    monkeypatch.setenv(CATALOGS_FILE_VARIABLE, str(other))
    assert Catalog("lake").warehouse == "/two"
    other.unlink()
    with pytest.raises(InvalidRequestError, match=f"is not there, and {CATALOGS_FILE_VARIABLE} names it"):
        Catalog("lake")


def test_the_file_is_below_the_home_folder(here: Path, file: WriteFile) -> None:
    path = file({"lake": {"warehouse": "/w"}})
    home = {"HOME": str(here)}
    assert path == here / ".config" / "freshet" / "catalogs.yaml"
    assert given_catalog("lake", None, {}, home)[0] == "/w"
    assert given_catalog("lake", None, {}, {})[0] == "lake"


@pytest.mark.parametrize(
    ("secret", "mode", "warns"), [(PASSWORD, 0o644, True), (PASSWORD, 0o600, False), ("env:P", 0o644, False)]
)
def test_a_file_with_secrets_that_others_can_read_gives_a_warning(
    store: dict[str, str], file: WriteFile, caplog: pytest.LogCaptureFixture, secret: str, mode: int, warns: bool
) -> None:
    path = file({"lake": {**LAKE, **store, "kit.password": secret}}, mode)
    given_catalog("lake", None, {}, os.environ)
    assert [f"chmod 600 {path}" in each.getMessage() for each in caplog.records] == ([True] if warns else [])
    assert PASSWORD not in caplog.text


def _location(table: Table) -> str:
    return table.location
