"""What every format of data files must do, whatever its bytes; and the same from a store that is asked by requests."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, MissingFileError, UnsupportedFeatureError
from freshet.storage.files.file_format import FileFormat, FileSettings
from freshet.storage.files.formats import FORMATS
from freshet.storage.io.env import Env, local_env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.model.arrow_types import arrow_schema, arrow_type
from freshet.storage.model.data_type import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    parse_data_type,
    with_nullable,
)
from freshet.storage.options.choices import CODECS
from tests.kit.request_log import RequestLog, StoreEnv

COUNT = 40_000
DEFAULTS = FileSettings()
SMALL_CHUNKS = FileSettings(chunk_bytes=64 * 1024)
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"


def field(field_id: int, name: str, kind: DataType | str) -> DataField:
    return DataField(field_id, name, parse_data_type(kind) if isinstance(kind, str) else kind)


def of(kind: str) -> DataType:
    return parse_data_type(kind)


POINT = RowType((field(20, "x", "INT NOT NULL"), field(21, "tags", ArrayType(of("STRING")))))
SAMPLES: list[tuple[DataType, list[Any]]] = [
    (of("BOOLEAN"), [True, False]),
    (of("TINYINT"), [-128, 127]),
    (of("SMALLINT"), [-32768, 32767]),
    (of("INT"), [-(2**31), 2**31 - 1, -65, 64]),
    (of("BIGINT"), [-(2**63), 2**63 - 1, 0, -1]),
    (of("FLOAT"), [-0.0, 1.5, float("inf")]),
    (of("DOUBLE"), [-0.0, 1e300, float("-inf")]),
    (of("DECIMAL(9, 2)"), [Decimal("-1.28"), Decimal("1.27"), Decimal("-1.29"), Decimal("0.00")]),
    (of("DECIMAL(38, 10)"), [Decimal("9999999999999999999999999999.9999999999"), Decimal("-1E-10")]),
    (of("CHAR(3)"), ["abc", "a"]),
    (of("VARCHAR(9)"), ["", "é日本"]),
    (of("STRING"), ["", " ", "\x00", "\U0001f30a" * 300]),
    (of("BINARY(4)"), [b"\x00\x01\x02\x03"]),
    (of("BYTES"), [b"", b"\xff" * 300]),
    (of("DATE"), [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)]),
    (of("TIME(3)"), [datetime.time(0), datetime.time(23, 59, 59, 999_000)]),
    (of("TIMESTAMP(0)"), [datetime.datetime(1901, 1, 1), datetime.datetime(2038, 1, 19, 3, 14, 8)]),
    (of("TIMESTAMP(3)"), [datetime.datetime(1969, 12, 31, 23, 59, 58, 999_000)]),
    (
        of("TIMESTAMP(6)"),
        [datetime.datetime(1700, 1, 1, 0, 0, 0, 1000), datetime.datetime(2023, 11, 14, 22, 13, 20, 123_456)],
    ),
    (of(LTZ), [datetime.datetime(2023, 11, 14, 22, 13, 20, 999_999)]),
    (ArrayType(of("INT")), [[], [1, None, -3]]),
    (ArrayType(ArrayType(of("DECIMAL(20, 3)"))), [[[Decimal("1.500")], None, []]]),
    (MapType(of("STRING NOT NULL"), of("BIGINT")), [[], [("k", 7), ("l", None)]]),
    (MapType(of("INT NOT NULL"), ArrayType(of("TIME(3)"))), [[(5, [datetime.time(1)]), (6, None)]]),
    (POINT, [{"x": 1, "tags": ["a", None]}, {"x": -1, "tags": None}]),
    (ArrayType(POINT), [[{"x": 1, "tags": []}, None], []]),
    (RowType((field(22, "a", "INT"), field(23, "b", "STRING"))), [{"a": 1, "b": "x"}, {"a": None, "b": ""}]),
]
ALL = [field(0, "k", "BIGINT NOT NULL"), *(field(at + 1, f"c{at}", kind) for at, (kind, _) in enumerate(SAMPLES))]


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> FileFormat:
    return FORMATS[request.param]


def every_type(count: int = 200) -> pa.Table:
    """Each value of each type, and NULL in between."""
    schema = arrow_schema(ALL)
    arrays = [pa.array(range(count), pa.int64())]
    for (_, values), column in zip(SAMPLES, list(schema)[1:], strict=True):
        some = [*values, None]
        arrays.append(pa.array([some[at % len(some)] for at in range(count)], column.type))
    return pa.table(arrays, schema=schema)


def numbered(count: int = COUNT) -> pa.Table:
    return pa.table({"k": pa.array(range(count), pa.int64()), "v": [f"value {at}" for at in range(count)]})


NUMBERED = [field(0, "k", "BIGINT NOT NULL"), field(1, "v", "STRING")]


def write(
    form: FileFormat,
    env: Env,
    path: str,
    fields: Sequence[DataField],
    rows: pa.Table,
    settings: FileSettings = DEFAULTS,
) -> int:
    writer = form.create(env, path, fields, settings)
    writer.write(rows)
    summary = writer.close()
    assert summary.row_count == rows.num_rows
    return summary.size_bytes


def test_every_type_comes_back(form: FileFormat, tmp_path: Path) -> None:
    env, path, rows = local_env(), str(tmp_path / "a"), every_type()
    size = write(form, env, path, ALL, rows)
    assert size == (tmp_path / "a").stat().st_size
    with form.open(env, path, size_bytes=size) as reader:
        assert reader.column_names == set(rows.column_names)
        whole = reader.table(ALL)
        assert whole.schema.equals(rows.schema)
        assert whole.to_pydict() == rows.to_pydict()
        assert pa.Table.from_batches(reader.batches(ALL)).to_pydict() == rows.to_pydict()


def test_slices_and_chunks_of_rows_are_written(form: FileFormat, tmp_path: Path) -> None:
    env, path, rows = local_env(), str(tmp_path / "a"), every_type()
    writer = form.create(env, path, ALL, FileSettings())
    for part in (rows.slice(3, 50), pa.concat_tables([rows.slice(60, 1), rows.slice(61, 90)]), rows.slice(0, 0)):
        writer.write(part)
    writer.close()
    with form.open(env, path) as reader:
        expected = pa.concat_tables([rows.slice(3, 50), rows.slice(60, 91)])
        assert reader.table(ALL).to_pydict() == expected.to_pydict()


def test_a_slice_alone_is_written(form: FileFormat, tmp_path: Path) -> None:
    """pyarrow's ORC writer puts the first rows of an array of structs in the place of those of a slice: where a commit
    wrote two files, the second one had the ROW columns of the first."""
    env, path, rows = local_env(), str(tmp_path / "a"), every_type()
    write(form, env, path, ALL, rows.slice(37, 50))
    with form.open(env, path) as reader:
        assert reader.table(ALL).to_pydict() == rows.slice(37, 50).to_pydict()


def test_nulls_inside_of_rows_move_no_value(form: FileFormat, tmp_path: Path) -> None:
    """pyarrow's ORC writer took the value that lies hidden under a NULL struct for that of the next one, where a struct
    around them, or a list or map in it, had no NULL."""
    point = RowType((field(20, "x", "INT"), field(21, "y", RowType((field(22, "z", "STRING"),)))))
    kinds = {"row": point, "list": ArrayType(point), "map": MapType(of("INT NOT NULL"), point)}
    outer = RowType(tuple(field(30 + at, name, kind) for at, (name, kind) in enumerate(kinds.items())))
    fields = [field(0, "r", outer), field(1, "l", ArrayType(outer)), field(2, "m", MapType(of("STRING"), outer))]
    points = [{"x": 1, "y": {"z": "a"}}, None, {"x": 3, "y": None}, {"x": None, "y": {"z": "b"}}, {"x": 5, "y": {}}]
    rows = [{"row": points[at % 5], "list": points[at % 4 :], "map": list(enumerate(points))} for at in range(40)]
    lists, maps = [rows[at : at + 3] for at in range(40)], [[("a", row), ("b", row)] for row in rows]
    table = pa.table([rows, lists, maps], schema=arrow_schema(fields))
    env, path = local_env(), str(tmp_path / "a")
    write(form, env, path, fields, table)
    with form.open(env, path) as reader:
        assert reader.table(fields).to_pydict() == table.to_pydict()


def test_parts_of_nested_values_that_are_slices_are_written(form: FileFormat, tmp_path: Path) -> None:
    structs = pa.array([None if at % 5 == 0 else {"x": at, "tags": [str(at)]} for at in range(40)], arrow_type(POINT))
    lists = ArrayType(POINT)
    outer = RowType((field(30, "p", POINT), field(31, "l", lists)))
    in_lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 9], pa.int32()), structs.slice(7, 9), arrow_type(lists))
    in_rows = pa.StructArray.from_arrays([structs.slice(21, 3), in_lists], fields=list(arrow_type(outer)))
    fields = [field(0, "l", lists), field(1, "r", outer)]
    rows = pa.table([in_lists, in_rows], schema=arrow_schema(fields))
    env, path = local_env(), str(tmp_path / "a")
    write(form, env, path, fields, rows)
    with form.open(env, path) as reader:
        assert reader.table(fields).to_pydict() == rows.to_pydict()


@pytest.mark.parametrize("backwards", [False, True])
def test_chunks_are_counted_and_read_by_themselves(form: FileFormat, tmp_path: Path, backwards: bool) -> None:
    env, path, rows = local_env(), str(tmp_path / "a"), numbered()
    write(form, env, path, NUMBERED, rows, SMALL_CHUNKS)
    with form.open(env, path) as reader:
        counts = list(reader.chunk_rows)
        assert sum(counts) == COUNT
        assert len(counts) > 1
        starts = [sum(counts[:at]) for at in range(len(counts))]
        some = [len(counts) - 1, 0] if backwards else [len(counts) - 1]
        keys = [key for at in some for key in range(starts[at], starts[at] + counts[at])]
        assert reader.table(NUMBERED[:1], chunks=some).column(0).to_pylist() == keys
        batches = list(reader.batches(NUMBERED[:1], chunks=some, batch_rows=1000))
        assert pa.Table.from_batches(batches).column(0).to_pylist() == keys
        assert max(batch.num_rows for batch in batches) <= 1000
        assert all(reader.chunk_bytes(at) > 0 for at in range(len(counts)))
        assert sum(batch.num_rows for batch in reader.batches([])) == COUNT
        assert reader.table([]).num_rows == COUNT
        assert reader.table(NUMBERED, chunks=[]).num_rows == 0


def test_columns_that_the_file_does_not_have(form: FileFormat, tmp_path: Path) -> None:
    env, path = local_env(), str(tmp_path / "a")
    write(form, env, path, NUMBERED, numbered(10))
    with form.open(env, path) as reader:
        rows = reader.table([NUMBERED[1], field(7, "later", "INT")])
        assert rows.column("later").to_pylist() == [None] * 10
        assert reader.table([field(7, "later", "INT")]).num_rows == 10
        with pytest.raises(CorruptDataError, match="later"):
            reader.table([field(7, "later", "INT NOT NULL")])


def test_a_file_without_rows(form: FileFormat, tmp_path: Path) -> None:
    env, path = local_env(), str(tmp_path / "a")
    write(form, env, path, ALL, every_type(0))
    with form.open(env, path) as reader:
        assert sum(reader.chunk_rows) == 0
        assert reader.table(ALL).schema.equals(arrow_schema(ALL))
        assert list(reader.batches(ALL)) in ([], [reader.table(ALL).to_batches()])


@pytest.mark.parametrize("name", FORMATS)
def test_codecs(tmp_path: Path, name: str) -> None:
    env, form, rows = local_env(), FORMATS[name], numbered(3000)
    for codec in CODECS[name]:
        path = str(tmp_path / codec)
        size = write(form, env, path, NUMBERED, rows, FileSettings(codec))
        with form.open(env, path, size_bytes=size) as reader:
            assert reader.table(NUMBERED).equals(rows.cast(arrow_schema(NUMBERED)))
    with pytest.raises(UnsupportedFeatureError, match=r"file\.compression=brotli .*zstd"):
        form.create(env, str(tmp_path / "x"), NUMBERED, FileSettings("brotli"))


def test_damaged_missing_and_foreign_files(form: FileFormat, tmp_path: Path) -> None:
    env, path = local_env(), tmp_path / "a"
    size = write(form, env, str(path), NUMBERED, numbered(), SMALL_CHUNKS)
    with pytest.raises(CorruptDataError, match="manifest entry says"):
        form.open(env, str(path), size_bytes=size + 1)
    with pytest.raises(MissingFileError):
        form.open(env, str(tmp_path / "none"), size_bytes=size)
    content = path.read_bytes()
    for broken in (content[: size // 2], b"", b"x" * size, content[:-1]):
        path.write_bytes(broken)
        with pytest.raises(CorruptDataError, match="cannot be read") as caught, form.open(env, str(path)) as reader:
            reader.table(NUMBERED)
        assert caught.value.path == str(path)


def test_an_aborted_file_is_gone(form: FileFormat, tmp_path: Path) -> None:
    writer = form.create(local_env(), str(tmp_path / "a"), NUMBERED, SMALL_CHUNKS)
    writer.write(numbered())
    assert writer.written_bytes > 0
    assert 0 < writer.compression_ratio < 1
    writer.abort()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [100, COUNT])
def test_files_of_a_store_that_is_asked_by_requests(form: FileFormat, count: int) -> None:
    log = RequestLog()
    rows = numbered(count)
    size = write(form, Env(log), "memory:/w/a", NUMBERED, rows, SMALL_CHUNKS)
    with form.open(StoreEnv(log), "memory:/w/a", size_bytes=size) as reader:
        assert reader.table(NUMBERED).equals(rows.cast(arrow_schema(NUMBERED)))
        counts = list(reader.chunk_rows)
        last = reader.table(NUMBERED, chunks=[len(counts) - 1])
        assert last.column("k").to_pylist() == list(range(count - counts[-1], count))


def test_a_part_of_a_file(form: FileFormat) -> None:
    files = MemoryFileIO()
    env = Env(files)
    size = write(form, env, "memory:/w/a", NUMBERED, numbered(100))
    content = files.read_bytes("memory:/w/a")
    output = files.open_output("memory:/w/packed")
    output.write(b"before" + content + b"after")
    output.close()
    with form.open(env, "memory:/w/packed", size_bytes=size, part=(6, size)) as reader:
        assert reader.table(NUMBERED).num_rows == 100


@pytest.mark.parametrize("name", ["orc", "parquet"])
def test_bounds_of_chunks(tmp_path: Path, name: str) -> None:
    env, path, form = local_env(), str(tmp_path / "a"), FORMATS[name]
    write(form, env, path, ALL, every_type(200))
    with form.open(env, path) as reader:
        (count,) = reader.chunk_rows
        for column in ALL:
            stats = reader.chunk_stats(0, column, column)
            values = every_type(200).column(column.name)
            assert stats.null_count in (values.null_count, None)
            if stats.min_value is None:
                continue
            ours = pa.compute.min_max(values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values)
            if pa.types.is_time(values.type):
                ours = pa.compute.min_max(values.cast(pa.int32()))
            low, high = ours["min"].as_py(), ours["max"].as_py()
            assert stats.min_value <= low, column
            assert stats.max_value >= high, column
        assert reader.chunk_stats(0, ALL[0], ALL[0]).min_value == 0
        assert reader.chunk_stats(0, ALL[0], ALL[0]).max_value == count - 1


def test_null_where_none_may_be_is_refused_by_avro(tmp_path: Path) -> None:
    fields = [field(0, "k", with_nullable(of("INT"), False))]
    writer = FORMATS["avro"].create(local_env(), str(tmp_path / "a"), fields, FileSettings())
    writer.write(pa.table({"k": pa.array([1, None], pa.int32())}))
    with pytest.raises(InvalidRequestError, match="column 'k' holds NULL"):
        writer.close()
    writer.abort()
