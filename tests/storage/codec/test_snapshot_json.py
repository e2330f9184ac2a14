"""Snapshot and schema files and commit messages as JSON."""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.metadata_json import decode_schema, decode_snapshot, encode_schema, encode_snapshot
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.commit_message import (
    COMMIT_MESSAGE_VERSION,
    CommitMessage,
    decode_commit_messages,
    encode_commit_messages,
)
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.table_log import LogIncrement
from tests.kit.hypothesis_profile import examples
from tests.storage.codec.test_manifest_avro import files

# FORMAT.md §3.1, the smallest files that every reader takes.
SMALLEST_SNAPSHOT = b"""{"version":3,"id":1,"schemaId":0,
 "baseManifestList":"manifest-list-u-0","baseManifestListSize":970,
 "deltaManifestList":"manifest-list-u-1","deltaManifestListSize":1034,
 "commitUser":"me","commitIdentifier":1,"commitKind":"APPEND",
 "timeMillis":1700000000000,"totalRecordCount":3,"deltaRecordCount":3}"""
SMALLEST_SCHEMA = b"""{"version":3,"id":0,"fields":[{"id":0,"name":"k","type":"INT NOT NULL"},
 {"id":1,"name":"v","type":"STRING"}],"highestFieldId":1,"partitionKeys":[],"primaryKeys":["k"],
 "options":{"bucket":"1"},"timeMillis":1700000000000}"""

SMALL = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="manifest-list-u-0",
    base_manifest_list_size=970,
    delta_manifest_list="manifest-list-u-1",
    delta_manifest_list_size=1034,
    commit_user="me",
    commit_identifier=1,
    commit_kind=CommitKind.APPEND,
    time_ms=1700000000000,
    total_record_count=3,
    delta_record_count=3,
    next_row_id=None,
)
FULL = dataclasses.replace(
    SMALL,
    changelog_manifest_list="manifest-list-u-2",
    changelog_manifest_list_size=99,
    changelog_record_count=5,
    index_manifest="index-manifest-u-0",
    watermark=-9223372036854775808,
    statistics="stat-u-0",
    properties=MappingProxyType({"a": "b"}),
    next_row_id=0,
    operation="WRITE",
    uuid="7d0b",
    commit_kind=CommitKind.COMPACT,
)


def test_the_smallest_snapshot() -> None:
    assert decode_snapshot(SMALLEST_SNAPSHOT, "p") == SMALL
    assert json.loads(encode_snapshot(SMALL)) == json.loads(SMALLEST_SNAPSHOT)


def test_a_full_snapshot_has_the_keys_of_the_format() -> None:
    assert decode_snapshot(encode_snapshot(FULL), "p") == FULL
    assert list(json.loads(encode_snapshot(FULL))) == [
        "version",
        "uuid",
        "id",
        "schemaId",
        "baseManifestList",
        "baseManifestListSize",
        "deltaManifestList",
        "deltaManifestListSize",
        "changelogManifestList",
        "changelogManifestListSize",
        "indexManifest",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "timeMillis",
        "totalRecordCount",
        "deltaRecordCount",
        "changelogRecordCount",
        "watermark",
        "statistics",
        "properties",
        "nextRowId",
        "operation",
    ]


def test_a_new_snapshot_says_that_no_row_ids_are_used() -> None:
    assert json.loads(encode_snapshot(dataclasses.replace(SMALL, next_row_id=0)))["nextRowId"] == 0


def test_keys_of_other_versions_and_nulls_are_read_over() -> None:
    content = json.loads(SMALLEST_SNAPSHOT)
    content |= {
        "logOffsets": {},
        "changelogManifestList": None,
        "changelogRecordCount": None,
        "writerVersion": "2.1",
        "tagCreateTime": [2026, 1, 2, 3, 4, 5, 6],
        "tagTimeRetained": 86400.000000000,
    }
    assert decode_snapshot(json.dumps(content).encode(), "p") == SMALL


def test_what_old_snapshots_may_lack() -> None:
    content = {"id": 4, "baseManifestList": "b", "deltaManifestList": "d"}
    snapshot = decode_snapshot(json.dumps(content).encode(), "p")
    assert (snapshot.id, snapshot.base_manifest_list_size, snapshot.commit_kind) == (4, None, CommitKind.APPEND)


def test_a_newer_snapshot_version_is_refused_with_file_and_remedy() -> None:
    content = json.loads(SMALLEST_SNAPSHOT) | {"version": 4}
    with pytest.raises(UnsupportedFeatureError, match=r"t/snapshot/snapshot-1 has snapshot version 4.*upgrade"):
        decode_snapshot(json.dumps(content).encode(), "t/snapshot/snapshot-1")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        SMALLEST_SNAPSHOT[:-20],
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"id": 1}',
        b'{"id": "x", "baseManifestList": "b", "deltaManifestList": "d"}',
        b'{"id": 1, "baseManifestList": null, "deltaManifestList": "d"}',
        b'{"id": 1, "baseManifestList": "b", "deltaManifestList": "d", "commitKind": "MERGE?"}',
    ],
)
def test_a_broken_snapshot_is_corrupt_and_names_its_path(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="snapshot-7") as caught:
        decode_snapshot(data, "snapshot-7")
    assert caught.value.path == "snapshot-7"


