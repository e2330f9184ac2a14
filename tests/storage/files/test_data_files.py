"""Data files of tables: what writers put into them and their entries, and what readers make of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, RetryableError, UnsupportedFeatureError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.filters.column import col
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.env import Env, local_env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from freshet.storage.model.data_type import DataField, RowType, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import TablePaths

COLUMNS = {"k": "BIGINT NOT NULL", "s": "STRING", "d": "DOUBLE", "t9": "TIMESTAMP(9)"}


def make_store(
    folder: Path,
    columns: Mapping[str, str] = COLUMNS,
    *,
    keys: Sequence[str] = ("k",),
    partitions: Sequence[str] = (),
    env: Env | None = None,
    **options: str,
) -> TableStore:
    fields = tuple(DataField(i, name, parse_data_type(text)) for i, (name, text) in enumerate(columns.items()))
    given = {
        "bucket": "1" if keys else "-1",
        **{key.replace("__", "-").replace("_", "."): options[key] for key in options},
    }
    env = env or local_env()
    schema = TableSchema(0, fields, len(fields) - 1, tuple(partitions), tuple(keys), given)
    assert FileClaims(env.file_io, TablePaths(str(folder))).claim_schema(schema)
    return open_table_store(env, str(folder))


def alter(store: TableStore, fields: Sequence[DataField]) -> TableStore:
    schema = replace(store.schema, id=store.schema.id + 1, fields=tuple(fields), highest_field_id=99)
    assert store.claims.claim_schema(schema)
    return open_table_store(store.env, store.location)


def key_values(store: TableStore, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of (sequence number, kind, values…)."""
    system = [pa.field("_SEQUENCE_NUMBER", pa.int64(), False), pa.field("_VALUE_KIND", pa.int8(), False)]
    schema = pa.schema([*system, *arrow_schema(store.schema)])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def write(store: TableStore, rows: Sequence[tuple[Any, ...]], *, partition: bytes = EMPTY_ROW) -> list[DataFileMeta]:
    writer = KeyValueFileWriter(store, partition, 0, 0, FileSource.APPEND)
    writer.write(key_values(store, rows))
    return writer.close()


def read(
    store: TableStore,
    file: DataFileMeta,
    columns: Sequence[str],
    row_filter: Predicate | None = None,
    *,
    partition: bytes = EMPTY_ROW,
    **how: Any,
) -> pa.Table:
    """All rows of a file; none is a table of none."""
    batches = list(DataFileRead(store, partition, 0, file, columns, row_filter, **how).batches())
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in columns})


def stored(store: TableStore, file: DataFileMeta, partition: bytes = EMPTY_ROW) -> pq.ParquetFile:
    return pq.ParquetFile(store.data_file(partition, 0, file.file_name))


ROWS = [(10, 0, -5, "a", 1.5, 7), (12, 3, 0, None, None, None), (11, 1, 3, "é" * 20, -0.0, -1), (13, 2, 9, "b", 0.0, 5)]


def test_the_entry_of_a_key_value_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (file,) = write(store, ROWS)
    assert file.file_name.startswith("data-")
    assert file.file_name.endswith("-0.parquet")
    assert file.file_size_bytes == store.env.file_io.size(store.data_file(EMPTY_ROW, 0, file.file_name))
    assert (file.row_count, file.delete_row_count, file.level, file.schema_id) == (4, 2, 0, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (10, 13)
    assert file.file_source is FileSource.APPEND
    assert file.extra_files == ()
    assert abs((file.creation_time_ms or 0) - store.env.creation_time_ms()) < 60_000
    assert decode_row(file.min_key, store.key_types) == (-5,)
    assert decode_row(file.max_key, store.key_types) == (9,)
    assert decode_row(file.key_stats.min_values, store.key_types) == (-5,)
    assert file.key_stats.null_counts == (0,)
    types = [field.type for field in store.schema.fields]
    assert file.value_stats_cols is None
    assert decode_row(file.value_stats.min_values, types) == (-5, "a", -0.0, None)
    assert decode_row(file.value_stats.max_values, types) == (9, "é" * 15 + "ê", 1.5, None)
    assert math.copysign(1, decode_row(file.value_stats.min_values, types)[2]) == -1
    assert file.value_stats.null_counts == (0, 1, 1, 1)


def test_columns_of_a_key_value_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (file,) = write(store, ROWS)
    parquet = stored(store, file)
    assert parquet.schema_arrow.names == ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "s", "d", "t9"]
    text = str(parquet.schema)
    for part in (
        "required int64 field_id=1073741823 _KEY_k",
        "required int64 field_id=2147483646 _SEQUENCE_NUMBER",
        "required int32 field_id=2147483645 _VALUE_KIND (Int(bitWidth=8, isSigned=true))",
        "required int64 field_id=0 k",
        "optional int96 field_id=3 t9",
    ):
        assert part in text
    assert parquet.read()["_KEY_k"].to_pylist() == [-5, 0, 3, 9]


