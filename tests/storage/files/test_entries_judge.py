"""The same rows written by Apache Paimon and by Freshet are described by the same manifest entries."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.manifest import ManifestEntry
from tests.contract.cases import CASES, Case, arrow_rows
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.casts import cast_samples

pytestmark = pytest.mark.judge


def entries(location: Path) -> list[ManifestEntry]:
    store = open_table_store(local_env(), str(location))
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    return live_entries(store.manifests, snapshot)


def comparable(entry: ManifestEntry) -> Any:
    """An entry without what differs from write to write: name, size, time."""
    file = replace(entry.file, file_name="", file_size_bytes=0, creation_time_ms=None)
    if entry.total_buckets == -1:
        # Without buckets the numbers mean nothing but a count: with many partitions Paimon begins some at 1 or 2.
        file = replace(
            file, min_sequence_number=0, max_sequence_number=file.max_sequence_number - file.min_sequence_number
        )
    return (entry.partition, entry.bucket, entry.total_buckets, file.level, file.min_key, file)


def create_both(
    paimon: PaimonJudge, folder: Path, columns: dict[str, Any], keys: Any, partitions: Any, options: Any
) -> tuple[Any, Any]:
    arguments = {"primary_keys": keys, "partition_keys": partitions, "options": options}
    judge = paimon.create_table(folder / "db.db" / "theirs", columns, **arguments)
    paimon.create_table(folder / "db.db" / "ours", columns, **arguments)
    return judge, Catalog(str(folder)).table("db.ours")


@pytest.mark.few(12)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_entries_are_equal(case: Case, tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {**case.options, "write-only": "true"}
    judge, ours = create_both(paimon, tmp_path, dict(case.columns), case.primary_keys, case.partition_keys, options)
    for number, rows in enumerate(case.history(seed=17)[:2]):
        judge.write(arrow_rows(rows, case.columns))
        with ours.writer("freshet") as writer:
            writer.write(arrow_rows(rows, case.columns))
            writer.commit(number)
    theirs = sorted(map(comparable, entries(tmp_path / "db.db" / "theirs")), key=repr)
    mine = sorted(map(comparable, entries(tmp_path / "db.db" / "ours")), key=repr)
    assert len(mine) == len(theirs)
    for expected, actual in zip(theirs, mine, strict=True):
        assert actual == expected


SCALARS = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(38, 10)"),
    *("CHAR(40)", "STRING", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
]
ODD_FLOATS = [[0.0, -0.0], [-0.0], [0.0], [math.nan, 1.0], [math.inf, -math.inf]]


@pytest.mark.parametrize("mode", ["truncate(3)", "full", "counts", "none"])
def test_statistics_of_every_type(tmp_path: Path, paimon: PaimonJudge, mode: str) -> None:
    columns = {"id": "INT", **{f"c{i}": of for i, of in enumerate(SCALARS)}}
    columns |= {f"f{i}": "DOUBLE" for i in range(len(ODD_FLOATS))} | {"empty": "STRING", "list": "ARRAY<INT>"}
    judge, ours = create_both(paimon, tmp_path, columns, ["id"], [], {"bucket": "1", "metadata.stats-mode": mode})
    schema, count = judge.arrow_schema(), 12
    arrays: list[Any] = [list(range(count))]
    for of in SCALARS:
        values = cast_samples.samples(of)
        values = values.filter(pa.array([not (isinstance(v, float) and math.isnan(v)) for v in plain(values)]))
        arrays.append(values.take(pa.array([i % len(values) for i in range(count)])))
    arrays += [[values[i % len(values)] for i in range(count)] for values in ODD_FLOATS]
    arrays += [[None] * count, [[1]] * count]
    columns_of = [
        array.cast(field.type) if isinstance(array, pa.Array) else pa.array(array, field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    rows = pa.table(columns_of, schema=schema)
    judge.write(rows)
    with ours.writer("freshet") as writer:
        writer.write(rows)
        writer.commit(1)
    (expected,) = map(comparable, entries(tmp_path / "db.db" / "theirs"))
    (actual,) = map(comparable, entries(tmp_path / "db.db" / "ours"))
    assert actual == expected


@pytest.mark.parametrize("file_format", ["orc", "avro"])
@pytest.mark.parametrize(
    "options",
    [
        {"metadata.stats-mode": "truncate(3)"},
        {"metadata.stats-mode": "counts"},
        {"metadata.stats-mode": "none"},
        {"data-file.thin-mode": "true", "metadata.stats-keep-first-n-columns": "4"},
    ],
    ids=lambda options: ",".join(options.values()),
)
def test_statistics_of_other_formats(
    tmp_path: Path, paimon: PaimonJudge, file_format: str, options: dict[str, str]
) -> None:
    """Without CHAR and NaN, of which the statistics of ORC files are wrong, and instants that ORC cannot hold."""
    has_nanos = file_format == "orc"
    columns: dict[str, str] = {"id": "INT", "text": "STRING", "bytes": "BYTES", "d": "DECIMAL(38, 10)", "x": "DOUBLE"}
    columns |= {"b": "BOOLEAN", "day": "DATE", "time": "TIME(3)", "t": f"TIMESTAMP({9 if has_nanos else 6})"}
    columns |= {
        "ltz": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "list": "ARRAY<INT>",
        "row": "ROW<a INT>",
        "empty": "STRING",
    }
    judge, ours = create_both(
        paimon, tmp_path, columns, ["id"], [], {"bucket": "1", "file.format": file_format, **options}
    )
    values: dict[str, list[Any]] = {
        "id": [1, 2, 3],
        "text": ["abcd", None, "é日本語"],
        "bytes": [b"\xff\xff\xff\xff", b"", None],
        "d": [Decimal("-1.5"), Decimal("9999999999999999999999999999.9999999999"), None],
        "x": [1.5, -math.inf, 1e300],
        "b": [True, None, True],
        "day": [datetime.date(1582, 1, 1), datetime.date(9999, 12, 31), None],
        "time": [datetime.time(1, 2, 3), None, datetime.time(23, 59, 59, 999_000)],
        "t": [None, 1_700_000_000_123_456, 0],
        "ltz": [1_700_000_000_123, -5_001_000, None],
        "list": [[1], None, []],
        "row": [{"a": 1}, None, {"a": None}],
        "empty": [None] * 3,
    }
    schema = judge.arrow_schema()
    rows = pa.table([pa.array(values[one.name], one.type) for one in schema], schema=schema)
    judge.write(rows)
    with ours.writer("freshet") as writer:
        writer.write(rows)
        writer.commit(1)
    (expected,) = map(comparable, entries(tmp_path / "db.db" / "theirs"))
    (actual,) = map(comparable, entries(tmp_path / "db.db" / "ours"))
    assert actual == expected


def plain(values: pa.Array) -> list[Any]:
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values.to_pylist()
