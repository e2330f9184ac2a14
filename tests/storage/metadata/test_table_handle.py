"""Handles of tables: what they say, as text, and what they refuse."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import ConflictError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.metadata.table_handle import TableHandle, handle_from_json
from freshet.storage.metadata.table_store import open_store
from freshet.storage.table import Table

ON_S3 = EnvSettings.of(
    {
        "metastore": "jdbc",
        "uri": "jdbc:postgresql://db:5432/lake?sslmode=require",
        "catalog-key": "jdbc",
        "jdbc.user": "loader",
        "jdbc.password": "env:LAKE_DB_PASSWORD",
        "warehouse": "s3://bucket/w",
        "s3.endpoint": "https://store:9000",
        "s3.path.style.access": "true",
        "s3.access-key": "env:LAKE_KEY",
        "s3.secret-key": "env:LAKE_SECRET",
        "commit.coordination": "jdbc-lock",
    },
    scratch_root="/fast",
)
HANDLE = TableHandle(
    "s3://bucket/w/shop.db/orders", "shop.orders", 3, 1_700_000_000_000, (("kafka.sasl.password", "s3cr3t"),), ON_S3
)


def test_a_handle_is_one_text_wherever_it_goes() -> None:
    assert handle_from_json(HANDLE.to_json()) == HANDLE
    assert pickle.loads(pickle.dumps(HANDLE)) == HANDLE
    assert hash(pickle.loads(pickle.dumps(HANDLE))) == hash(HANDLE)
    assert HANDLE.to_json() in pickle.dumps(HANDLE)
    assert copy.deepcopy(HANDLE) is copy.copy(HANDLE) is HANDLE
    assert len(HANDLE.to_json()) < 1000
    assert json.loads(HANDLE.to_json())["settings"]["scratch_root"] == "/fast"


def test_what_is_shown_of_it() -> None:
    for text in (repr(HANDLE), str(HANDLE), f"{HANDLE}"):
        assert "s3cr3t" not in text
        for part in ("shop.orders", "s3://bucket/w/shop.db/orders", "schema 3", "kafka.sasl.password", "env:LAKE_KEY"):
            assert part in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.access-key", "AKIA-value"),
        ("s3.secret-key", "value"),
        ("fs.s3a.secret.key", "value"),
        ("s3.session-token", "value"),
        ("azure.account-key", "value"),
        ("jdbc.password", "value"),
        ("token", "value"),
        ("header.Authorization", "Bearer value"),
        ("uri", "jdbc:postgresql://u:value@db/lake"),
        ("uri", "jdbc:postgresql://db/lake?user=u&password=value"),
    ],
)
def test_a_secret_is_neither_shown_nor_sent(key: str, value: str) -> None:
    handle = replace(HANDLE, settings=EnvSettings.of({key: value}))
    assert "value" not in repr(handle)
    assert key in repr(handle)
    for send in (handle.to_json, lambda: pickle.dumps(handle), lambda: pickle.dumps({"carrier": [handle]})):
        with pytest.raises(InvalidRequestError, match=f"option {key} holds a secret.*{key}=env:NAME") as caught:
            send()
        assert "value" not in str(caught.value)
        assert caught.value.option == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("catalog-key", "jdbc"),
        ("lock-key-max-length", "255"),
        ("token.provider", "bear"),
        ("data-token.enabled", "true"),
        ("s3.endpoint", "http://store:9000"),
        ("jdbc.user", "loader"),
        ("aws.profile", "lake"),
        ("s3.secret-key", "env:SECRET"),
    ],
)
def test_what_is_no_secret_is_shown_and_sent(key: str, value: str) -> None:
    handle = replace(HANDLE, settings=EnvSettings.of({key: value}))
    assert value in repr(handle)
    assert handle_from_json(handle.to_json()) == handle


def test_references_are_looked_up_where_the_world_is_made() -> None:
    found = ON_S3.resolved(["jdbc.*", "s3.secret-key"], {"LAKE_DB_PASSWORD": "p", "LAKE_SECRET": "s"})
    assert found == {"jdbc.password": "p", "jdbc.user": "loader", "s3.secret-key": "s"}
    with pytest.raises(InvalidRequestError, match="s3.secret-key is taken from the environment variable LAKE_SECRET"):
        ON_S3.resolved(["s3.*"], {"LAKE_DB_PASSWORD": "p", "LAKE_KEY": "k"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HANDLE.to_json().replace(b'"version":2', b'"version":1'), "has version 1 where 2 is expected"),
        (b"{}", "cannot be read"),
        (b"\xff", "cannot be read"),
        (HANDLE.to_json().replace(b'"schema_id":3', b'"schema_id":"3"'), "cannot be read"),
    ],
)
def test_other_texts_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        handle_from_json(text)


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, env=local_env(str(tmp_path / "scratch")))
    table = catalog.create_table("db.t", schema={"k": "INT"}, options={"bucket": "-1", "write-buffer-size": "8 mb"})
    given = table.with_options({"source.split.target-size": "1 kb", "write-buffer-size": "8 mb"})
    handle = given.handle
    again = Table.of(handle)
    assert again.handle == handle
    assert (again.name, again.schema, again.options.given) == ("db.t", given.schema, given.options.given)
    assert again.engine.dynamic_options == {"source.split.target-size": "1 kb", "write-buffer-size": "8 mb"}
    assert Table.of(handle).store.env is again.store.env is not table.store.env
    assert Path(again.store.env.scratch_folder()).parent == tmp_path / "scratch"


def test_a_table_dropped_or_made_anew_since(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    handle = catalog.create_table("db.t", schema={"k": "INT"}, options={"bucket": "-1"}).handle
    catalog.drop_table("db.t")
    with pytest.raises(NotFoundError, match="was dropped after this was planned") as caught:
        open_store(handle)
    assert caught.value.table == handle.location
    catalog.create_table("db.t", schema={"k": "INT"}, options={"bucket": "-1"})
    with pytest.raises(ConflictError, match="dropped and created again after this was planned"):
        open_store(replace(handle, schema_time_ms=(handle.schema_time_ms or 1) - 1))
