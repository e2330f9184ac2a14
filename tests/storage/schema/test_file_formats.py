"""Formats of files that a table cannot have are refused when it is created or altered."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.schema.change import SetOption

COLUMNS = {"k": "BIGINT", "t": "TIMESTAMP(6)"}


@pytest.mark.parametrize(
    ("columns", "options", "match"),
    [
        ({}, {"file.format": "orc", "file.compression": "gzip"}, "file.compression=gzip is no codec of orc files"),
        ({}, {"file.format": "avro", "file.compression": "lz4"}, "no codec of avro files, which file.format asks for"),
        ({}, {"file.compression": "deflate"}, "no codec of parquet files"),
        ({}, {"file.format.per.level": "0:avro", "file.compression": "gzip"}, "which file.format.per.level asks for"),
        (
            {},
            {"file.format": "orc", "file.compression.per.level": "5:snappy,3:gzip"},
            "file.compression.per.level=gzip is no codec of orc",
        ),
        (
            {},
            {"changelog-producer": "input", "changelog-file.format": "avro", "changelog-file.compression": "none"},
            "changelog-file.compression=none is no codec of avro files, which changelog-file.format asks for",
        ),
        ({"n": "ARRAY<TIMESTAMP(9)>"}, {"file.format": "avro"}, r"column 'n' cannot be in Avro files .*TIMESTAMP\(9\)"),
        ({"n": "ROW<`two words` INT>"}, {"file.format": "avro"}, "'two words' is no name of a field there"),
        (
            {"a_b": "ROW<x INT>", "a": "ROW<b ARRAY<ROW<x INT>>>"},
            {"file.format.per.level": "0:avro"},
            "columns 'a_b' and 'a' cannot be in one Avro file .* would have the name 'a_b'",
        ),
        ({"m_value": "ROW<x INT>", "m": "MAP<INT, ROW<y INT>>"}, {"file.format": "avro"}, "the name 'm_value'"),
        ({"a`b": "INT"}, {"file.format": "orc"}, "column 'a`b' cannot be in ORC files .* because of the backtick"),
    ],
)
def test_refused(tmp_path: Path, columns: dict[str, str], options: dict[str, str], match: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=match):
        Catalog(str(tmp_path)).create_table(
            "db.t", schema={**COLUMNS, **columns}, primary_keys=["k"], options={"bucket": "1", **options}
        )
    assert not (tmp_path / "db.db" / "t").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"file.format": "orc", "file.compression": "zlib"},
        {"file.format": "avro", "file.compression": "null"},
        {"file.format.per.level": "0:avro", "file.compression.per.level": "0:deflate", "file.compression": "gzip"},
        {"changelog-file.format": "avro", "changelog-file.compression": "none"},  # a table without changelog files
    ],
)
def test_accepted(tmp_path: Path, options: dict[str, str]) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], options={"bucket": "1", **options}
    )
    with pytest.raises(UnsupportedFeatureError, match="no codec of orc files"):
        table.alter(SetOption("file.format", "orc"), SetOption("file.compression", "gzip"))
