"""URIs and options of catalogs in a database: what they lead to, what is refused, and that no text shows a password."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from freshet import Catalog, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.catalogs.jdbc_options import parse_options, parse_uri

DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "60000", "application_name": "freshet"}
HERE = {"host": "localhost", "port": "5432", **DEFAULTS}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("jdbc:postgresql:lake", HERE | {"dbname": "lake"}),
        ("jdbc:postgresql://db/", HERE | {"host": "db"}),
        ("jdbc:postgresql://db:6000/my%20lake", HERE | {"host": "db", "port": "6000", "dbname": "my lake"}),
        ("jdbc:postgresql://a:1,b/l", HERE | {"host": "a,b", "port": "1,5432", "dbname": "l"}),
        ("jdbc:postgresql://[::1]:7/l", HERE | {"host": "::1", "port": "7", "dbname": "l"}),
        (
            "jdbc:postgresql://db/l?user=me&sslmode=require&ApplicationName=app&reWriteBatchedInserts=true",
            HERE | {"host": "db", "dbname": "l", "user": "me", "sslmode": "require", "application_name": "app"},
        ),
        (
            "jdbc:postgresql://db/l?ssl=true&targetServerType=primary&currentSchema=lake&connectTimeout=3",
            HERE
            | {"host": "db", "dbname": "l", "sslmode": "verify-full", "target_session_attrs": "primary"}
            | {"options": "-csearch_path=lake", "connect_timeout": "3"},
        ),
        ("jdbc:sqlite:/data/c.db", {"path": "/data/c.db", "busy_timeout": "30000"}),
        ("jdbc:sqlite:file:/data/c.db?busy_timeout=5&journal_mode=WAL", {"path": "/data/c.db", "busy_timeout": "5"}),
    ],
)
def test_a_uri_leads_where_the_jvms_driver_goes(uri: str, expected: dict[str, str]) -> None:
    assert dict(parse_uri(uri, {}).parameters) == expected


def test_parameters_of_the_uri_win_over_those_of_options() -> None:
    address = parse_uri(
        "jdbc:postgresql://db/l?user=me", {"user": "you", "password": "secret", "prepareThreshold": "1"}
    )
    assert dict(address.parameters) == HERE | {"host": "db", "dbname": "l", "user": "me", "password": "secret"}
    assert "secret" not in repr(address)
    assert "secret" not in repr(parse_options({"uri": "jdbc:postgresql://db/l", "jdbc.password": "secret"}, "/w"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("jdbc:mysql://db/lake", r"in SQLite \(jdbc:sqlite:/path\) or PostgreSQL.*not in mysql"),
        ("jdbc:oracle:thin:me/hunter2@db", r"not in oracle"),
        ("jdbc:sqlite:file:catalog.db", "absolute path"),
        ("jdbc:sqlite::memory:", "absolute path"),
        ("jdbc:postgresql://me:hunter2@db/lake", r"jdbc\.user and jdbc\.password"),
        ("jdbc:postgresql://db/lake?frobnicate=1&password=hunter2", "parameter frobnicate.*Known are"),
        ("jdbc:postgresql://db/lake?password=a&hunter2", "has no value; write & .* as %26"),
        ("jdbc:sqlite:/data/c.db?password=a;hunter2", "has no value; .*jdbc.password"),
        ("jdbc:postgresql://db/lake?targetServerType=best", "targetServerType=best: expected one of any, primary"),
    ],
)
def test_a_uri_that_cannot_be_used_is_refused(uri: str, message: str) -> None:
    with pytest.raises((InvalidRequestError, UnsupportedFeatureError), match=message) as caught:
        Catalog(uri, warehouse="/w")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lock.enabled": "maybe"}, "option lock.enabled=maybe: expected true or false"),
        ({"lock.enabled": "true", "lock-acquire-timeout": "10 ms"}, "option lock-acquire-timeout=10 ms.*1 s"),
        ({"lock.enabled": "true", "lock-check-max-sleep": "soon"}, "option lock-check-max-sleep=soon.*a duration"),
        ({"client-pool-size": "0"}, "option client-pool-size=0: expected a number from 1"),
        ({"commit.coordination": "jdbc-lock"}, "this catalog has no lock"),
        ({"jdbc.frobnicate": "1"}, r"parameter frobnicate.*jdbc\.\*"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Catalog("jdbc:sqlite:/c.db", warehouse="/w", options=options)


@pytest.mark.parametrize(
    ("warehouse", "given", "is_locked"),
    [
        ("/w", None, False),
        ("memory:/w", None, False),
        ("s3://bucket/w", None, True),
        ("gs://bucket/w", None, True),
        ("/w", "true", True),
        ("s3://bucket/w", "false", False),
    ],
)
def test_tables_are_locked_where_their_warehouse_is_in_an_object_store(
    warehouse: str, given: str | None, is_locked: bool
) -> None:
    options = {"uri": "jdbc:sqlite:/c.db"} | ({} if given is None else {"lock.enabled": given})
    parsed = parse_options(options, warehouse)
    assert (parsed.lock is not None) is is_locked
    assert parsed.rules.coordination == ("jdbc-lock" if is_locked else None)


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("freshet.storage.catalogs.jdbc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(InvalidRequestError, match=r"needs SQLAlchemy and psycopg.*pip install '\.\[jdbc\]'"):
        Catalog(f"jdbc:sqlite:{tmp_path}/c.db", warehouse=tmp_path)


def test_a_relative_path_is_taken_against_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = Catalog("jdbc:sqlite:catalog.db?busy_timeout=100", warehouse="w")
    catalog.create_database("shop")
    assert (tmp_path / "catalog.db").exists()
    monkeypatch.chdir("/")
    assert catalog.list_databases() == ["shop"]


def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{tmp_path}/nowhere/c.db refused: unable to open database file"):
        Catalog(f"jdbc:sqlite:{tmp_path}/nowhere/c.db", warehouse=tmp_path).list_databases()
    (tmp_path / "text").write_text("this is no database " * 100)
    with pytest.raises(InvalidRequestError, match="refused: file is not a database"):
        Catalog(f"jdbc:sqlite:{tmp_path}/text", warehouse=tmp_path).list_databases()


def test_who_waits_for_a_lock_waits_for_a_busy_file_no_longer() -> None:
    options = {"uri": "jdbc:sqlite:/data/c.db", "lock.enabled": "true"}
    for timeout, expected in (("6 s", "6000"), ("8 min", "30000")):
        address = parse_options({**options, "lock-acquire-timeout": timeout}, "/w").address
        assert dict(address.parameters)["busy_timeout"] == expected
