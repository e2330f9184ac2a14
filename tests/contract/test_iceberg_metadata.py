"""Iceberg metadata that Apache Paimon keeps of a table: it goes on after our commits, from which it is made anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Table
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge


def newest(table: Table) -> tuple[int, dict[str, Any]]:
    """The number of the newest metadata file and what is in it."""
    folder = Path(table.location, "metadata")
    number = int((folder / "version-hint.text").read_text())
    return number, json.loads((folder / f"v{number}.metadata.json").read_text())


def total_records(metadata: dict[str, Any]) -> int:
    current = metadata["current-snapshot-id"]
    return next(
        int(each["summary"]["total-records"]) for each in metadata["snapshots"] if each["snapshot-id"] == current
    )


def test_paimon_goes_on_with_iceberg_metadata_after_our_commits(tmp_path: Path, paimon: PaimonJudge) -> None:
    judge = paimon.create_table(
        tmp_path / "shop.db" / "orders",
        pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())]),
        options={"metadata.iceberg.storage": "table-location", "bucket": "-1"},
    )
    judge.write([(1, "a"), (2, "b")])
    table = Table.open(judge.location)
    number, metadata = newest(table)
    assert (number, total_records(metadata)) == (1, 2)

    table.append([{"id": 3, "v": "c"}])
    table.delete("id = 1")
    files = {file.name for file in Path(table.location, "metadata").iterdir()}
    table.remove_orphan_files(older_than_ms=0)
    assert {file.name for file in Path(table.location, "metadata").iterdir()} == files
    assert newest(table)[0] == 1, "lags behind our commits"
    assert [(each.name, each.evidence) for each in table.doctor()] == [("Iceberg metadata behind", 2)]
    assert sorted(judge.read_arrow()["id"].to_pylist()) == [2, 3]

    judge.write([(4, "d")])
    number, metadata = newest(table)
    latest = table.latest_snapshot()
    assert latest is not None and number == latest.id
    assert total_records(metadata) == 3, "made anew, with our commits"
    judge.write([(5, "e")])
    assert total_records(newest(table)[1]) == 4
    assert table.doctor() == []
    table.append([{"id": 6, "v": "f"}])
    assert sorted(judge.read_arrow()["id"].to_pylist()) == [2, 3, 4, 5, 6]
    assert table.check().damage == []
