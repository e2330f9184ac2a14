"""Partitions as people name them: what a value may be, and what is refused instead of being looked for in vain."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table, sql
from freshet.storage.exceptions import InvalidRequestError, NotFoundError

DAYS = [datetime.date(1969, 12, 31), datetime.date(2026, 3, 5), datetime.date(2026, 3, 6)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Catalog(tmp_path).create_table(
        "shop.orders",
        schema={"id": "BIGINT", "day": "DATE", "hour": "INT", "paid": "BOOLEAN"},
        partition_keys=["day", "hour", "paid"],
    )
    made.append([{"id": number, "day": day, "hour": number, "paid": True} for number, day in enumerate(DAYS)])
    made.append([{"id": 3, "day": None, "hour": None, "paid": None}])
    return made


@pytest.mark.parametrize(
    ("partition", "gone"),
    [
        ({"day": "2026-03-05"}, [1]),
        ({"day": datetime.date(2026, 3, 5)}, [1]),
        ({"day": datetime.date(1969, 12, 31)}, [0]),
        ({"day": "-1"}, [0]),  # the folder has the number of the day
        ({"hour": 2}, [2]),
        ({"hour": "02"}, [2]),
        ({"hour": 2, "day": datetime.date(2026, 3, 5)}, []),
        ({"paid": True}, [0, 1, 2]),
        ({"paid": "TRUE"}, [0, 1, 2]),
        ({"day": None}, [3]),
        ({"day": "__DEFAULT_PARTITION__", "hour": None}, [3]),
    ],
)
def test_a_value_is_one_of_its_column_or_its_text(table: Table, partition: dict[str, Any], gone: list[int]) -> None:
    table.drop_partition(partition)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [each for each in range(4) if each not in gone]


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ({"day": "2026-03"}, "partition key 'day' of shop.orders is DATE, which '2026-03' is not"),
        ({"day": "2026-3-5"}, "such as 2026-11-22"),
        ({"day": "2026-02-30"}, "which '2026-02-30' is not"),
        ({"day": datetime.datetime(2026, 3, 5)}, "is DATE, which datetime.datetime"),
        ({"hour": "two"}, "is INT, which 'two' is not"),
        ({"hour": 2.5}, "is INT, which 2.5 is not"),
        ({"hour": True}, "is INT, which True is not"),
        ({"paid": "yes"}, "is BOOLEAN, which 'yes' is not"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(table: Table, partition: dict[str, Any], words: str) -> None:
    for verb in (table.drop_partition, lambda given: table.overwrite([], partition=given)):
        with pytest.raises(InvalidRequestError, match=words):
            verb(partition)
    assert table.scan().count() == 4


BLANK = [None, "", "  ", "__DEFAULT_PARTITION__", "a"]
"""Values of one folder, and one of another."""


@pytest.mark.parametrize(
    ("named", "gone"), [(None, None), ("__DEFAULT_PARTITION__", None), ("", ""), ("  ", "  "), ("a", "a")]
)
def test_of_values_that_share_a_folder_only_the_one_that_is_named_is_replaced(
    tmp_path: Path, named: str | None, gone: str | None
) -> None:
    """As Apache Paimon does; by the folder an overwrite of NULL took the rows of '' along."""
    catalog = Catalog(tmp_path)
    columns = {"id": "BIGINT", "p": "STRING"}
    for verb in ("overwrite", "drop", "rows", "sql"):
        table = catalog.create_table(f"shop.{verb}", schema=columns, partition_keys=["p"])
        table.append([{"id": number, "p": value} for number, value in enumerate(BLANK)])
        if verb == "overwrite":
            table.overwrite([{"id": 9, "p": gone}], partition={"p": named})
        elif verb == "drop":
            table.drop_partition({"p": named})
        elif verb == "rows":
            table.overwrite([{"id": 9, "p": gone}])
        else:
            given = "NULL" if gone is None else f"'{gone}'"
            sql(f"INSERT OVERWRITE shop.sql PARTITION (p = {given}) VALUES (9)", catalog)
        left = [(number, value) for number, value in enumerate(BLANK) if value != gone]
        new = [] if verb == "drop" else [(9, gone)]
        assert sorted((row["id"], row["p"]) for row in table.scan().to_arrow().to_pylist()) == left + new, verb


def test_a_blank_value_outside_of_what_is_replaced_is_shown_in_quotes(tmp_path: Path) -> None:
    columns = {"id": "BIGINT", "p": "STRING"}
    table = Catalog(tmp_path).create_table("shop.t", schema=columns, partition_keys=["p"])
    for value, shown in [("", "p=''"), ("__DEFAULT_PARTITION__", "p='__DEFAULT_PARTITION__'")]:
        with pytest.raises(InvalidRequestError, match=f"some of partition {shown}, which"):
            table.overwrite([{"id": 1, "p": value}], partition={"p": None})
    assert not table.snapshots()


def test_a_partition_that_is_not_replaced_is_named_as_people_write_it(table: Table) -> None:
    rows = [{"id": 9, "day": datetime.date(2026, 3, 6), "hour": 1, "paid": None}]
    with pytest.raises(InvalidRequestError, match="some of partition day=2026-03-06/hour=1/paid=__DEFAULT_PARTITION__"):
        table.overwrite(rows, partition={"day": "2026-03-05"})


def test_mistakes_say_what_to_write(table: Table, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"datetime.fromisoformat\('2026-11-26'\).astimezone\(\)"):
        table.rollback("2026-11-26")
    with pytest.raises(NotFoundError, match="the earliest one still there is 1, of"):
        table.rollback(datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))
    with pytest.raises(InvalidRequestError, match="unknown column type 'long': write BIGINT"):
        Catalog(tmp_path).create_table("shop.other", schema={"id": "long"})
    priced = Catalog(tmp_path).create_table("shop.priced", schema={"id": "INT", "total": "DECIMAL(10, 2)"})
    with pytest.raises(InvalidRequestError, match="values: there is no column 'totl'"):
        priced.update({"totl": 11.5}, "id = 1")
    with pytest.raises(InvalidRequestError, match="on: there is no column 'id,day'"):
        priced.merge([{"id": 1}], on=["id,day"])
    given = pa.table({"id": [1], "total": [9.5]})
    priced.append(given.cast(priced.arrow_schema))
    with pytest.raises(InvalidRequestError, match=r"Decimal\('9.5'\) for 9.5"):
        priced.update({"total": 11.5}, "id = 1")
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    assert priced.scan(timestamp_ms=now).to_arrow().to_pylist() == [{"id": 1, "total": Decimal("9.50")}]
    assert priced.tags.create("now", timestamp_ms=now).snapshot_id == 1
