"""Judge of the metadata: rows, keys, buckets, folders, manifests and statistics as Apache Paimon makes them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.codec.binary_row_arrays import distinct_rows, encode_rows, row_hashes
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.codec.metadata_json import decode_schema, decode_snapshot, encode_schema, encode_snapshot
from freshet.storage.codec.stats import decode_stats, encode_stats
from freshet.storage.commit.table_check import check_table
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_file_index import LiveFileIndex
from freshet.storage.metadata.live_files import data_manifests, live_entries, scan_live_files
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ScalarType
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.table import Table
from tests.contract.cases import CASES, EVERY_TYPE, Case, any_value, arrow_rows
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.quick import some_now

pytestmark = pytest.mark.judge

KINDS = list(EVERY_TYPE.values())


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_any_types_are_the_bytes_and_hashes_of_paimon(seed: int, paimon: PaimonJudge) -> None:
    source = random.Random(seed)
    kinds = source.choices(KINDS, k=source.randint(1, 6))
    rows = [[None if source.random() < 0.25 else any_value(source, kind) for kind in kinds] for _ in range(60)]
    types = [parse_sql_type(kind) for kind in kinds]
    columns = [pa.array([row[i] for row in rows], arrow_type(data_type)) for i, data_type in enumerate(types)]
    facts = paimon.binary_rows(kinds, pa.table(columns, names=[f"f{i}" for i in range(len(kinds))]))
    for row, fact in zip(rows, facts, strict=True):
        assert encode_row(row, types) == fact.data, (seed, kinds, row)
        assert encode_row(decode_row(fact.data, types), types) == fact.data
    if all(isinstance(data_type, ScalarType) for data_type in types):
        assert encode_rows(columns, types) == [fact.data for fact in facts]
        assert row_hashes(columns, types).tolist() == [fact.hash_code for fact in facts]


KEYED = [case for case in CASES if case.options.get("bucket", "-1") != "-1"]


def created(case: Case, location: Path, paimon: PaimonJudge) -> PaimonTable:
    return paimon.create_table(
        location,
        dict(case.columns),
        primary_keys=case.primary_keys,
        partition_keys=case.partition_keys,
        options=case.options,
    )


@pytest.mark.parametrize("case", KEYED, ids=lambda case: case.name)
def test_rows_go_where_paimon_puts_them(case: Case, tmp_path: Path, paimon: PaimonJudge) -> None:
    judge = created(case, tmp_path / "t", paimon)
    store = open_table_store(local_env(), str(tmp_path / "t"))
    rows = arrow_rows(case.history(seed=3)[0], case.columns)
    facts = judge.row_keys(rows.drop_columns(["_ROW_KIND"]) if case.primary_keys else rows)
    options = store.options
    columns = [rows.column(name) for name in store.bucket_key]
    buckets = bucket_ids(columns, store.bucket_key_types, options.bucket, options.bucket_function_type)
    assert buckets.tolist() == [fact.bucket for fact in facts]
    keys = store.schema.trimmed_primary_keys
    if keys:
        encoded = encode_rows([rows.column(name) for name in keys], store.key_types)
        assert encoded == [fact.key for fact in facts]
    if case.partition_keys:
        distinct, codes = distinct_rows([rows.column(name) for name in case.partition_keys], store.partition_types)
        assert [distinct[code] for code in codes] == [fact.partition for fact in facts]


@pytest.mark.few(10)
@pytest.mark.parametrize("case", some_now(CASES), ids=lambda case: case.name)
def test_the_metadata_of_a_paimon_table(case: Case, tmp_path: Path, paimon: PaimonJudge) -> None:
    judge = created(case, tmp_path / "t", paimon)
    index: LiveFileIndex | None = None
    compacts = bool(case.primary_keys) and case.options.get("write-only") != "true"
    for number, rows in enumerate(case.history(seed=7)):
        judge.write(arrow_rows(fitting(rows, case), case.columns), compact="full" if number == 2 and compacts else None)
        if number == 2:
            judge.compact_manifests()
        store = open_table_store(local_env(), str(tmp_path / "t"))
        if index is None:
            index = store.live
        check_live_files(store, judge, index)
        check_manifests(store)
        assert check_table(store).damage == []
        check_json(store)


def fitting(rows: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Rows whose partition values fit the name of a folder."""
    return [row for row in rows if all(len(str(row[name])) < 200 for name in case.partition_keys)]


def check_live_files(store: TableStore, judge: PaimonTable, index: LiveFileIndex) -> None:
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    live = live_entries(store.manifests, snapshot)
    shown = {row["file_path"].split("/")[-1]: row for row in judge.system("files").to_pylist()}
    assert {entry.file.file_name for entry in live} == set(shown)
    assert {entry.identity for entry in index.at(snapshot).entries()} == {entry.identity for entry in live}
    assert sum(entry.file.row_count for entry in live) == snapshot.total_record_count
    for entry in live:
        file, row = entry.file, shown[entry.file.file_name]
        path = Path(store.data_file(entry.partition, entry.bucket, file.file_name, file.external_path))
        assert path.stat().st_size == file.file_size_bytes == row["file_size_in_bytes"]
        assert (entry.bucket, file.level, file.row_count, file.schema_id) == (
            row["bucket"],
            row["level"],
            row["record_count"],
            row["schema_id"],
        )
        assert (file.min_sequence_number, file.max_sequence_number) == (
            row["min_sequence_number"],
            row["max_sequence_number"],
        )
        check_statistics(store, file)


