"""Partitions as people name them: what a value may be, and what is refused instead of being looked for in vain."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from freshet import Catalog, Table, sql
from freshet.pipeline.commands.partitions import partitions_given
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from tests.kit.quick import some_now

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


UTC, BERLIN = datetime.UTC, datetime.timezone(datetime.timedelta(hours=1))
# type, value, and what else it may be called than as `$partitions` shows it and its folder has it
KINDS: list[tuple[str, Any, list[Any]]] = [
    ("TIMESTAMP(3)", datetime.datetime(2024, 1, 2, 3, 4, 5, 678000), ["2024-01-02 03:04:05.6780"]),
    ("TIMESTAMP(6)", datetime.datetime(1969, 1, 2, 3, 4, 5, 678901), []),
    ("TIMESTAMP(0)", datetime.datetime(2024, 1, 2), ["2024-01-02", "2024-01-02 00:00"]),
    ("TIMESTAMP(9)", datetime.datetime(2024, 1, 2, 3), ["2024-01-02 03:00:00.000000000"]),
    (
        "TIMESTAMP_LTZ(3)",
        datetime.datetime(2024, 1, 2, 3, 4, tzinfo=UTC),
        [datetime.datetime(2024, 1, 2, 4, 4, tzinfo=BERLIN), "2024-01-02T04:04+01:00", "2024-01-02 04:04"],
    ),
    ("TIME(3)", datetime.time(1, 2, 3, 4000), ["01:02:03.004"]),
    ("TIME(0)", datetime.time(1, 2), ["01:02"]),
    ("DECIMAL(10, 2)", Decimal("1.50"), ["1.5", Decimal("1.5")]),
    ("DECIMAL(38, 10)", Decimal("-1234567890123456789012345678.0123456789"), []),
    ("FLOAT", 1e20, [10**20, "1e20"]),
    ("FLOAT", 0.1, ["0.10"]),
    ("DOUBLE", 0.1, ["0.1"]),
    ("DATE", datetime.date(2024, 2, 29), []),
    ("BOOLEAN", True, ["TRUE"]),
    ("SMALLINT", -5, ["-05"]),
    ("STRING", "a=b/c d", []),
    ("STRING", "__DEFAULT_PARTITION__", []),
    ("STRING", "a\tb", []),
]


def held(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.scan().to_arrow().sort_by("id").to_pylist()]


@pytest.mark.few(4)
@pytest.mark.parametrize("legacy", ["true", pytest.param("false", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "value", "others"), some_now(KINDS))
def test_one_value_has_all_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, value: Any, others: list[Any], legacy: str
) -> None:
    """As Python has it, as `$partitions` shows it, as its folder has it; another partition is beside it."""
    if legacy == "false" and "LTZ" in kind:
        return
    monkeypatch.setenv("TZ", "Europe/Berlin")
    catalog = Catalog(tmp_path)
    table = catalog.create_table(
        "shop.t",
        schema={"id": "INT", "p": kind},
        partition_keys=["p"],
        options={"bucket": "-1", "partition.legacy-name": legacy},
    )
    table.append([{"id": 1, "p": value}])
    rows = held(table)
    shown = catalog.table("shop.t$partitions").scan().to_arrow()["partition"][0].as_py()
    folder = next(each.name for each in Path(table.location).glob("p=*"))
    table.append([{"id": 2, "p": None}])
    texts = [] if isinstance(value, str) else [shown.removeprefix("p="), unquote(folder.removeprefix("p="))]
    for name in (value, *texts, *others):
        assert table.drop_partition({"p": name}, dry_run=True).files_removed == 1, name
        assert table.overwrite([{"id": 3, "p": value}], partition={"p": name}, dry_run=True).files_removed == 1, name
    assert table.mark_partition_done({"p": value})[0].split("/")[-2] == folder
    written = value if isinstance(value, str) else texts[0]
    sql(f"INSERT OVERWRITE shop.t PARTITION (p = '{written}') VALUES (1)", catalog)
    assert held(table) == [*rows, (2, None)]
    assert sql(f"SHOW PARTITIONS shop.t PARTITION (p = '{written}')", catalog).to_arrow().to_pylist() == [
        {"partition": shown}
    ]
    sql(f"ALTER TABLE shop.t DROP PARTITION (p = '{written}')", catalog)
    assert held(table) == [(2, None)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TIMESTAMP(3)", datetime.datetime(2024, 1, 2, tzinfo=UTC)),
        ("TIMESTAMP(3)", "2024-01-02 03:04:05.0001"),
        ("TIMESTAMP(3)", datetime.date(2024, 1, 2)),
        ("TIMESTAMP_LTZ(3)", datetime.datetime(2024, 1, 2)),
        ("TIME(0)", datetime.time(1, 2, 3, 4)),
        ("TIME(3)", "1:2"),
        ("DECIMAL(10, 2)", "1.505"),
        ("DECIMAL(10, 2)", 1.5),
        ("DECIMAL(10, 2)", "1e999999999"),
        ("FLOAT", "x"),
        ("STRING", 5),
    ],
)
def test_values_of_other_types_and_finer_ones_are_refused(tmp_path: Path, kind: str, value: Any) -> None:
    table = Catalog(tmp_path).create_table("shop.t", schema={"id": "INT", "p": kind}, partition_keys=["p"])
    with pytest.raises(InvalidRequestError, match=r"partition key 'p' of shop.t is .*; write one value, such as"):
        table.drop_partition({"p": value})


def test_a_partition_that_is_not_there_is_said(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.drop_partition({"day": "2026-03-05"}, {"day": "1999-01-01"})
    table.compact(partition={"hour": 7})
    told = [record.message for record in caplog.records]
    assert [text.split("$")[0] for text in told] == [
        "table shop.orders has no partition day=1999-01-01: nothing of it is dropped. ",
        "table shop.orders has no partition hour=7: nothing is compacted. ",
    ]
    assert "day=2026-03-06/hour=2/paid=true" in told[1]


def test_a_command_names_null_by_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "__DEFAULT_PARTITION__"
    table = Catalog(tmp_path).create_table("shop.t", schema={"id": "INT", "p": "STRING"}, partition_keys=["p"])
    table.append([{"id": 1, "p": None}, {"id": 2, "p": name}])
    table.drop_partition(partitions_given([f"p={name}"]) or {})
    assert held(table) == [(2, name)]
    for _ in range(2):
        table.drop_partition({"p": name})
    assert held(table) == []
    assert caplog.records[-1].message.endswith("that of NULL is None, NULL in SQL")


BLANK = [None, "", "  ", "__DEFAULT_PARTITION__", "a"]
"""Values of one folder, and one of another."""


@pytest.mark.parametrize(
    ("named", "gone"),
    [(None, None), ("__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"), ("", ""), ("  ", "  "), ("a", "a")],
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