def test_the_smallest_schema() -> None:
    schema = decode_schema(SMALLEST_SCHEMA, "p")
    assert (schema.id, schema.column_names, schema.primary_keys) == (0, ("k", "v"), ("k",))
    assert json.loads(encode_schema(schema)) == json.loads(SMALLEST_SCHEMA)
    assert decode_schema(encode_schema(schema), "p") == schema


def test_a_schema_without_comment_has_no_such_key() -> None:
    schema = decode_schema(SMALLEST_SCHEMA, "p")
    assert "comment" not in json.loads(encode_schema(schema))
    commented = dataclasses.replace(schema, comment="of orders")
    assert json.loads(encode_schema(commented))["comment"] == "of orders"
    assert decode_schema(encode_schema(commented), "p").comment == "of orders"


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (None, {"bucket": "1", "file.format": "orc"}),
        (1, {"bucket": "1", "file.format": "orc"}),
        (2, {"file.format": "orc"}),
        (3, {}),
    ],
)
def test_defaults_of_old_schema_versions_become_options(version: int | None, options: dict[str, str]) -> None:
    content = json.loads(SMALLEST_SCHEMA) | {"options": {}, "version": version}
    if version is None:
        del content["version"]
    assert decode_schema(json.dumps(content).encode(), "p").options == options


def test_schemas_that_cannot_be_read() -> None:
    content = json.loads(SMALLEST_SCHEMA)
    for key in ("id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options"):
        with pytest.raises(CorruptDataError, match="schema-3"):
            decode_schema(json.dumps({k: v for k, v in content.items() if k != key}).encode(), "schema-3")
    for data in (b"", b"[]", SMALLEST_SCHEMA[:50]):
        with pytest.raises(CorruptDataError, match="schema-3"):
            decode_schema(data, "schema-3")
    broken = content | {"fields": [{"id": 0, "name": "k", "type": "INTEGRE"}]}
    with pytest.raises(CorruptDataError, match="INTEGRE"):
        decode_schema(json.dumps(broken).encode(), "schema-3")
    variant = content | {"fields": [{"id": 0, "name": "k", "type": "VARIANT"}]}
    with pytest.raises(UnsupportedFeatureError, match=r"schema-3.*VARIANT"):
        decode_schema(json.dumps(variant).encode(), "schema-3")
    with pytest.raises(UnsupportedFeatureError, match="version 4"):
        decode_schema(json.dumps(content | {"version": 4}).encode(), "schema-3")


def test_options_are_texts_whatever_the_file_has() -> None:
    content = json.loads(SMALLEST_SCHEMA) | {"options": {"bucket": 4}}
    assert decode_schema(json.dumps(content).encode(), "p").options == {"bucket": "4"}


def test_a_schema_is_a_value() -> None:
    assert isinstance(decode_schema(SMALLEST_SCHEMA, "p"), TableSchema)
    assert decode_schema(SMALLEST_SCHEMA, "p") == decode_schema(SMALLEST_SCHEMA, "q")


file_lists = st.lists(files, max_size=2).map(tuple)
messages = st.builds(
    CommitMessage,
    partition=st.binary(max_size=9),
    bucket=st.integers(0, 9),
    total_buckets=st.integers(-1, 9),
    new_files=file_lists,
    deleted_files=file_lists,
    changelog_files=file_lists,
    compact_before=file_lists,
    compact_after=file_lists,
    compact_changelog_files=file_lists,
    log=st.none() | st.builds(LogIncrement, *[st.integers(0, 2**60)] * 4, st.text()),
    compact_log=st.none() | st.builds(LogIncrement, *[st.integers(0, 2**60)] * 4, st.text()),
    version=st.just(COMMIT_MESSAGE_VERSION),
)


@given(st.lists(messages, max_size=2))
@settings(deadline=None, max_examples=examples(60))
def test_commit_messages_read_back(given_messages: list[CommitMessage]) -> None:
    assert decode_commit_messages(encode_commit_messages(given_messages)) == given_messages


def test_commit_messages_of_another_release_are_refused() -> None:
    current = b'"version":%d' % COMMIT_MESSAGE_VERSION
    data = encode_commit_messages([CommitMessage(b"", 0, 1)]).replace(current, b'"version":1')
    with pytest.raises(InvalidRequestError, match="same release"):
        decode_commit_messages(data)
    for broken in (b"", b"{}x", b"[{%s}]" % current, b"[1]"):
        with pytest.raises(InvalidRequestError, match="commit message"):
            decode_commit_messages(broken)
