"""Damaged data files of each format and codec, and memory that runs out while they are read.

| what a flipped bit is in | error, or rows |
|---|---|
| blocks of Avro by zstd, pages of Parquet | an error: they have checksums |
| all else | an error, or other rows |

Every error is one of ours and has the name of the file; what is read as rows can be looked at.
"""

from __future__ import annotations

import datetime
import errno
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, CorruptDataError, RetryableError, StorageError, Table
from freshet.storage.codec import avro_file
from freshet.storage.exceptions import OutOfMemoryError
from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.io.env import local_env

COLUMNS = {
    "k": "INT NOT NULL",
    "v": "STRING",
    "d": "DECIMAL(10, 2)",
    "x": "DOUBLE",
    "t": "TIMESTAMP(3)",
    "a": "ARRAY<STRING>",
    "r": "ROW<p INT, q STRING>",
    "b": "BOOLEAN",
}
CODECS = [
    *(("avro", codec) for codec in ("zstd", "snappy", "deflate", "bzip2", "null")),
    *(("orc", codec) for codec in ("zstd", "zlib", "snappy", "lz4", "none")),
    ("parquet", "zstd"),
]


def written(folder: Path, file_format: str, codec: str, *, rows: int = 200) -> tuple[Table, Path]:
    """A table of one data file."""
    options = {"file.format": file_format, "file.compression": codec, "bucket": "-1"}
    table = Catalog(folder).create_table("shop.orders", schema=COLUMNS, options=options)
    moment = datetime.datetime(2024, 1, 1)
    table.append(
        [
            {
                "k": i,
                "v": f"value {i * 7919 % 1000}",
                "d": Decimal(i) / 4,
                "x": i / 3,
                "t": moment + datetime.timedelta(hours=i),
                "a": ["x", str(i)],
                "r": {"p": i, "q": "q"},
                "b": i % 2 == 0,
            }
            for i in range(rows)
        ]
    )
    return table, next(folder.rglob("data-*"))


def look(folder: Path, file_format: str, codec: str, flips: int) -> None:
    table, path = written(folder, file_format, codec)
    good, rows = path.read_bytes(), table.scan().to_arrow().to_pylist()
    chance = random.Random(38)
    for _ in range(flips):
        broken = bytearray(good)
        at = chance.randrange(len(good))
        broken[at] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        found: Any = outcome(table)
        if isinstance(found, StorageError):
            assert path.name in str(found), f"byte {at}"
            assert not isinstance(found, RetryableError), f"byte {at}: {found}"
        else:
            assert found == rows or (file_format, codec) != ("avro", "zstd"), f"byte {at}"


def outcome(table: Table) -> list[dict[str, Any]] | StorageError:
    try:
        return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]
    except StorageError as error:
        return error


@pytest.mark.parametrize(("file_format", "codec"), CODECS)
def test_errors_of_damaged_files_name_the_file(file_format: str, codec: str, tmp_path: Path) -> None:
    look(tmp_path, file_format, codec, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("file_format", "codec"), [CODECS[0], CODECS[4], CODECS[5], CODECS[9]])
def test_errors_of_damaged_files_name_the_file_wherever_a_bit_flips(
    file_format: str, codec: str, tmp_path: Path
) -> None:
    look(tmp_path, file_format, codec, 400)


@pytest.mark.parametrize(
    "error",
    [MemoryError("no room"), pa.ArrowMemoryError("malloc of size 64 failed"), OSError(errno.ENOMEM, "no room")],
    ids=["python", "arrow", "system"],
)
@pytest.mark.parametrize(
    ("file_format", "inner"),
    [
        ("parquet", "pyarrow.parquet.ParquetFile.read_row_groups"),
        ("parquet", "pyarrow.parquet.ParquetFile.iter_batches"),
        ("orc", "pyarrow.orc.ORCFile.read_stripe"),
        ("avro", "freshet.storage.files.avro.reader.Decoder.columns"),
    ],
)
def test_memory_that_runs_out_says_nothing_of_the_file(
    file_format: str, inner: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = written(tmp_path, file_format, "zstd", rows=3)
    monkeypatch.setattr(inner, failing(error))
    with pytest.raises(OutOfMemoryError, match="memory") as failure:
        in_batches(table, path) if inner.endswith("iter_batches") else table.scan().to_arrow()
    assert path.name in str(failure.value)
    assert failure.value.path == str(path)
    assert not isinstance(failure.value, CorruptDataError)


def in_batches(table: Table, path: Path) -> list[pa.RecordBatch]:
    """As large files are read."""
    with ParquetReader(local_env(), str(path)) as reader:
        return list(reader.batches(table.schema.fields))


@pytest.mark.parametrize(
    "error", [MemoryError(), pa.ArrowMemoryError("no room"), RuntimeError("can't start new thread")], ids=type
)
@pytest.mark.parametrize("verb", ["scan", "changelog", "count"])
def test_memory_that_runs_out_elsewhere_in_a_read(
    verb: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = written(tmp_path, "parquet", "zstd", rows=3)
    monkeypatch.setattr("freshet.storage.files.data_file_reader._Shape.of", failing(error))
    read = {
        "scan": lambda: table.scan(filter="x > 0").to_arrow(),
        "changelog": lambda: table.changelog().to_arrow(),
        "count": lambda: table.scan(filter="x > 0").count(),
    }
    monkeypatch.setattr("freshet.storage.files.data_file_reader.DataFileRead._is_plain", False)
    with pytest.raises(OutOfMemoryError, match="not enough memory"):
        read[verb]()


def test_memory_that_runs_out_over_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "parquet", "zstd", rows=3)
    monkeypatch.setattr(avro_file.fastavro, "reader", failing(MemoryError()))
    with pytest.raises(OutOfMemoryError, match="manifest-list-"):
        Catalog(tmp_path).table("shop.orders").scan().to_arrow()


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail
