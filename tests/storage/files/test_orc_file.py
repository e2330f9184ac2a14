"""The bytes of ORC files: names, ids, stripes, and what ORC cannot hold."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.orc.reader import OrcReader
from freshet.storage.files.orc.writer import OrcWriter
from freshet.storage.io.env import local_env
from freshet.storage.model.arrow_types import arrow_schema, arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type

ENV = local_env()


def field(field_id: int, name: str, kind: DataType | str) -> DataField:
    return DataField(field_id, name, parse_data_type(kind) if isinstance(kind, str) else kind)


def written(path: Path, fields: list[DataField], *columns: Any, **settings: Any) -> pyarrow.orc.ORCFile:
    schema = arrow_schema(fields)
    arrays = [pa.array(values, of.type) for values, of in zip(columns, schema, strict=True)]
    writer = OrcWriter(ENV, str(path), fields, FileSettings(**settings))
    writer.write(pa.table(arrays, schema=schema))
    writer.close()
    return pyarrow.orc.ORCFile(str(path))


def test_columns_have_the_types_and_ids_of_paimon(tmp_path: Path) -> None:
    """Ids as in files of Apache Paimon 2.0.0 with the same schema."""
    nested = RowType((field(29, "x", "INT"), field(32, "y", RowType((field(30, "p", "STRING"),)))))
    fields = [
        field(1073741823, "_KEY_k", "INT NOT NULL"),
        field(17, "t", "TIME(3)"),
        field(19, "ts", "TIMESTAMP(3)"),
        field(23, "ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        field(25, "list", ArrayType(parse_data_type("INT"))),
        field(27, "map", MapType(parse_data_type("STRING"), parse_data_type("BIGINT"))),
        field(28, "row", nested),
    ]
    schema = written(tmp_path / "a.orc", fields, *([] for _ in fields)).schema
    assert {one.name: int(one.metadata[b"paimon.id"]) for one in schema} == {one.name: one.id for one in fields}
    assert [str(one.type) for one in list(schema)[:4]] == [
        "int32", "int32", "timestamp[ns]", "timestamp[ns, tz=UTC]",
    ]  # fmt: skip
    assert schema.field("list").type.value_field.metadata == {b"paimon.id": b"536896512"}
    assert schema.field("map").type.key_field.metadata == {b"paimon.id": b"536843262"}
    assert schema.field("map").type.item_field.metadata == {b"paimon.id": b"536898560"}
    assert schema.field("row").type.field("y").metadata == {b"paimon.id": b"32"}
    assert schema.field("row").type.field("y").type.field("p").metadata == {b"paimon.id": b"30"}


def test_a_chunk_is_a_stripe(tmp_path: Path) -> None:
    keys = [at * at * 7919 for at in range(30_000)]
    file = written(tmp_path / "a.orc", [field(0, "k", "BIGINT")], keys, chunk_bytes=64 * 1024)
    with OrcReader(ENV, str(tmp_path / "a.orc")) as reader:
        assert len(reader.chunk_rows) == file.nstripes > 1
        start = 0
        for at, count in enumerate(reader.chunk_rows):
            column = field(0, "k", "BIGINT")
            assert reader.chunk_stats(at, column, column) == ColumnStats(keys[start], keys[start + count - 1], 0)
            start += count


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TIMESTAMP(3)", -1),
        ("TIMESTAMP(3)", -999),
        ("TIMESTAMP(6)", -1),
        ("TIMESTAMP(6)", -999_000),
        ("TIMESTAMP(9)", -1),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", -999_000_000),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_the_last_second_before_1970_is_refused(tmp_path: Path, kind: str, value: int, nested: bool) -> None:
    data_type = parse_data_type(kind)
    of = ArrayType(data_type) if nested else data_type
    column = pa.array([value, None, 0], pa.int64()).cast(arrow_type(data_type))
    values = pa.ListArray.from_arrays([0, 1, 3], column) if nested else column
    writer = OrcWriter(ENV, str(tmp_path / "a.orc"), [field(0, "t", of)], FileSettings())
    writer.write(pa.table({"t": values}))
    with pytest.raises(InvalidRequestError, match="column 't' holds a timestamp with a fraction in the last second"):
        writer.close()
    writer.abort()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TIMESTAMP(4)", -1_000_100),
        ("TIMESTAMP(6)", -999_001),
        ("TIMESTAMP(6)", -1_999_999),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", -86_400_000_001),
        ("TIMESTAMP(9)", -1_000_000_001),
        ("TIMESTAMP(9)", -(10**18) - 1),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_parts_of_milliseconds_before_1970_are_refused(tmp_path: Path, kind: str, value: int, nested: bool) -> None:
    """pyarrow writes them with negative nanoseconds: Apache Paimon failed on the file (IllegalArgumentException)."""
    data_type = parse_data_type(kind)
    of = ArrayType(data_type) if nested else data_type
    column = pa.array([0, None, value], pa.int64()).cast(arrow_type(data_type))
    values = pa.ListArray.from_arrays([0, 1, 3], column) if nested else column
    writer = OrcWriter(ENV, str(tmp_path / "a.orc"), [field(0, "t", of)], FileSettings())
    writer.write(pa.table({"t": values}))
    with pytest.raises(
        InvalidRequestError, match="column 't' holds a timestamp before 1970 that is finer than a milli"
    ):
        writer.close()
    writer.abort()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TIMESTAMP(0)", [-1, 0, 1]),
        ("TIMESTAMP(3)", [-1000, -1001, -1999, -2000, 0]),
        ("TIMESTAMP(6)", [-1_000_000, -1_001_000, -1_999_000, 0, 1]),
        ("TIMESTAMP(9)", [-1_001_000_000, -(10**18), 1]),
    ],
)
def test_other_instants_before_1970_come_back(tmp_path: Path, kind: str, values: list[int]) -> None:
    column = field(0, "t", kind)
    stored = pa.array(values, pa.int64()).cast(arrow_type(column.type))
    writer = OrcWriter(ENV, str(tmp_path / "a.orc"), [column], FileSettings())
    writer.write(pa.table({"t": stored}))
    writer.close()
    with OrcReader(ENV, str(tmp_path / "a.orc")) as reader:
        assert reader.table([column]).column(0).cast(pa.int64()).to_pylist() == values


def test_years_that_nanoseconds_do_not_reach_are_refused_both_ways(tmp_path: Path) -> None:
    column, path = field(0, "t", "TIMESTAMP(6)"), str(tmp_path / "a.orc")
    far = pa.table({"t": pa.array([datetime.datetime(2300, 1, 1)], pa.timestamp("us"))})
    writer = OrcWriter(ENV, path, [column], FileSettings())
    writer.write(far)
    with pytest.raises(InvalidRequestError, match="outside the years 1677 to 2262"):
        writer.close()
    writer.abort()
    pyarrow.orc.write_table(far.append_column("k", pa.array([1])), path)
    with OrcReader(ENV, path) as reader:
        assert reader.table([field(1, "k", "BIGINT")]).column(0).to_pylist() == [1]
        with pytest.raises(UnsupportedFeatureError, match=r"column 't' of .* outside 1677..2262"):
            reader.table([column])


def test_names_with_dots_and_readers_in_threads(tmp_path: Path) -> None:
    fields = [field(0, "a.b", "BIGINT"), field(5, "a", RowType((field(4, "b", "STRING"),)))]
    written(tmp_path / "a.orc", fields, range(20_000), [{"b": "x"}] * 20_000, chunk_bytes=64 * 1024)
    with OrcReader(ENV, str(tmp_path / "a.orc")) as reader:
        assert reader.table(fields[:1]).column(0).to_pylist() == list(range(20_000))
        assert reader.table(fields[1:]).column(0).to_pylist()[:2] == [{"b": "x"}, {"b": "x"}]


def test_a_flipped_byte_of_the_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    written(path, [field(0, "k", "BIGINT")], range(1000))
    content = path.read_bytes()
    found = 0
    for at in range(len(content) - 40, len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            with OrcReader(ENV, str(path)) as reader:
                reader.table([field(0, "k", "BIGINT")])
        except CorruptDataError:
            found += 1
    assert found > 20
