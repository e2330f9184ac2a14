"""expire-partitions: what it lists, what it deletes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog, SetOption, Table
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Partitions of 2019, 2020, of a far day, and of no date."""
    table = Catalog(tmp_path).create_table(
        "shop.orders", schema={"dt": "STRING", "id": "BIGINT"}, partition_keys=["dt"], options={"bucket": -1}
    )
    with table.writer("loader") as writer:
        writer.write([{"dt": dt, "id": 1} for dt in ("2020-01-01", "2019-01-01", "9999-01-01", "x")])
        writer.commit()
    return table


def dates(table: Table) -> list[str]:
    return sorted(table.scan().to_arrow()["dt"].to_pylist())


def test_partitions_are_listed_then_deleted(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    call = ("expire-partitions", tmp_path, "shop.orders", "--older-than", "30 d")
    answer = freshet.good(*call, "--dry-run")
    assert answer.out.splitlines() == [
        "dt=2019-01-01",
        "dt=2020-01-01",
        "2 partitions would expire; nothing was deleted",
    ]
    assert (
        "1 partition never expire, their values say no time (dt=x): a time has a year, a month and a day" in answer.err
    )
    assert len(dates(table)) == 4
    assert freshet.good(*call, "--max-num", 1, "--json").facts == {
        "partitions": [{"dt": "2019-01-01"}],
        "unclear": [{"dt": "x"}],
        "snapshots": [2],
        "dry_run": False,
    }
    assert freshet.good(*call).out.splitlines() == ["dt=2020-01-01", "1 partition expired"]
    assert dates(table) == ["9999-01-01", "x"]
    assert freshet.good(*call).out == "0 partitions expired\n"


def test_the_options_of_the_table_count_where_no_age_is_given(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    answer = freshet("expire-partitions", tmp_path, "shop.orders")
    assert answer.code == 2
    assert "has no partition.expiration-time" in answer.err
    table.alter(SetOption("partition.expiration-time", "30 d"))
    freshet.good("expire-partitions", tmp_path, "shop.orders")
    assert dates(table) == ["9999-01-01", "x"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--older-than", "soon"), "partition.expiration-time"),
        (("--older-than", "1 d", "--max-num", "0"), "1 or more"),
    ],
)
def test_what_is_refused(freshet: Freshet, table: Table, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    answer = freshet("expire-partitions", tmp_path, "shop.orders", *arguments)
    assert answer.code == 2
    assert text in answer.err
    assert len(dates(table)) == 4


def test_a_table_without_partitions(freshet: Freshet, tmp_path: Path) -> None:
    Catalog(tmp_path).create_table("shop.flat", schema={"id": "BIGINT"})
    answer = freshet("expire-partitions", tmp_path, "shop.flat", "--older-than", "1 d")
    assert answer.code == 2
    assert "partition keys" in answer.err