def test_composite_keys_minus_partition_keys(tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "v": "INT", "b": "STRING NOT NULL", "a": "INT NOT NULL"}
    store = make_store(tmp_path, columns, keys=["p", "b", "a"], partitions=["p"])
    partition = encode_row(["x y"], store.partition_types)
    (file,) = write(store, [(0, 0, "?", 1, "a", 2), (1, 0, "?", 2, "b", 1)], partition=partition)
    assert stored(store, file, partition).schema_arrow.names[:2] == ["_KEY_b", "_KEY_a"]
    assert decode_row(file.min_key, store.key_types) == ("a", 2)
    assert decode_row(file.max_key, store.key_types) == ("b", 1)
    assert decode_row(file.key_stats.max_values, store.key_types) == ("b", 2)
    rows = read(store, file, store.schema.column_names, system_columns=True, partition=partition)
    assert rows["p"].to_pylist() == ["x y", "x y"], "partition columns come from the manifest, not from the file"


def test_thin_mode_leaves_the_key_columns_out(tmp_path: Path) -> None:
    store = make_store(tmp_path, **{"data-file.thin-mode": "true"})
    (file,) = write(store, ROWS)
    assert stored(store, file).schema_arrow.names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "s", "d", "t9"]
    assert read(store, file, ("k",), system_columns=True)["k"].to_pylist() == [-5, 0, 3, 9]


@pytest.mark.parametrize(
    ("options", "columns", "counts"),
    [
        ({"metadata.stats-mode": "none"}, (), ()),
        ({"metadata.stats-mode": "counts"}, None, (0, 1, 1, 1)),
        ({"metadata.stats-mode": "none", "fields.s.stats-mode": "full"}, ("s",), (1,)),
        ({"metadata.stats-mode": "none", "metadata.stats-dense-store": "false"}, None, (None,) * 4),
        ({"metadata.stats-keep-first-n-columns": "2"}, ("k", "s"), (0, 1)),
    ],
)
def test_modes_of_statistics(tmp_path: Path, options: dict[str, str], columns: Any, counts: Any) -> None:
    store = make_store(tmp_path, **options)
    (file,) = write(store, ROWS)
    assert file.value_stats_cols == columns
    assert file.value_stats.null_counts == counts
    assert file.key_stats.null_counts == (0,)
    assert decode_row(file.key_stats.min_values, store.key_types) == (-5,)


def test_names_places_and_compression(tmp_path: Path) -> None:
    store = make_store(
        tmp_path,
        **{
            "data-file.prefix": "rows-",
            "data-file.path-directory": "data",
            "file.suffix.include.compression": "true",
            "file.compression": "snappy",
            "file.compression.per.level": "0:gzip",
        },
    )
    (file,) = write(store, ROWS)
    assert file.file_name.startswith("rows-")
    assert file.file_name.endswith("-0.gz.parquet")
    assert (tmp_path / "data" / "bucket-0" / file.file_name).exists()
    assert stored(store, file).metadata.row_group(0).column(0).compression == "GZIP"
    assert read(store, file, ("k",), system_columns=True).num_rows == 4


def test_files_roll_at_the_target_size(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL", "s": "STRING"}, **{"target-file-size": "64 kb"})
    rows = [(i, 0, i, hashlib.sha256(b"%d" % i).hexdigest()) for i in range(20_000)]
    files = write(store, rows)
    assert len(files) > 3
    assert [int(file.file_name.removesuffix(".parquet").rsplit("-", 1)[1]) for file in files] == list(range(len(files)))
    for file in files[:-1]:
        assert 64 * 1024 <= file.file_size_bytes < 112 * 1024
    keys = [read(store, file, ("k",), system_columns=True)["k"].to_pylist() for file in files]
    assert [key for part in keys for key in part] == [row[2] for row in rows]
    for file, part in zip(files, keys, strict=True):
        assert decode_row(file.min_key, store.key_types) == (part[0],)
        assert decode_row(file.max_key, store.key_types) == (part[-1],)
        assert file.row_count == len(part)


def test_files_roll_at_the_target_row_number(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL"}, **{"target-file-row-num": "1500"})
    assert [file.row_count for file in write(store, [(i, 0, i) for i in range(4000)])] == [1500, 1500, 1000]


def test_abort_removes_every_file_and_no_rows_make_no_file(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL"}, **{"target-file-row-num": "1000"})
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND)
    writer.write(key_values(store, [(i, 0, i) for i in range(2500)]))
    assert len(list((tmp_path / "bucket-0").iterdir())) == 3
    writer.abort()
    assert list((tmp_path / "bucket-0").iterdir()) == []
    assert write(store, []) == []


def test_a_level_that_wants_another_format_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    object.__setattr__(store, "options", CoreOptions.parse({"file.format.per.level": "0:csv"}, has_primary_key=True))
    with pytest.raises(UnsupportedFeatureError, match="csv"):
        KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND)
    KeyValueFileWriter(store, EMPTY_ROW, 0, 1, FileSource.COMPACT)


# --- reading -------------------------------------------------------------------------------------------------------


def test_system_columns_come_first_and_kinds_are_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (file,) = write(store, ROWS)
    rows = read(store, file, ("s", "k"), system_columns=True)
    assert rows.column_names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "s", "k"]
    assert list(zip(*[column.to_pylist() for column in rows.columns], strict=True)) == [
        (seq, kind, s, k) for seq, kind, k, s, *_ in ROWS
    ]
    batches = list(DataFileRead(store, EMPTY_ROW, 0, file, ("s", "k"), batch_rows=3, system_columns=True).batches())
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert pa.Table.from_batches(batches).equals(rows)
    threaded = DataFileRead(
        store, EMPTY_ROW, 0, file, ("s", "k"), batch_rows=3, use_threads=True, system_columns=True
    ).batches()
    assert pa.Table.from_batches(list(threaded)).equals(rows)


