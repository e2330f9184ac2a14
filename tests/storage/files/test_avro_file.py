"""The bytes of Avro files: the schema as Apache Paimon writes it, the values as fastavro reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.varints import signed
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.files.avro import reader
from freshet.storage.files.avro.reader import AvroReader
from freshet.storage.files.avro.writer import AvroWriter, avro_schema, varints
from freshet.storage.files.file_format import FileSettings
from freshet.storage.io.env import local_env
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type

ENV = local_env()
NS = "org.apache.paimon.avro.generated.record"


@pytest.fixture(autouse=True, scope="module", params=[0, 1_000_000], ids=["arrow-avro", "fastavro"])
def by_arrow(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Every test reads by each of the two libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "ROWS_MIN", request.param)
        yield request.param == 0


def field(field_id: int, name: str, kind: DataType | str) -> DataField:
    return DataField(field_id, name, parse_data_type(kind) if isinstance(kind, str) else kind)


def of(kind: str) -> DataType:
    return parse_data_type(kind)


def written(path: Path, fields: list[DataField], *columns: Any, **settings: Any) -> Path:
    schema = arrow_schema(fields)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, schema, strict=True)]
    writer = AvroWriter(ENV, str(path), fields, FileSettings(**settings))
    writer.write(pa.table(arrays, schema=schema))
    writer.close()
    return path


def records(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def read(path: Path, fields: list[DataField]) -> pa.Table:
    with AvroReader(ENV, str(path)) as reader:
        return reader.table(fields)


def read_whole(path: Path, fields: list[DataField]) -> None:
    """As data files are read: a file that is cut between blocks is known by its rows."""
    with AvroReader(ENV, str(path)) as reader:
        if sum(reader.chunk_rows) != 30_000:
            raise CorruptDataError("rows are missing", path=str(path))
        reader.table(fields)


def test_the_schema_is_that_of_paimon() -> None:
    """Types, names and the order of unions as Apache Paimon 2.0.0 writes them."""
    fields = [
        field(0, "k", "INT NOT NULL"),
        field(1, "d", "DECIMAL(20, 3)"),
        field(2, "t", "TIME(3)"),
        field(3, "ts", "TIMESTAMP(3) NOT NULL"),
        field(4, "ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        field(5, "m", MapType(of("STRING"), RowType((field(9, "a", "BIGINT"),)))),
        field(6, "n", MapType(of("INT"), of("DATE"))),
        field(7, "r", ArrayType(RowType((field(8, "b", "BYTES"),)))),
    ]
    record = {
        "k": "int",
        "d": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}],
        "t": ["null", {"type": "int", "logicalType": "time-millis"}],
        "ts": {"type": "long", "logicalType": "timestamp-millis"},
        "ltz": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
    }
    schema = avro_schema(fields)
    assert schema["name"] == NS
    found = {one["name"]: one["type"] for one in schema["fields"]}
    assert {name: found[name] for name in record} == record
    assert found["m"][1]["values"][1]["name"] == f"{NS}_m"
    entry = found["n"][1]
    assert (entry["logicalType"], entry["items"]["name"]) == ("map", f"{NS}_n")
    assert entry["items"]["fields"][0] == {"name": "key", "type": "int"}
    assert found["r"][1]["items"][1]["name"] == f"{NS}_r"
    assert [one.get("default", "none") for one in schema["fields"]] == ["none", None, None, "none"] + [None] * 4
    fastavro.parse_schema(json.loads(json.dumps(schema)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers(values: list[int]) -> None:
    assert varints(np.array(values, np.int64)).to_pylist() == [signed(value) for value in values]


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimals_of_every_length(tmp_path_factory: pytest.TempPathFactory, values: list[int | None]) -> None:
    path, column = tmp_path_factory.mktemp("d") / "a.avro", [field(0, "d", "DECIMAL(38, 0)")]
    exact = [None if value is None else Decimal(value) for value in values]
    written(path, column, exact)
    assert read(path, column).column(0).to_pylist() == exact
    assert [record["d"] for record in records(path)] == exact


def test_values_are_what_fastavro_reads(tmp_path: Path) -> None:
    fields = [
        field(0, "s", "STRING"),
        field(1, "b", "BYTES NOT NULL"),
        field(2, "f", "DOUBLE"),
        field(3, "l", ArrayType(of("INT"))),
        field(4, "m", MapType(of("STRING"), of("BIGINT"))),
        field(5, "r", RowType((field(6, "x", "INT NOT NULL"), field(7, "y", "STRING")))),
        field(8, "o", "BOOLEAN"),
    ]
    rows = [
        {"s": "é" * 70, "b": b"", "f": -0.0, "l": [], "m": {}, "r": {"x": 1, "y": None}, "o": True},
        {"s": None, "b": b"\xff" * 200, "f": math.inf, "l": [1, None], "m": {"k": 7, "n": None}, "r": None, "o": None},
        {"s": "", "b": b"x", "f": None, "l": None, "m": None, "r": {"x": -(2**31), "y": ""}, "o": False},
    ]
    columns = [[row[one.name] for row in rows] for one in fields]
    columns[4] = [None if value is None else list(value.items()) for value in columns[4]]
    assert records(written(tmp_path / "a.avro", fields, *columns)) == rows


def test_blocks_are_small_and_hold_whole_records(tmp_path: Path) -> None:
    fields = [field(0, "s", "STRING"), field(1, "k", "BIGINT")]
    texts = ["x" * 200_000 if at == 500 else f"text {at}" for at in range(20_000)]
    path = written(tmp_path / "a.avro", fields, texts, range(20_000), compression="null")
    with path.open("rb") as file:
        blocks = list(fastavro.block_reader(file))
    assert sum(block.num_records for block in blocks) == 20_000
    assert max(block.num_records for block in blocks) < 10_000
    assert read(path, fields[:1]).column(0).to_pylist() == texts


def test_every_type_by_arrow_avro_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_arrow: bool) -> None:
    point = RowType((field(20, "x", "INT NOT NULL"), field(21, "y", ArrayType(of("STRING")))))
    fields = [
        field(0, "k", "BIGINT NOT NULL"), field(1, "i", "TINYINT"), field(2, "s", "VARCHAR(9)"), field(3, "b", "BYTES"),
        field(4, "f", "FLOAT"), field(5, "d", "DECIMAL(20, 3)"), field(6, "o", "BOOLEAN"), field(7, "day", "DATE"),
        field(8, "t", "TIME(3)"), field(9, "ts", "TIMESTAMP(3)"), field(10, "us", "TIMESTAMP(6)"),
        field(11, "ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"), field(12, "m", MapType(of("STRING"), of("DOUBLE"))),
        field(13, "n", MapType(of("INT"), point)), field(14, "r", point), field(15, "l", ArrayType(of("DATE"))),
    ]  # fmt: skip
    rows: list[list[Any]] = [
        [1, -5, "é", b"\xff", 1.5, Decimal("-12.125"), True, 3, 4, 5, -6, 7, [("a", None), ("", 0.5)],
         [(1, None), (-2, {"x": 1, "y": ["", None]})], {"x": 0, "y": None}, [1, None]],
        [2, *[None] * 15],
        [3, 0, "", b"", -0.0, Decimal(0), False, 0, 0, 0, 0, 0, [], [], {"x": -1, "y": []}, []],
    ]  # fmt: skip
    path = written(tmp_path / "a.avro", fields, *zip(*rows * 700, strict=True))
    if by_arrow:
        monkeypatch.setattr(fastavro, "reader", None)
    assert (
        read(path, fields).to_pylist()
        == pa.table(
            [
                pa.array(column, one.type)
                for column, one in zip(zip(*rows * 700, strict=True), arrow_schema(fields), strict=True)
            ],
            schema=arrow_schema(fields),
        ).to_pylist()
    )


def test_octets_behind_the_records_of_a_block_do_not_stop_the_reader(tmp_path: Path) -> None:
    path = written(tmp_path / "a.avro", [field(0, "k", "INT NOT NULL")], range(40), compression="null")
    content = path.read_bytes()
    size = content.rindex(signed(40) + signed(40)) + 1
    path.write_bytes(content[:size] + signed(45) + content[size + 1 : -16] + b"\x00" * 5 + content[-16:])
    assert read(path, [field(0, "k", "INT NOT NULL")]).column(0).to_pylist() == list(range(40))


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Unions with null last, other names of records, decimals in more bytes than needed, maps in several blocks."""
    schema = {
        "type": "record", "name": "other", "fields": [
            {"name": "late", "type": ["int", "null"]},
            {"name": "inner", "type": {"type": "record", "name": "else", "fields": [{"name": "x", "type": "string"}]}},
            {"name": "skipped", "type": {"type": "map", "values": "double"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }  # fmt: skip
    rows = [{"late": None, "inner": {"x": "a"}, "skipped": {"n": 1.5}, "d": Decimal("-1.25")},
            {"late": 7, "inner": {"x": ""}, "skipped": {}, "d": Decimal("0.00")}]  # fmt: skip
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")
    fields = [
        field(0, "late", "INT"),
        field(2, "inner", RowType((field(1, "x", "STRING"),))),
        field(3, "d", "DECIMAL(9, 2)"),
    ]
    found = read(tmp_path / "a.avro", fields).to_pylist()
    assert found == [{name: row[name] for name in ("late", "inner", "d")} for row in rows]


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("t", "TIMESTAMP(9)", r"no TIMESTAMP\(9\); use up to 6 digits"),
        ("t", "TIME(6)", r"no TIME\(6\); use up to 3 digits"),
        ("two words", "INT", "is no name of a field there"),
    ],
)
def test_what_avro_cannot_hold_is_named(tmp_path: Path, name: str, kind: str, match: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=match):
        AvroWriter(ENV, str(tmp_path / "a.avro"), [field(0, name, ArrayType(of(kind)))], FileSettings())
    assert list(tmp_path.iterdir()) == []


def test_every_cut_is_found(tmp_path: Path) -> None:
    column = [field(0, "k", "BIGINT")]
    path = written(tmp_path / "a.avro", column, range(30_000))
    content = path.read_bytes()
    for end in range(1, len(content), 997):
        path.write_bytes(content[:end])
        with pytest.raises(CorruptDataError):
            read_whole(path, column)


def test_a_record_that_comes_again_as_its_name_is_read(tmp_path: Path) -> None:
    """Apache Paimon writes it so where columns `a_b` and `a` have the same record, `record_a_b`."""
    inner = {"type": "record", "name": f"{NS}_a_b", "fields": [{"name": "x", "type": ["null", "int"], "default": None}]}
    outer = {"type": "record", "name": f"{NS}_a", "fields": [{"name": "b", "type": ["null", "record_a_b"]}]}
    fields = [{"name": "a_b", "type": ["null", inner]}, {"name": "a", "type": ["null", outer]}]
    rows = [{"a_b": {"x": 1}, "a": {"b": {"x": 2}}}, {"a_b": None, "a": {"b": None}}]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": NS, "fields": fields}, rows)
    point = RowType((field(2, "x", "INT"),))
    columns = [field(0, "a_b", point), field(1, "a", RowType((field(3, "b", point),)))]
    assert read(tmp_path / "a.avro", columns).to_pylist() == rows
    with pytest.raises(UnsupportedFeatureError, match="'a_b' and 'a' cannot be in one Avro file"):
        avro_schema(columns)