def check_statistics(store: TableStore, file: Any) -> None:
    """What is decoded encodes to the same bytes."""
    names = file.value_stats_cols if file.value_stats_cols is not None else store.schema.column_names
    types = store.schema.types_of(tuple(names))
    assert encode_stats(decode_stats(file.value_stats, types), types) == file.value_stats
    if store.schema.has_primary_key:
        assert encode_stats(decode_stats(file.key_stats, store.key_types), store.key_types) == file.key_stats
        for key in (file.min_key, file.max_key):
            assert encode_row(decode_row(key, store.key_types), store.key_types) == key


def check_manifests(store: TableStore) -> None:
    """Manifests written here of the same entries are described as Paimon describes its own."""
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    mirror = ManifestStore(
        store.env, type(store.paths)(f"{store.location}-mirror"), store.options, store.partition_types
    )
    for manifest in data_manifests(store.manifests, snapshot):
        entries = store.manifests.read_manifest(manifest)
        (again,) = mirror.write_manifests(entries)
        for attribute in (
            "num_added_files",
            "num_deleted_files",
            "partition_stats",
            "schema_id",
            "min_bucket",
            "max_bucket",
            "min_level",
            "max_level",
        ):
            assert getattr(again, attribute) == getattr(manifest, attribute), attribute
    assert scan_live_files(store.manifests, snapshot).partitions() == {
        entry.partition for entry in live_entries(store.manifests, snapshot)
    }


def check_json(store: TableStore) -> None:
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    assert decode_snapshot(encode_snapshot(snapshot), "again") == snapshot
    assert decode_schema(encode_schema(store.schema), "again") == store.schema


@pytest.mark.parametrize(
    "options",
    [
        {"file.format": "row"},
    ],
    ids=str,
)
def test_tables_of_paimon_that_cannot_be_read_are_refused(
    options: dict[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    paimon.create_table(
        tmp_path / "t", {"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "1"} | options
    )
    key = next(iter(options))
    with pytest.raises(UnsupportedFeatureError, match=f"{key}={options[key]}"):
        open_table_store(local_env(), str(tmp_path / "t"))


@pytest.mark.parametrize(
    "options",
    [
        {"data-file.external-paths": "file:///not/used"},
    ],
    ids=str,
)
def test_tables_of_paimon_that_are_read_but_not_written(
    options: dict[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    judge = paimon.create_table(
        tmp_path / "t", {"id": "BIGINT", "t": "INT"}, primary_keys=["id"], options={"bucket": "1"} | options
    )
    judge.write([(1, 2_000_000_000), (2, 2_000_000_000)])
    store = open_table_store(local_env(), str(tmp_path / "t"))
    assert sum(entry.file.row_count for entry in live_entries(store.manifests, store.snapshots.latest())) == 2
    with pytest.raises(UnsupportedFeatureError, match="cannot be written"):
        store.check_writable()


def test_files_outside_of_the_table_below_folders_with_escaped_names(tmp_path: Path, paimon: PaimonJudge) -> None:
    """Manifests have the names of these folders as they are: `dt=10%3A00`."""
    judge = paimon.create_table(
        tmp_path / "t",
        {"id": "BIGINT", "dt": "STRING"},
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={
            "bucket": "1",
            "data-file.external-paths": f"file://{tmp_path}/out side",
            "data-file.external-paths.strategy": "round-robin",
        },
    )
    rows = [(1, "10:00"), (2, "a b%"), (3, "ä"), (4, "#?")]
    judge.write(rows)
    assert list(tmp_path.glob("out side/dt=10%3A00/bucket-0/*.parquet"))
    found = Table.open(str(tmp_path / "t")).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["dt"]) for row in found) == rows


def test_the_buckets_together_are_the_table(tmp_path: Path, paimon: PaimonJudge) -> None:
    """The live set of a table that Paimon wrote equals what the pruned scans of its buckets give together."""
    judge = paimon.create_table(
        tmp_path / "t", {"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "16"}
    )
    for start in range(0, 300, 100):
        judge.write([(start + i, "x") for i in range(100)], options={"write-only": "true"})
    store = open_table_store(local_env(), str(tmp_path / "t"))
    snapshot = store.snapshots.latest()
    whole = live_entries(store.manifests, snapshot)
    parts = [entry for bucket in range(16) for entry in live_entries(store.manifests, snapshot, buckets=[bucket])]
    assert {entry.identity for entry in parts} == {entry.identity for entry in whole}
    assert np.unique([entry.bucket for entry in whole]).tolist() == list(range(16))