def test_an_unknown_column_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (file,) = write(store, ROWS)
    with pytest.raises(InvalidRequestError, match="'x'"):
        read(store, file, ("x",), system_columns=True)


def test_files_of_older_schemas(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (old,) = write(store, ROWS)
    key, text, number, _ = store.schema.fields
    evolved = alter(
        store,
        [
            DataField(5, "t9", parse_data_type("STRING")),  # dropped and added again: another column
            replace(text, name="renamed"),
            key,
            replace(number, type=parse_data_type("STRING")),
        ],
    )
    rows = read(evolved, old, ("t9", "renamed", "k", "d"), system_columns=True)
    assert rows["t9"].to_pylist() == [None] * 4
    assert rows["renamed"].to_pylist() == ["a", None, "é" * 20, "b"]
    assert rows["d"].to_pylist() == ["1.5", None, "-0.0", "0.0"]
    writer = KeyValueFileWriter(evolved, EMPTY_ROW, 0, 0, FileSource.APPEND)
    writer.write(key_values(evolved, [(20, 0, "t", "r", 1, "d")]))
    (new,) = writer.close()
    assert new.schema_id == 1
    assert read(evolved, new, ("k", "t9")).to_pylist() == [{"k": 1, "t9": "t"}]
    assert read(store, new, ("k", "s")).to_pylist() == [{"k": 1, "s": "r"}]


def many(store: TableStore) -> DataFileMeta:
    """Several row groups: keys 0..299999 and their text."""
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND)
    count = 300_000
    columns = {
        "_SEQUENCE_NUMBER": pa.array(range(count), pa.int64()),
        "_VALUE_KIND": pa.array(bytearray(count), pa.int8()),
        "k": pa.array(range(count), pa.int64()),
        "s": pa.array([f"{i:0120}" for i in range(count)]),
        "d": pa.array([float(i) for i in range(count)]),
        "t9": pa.nulls(count, pa.timestamp("ns")),
    }
    writer.write(pa.table(columns))
    (file,) = writer.close()
    assert stored(store, file).metadata.num_row_groups >= 3
    return file


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    file = many(store)
    for row_filter, exact_count in [
        (col("k") < 10, 10),
        (col("s") == f"{5:0120}", 1),
        (col("d") <= 0.0, 1),  # not >=: NaN is above every number and in no footer
        (col("k").is_in([3, 299_998]) & (col("s") < "1"), 2),
    ]:
        pruned = read(store, file, ("k", "s", "d"), row_filter)
        assert exact_count <= pruned.num_rows < 300_000, row_filter
        assert pruned.filter(row_filter.bind(pruned.schema).to_arrow()).num_rows == exact_count
        keys = read(store, file, ("k",), row_filter, use_threads=True)
        assert keys.column_names == ["k"]
        assert keys["k"].equals(pruned["k"])
    assert read(store, file, ("k",), col("k") < 0).num_rows == 0
    assert list(DataFileRead(store, EMPTY_ROW, 0, file, ("k",), col("s").is_null()).batches()) == []


def test_filters_on_changed_columns_prune_only_where_values_are_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL", "n": "INT", "m": "INT"})
    (file,) = write(store, [(i, 0, i, i, i) for i in range(100)])
    key, n, m = store.schema.fields
    wide = alter(store, [key, replace(n, type=parse_data_type("BIGINT")), replace(m, type=parse_data_type("STRING"))])
    assert read(wide, file, ("n",), col("n") > 1000).num_rows == 0
    assert read(wide, file, ("m",), col("m") == "7").num_rows == 100


