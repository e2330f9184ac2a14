"""Parquet files at a store where each request takes its time: what is asked for, and that nothing is different."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import CorruptDataError, MissingFileError, RetryableError
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.opening import KEPT_BYTES_MAX, TAIL_BYTES, openings_ahead
from freshet.storage.files.parquet import ranged_file
from freshet.storage.files.parquet.reader import ParquetReader, footer_bytes
from freshet.storage.files.parquet.writer import ParquetWriter
from freshet.storage.io import store_reads
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.io.ranges import ByteRange, ReadCosts
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type
from tests.kit.request_log import COSTS, RequestLog, StoreEnv

PATH = "memory:/w/a.parquet"
COUNT = 12_000


def field(field_id: int, name: str, kind: DataType | str) -> DataField:
    return DataField(field_id, name, parse_data_type(kind) if isinstance(kind, str) else kind)


FIELDS = [
    field(0, "k", "BIGINT NOT NULL"),
    field(1, "flag", "BOOLEAN"),
    field(2, "double", "DOUBLE"),
    field(3, "a.b", "STRING"),
    field(4, "decimal", "DECIMAL(18, 2)"),
    field(5, "t6", "TIMESTAMP(6)"),
    field(6, "list", ArrayType(parse_data_type("INT NOT NULL"))),
    field(7, "map", MapType(parse_data_type("STRING NOT NULL"), ArrayType(parse_data_type("INT")))),
    field(20, "a", RowType((field(18, "b", "INT"), field(19, "y", ArrayType(parse_data_type("INT")))))),
]
NANOS = [field(0, "k", "BIGINT NOT NULL"), field(1, "t9", "TIMESTAMP(9)"), field(2, "t3", "TIMESTAMP(3)")]


def rows_of(fields: Sequence[DataField]) -> pa.Table:
    values: dict[str, Any] = {
        "k": range(COUNT),
        "flag": [None if at % 7 == 0 else at % 2 == 0 for at in range(COUNT)],
        "double": [at / 3 for at in range(COUNT)],
        "a.b": [f"text {at * 7919 % 10_007}" for at in range(COUNT)],
        "decimal": [Decimal(at) / 4 for at in range(COUNT)],
        "t6": [datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=at) for at in range(COUNT)],
        "list": [None if at % 5 == 0 else [at, at + 1] for at in range(COUNT)],
        "map": [[(f"k{at}", [at, None])] for at in range(COUNT)],
        "a": [{"b": at, "y": [at]} for at in range(COUNT)],
        "t9": [at * 1_000_000_007 for at in range(COUNT)],
        "t3": [at * 1000 for at in range(COUNT)],
    }
    schema = arrow_schema(fields)
    return pa.table([pa.array(values[each.name], each.type) for each in schema], schema=schema)


def written(log: MemoryFileIO, fields: Sequence[DataField], rows: pa.Table, row_group_bytes: int = 128 * 1024) -> int:
    """Size of the file."""
    writer = ParquetWriter(Env(log), PATH, fields, FileSettings(chunk_bytes=row_group_bytes))
    writer.write(rows)
    return writer.close().size_bytes


def reader_of(log: RequestLog, size: int) -> ParquetReader:
    return ParquetReader(StoreEnv(log), PATH, size_bytes=size)


@pytest.mark.few(2)
@pytest.mark.parametrize("memory", ["held", "windows", "in turn"])
@pytest.mark.parametrize("fields", [FIELDS, NANOS], ids=["all types", "nanoseconds"])
def test_what_is_read_in_pieces_is_what_was_written(
    fields: list[DataField], memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if memory == "windows":  # no row group is held as a whole
        monkeypatch.setattr(ranged_file, "GROUP_BYTES_MAX", 0)
        monkeypatch.setattr(ranged_file, "WINDOW_BYTES", 3000)
        monkeypatch.setattr("freshet.storage.files.parquet.reader.WINDOW_BYTES", 3000)
    elif memory == "in turn":
        monkeypatch.setattr(store_reads, "HELD_BYTES_MAX", 1)
    log, rows = RequestLog(), rows_of(fields)
    size = written(log, fields, rows, row_group_bytes=32 * 1024)
    assert size > 4 * COSTS.whole_bytes
    with reader_of(log, size) as reader:
        assert reader.metadata.num_row_groups > 3
        assert pa.Table.from_batches(list(reader.batches(fields, batch_rows=1000))).equals(rows)
        assert pa.Table.from_batches(list(reader.batches(fields, use_threads=True))).equals(rows)
        assert reader.table(fields).equals(rows)
        for each in fields:
            found = pa.Table.from_batches(list(reader.batches([each])))
            assert found.equals(rows.select([each.name]))
        odd = range(1, reader.metadata.num_row_groups, 2)
        some = pa.Table.from_batches(list(reader.batches(fields, chunks=odd)))
        assert some.equals(reader.table(fields, chunks=odd))
        assert 0 < some.num_rows < COUNT


def test_a_small_file_is_one_request_however_often_it_is_opened() -> None:
    log = RequestLog(ReadCosts(1 << 20, 1 << 20, 8 << 20, in_flight=8))
    rows = rows_of(FIELDS)
    size = written(log, FIELDS, rows)
    env = StoreEnv(log)
    with log.noted() as requests:
        for _ in range(2):
            with ParquetReader(env, PATH, size_bytes=size) as reader:
                assert reader.table(FIELDS).equals(rows)
    assert [str(each) for each in requests] == [f"range {PATH} 0+{size}"]


def test_a_large_file_is_its_end_and_the_columns_that_are_wanted() -> None:
    log = RequestLog(ReadCosts(16 * 1024, 1024, 1 << 20, in_flight=8))
    size = written(log, FIELDS, rows_of(FIELDS), row_group_bytes=1 << 20)
    env = StoreEnv(log)
    with log.noted() as requests:
        with ParquetReader(env, PATH, size_bytes=size) as reader:
            groups = reader.metadata.num_row_groups
            list(reader.batches([FIELDS[0], FIELDS[3]]))
            list(reader.batches([]))
        assert requests[0].wanted == ByteRange(size - TAIL_BYTES, TAIL_BYTES)
        # a request for each of the two, which lie apart, in each row group; those in the end of the file are there
        assert 2 <= len(requests) - 1 <= 2 * groups
        wanted = sum(each.wanted.length for each in requests[1:] if each.wanted)
        assert wanted < 0.5 * size
    with log.noted() as requests, ParquetReader(env, PATH, size_bytes=size):
        assert requests == []


def test_a_footer_that_is_longer_than_the_end_is_fetched_by_a_second_request() -> None:
    fields = [field(at, f"a column with a long name {at}" * 4, "INT") for at in range(400)]
    log = RequestLog()
    rows = pa.table([pa.array(range(100), pa.int32())] * 400, schema=arrow_schema(fields))
    size = written(log, fields, rows)
    with log.noted() as requests, reader_of(log, size) as reader:
        assert reader.metadata.serialized_size > TAIL_BYTES
        assert len(requests) == 2
        assert reader.table(fields).equals(rows)


def test_row_groups_that_follow_are_on_their_way_while_one_is_decoded() -> None:
    log = RequestLog()
    size = written(log, FIELDS, rows_of(FIELDS))
    with reader_of(log, size) as reader, log.together(16) as requests:
        first = reader.metadata.row_group(0)
        of_first = sum(1 + first.column(i).total_compressed_size // COSTS.request_bytes for i in range(len(FIELDS)))
        batches = reader.batches(FIELDS)
        next(batches)
        assert len({each.wanted for each in requests}) >= 16 > of_first
        batches.close()
    assert log.most_in_flight >= 16


@pytest.mark.parametrize("ahead", [False, True])
def test_errors_name_the_file(ahead: bool) -> None:
    log = RequestLog()
    size = written(log, FIELDS, rows_of(FIELDS))

    def opened(path: str = PATH, size_bytes: int = size) -> None:
        env = StoreEnv(log)
        with openings_ahead(env, [(path, size_bytes, footer_bytes)] if ahead else []):
            ParquetReader(env, path, size_bytes=size_bytes)

    with pytest.raises(MissingFileError, match="expired or cleaned"):
        opened("memory:/w/gone.parquet")
    with pytest.raises(CorruptDataError, match=f"{size} bytes, its manifest entry says {size + 10}"):
        opened(size_bytes=size + 10)
    with pytest.raises(CorruptDataError, match=f"{size} bytes, its manifest entry says {size - 10}"):
        opened(size_bytes=size - 10)
    content = log.read_bytes(PATH)
    log.overwrite(PATH, content[:-4] + b"NOPE")
    with pytest.raises(CorruptDataError, match=r"cannot be read.*a\.parquet"):
        opened()


@pytest.mark.parametrize("is_held", [True, False])
def test_a_file_that_goes_or_fails_while_it_is_read_is_no_damage(
    is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_held:
        monkeypatch.setattr(ranged_file, "GROUP_BYTES_MAX", 0)
    log = RequestLog()
    size = written(log, FIELDS, rows_of(FIELDS))

    def fail(path: str, wanted: ByteRange) -> pa.Buffer:
        raise RetryableError("the store is busy")

    with reader_of(log, size) as reader:
        monkeypatch.setattr(log, "read_range", fail)
        with pytest.raises(RetryableError, match="busy"):
            list(reader.batches(FIELDS))
        with pytest.raises(RetryableError, match="busy"):
            reader.table(FIELDS)
        monkeypatch.undo()
        log.delete(PATH)
        with pytest.raises(MissingFileError, match="expired"):
            list(reader.batches(FIELDS))


def test_what_readers_hold_is_given_back() -> None:
    log = RequestLog()
    size = written(log, FIELDS, rows_of(FIELDS))
    env = StoreEnv(log)
    assert env.reads is not None
    with ParquetReader(env, PATH, size_bytes=size) as reader:
        batches = reader.batches(FIELDS)
        next(batches)
        assert env.reads.held_bytes > 0
        batches.close()
        reader.table(FIELDS)
        list(reader.batches(FIELDS))
    assert env.reads.held_bytes == 0
    assert KEPT_BYTES_MAX < store_reads.HELD_BYTES_MAX
