"""Schema files: numbered, exclusive, immutable."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.codec.metadata_json import encode_schema
from freshet.storage.exceptions import CorruptDataError, NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import TablePaths

FIRST = TableSchema(0, (DataField(0, "k", parse_data_type("INT NOT NULL")),), 0, (), ("k",), {"bucket": "1"})


def store_at(location: Path) -> SchemaStore:
    return SchemaStore(local_env(), TablePaths(str(location)))


def commit(location: Path, schema: TableSchema) -> bool:
    return FileClaims(local_env().file_io, TablePaths(str(location))).claim_schema(schema)


def test_schemas_follow_each_other(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert store.latest() is None
    assert store.list_ids() == []
    assert commit(tmp_path, FIRST)
    assert commit(tmp_path, dataclasses.replace(FIRST, id=1, comment="second"))
    assert store.list_ids() == [0, 1]
    latest = store_at(tmp_path).latest()
    assert latest is not None
    assert latest.comment == "second"
    assert store_at(tmp_path).schema(0) == FIRST


def test_the_latest_is_the_highest_number_not_the_last_name(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    for schema_id in range(12):
        commit(tmp_path, dataclasses.replace(FIRST, id=schema_id))
    (tmp_path / "schema" / "schema-99.tmp").write_text("{}")
    latest = store.latest()
    assert latest is not None
    assert latest.id == 11


def test_missing_broken_and_misnamed_schemas(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    commit(tmp_path, FIRST)
    with pytest.raises(NotFoundError, match="was dropped or renamed while it was open"):
        store_at(tmp_path / "elsewhere").schema(0)
    with pytest.raises(NotFoundError, match="has no schema 4"):
        store.schema(4)
    (tmp_path / "schema" / "schema-1").write_bytes(encode_schema(FIRST))
    (tmp_path / "schema" / "schema-2").write_bytes(encode_schema(FIRST)[:30])
    with pytest.raises(CorruptDataError, match="holds schema 0"):
        store.schema(1)
    with pytest.raises(CorruptDataError, match="schema-2"):
        store.latest()
