"""Manifest files: schema as the reference writes it, round trips, files of other versions, broken files."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.manifest_avro import (
    FILE_FIELDS,
    MANIFEST_FIELDS,
    MANIFEST_LIST_FIELDS,
    read_index_manifest,
    read_manifest,
    read_manifest_list,
    write_index_manifest,
    write_manifest,
    write_manifest_list,
)
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource, SimpleStats
from freshet.storage.model.manifest import (
    DeletionVectorRange,
    EntryKind,
    IndexEntry,
    IndexFileMeta,
    ManifestEntry,
    ManifestFileMeta,
)

# Made by Apache Paimon 2.0.0 out of its own row types: manifest list, manifest, index manifest.
REFERENCE = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "golden" / "manifest_avro_schemas.jsonl").read_text().splitlines()
]

longs = st.integers(-(2**63), 2**63 - 1)
stats = st.builds(SimpleStats, st.binary(max_size=9), st.binary(max_size=9), st.tuples(st.none() | longs))
file_names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=9).filter(
    lambda name: name not in (".", "..")
)
names = st.lists(st.text(max_size=5), max_size=3).map(tuple)
files = st.builds(
    DataFileMeta,
    file_name=file_names,
    file_size_bytes=longs,
    row_count=longs,
    min_key=st.binary(max_size=9),
    max_key=st.binary(max_size=9),
    key_stats=stats,
    value_stats=stats,
    min_sequence_number=longs,
    max_sequence_number=longs,
    schema_id=longs,
    level=st.integers(0, 9),
    extra_files=st.lists(file_names, max_size=3).map(tuple),
    creation_time_ms=st.none() | st.integers(-10_000_000_000_000, 10_000_000_000_000),
    delete_row_count=st.none() | longs,
    embedded_index=st.none() | st.binary(max_size=9),
    file_source=st.none() | st.sampled_from(FileSource),
    value_stats_cols=st.none() | names,
    external_path=st.none() | st.text(max_size=9),
    first_row_id=st.none() | longs,
    write_cols=st.none() | names,
)
entries = st.builds(
    ManifestEntry, st.sampled_from(EntryKind), st.binary(max_size=9), st.integers(-2, 9), st.integers(-2, 9), files
)
small = st.none() | st.integers(-9, 9)
manifests = st.builds(
    ManifestFileMeta,
    file_name=file_names,
    file_size_bytes=longs,
    num_added_files=longs,
    num_deleted_files=longs,
    partition_stats=stats,
    schema_id=longs,
    min_bucket=small,
    max_bucket=small,
    min_level=small,
    max_level=small,
    min_row_id=st.none() | longs,
    max_row_id=st.none() | longs,
)


def header(data: bytes) -> dict[str, str]:
    reader: Any = fastavro.reader(io.BytesIO(data))
    return dict(reader.metadata)


def record_names(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for branch in schema for name in record_names(branch)]
    if not isinstance(schema, dict):
        return []
    own = [schema["name"]] if schema.get("type") == "record" else []
    parts = [schema.get("items"), schema.get("type"), *(field["type"] for field in schema.get("fields", ()))]
    return own + [name for part in parts for name in record_names(part)]


@pytest.mark.parametrize(
    ("data", "reference"),
    [(write_manifest_list([]), REFERENCE[0]), (write_manifest([]), REFERENCE[1])],
    ids=["list", "manifest"],
)
def test_the_schema_is_the_reference_schema(data: bytes, reference: dict[str, Any]) -> None:
    metadata = header(data)
    # Full names or a namespace once at the top mean the same.
    assert json.loads(metadata["avro.schema"].replace(f"{reference['namespace']}.", "")) == {
        key: value for key, value in reference.items() if key != "namespace"
    }
    assert metadata["avro.schema"].count(f"{reference['namespace']}.record") == len(set(record_names(reference)))
    assert metadata["avro.codec"] == "zstandard"
    assert set(metadata) == {"avro.schema", "avro.codec"}


@given(st.lists(entries, max_size=4))
@settings(deadline=None)
def test_manifests_read_back(given_entries: list[ManifestEntry]) -> None:
    assert read_manifest(write_manifest(given_entries), "m") == given_entries


@given(st.lists(manifests, max_size=4))
@settings(deadline=None)
def test_manifest_lists_read_back(metas: list[ManifestFileMeta]) -> None:
    assert read_manifest_list(write_manifest_list(metas), "l") == metas


ENTRY = ManifestEntry(
    EntryKind.ADD,
    EMPTY_ROW,
    3,
    4,
    DataFileMeta(
        file_name="data-1.parquet",
        file_size_bytes=10,
        row_count=1,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        level=0,
        creation_time_ms=1_700_000_000_123,
        delete_row_count=0,
        file_source=FileSource.COMPACT,
        value_stats_cols=(),
    ),
)


def rewritten(
    file_fields: list[dict[str, Any]], codec: str = "null", record_name: str = "record", version: int = 2
) -> bytes:
    """The manifest of ENTRY with another set of file fields, as other versions and writers have them."""
    reader: Any = fastavro.reader(io.BytesIO(write_manifest([ENTRY])))
    records: list[Any] = list(reader)
    kept = {field["name"] for field in file_fields}
    for record in records:
        record["_VERSION"] = version
        record["_FILE"] = {name: value for name, value in record["_FILE"].items() if name in kept}
    text = json.dumps({"type": "record", "name": record_name, "fields": MANIFEST_FIELDS})
    schema = json.loads(text.replace("record__FILE", f"{record_name}_of_file"))
    schema["fields"][-1]["type"]["fields"] = json.loads(json.dumps(file_fields))
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), records, codec=codec)
    return buffer.getvalue()


@pytest.mark.parametrize("count", [13, 17, 18, 20])
def test_files_with_fewer_fields_are_read(count: int) -> None:
    found = read_manifest(rewritten(FILE_FIELDS[:count]), "m")[0]
    assert found.identity == ENTRY.identity
    assert found.file.creation_time_ms == 1_700_000_000_123
    assert found.file.delete_row_count == (0 if count > 13 else None)
    assert found.file.file_source == (FileSource.COMPACT if count > 15 else None)
    assert found.file.value_stats_cols == (() if count > 16 else None)


def test_unknown_fields_and_other_record_names_are_read() -> None:
    more = [*FILE_FIELDS, {"name": "_WRITE_COLS_SEQUENCES", "type": ["null", {"type": "array", "items": "long"}]}]
    assert read_manifest(rewritten(more, record_name="ManifestEntry"), "m") == [ENTRY]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_every_codec_of_the_format_is_read(codec: str) -> None:
    assert read_manifest(rewritten(FILE_FIELDS, codec), "m") == [ENTRY]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_codecs_that_are_written(codec: str) -> None:
    data = write_manifest([ENTRY], codec)
    assert header(data)["avro.codec"] == codec
    assert read_manifest(data, "m") == [ENTRY]


def test_a_manifest_cut_anywhere_is_corrupt_and_names_its_path() -> None:
    data = write_manifest([ENTRY])
    head = len(write_manifest([]))
    for length in range(len(data)):
        if length == head:
            continue  # a file of no blocks: only the recorded size shows it (see the manifest store)
        with pytest.raises(CorruptDataError, match="table/manifest/m1"):
            read_manifest(data[:length], "table/manifest/m1")


def test_a_manifest_with_flipped_bytes_is_corrupt_or_reads_something() -> None:
    """Avro blocks have no checksum; what must not happen is another kind of error."""
    data = bytearray(write_manifest([ENTRY] * 3))
    for position in range(0, len(data), 3):
        broken = bytes(data[:position]) + bytes([data[position] ^ 0xFF]) + bytes(data[position + 1 :])
        with contextlib.suppress(CorruptDataError, UnsupportedFeatureError):
            assert isinstance(read_manifest(broken, "m"), list)


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"no avro at all", b"PAR1"])
def test_other_files_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_manifest(data, "m")
    with pytest.raises(CorruptDataError):
        read_manifest_list(data, "m")


def test_a_file_of_another_kind_is_corrupt() -> None:
    with pytest.raises(CorruptDataError):
        read_manifest(write_manifest_list([ManifestFileMeta("m", 1, 1, 0, EMPTY_STATS, 0)]), "m")


def test_an_index_manifest_names_its_deletion_vectors() -> None:
    record = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": EMPTY_ROW,
        "_BUCKET": 2,
        "_INDEX_TYPE": "DELETION_VECTORS",
        "_FILE_NAME": "index-1-0",
        "_FILE_SIZE": 33,
        "_ROW_COUNT": 1,
        "_DELETIONS_VECTORS_RANGES": [{"f0": "data-1.parquet", "f1": 1, "f2": 24, "_CARDINALITY": 2}],
    }
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(REFERENCE[2]), [record])
    found = read_index_manifest(buffer.getvalue(), "index-manifest-1")[0]
    assert found == IndexEntry(
        EntryKind.ADD,
        EMPTY_ROW,
        2,
        IndexFileMeta(
            "DELETION_VECTORS", "index-1-0", 33, 1, deletion_vectors=(DeletionVectorRange("data-1.parquet", 1, 24, 2),)
        ),
    )
    assert read_index_manifest(write_index_manifest([found]), "index-manifest-2") == [found]


def test_an_index_of_another_program_is_handed_on_as_it_is() -> None:
    index = {"_ROW_RANGE_START": 0, "_ROW_RANGE_END": 9, "_INDEX_FIELD_ID": 3}
    index |= {"_EXTRA_FIELD_IDS": [1], "_INDEX_META": b"x", "_SOURCE_META": None}
    entry = IndexEntry(EntryKind.ADD, EMPTY_ROW, 0, IndexFileMeta("btree", "index-2-0", 7, 1, global_index=index))
    assert read_index_manifest(write_index_manifest([entry]), "index-manifest-1") == [entry]


def test_nullable_fields_have_null_first() -> None:
    for field in [*MANIFEST_LIST_FIELDS, *FILE_FIELDS]:
        if isinstance(field["type"], list):
            assert field["type"][0] == "null"
            assert field["default"] is None


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"table/manifest/m1 has version 3.*up to 2.*upgrade"):
        read_manifest(rewritten(FILE_FIELDS, version=3), "table/manifest/m1")


def test_a_block_without_records_and_a_name_that_is_a_path_are_corrupt() -> None:
    data = write_manifest([ENTRY])
    head = len(write_manifest([]))
    assert data[head] == 2, "the number of records in the first block, zigzag"
    with pytest.raises(CorruptDataError, match="block without records"):
        read_manifest(data[:head] + b"\0" + data[head + 1 :], "m")
    for name in ("", "../data.parquet", "a\0.parquet"):
        with pytest.raises(CorruptDataError, match="not a file name"):
            read_manifest(write_manifest([replace(ENTRY, file=replace(ENTRY.file, file_name=name))]), "m")
