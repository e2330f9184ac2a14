"""A filter that names partitions: large manifests are searched for them, and decode as little as they can."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.metadata import manifest_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import ManifestEntry

DAYS = 40
HOURS = 5
FILES = 20
"""Files of each partition."""


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries decoded by each search of a manifest; every manifest counts as a large one."""
    counts: list[int] = []
    searched = manifest_store.read_manifest_with

    def counted(data: bytes, path: str, values: Collection[bytes]) -> list[ManifestEntry]:
        found = searched(data, path, values)
        counts.append(len(found))
        return found

    monkeypatch.setattr(manifest_store, "read_manifest_with", counted)
    monkeypatch.setattr(manifest_store, "READ_WHOLE_MAX", 0)
    return counts


def day(number: int) -> str:
    return f"a day that is long: {number}"


@pytest.fixture
def table(tmp_path: Path, unchecked_claims: None) -> Table:
    """One manifest with 4000 files, none of which is there."""
    table = Catalog(tmp_path).create_table(
        "a.b", schema={"dt": "STRING", "hh": "INT", "id": "BIGINT"}, partition_keys=["dt", "hh"]
    )
    with table.writer("w") as writer:
        writer.write(pa.table({"dt": [day(0)], "hh": pa.array([0], pa.int32()), "id": [1]}))
        messages = writer._writer.prepare_commit()
        writer.abort()
    (file,) = messages[0].new_files
    made = [
        CommitMessage(
            encode_row((day(d), h), table.store.partition_types),
            0,
            -1,
            new_files=tuple(dataclasses.replace(file, file_name=f"data-{d}-{h}-{n}.parquet") for n in range(FILES)),
        )
        for d in range(DAYS)
        for h in range(HOURS)
    ]
    table.engine.committer("w").commit(1, made)
    return Catalog(tmp_path).table("a.b")


def names(table: Table, text: str) -> set[str]:
    return {file.file_name for split in table.scan(filter=text).plan() for file in split.files}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "days", "hours"),
    [
        (f"dt = '{day(7)}' AND hh = 3", [7], [3]),
        (f"hh = 3 AND dt IN ('{day(7)}', '{day(9)}', 'none')", [7, 9], [3]),
        (f"(dt = '{day(7)}' OR dt = '{day(31)}') AND hh IN (0, 4) AND id > 0", [7, 31], [0, 4]),
        (f"dt = '{day(7)}' AND hh = 3 AND hh = 4", [], []),
        (f"dt = '{day(DAYS)}' AND hh = 3", [], []),
    ],
)
def test_only_blocks_that_may_hold_them_are_decoded(
    table: Table, decoded: list[int], text: str, days: list[int], hours: list[int]
) -> None:
    wanted = {f"data-{d}-{h}-{n}.parquet" for d in days for h in hours for n in range(FILES)}
    assert names(table, text) == wanted
    assert sum(decoded) <= 600 * max(1, len(days) * len(hours)), "of 4000"
    assert decoded or not wanted


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "text", [f"dt = '{day(7)}'", f"dt > '{day(38)}' AND hh = 3", "hh = 3", "dt IS NULL AND hh = 3"]
)
def test_filters_that_name_no_partition_read_all(table: Table, decoded: list[int], text: str) -> None:
    found = names(table, text)
    expected = {
        "dt =": {f"data-7-{h}-{n}.parquet" for h in range(HOURS) for n in range(FILES)},
        "dt >": {f"data-{d}-3-{n}.parquet" for d in range(DAYS) if day(d) > day(38) for n in range(FILES)},
        "hh =": {f"data-{d}-3-{n}.parquet" for d in range(DAYS) for n in range(FILES)},
        "dt I": set(),
    }
    assert found == expected[text[:4]]
    assert decoded == []


@pytest.mark.parametrize(
    ("kind", "values", "literals"),
    [
        ("DATE", ["1970-01-01", "2024-10-04", None], ["DATE '1970-01-01'", "DATE '2024-10-04'"]),
        ("BOOLEAN", [True, False, None], ["TRUE", "FALSE"]),
        ("TINYINT", [-3, 4, None], ["-3", "4"]),
        ("BIGINT", [-(2**62), 4, None], [str(-(2**62)), "4"]),
        ("CHAR(9)", ["", "ä", None], ["''", "'ä'"]),
        ("TIMESTAMP(3)", [0, 1_000, None], ["TIMESTAMP '1970-01-01 00:00:00'", "TIMESTAMP '1970-01-01 00:00:01'"]),
        ("DECIMAL(20, 2)", ["0.10", "-5.00", None], ["0.1", "-5"]),
    ],
)
def test_partitions_of_every_type_are_found(
    tmp_path: Path, decoded: list[int], kind: str, values: list[object], literals: list[str]
) -> None:
    table = Catalog(tmp_path).create_table("a.b", schema={"p": kind, "id": "BIGINT"}, partition_keys=["p"])
    column = pa.array(values).cast(table.arrow_schema.field("p").type)
    with table.writer("w") as writer:
        for identifier in range(2):
            writer.write(pa.table({"p": column, "id": list(range(len(values)))}))
            writer.commit(identifier)
    table.compact()  # manifests with deleted files
    for place, literal in enumerate(literals):
        scan = Catalog(tmp_path).table("a.b").scan(["id"], f"p = {literal}")
        assert scan.to_arrow().column("id").to_pylist() == [place, place], literal
    assert bool(decoded) == (kind not in ("TIMESTAMP(3)", "DECIMAL(20, 2)"))
