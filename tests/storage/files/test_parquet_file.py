"""The bytes of Parquet files: columns, ids, encodings, and what readers do with odd or broken ones."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, RetryableError, UnsupportedFeatureError
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.parquet import writer as parquet_writer
from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.files.parquet.writer import ParquetWriter
from freshet.storage.io.env import local_env
from freshet.storage.io.local_file_io import LocalFileIO, LocalOutputFile
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type

ENV = local_env()


def field(field_id: int, name: str, data_type: DataType | str) -> DataField:
    resolved = parse_data_type(data_type) if isinstance(data_type, str) else data_type
    return DataField(field_id, name, resolved)


def write(path: Path, fields: Sequence[DataField], rows: pa.Table, **options: Any) -> Path:
    writer = ParquetWriter(ENV, str(path), fields, FileSettings(**options))
    writer.write(rows)
    summary = writer.close()
    assert (summary.size_bytes, summary.row_count) == (path.stat().st_size, rows.num_rows)
    return path


def table(fields: Sequence[DataField], *columns: Any) -> pa.Table:
    schema = arrow_schema(fields)
    return pa.table([pa.array(values, of.type) for values, of in zip(columns, schema, strict=True)], schema=schema)


ALL = [
    field(0, "k", "BIGINT NOT NULL"),
    field(1, "boolean", "BOOLEAN"),
    field(2, "tiny", "TINYINT"),
    field(3, "small", "SMALLINT"),
    field(4, "float", "FLOAT"),
    field(5, "text", "STRING"),
    field(6, "bytes", "BINARY(4)"),
    field(7, "d9", "DECIMAL(9, 2)"),
    field(8, "d18", "DECIMAL(18, 2)"),
    field(9, "d38", "DECIMAL(38, 10)"),
    field(10, "date", "DATE"),
    field(11, "time", "TIME(3)"),
    field(12, "t0", "TIMESTAMP(0)"),
    field(13, "t3", "TIMESTAMP(3)"),
    field(14, "t6", "TIMESTAMP(6)"),
    field(15, "l6", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    field(16, "list", ArrayType(parse_data_type("INT NOT NULL"))),
    field(17, "map", MapType(parse_data_type("STRING NOT NULL"), ArrayType(parse_data_type("DECIMAL(5, 2)")))),
    field(20, "row", RowType((field(18, "x", "INT"), field(19, "y", ArrayType(parse_data_type("INT")))))),
]
ROWS = table(
    ALL,
    [1, 2],
    [True, None],
    [-128, None],
    [-1, None],
    [1.5, None],
    ["é", None],
    [b"\0\1", None],
    [Decimal("-1.25"), None],
    [Decimal("-1.25"), None],
    [Decimal("-1.25"), None],
    [datetime.date(1, 1, 1), None],
    [86_399_999, None],
    [-1, None],
    [-1, None],
    [253_402_300_799_999_999, None],
    [-1, None],
    [[1, 2], None],
    [[("a", [Decimal("1.25"), None])], None],
    [{"x": 1, "y": [1, None]}, None],
)


def test_every_type_comes_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ALL, ROWS)
    with ParquetReader(ENV, str(path), size_bytes=path.stat().st_size) as reader:
        assert reader.table(ALL).equals(ROWS)
        assert pa.Table.from_batches(list(reader.batches(ALL, batch_rows=1))).equals(ROWS)


def test_columns_are_stored_as_the_format_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ALL, ROWS)
    schema = pq.ParquetFile(path).schema
    stored = {schema.column(i).path: schema.column(i) for i in range(len(schema.names))}
    text = str(schema)
    assert pq.ParquetFile(path).metadata.metadata is None
    assert "required int64 field_id=0 k;" in text
    assert [stored[name].physical_type for name in ("d9", "d18", "d38")] == ["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    assert stored["d38"].length == 16
    assert "Time(isAdjustedToUTC=true, timeUnit=milliseconds)" in str(stored["time"].logical_type)
    assert "milliseconds" in str(stored["t0"].logical_type)
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(stored["t6"].logical_type)
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(stored["l6"].logical_type)
    # list 16: 536870911 + 1024 * 16 + 1; map 17: key 536870911 - 1024 * 17 - 1, value + 1, its element + 2; y 19
    assert "required int32 field_id=536887296 element" in text
    assert "required binary field_id=536853502 key" in text
    assert "optional group field_id=536888320 value (List)" in text
    assert "optional int32 field_id=536888321 element" in text
    assert "optional int32 field_id=536890368 element" in text
    assert "optional group field_id=20 row" in text


def test_a_nanosecond_column_makes_all_timestamps_int96(tmp_path: Path) -> None:
    fields = [field(0, "t9", "TIMESTAMP(9)"), field(1, "t6", "TIMESTAMP(6)"), field(2, "t0", "TIMESTAMP(0)")]
    rows = table(fields, [-1, None], [253_402_300_799_999_999, -62_135_596_800_000_000], [-1, 1])
    path = write(tmp_path / "a.parquet", fields, rows)
    schema = pq.ParquetFile(path).schema
    assert {schema.column(i).physical_type for i in range(3)} == {"INT96"}
    with ParquetReader(ENV, str(path)) as reader:
        assert reader.table(fields).equals(rows)
        assert pa.Table.from_batches(list(reader.batches(fields, batch_rows=1))).equals(rows)


def test_nanoseconds_that_arrow_cannot_carry_are_refused(tmp_path: Path) -> None:
    stored = pa.table({"t": pa.array([253_402_300_799_999_999], pa.timestamp("us"))})
    pq.write_table(stored, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with (
        ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader,
        pytest.raises(UnsupportedFeatureError, match=r"'t'.*1677"),
    ):
        reader.table([field(0, "t", "TIMESTAMP(9)")])


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    path = write(tmp_path / "a.parquet", ALL, ROWS, compression=codec)
    used = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    with ParquetReader(ENV, str(path)) as reader:
        assert reader.table(ALL).equals(ROWS)


def test_an_unknown_codec_is_refused_before_a_file_exists(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"file\.compression"):
        ParquetWriter(ENV, str(tmp_path / "a.parquet"), ALL, FileSettings(compression="lzo"))
    assert list(tmp_path.iterdir()) == []


def test_dictionaries_only_where_values_repeat(tmp_path: Path) -> None:
    fields = [field(0, "city", "STRING"), field(1, "text", "STRING"), field(2, "_KEY_id", "INT NOT NULL")]
    count = 5000
    rows = table(
        fields, [f"city {i // 100}" for i in range(count)], [f"{i * 7919}" for i in range(count)], range(count)
    )
    group = pq.ParquetFile(write(tmp_path / "a.parquet", fields, rows)).metadata.row_group(0)
    assert "RLE_DICTIONARY" in group.column(0).encodings
    assert "RLE_DICTIONARY" not in group.column(1).encodings
    assert "DELTA_BINARY_PACKED" in group.column(2).encodings


def test_nulls_do_not_count_as_values_that_repeat(tmp_path: Path) -> None:
    fields = [field(0, "unique", "BIGINT"), field(1, "repeating", "BIGINT"), field(2, "nothing", "BIGINT")]
    numbers = np.arange(20_000)
    is_null = np.random.default_rng(7).random(len(numbers)) < 0.5
    rows = table(
        fields,
        pa.array(numbers, mask=is_null),
        pa.array(numbers % 10, mask=is_null),
        pa.nulls(len(numbers), pa.int64()),
    )
    path = write(tmp_path / "f.parquet", fields, rows)
    row_group = pq.ParquetFile(path).metadata.row_group(0)
    has_dictionary = [row_group.column(index).has_dictionary_page for index in range(2)]
    assert has_dictionary == [False, True]
    assert pq.read_table(path).column("unique").to_pylist() == rows.column("unique").to_pylist()
    assert pq.read_table(path).column("nothing").null_count == len(numbers)


def test_row_groups_are_cut_by_size_and_small_batches_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_BYTES", 80_000)
    fields = [field(0, "k", "BIGINT")]
    writer = ParquetWriter(ENV, str(tmp_path / "a.parquet"), fields)
    writer.write(table(fields, range(45_000)))
    for start in range(45_000, 50_000, 100):
        writer.write(table(fields, range(start, start + 100)))
    writer.close()
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sum(sizes) == 50_000
    assert max(sizes) <= 12_500
    assert len(sizes) <= 7
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        assert reader.table(fields)["k"].to_pylist() == list(range(50_000))
        assert reader.table(fields, chunks=[1])["k"][0].as_py() == sizes[0]


def test_an_empty_file_and_no_columns(tmp_path: Path) -> None:
    empty = ParquetWriter(ENV, str(tmp_path / "e.parquet"), ALL)
    assert empty.close().row_count == 0
    with ParquetReader(ENV, str(tmp_path / "e.parquet")) as reader:
        assert reader.table(ALL).num_rows == 0
        assert list(reader.batches(ALL)) == []
    path = write(tmp_path / "a.parquet", ALL, ROWS)
    with ParquetReader(ENV, str(path)) as reader:
        assert reader.table([]).num_rows == 2
        assert [batch.num_rows for batch in reader.batches([], batch_rows=1)] == [1, 1]


def test_a_null_where_the_file_forbids_it(tmp_path: Path) -> None:
    writer = ParquetWriter(ENV, str(tmp_path / "a.parquet"), ALL[:1])
    writer.write(pa.table({"k": pa.array([None], pa.int64())}))
    with pytest.raises(InvalidRequestError, match=r"a\.parquet"):
        writer.close()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


class FullDisk(LocalFileIO):
    """A disk that takes a few bytes and is full then."""

    def open_output(self, path: str) -> Any:
        output = LocalOutputFile(path)
        real_write = output.write

        def write_until_full(data: Any) -> int:
            if output.tell() > 1000:
                raise RetryableError(f"cannot write {path}: No space left on device")
            return real_write(data)

        output.write = write_until_full  # type: ignore[method-assign]
        return output


def test_a_full_disk_is_reported_as_such_and_abort_cleans_up(tmp_path: Path) -> None:
    env = local_env()
    env.file_io = FullDisk()
    fields = [field(0, "k", "BIGINT")]
    writer = ParquetWriter(env, str(tmp_path / "a.parquet"), fields)
    writer.write(table(fields, np.random.default_rng(1).integers(0, 2**62, 100_000)))
    with pytest.raises(RetryableError, match="No space left"):
        writer.close()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


# --- what others write ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "stored", "expected"),
    [
        ("DECIMAL(9, 2)", pa.array([Decimal("1.25")], pa.decimal128(9, 2)), [Decimal("1.25")]),
        ("INT", pa.array([7], pa.int64()), [7]),
        ("FLOAT", pa.array([1.5], pa.float64()), [1.5]),
        ("BYTES", pa.array([b"abcd"], pa.binary(4)), [b"abcd"]),
        ("STRING", pa.array([b"abc"], pa.binary()), ["abc"]),
        (
            "TIMESTAMP(3)",
            pa.array([1500], pa.timestamp("ms", "UTC")),
            [datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000)],
        ),
        ("TIMESTAMP(0)", pa.array([1000], pa.timestamp("ms")), [datetime.datetime(1970, 1, 1, 0, 0, 1)]),
    ],
)
def test_stored_variations_are_read_as_the_type(
    tmp_path: Path, data_type: str, stored: pa.Array, expected: list[Any]
) -> None:
    pq.write_table(pa.table({"c": stored}), tmp_path / "a.parquet")
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        assert reader.table([field(0, "c", data_type)])["c"].to_pylist() == expected
        (batch,) = reader.batches([field(0, "c", data_type)])
        assert batch.column(0).to_pylist() == expected


def test_int96_for_every_precision(tmp_path: Path) -> None:
    stored = pa.table({"t3": pa.array([1], pa.timestamp("ms")), "t6": pa.array([1], pa.timestamp("us"))})
    pq.write_table(stored, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        read = reader.table([field(0, "t3", "TIMESTAMP(3)"), field(1, "t6", "TIMESTAMP(6)")])
    assert read.equals(stored)


def test_other_names_of_list_children_and_old_pages(tmp_path: Path) -> None:
    stored = pa.table({"c": pa.array([[1, None]], pa.list_(pa.int32()))})
    pq.write_table(stored, tmp_path / "a.parquet", use_compliant_nested_type=False, data_page_version="2.0")
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        assert reader.table([field(0, "c", ArrayType(parse_data_type("INT")))])["c"].to_pylist() == [[1, None]]


def test_missing_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        assert reader.table([field(1, "b", "STRING")])["b"].to_pylist() == [None, None]
        assert [b.column(0).to_pylist() for b in reader.batches([field(1, "b", "INT")], batch_rows=1)] == [
            [None],
            [None],
        ]
        with pytest.raises(CorruptDataError, match="'b'"):
            reader.table([field(1, "b", "STRING NOT NULL")])


def test_names_with_dots_are_no_paths(tmp_path: Path) -> None:
    row = RowType((field(1, "b", "INT"),))
    fields = [field(0, "a", row), field(2, "a.b", "INT")]
    rows = table(fields, [{"b": 1}], [2])
    path = write(tmp_path / "a.parquet", fields, rows)
    with ParquetReader(ENV, str(path)) as reader:
        assert reader.table(fields).equals(rows)
        assert reader.table(fields[1:])["a.b"].to_pylist() == [2]
        assert next(reader.batches(fields[1:])).column(0).to_pylist() == [2]
        assert reader.table(fields[:1])["a"].to_pylist() == [{"b": 1}]


# --- broken files --------------------------------------------------------------------------------------------------


def test_a_missing_file_names_the_likely_cause(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="expired or cleaned") as caught:
        ParquetReader(ENV, str(tmp_path / "gone.parquet"))
    assert caught.value.path == str(tmp_path / "gone.parquet")


def test_a_wrong_size_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ALL, ROWS)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptDataError, match=f"{size - 10} bytes, its manifest entry says {size}"):
        ParquetReader(ENV, str(path), size_bytes=size)


@pytest.mark.parametrize("damage", ["cut", "no magic", "noise", "empty"])
def test_broken_files_name_the_path(tmp_path: Path, damage: str) -> None:
    fields = [field(0, "k", "BIGINT"), field(1, "s", "STRING")]
    path = write(tmp_path / "a.parquet", fields, table(fields, range(20_000), [f"text {i}" for i in range(20_000)]))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "no magic":
        content[-4:] = b"NOPE"
    elif damage == "noise":
        middle = len(content) // 2
        content[100:middle] = np.random.default_rng(7).bytes(middle - 100)
    else:
        content = bytearray()
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"a\.parquet"), ParquetReader(ENV, str(path)) as reader:
        list(reader.batches(fields))
    with pytest.raises(CorruptDataError, match=r"a\.parquet"), ParquetReader(ENV, str(path)) as reader:
        reader.table(fields)


def test_nanoseconds_inside_lists_are_kept(tmp_path: Path) -> None:
    fields = [field(0, "l", ArrayType(parse_data_type("TIMESTAMP(9)"))), field(1, "t3", "TIMESTAMP(3)")]
    rows = table(fields, [[1, None, -1], None], [5, None])
    path = write(tmp_path / "a.parquet", fields, rows)
    with ParquetReader(ENV, str(path)) as reader:
        assert reader.table(fields).equals(rows)
        assert pa.Table.from_batches(list(reader.batches(fields))).equals(rows)


def test_nanoseconds_stored_as_64_bit_integers(tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([-1, 1_700_000_000_123_456_789, None, -(2**63), 2**63 - 1], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "a.parquet")
    with ParquetReader(ENV, str(tmp_path / "a.parquet")) as reader:
        assert reader.table([field(0, "t", "TIMESTAMP(9)")]).equals(rows)
