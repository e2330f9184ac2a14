"""Opening a table: its schema, its options, and the tables that are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, UnsupportedFeatureError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import TablePaths

COLUMNS = (
    DataField(0, "p", parse_data_type("DATE NOT NULL")),
    DataField(1, "k", parse_data_type("BIGINT NOT NULL")),
    DataField(2, "v", parse_data_type("STRING")),
)


def created(location: Path, options: dict[str, str], *, keyed: bool = True, **more: str) -> Path:
    schema = TableSchema(0, COLUMNS, 2, ("p",), ("p", "k") if keyed else (), options | more)
    assert FileClaims(local_env().file_io, TablePaths(str(location))).claim_schema(schema)
    return location


def opened(location: Path, options: dict[str, str] | None = None) -> TableStore:
    return open_table_store(local_env(), str(location), options=options)


def test_what_a_store_knows(tmp_path: Path) -> None:
    store = opened(created(tmp_path, {"bucket": "4", "data-file.path-directory": "data", "owner": "me", "x.y": "z"}))
    partition = encode_row([19675], store.partition_types)
    assert store.location == str(tmp_path)
    assert [str(data_type) for data_type in store.partition_types] == ["DATE NOT NULL"]
    assert [str(data_type) for data_type in store.key_types] == ["BIGINT NOT NULL"]
    assert store.bucket_key == ("k",)
    assert [str(data_type) for data_type in store.bucket_key_types] == ["BIGINT NOT NULL"]
    assert store.partition_path(partition) == "p=19675"
    assert store.bucket_folder(partition, 3) == f"{tmp_path}/data/p=19675/bucket-3"
    assert store.data_file(partition, 3, "f.parquet") == f"{tmp_path}/data/p=19675/bucket-3/f.parquet"
    assert store.snapshots.latest() is None
    store.check_writable()


def test_a_file_uri_is_a_location(tmp_path: Path) -> None:
    created(tmp_path, {"bucket": "4"})
    assert open_table_store(local_env(), f"file://{tmp_path}/").location == str(tmp_path)


def test_partition_names_follow_the_options(tmp_path: Path) -> None:
    store = opened(
        created(tmp_path, {"bucket": "4", "partition.legacy-name": "false", "partition.default-name": "none"})
    )
    assert store.partition_path(encode_row([19675], store.partition_types)) == "p=2023-11-14"
    assert store.partition_path(encode_row([None], store.partition_types)) == "p=none"


def test_an_append_table_has_no_bucket_key_unless_it_says_so(tmp_path: Path) -> None:
    assert opened(created(tmp_path / "a", {}, keyed=False)).bucket_key == ()
    assert opened(created(tmp_path / "b", {"bucket": "2", "bucket-key": "v"}, keyed=False)).bucket_key == ("v",)


def test_a_store_at_an_older_schema(tmp_path: Path) -> None:
    created(tmp_path, {"bucket": "4"})
    first = opened(tmp_path).schema
    FileClaims(local_env().file_io, TablePaths(str(tmp_path))).claim_schema(
        dataclasses.replace(first, id=1, comment="later")
    )
    assert opened(tmp_path).schema.id == 1
    assert open_table_store(local_env(), str(tmp_path), schema_id=0).schema.id == 0


def test_dynamic_options_are_on_top_and_checked(tmp_path: Path) -> None:
    created(tmp_path, {"bucket": "4", "write-buffer-size": "1 mb"})
    assert opened(tmp_path, {"write-buffer-size": "2 mb"}).options.write_buffer_size_bytes == 2 * 1024 * 1024
    assert opened(tmp_path).with_options({"write-only": "true"}).options.write_only is True
    both = opened(tmp_path, {"write-buffer-size": "2 mb"}).with_options({"write-only": "true"}).options
    assert (both.write_only, both.write_buffer_size_bytes) == (True, 2 * 1024 * 1024)
    with pytest.raises(InvalidRequestError, match="unknown option 'write-bufer-size'"):
        opened(tmp_path, {"write-bufer-size": "2 mb"})
    for key, value in (("bucket", "8"), ("merge-engine", "first-row"), ("data-file.path-directory", "x")):
        with pytest.raises(InvalidRequestError, match=f"option {key} decides"):
            opened(tmp_path, {key: value})
    assert opened(tmp_path, {"bucket": "4"}).options.bucket == 4


def test_no_table_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"there is no table at {tmp_path}"):
        opened(tmp_path)


def test_tables_that_cannot_be_read_rightly_are_refused_when_opened(tmp_path: Path) -> None:
    created(tmp_path, {"bucket": "4", "file.format": "csv"})
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be read: file.format=csv"):
        opened(tmp_path)


def test_an_old_schema_file_means_orc(tmp_path: Path) -> None:
    schema = TableSchema(0, COLUMNS, 2, ("p",), ("p", "k"), {}, version=2)
    FileClaims(local_env().file_io, TablePaths(str(tmp_path))).claim_schema(schema)
    assert opened(tmp_path).options.format_at_level(0) == "orc"


def test_a_table_with_commit_callbacks_is_read_but_not_written(tmp_path: Path) -> None:
    store = opened(created(tmp_path, {"bucket": "4", "commit.callbacks": "com.example.Hook"}))
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be written: commit.callbacks=com.example.Hook"):
        store.check_writable()
