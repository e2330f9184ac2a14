"""DATE holds days that Python's dates do not: outside the years 1 to 9999 they are numbers of days.

As keys they made scans and compactions fail with ordinary dates, as partitions every commit from the first merge of
manifests on.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, InvalidRequestError, Table, col

DAYS = [-2_000_000, -719_163, -719_162, 0, 19_000, 2_932_896, 2_932_897, 5_000_000]
"""On both sides of 0001-01-01 and of 9999-12-31."""


def dates(days: list[int]) -> pa.Array:
    return pa.array(days, pa.int32()).cast(pa.date32())


def days_of(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow().column("day").cast(pa.int32()).to_pylist())


def commit_each(table: Table, days: list[int]) -> None:
    """A file and a commit for each day, so that their bounds must be compared."""
    for number, day in enumerate(days):
        with table.writer("u") as writer:
            writer.write(pa.table({"day": dates([day]), "n": [number]}))
            writer.commit()


def test_as_a_key(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.t",
        schema={"day": "DATE", "n": "INT"},
        primary_keys=["day"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3"},
    )
    for round_number in range(2):
        commit_each(table, DAYS[::-1] if round_number else DAYS)
        assert days_of(table) == DAYS
    table.compact(full=True)
    assert days_of(table) == DAYS
    assert table.scan(filter=col("day") > "1999-01-01").to_arrow().num_rows == 4
    assert f"keys {DAYS[0]} .. {DAYS[-1]}" in table.describe()


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_as_a_partition(tmp_path: Path, legacy: str) -> None:
    table = Catalog(tmp_path).create_table(
        "db.t",
        schema={"day": "DATE", "n": "INT"},
        primary_keys=["day", "n"],
        partition_keys=["day"],
        options={"bucket": "1", "manifest.merge-min-count": "3", "partition.legacy-name": legacy},
    )
    commit_each(table, DAYS)
    assert days_of(table) == DAYS
    table.compact(full=True)
    assert days_of(table) == DAYS
    assert table.scan(filter=col("day") == "2022-01-08").to_arrow().num_rows == 1


def test_an_error_can_name_such_a_key(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.t",
        schema={"day": "DATE", "n": "INT NOT NULL"},
        primary_keys=["day"],
        options={"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    )
    rows = pa.table({"day": dates([5_000_000] * 2), "n": pa.array([2**31 - 1, 1], pa.int32())})
    with table.writer("u") as writer:
        writer.write(rows)
        with pytest.raises(InvalidRequestError, match="5000000"):
            writer.commit()
        writer.abort()