def test_filters_on_partition_columns_use_the_manifest(tmp_path: Path) -> None:
    columns = {"p": "INT NOT NULL", "k": "INT NOT NULL"}
    store = make_store(tmp_path, columns, keys=["p", "k"], partitions=["p"])
    partition = encode_row([1], store.partition_types)
    (file,) = write(store, [(0, 0, 99, 1)], partition=partition)
    assert read(store, file, ("k",), col("p") == 99, partition=partition).num_rows == 0
    assert read(store, file, ("p",), col("p") == 1, partition=partition)["p"].to_pylist() == [1]


def test_missing_truncated_and_foreign_files(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (file,) = write(store, ROWS)
    path = tmp_path / "bucket-0" / file.file_name
    with pytest.raises(UnsupportedFeatureError, match="csv"):
        read(store, replace(file, file_name="data-x-0.csv"), ("k",), system_columns=True)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="manifest entry says"):
        list(DataFileRead(store, EMPTY_ROW, 0, file, ("k",), system_columns=True).batches())
    path.unlink()
    with pytest.raises(CorruptDataError, match="expired or cleaned"):
        list(DataFileRead(store, EMPTY_ROW, 0, file, ("k",), system_columns=True).batches())


def test_files_elsewhere(tmp_path: Path) -> None:
    store = make_store(tmp_path / "table")
    (file,) = write(store, ROWS)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / file.file_name
    (tmp_path / "table" / "bucket-0" / file.file_name).rename(moved)
    outside = replace(file, external_path=f"file:{moved}")
    assert read(store, outside, ("k",), system_columns=True).num_rows == 4


# --- append tables -------------------------------------------------------------------------------------------------


def test_append_files_hold_the_columns_only_and_count_their_rows(tmp_path: Path) -> None:
    columns = {"a": "INT", "m": "DECIMAL(5, 2)", "r": "STRING"}
    store = make_store(tmp_path, columns, keys=(), **{"target-file-row-num": "2"})
    writer = AppendFileWriter(store, EMPTY_ROW, 0, FileSource.APPEND, 7)
    schema = arrow_schema(store.schema)
    rows = pa.table({"r": ["x", None, "y"], "a": pa.array([3, 1, 2], pa.int32()), "m": [Decimal("1.25")] * 3}).select(
        schema.names
    )
    writer.write(rows.cast(schema))
    first, second = writer.close()
    assert writer.next_sequence == 10
    assert stored(store, first).schema_arrow.names == ["a", "m", "r"]
    assert (first.min_sequence_number, first.max_sequence_number, first.row_count) == (7, 8, 2)
    assert (second.min_sequence_number, second.max_sequence_number, second.row_count) == (9, 9, 1)
    assert (first.min_key, first.max_key, first.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert (first.level, first.delete_row_count) == (0, 0)
    types = [field.type for field in store.schema.fields]
    assert decode_row(first.value_stats.min_values, types) == (1, Decimal("1.25"), "x")
    assert first.value_stats.null_counts == (0, 0, 1)
    assert [read(store, file, ("a",))["a"].to_pylist() for file in (first, second)] == [[3, 1], [2]]


def test_nested_columns_have_no_statistics_and_all_columns_may_be_partition_columns(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"p": "INT"}, keys=(), partitions=["p"])
    partition = encode_row([None], store.partition_types)
    writer = AppendFileWriter(store, partition, 0, FileSource.APPEND)
    writer.write(pa.table({"p": pa.nulls(3, pa.int32())}))
    (file,) = writer.close()
    assert read(store, file, ("p",), partition=partition)["p"].to_pylist() == [None] * 3
    assert [batch.num_rows for batch in DataFileRead(store, partition, 0, file, ("p",), batch_rows=2).batches()] == [
        2,
        1,
    ]


def test_nested_value_columns(tmp_path: Path) -> None:
    row = RowType((DataField(3, "x", parse_data_type("INT")),))
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"})
    evolved = alter(store, [*store.schema.fields, DataField(2, "r", row)])
    (file,) = write(evolved, [(0, 0, 1, 2, {"x": 3}), (1, 0, 2, None, None)])
    assert file.value_stats_cols == ("k", "v")
    assert read(evolved, file, ("r",))["r"].to_pylist() == [{"x": 3}, None]


def test_a_failing_close_leaves_nothing_after_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND)
    writer.write(key_values(store, ROWS))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("freshet.storage.io.local_file_io.os.fsync", fail)
    with pytest.raises(RetryableError, match="free some space"):
        writer.close()
    writer.abort()
    assert list((tmp_path / "bucket-0").iterdir()) == []
