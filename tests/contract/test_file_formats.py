"""ORC and Avro data files, both ways: Apache Paimon and Freshet read, compact and continue what the other writes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table, col
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.orc.writer import check_timestamps
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from tests.contract.cases import EVERY_TYPE, Row, any_value, arrow_rows, canonical
from tests.kit.paimon_changes import add_column, column_type, drop_column, rename_column
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.quick import some_now
from tests.storage.codec.test_reference_values import lines as golden_lines

pytestmark = pytest.mark.judge

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "orc": {"k": "INT", **EVERY_TYPE},
    "avro": {"k": "INT", **{name: kind for name, kind in EVERY_TYPE.items() if "(9)" not in kind}},
}
"""Avro has no nanoseconds."""
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "full-compaction": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "input in avro": {"changelog-producer": "input", "changelog-file.format": "avro"},
    "levels": {"file.format.per.level": "0:avro,5:parquet"},
}
FOREVER = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", "snapshot.num-retained.min": "100"}


def rows_of(columns: Mapping[str, str], seed: int, *, count: int = 60, deletes: bool = True) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            **{name: None if chance.random() < 0.2 else fitting(chance, kind) for name, kind in columns.items()},
            "k": chance.randrange(80),
            ROW_KIND_COLUMN: "-D" if deletes and chance.random() < 0.2 else "+I",
        }
        for _ in range(count)
    ]


def fitting(chance: random.Random, kind: str) -> Any:
    """A value that ORC can hold: no fraction in the last second before 1970."""
    while True:
        value = any_value(chance, kind)
        if not (kind.startswith("TIMESTAMP") and (value == -1 or getattr(value, "year", 0) == 1969)):
            return value


def make(folder: Path, paimon: PaimonJudge, columns: Mapping[str, str], **options: str) -> tuple[Table, PaimonTable]:
    table = Catalog(str(folder)).create_table(
        "db.t", schema=dict(columns), primary_keys=["k"], options={**FOREVER, **options}
    )
    return table, paimon.table(table.location)


def write(table: Table, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    with table.writer("freshet") as writer:
        writer.write(arrow_rows(rows, columns))
        writer.commit()


def check(table: Table, judge: PaimonTable) -> None:
    found = canonical(table.scan().to_arrow())
    assert found == canonical(judge.read_arrow())
    assert found


def formats_of(table: Table) -> set[str]:
    return {entry.file.file_name.rsplit(".", 1)[1] for entry in table.files()}


@pytest.mark.few(1)
@pytest.mark.parametrize("file_format", COLUMNS)
def test_every_type_in_turns(tmp_path: Path, paimon: PaimonJudge, file_format: str) -> None:
    columns = COLUMNS[file_format]
    table, judge = make(tmp_path, paimon, columns, **{"file.format": file_format})
    for turn in range(6):
        rows = rows_of(columns, turn)
        if turn % 2:
            judge.write(arrow_rows(rows, columns), compact="full" if turn == 3 else None)
        else:
            write(table, rows, columns)
        check(table, judge)
    table.compact(full=True)
    check(table, judge)
    assert formats_of(table) == {file_format}


@pytest.mark.few(2)
@pytest.mark.parametrize("file_format", COLUMNS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_and_producers(tmp_path: Path, paimon: PaimonJudge, file_format: str, engine: str) -> None:
    columns = {"k": "INT", "a": "STRING", "b": "DECIMAL(18, 4)", "c": "ARRAY<INT>"}
    table, judge = make(tmp_path, paimon, columns, **{"file.format": file_format, **ENGINES[engine]})
    for turn in range(6):
        rows = rows_of(columns, turn, count=30)
        if turn % 2:
            judge.write(arrow_rows(rows, columns))
        else:
            write(table, rows, columns)
        check(table, judge)
    if "changelog-producer" in ENGINES[engine]:
        ours, theirs = table.changelog().to_arrow(), judge.changelog()
        assert canonical(ours.select(theirs.column_names)) == canonical(theirs)
        assert ours.num_rows
    table.compact(full=True)
    check(table, judge)


@pytest.mark.parametrize("file_format", COLUMNS)
def test_schemas_that_change(tmp_path: Path, paimon: PaimonJudge, file_format: str) -> None:
    columns = {"k": "INT", "a": "INT", "b": "STRING", "r": "ROW<x INT, y ROW<p STRING, q DECIMAL(20, 3)>>"}
    table, judge = make(tmp_path, paimon, columns, **{"file.format": file_format, "write-only": "true"})
    write(table, rows_of(columns, 1, deletes=False), columns)
    judge.write(arrow_rows(rows_of(columns, 2, deletes=False), columns))
    for step in (
        [add_column("e", "DOUBLE")],
        [rename_column("b", "bee")],
        [column_type("a", "BIGINT")],
        [drop_column("bee")],
        [add_column("b", "TIMESTAMP(3)")],
    ):
        judge.alter(*step)
        table = Catalog(str(tmp_path)).table("db.t")
        check(table, judge)
    later = {
        "k": "INT",
        "a": "BIGINT",
        "r": "ROW<x INT, y ROW<p STRING, q DECIMAL(20, 3)>>",
        "e": "DOUBLE",
        "b": "TIMESTAMP(3)",
    }
    write(table, rows_of(later, 3, deletes=False), later)
    check(table, judge)
    table.compact(full=True)
    check(table, judge)


@pytest.mark.parametrize("file_format", COLUMNS)
def test_filters_by_the_statistics_of_paimon(tmp_path: Path, paimon: PaimonJudge, file_format: str) -> None:
    columns = {"k": "INT", "c": "CHAR(4)", "f": "DOUBLE", "t": "TIMESTAMP(6)"}
    judge = paimon.create_table(
        tmp_path / "db.db" / "t", dict(columns), options={"file.format": file_format, "bucket": "-1"}
    )
    nan = float("nan")
    judge.write([(1, "", nan, None), (2, "a", 1.0, None)])
    judge.write([(3, "a\t", -0.0, None), (4, "abcd", 2.5, None)])
    table = Catalog(str(tmp_path)).table("db.t")
    for predicate, keys in (
        (col("c") == "", [1]),
        (col("c") < "a\t", [1, 2]),
        (col("f") < 2.0, [2, 3]),
        (col("f") >= 1.0, [1, 2, 4]),
        (col("f") == 0.0, [3]),
    ):
        assert sorted(table.scan(columns=["k"], filter=predicate).to_arrow().column(0).to_pylist()) == keys, predicate


@pytest.mark.parametrize("file_format", COLUMNS)
def test_append_tables(tmp_path: Path, paimon: PaimonJudge, file_format: str) -> None:
    columns = {name: kind for name, kind in COLUMNS[file_format].items() if name != "k"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=columns, options={"bucket": "-1", "file.format": file_format, "file.compression": "snappy"}
    )
    judge = paimon.table(table.location)
    for seed in range(2):
        rows = [{name: row[name] for name in columns} for row in rows_of({"k": "INT", **columns}, seed)]
        write(table, rows, columns)
        judge.write(arrow_rows(rows, columns))
    check(table, judge)
    table.compact(full=True)
    check(table, judge)


PRECISIONS = (0, 3, 6, 9)
MOMENTS = {
    f"TIMESTAMP({precision}){zone}": precision for precision in PRECISIONS for zone in ("", " WITH LOCAL TIME ZONE")
}


def golden_nanos() -> list[int]:
    """The time stamps of the golden file that ORC holds, and those about which a writer or a reader may stumble."""
    found = {
        int(millis) * 10**6 + int(nanos)
        for kind, text, *_ in golden_lines("path")
        if kind.startswith("TIMESTAMP") and text != "~"
        for millis, nanos in [text.split(".")]
    }
    found |= {sign * (second * 10**9 + part) for sign in (1, -1) for second in (0, 1, 2, 86_400) for part in PARTS}
    return sorted(nanos for nanos in found if abs(nanos) < 9 * 10**18)


PARTS = (0, 1, 100, 999_999, 10**6, 10**6 + 1, 999_000_000, 999_000_001, 999_999_999)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", some_now(list(MOMENTS)))
def test_every_moment_is_read_alike_or_refused(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    """Also inside of columns. What we refuse Paimon writes, and we read; but for the last second before 1970, of which
    it reads other moments itself."""
    unit = 10 ** (9 - MOMENTS[kind])
    columns = {"k": "INT", "t": kind, "l": f"ARRAY<{kind}>", "m": f"MAP<STRING, {kind}>", "r": f"ROW<x {kind}>"}
    ticks = sorted({nanos // unit for nanos in golden_nanos()})
    scalar = arrow_schema([DataField(1, "t", parse_data_type(kind))])[0].type
    lost = [tick for tick in ticks if -999_000_000 <= tick * unit < 0]
    refused = [tick for tick in ticks if tick * unit < 0 and (tick * unit % 10**6 or tick in lost)]

    def rows(wanted: Sequence[int]) -> pa.Table:
        values = pa.array(wanted, pa.int64()).cast(scalar)
        ends = pa.array(range(len(wanted) + 1), pa.int32())
        texts = pa.array(["x"] * len(wanted))
        return pa.table(
            {
                "k": pa.array(range(len(wanted)), pa.int32()),
                "t": values,
                "l": pa.ListArray.from_arrays(ends, values),
                "m": pa.MapArray.from_arrays(ends, texts, values),
                "r": pa.StructArray.from_arrays([values], ["x"]),
            }
        )

    def moments(found: pa.Table) -> list[list[int]]:
        """The nanoseconds of each column, in the order of the keys."""
        found = found.sort_by("k").combine_chunks()
        nested = {name: found[name].combine_chunks() for name in columns}
        inner = (nested["t"], nested["l"].flatten(), nested["m"].items, nested["r"].field("x"))
        zone = pa.timestamp("ns", "UTC" if "LOCAL" in kind else None)
        return [each.cast(zone).cast(pa.int64()).to_pylist() for each in inner]

    table, judge = make(tmp_path / "ours", paimon, columns, **{"file.format": "orc", "bucket": "1"})
    kept = [tick for tick in ticks if tick not in refused]
    table.append(rows(kept))
    expected = [[tick * unit for tick in kept]] * 4
    for name, left, right in zip("tlmr", moments(judge.read_arrow()), expected, strict=True):
        assert [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]] == [], name
    assert moments(table.scan().to_arrow()) == expected, "ours"
    for tick in refused:
        for name in "tlmr":
            with pytest.raises(InvalidRequestError, match=f"column '{name}' holds a timestamp"):
                check_timestamps(name, rows([tick])[name])
    theirs, their_judge = make(tmp_path / "theirs", paimon, columns, **{"file.format": "orc", "bucket": "1"})
    kept = [tick for tick in ticks if tick not in lost]
    their_judge.write(rows(kept).cast(theirs.arrow_schema))
    assert moments(theirs.scan().to_arrow()) == [[tick * unit for tick in kept]] * 4
