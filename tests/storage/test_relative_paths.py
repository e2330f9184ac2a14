"""Folders named from the current or the home folder; what is opened keeps its place when the program goes elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import absolute_path
from freshet.storage.table import Table


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; the home folder is `home` in it."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("w", "HERE/w"),
        ("./w/", "HERE/w"),
        ("../w", "PARENT/w"),
        (".", "HERE"),
        ("a b%20c", "HERE/a b%20c"),
        ("x/y:z", "HERE/x/y:z"),
        ("file:w", "HERE/w"),
        ("file:a%20b", "HERE/a b"),
        ("~", "HERE/home"),
        ("~/w", "HERE/home/w"),
        ("file:~/w", "HERE/home/w"),
        ("in/*.json", "HERE/in/*.json"),
        ("/a/../b", "/a/../b"),
        ("/~/w", "/~/w"),
        ("file:///a/b", "file:///a/b"),
        ("file:/a", "file:/a"),
        ("s3://bucket/w", "s3://bucket/w"),
        ("", ""),
        (" ", " "),
    ],
)
def test_what_a_location_means(here: Path, given: str, expected: str) -> None:
    assert absolute_path(given) == expected.replace("HERE", str(here)).replace("PARENT", str(here.parent))


def test_a_home_folder_that_is_not_there(here: Path) -> None:
    with pytest.raises(InvalidRequestError, match="~nobody-of-this-name/w.*no such home folder"):
        absolute_path("~nobody-of-this-name/w")


@pytest.mark.parametrize("given", ["w", "./w", "file:w", Path("w"), "~/../w"])
def test_a_table_stays_where_it_was_made(here: Path, monkeypatch: pytest.MonkeyPatch, given: str | Path) -> None:
    catalog = Catalog(given)
    assert catalog.warehouse == str(here / "w")
    table = catalog.create_table("db.t", schema={"id": "BIGINT"})
    opened = Table.open(Path("w/db.db/t"))
    monkeypatch.chdir(here / "home")
    assert table.location == opened.location == str(here / "w" / "db.db" / "t")
    with opened.writer("loader") as writer:
        writer.write([{"id": 1}])
        writer.commit()
    assert table.scan().count() == catalog.table("db.t").scan().count() == 1
    assert not list((here / "home").iterdir())
