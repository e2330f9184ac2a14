"""The same tables on both sides: Paimon and Freshet expire the same partitions, and each reads what the other left."""

from __future__ import annotations

import datetime
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

pytestmark = pytest.mark.judge

AT_ONCE = {"partition.expiration-check-interval": "0 s"}
NOW = datetime.datetime.now()
DAYS = [NOW - timedelta(days=number, hours=2) for number in (0, 1, 5, 8, 40, 400)]
"""Three are older than 7 days, at any hour: where only the day counts, two hours are up to a day."""


def by_text(pattern: str) -> list[Any]:
    return [day.strftime(pattern) for day in DAYS]


KINDS: dict[str, tuple[dict[str, str], list[tuple[Any, ...]], dict[str, str]]] = {
    "text": ({"dt": "STRING"}, [(text,) for text in [*by_text("%Y-%m-%d"), "no date", None, "2020-2-31"]], {}),
    "seconds": ({"dt": "STRING"}, [(text,) for text in by_text("%Y-%m-%d %H:%M:%S")], {}),
    "formatted": (
        {"dt": "STRING"},
        [(text,) for text in [*by_text("%Y%m%d"), "20200231", "20201301", "x"]],
        {"partition.timestamp-formatter": "yyyyMMdd"},
    ),
    "number": (
        {"dt": "INT"},
        [(int(text),) for text in by_text("%Y%m%d")],
        {"partition.timestamp-formatter": "yyyyMMdd"},
    ),
    "parts": (
        {"year": "INT", "month": "INT", "day": "STRING"},
        [(day.year, day.month, f"{day.day}") for day in DAYS] + [(2020, 1, None)],
        {"partition.timestamp-pattern": "$year-$month-$day 00:00:00"},
    ),
    "second": (
        {"region": "STRING", "dt": "STRING"},
        [(region, text) for region in ("a", None) for text in by_text("%Y-%m-%d")],
        {"partition.timestamp-pattern": "$dt"},
    ),
    "prefix": (
        {"d": "STRING", "dt": "STRING"},
        [("x", text) for text in by_text("%Y-%m-%d")],
        {"partition.timestamp-pattern": "$dt"},
    ),
    "few": ({"dt": "STRING"}, [(text,) for text in by_text("%Y-%m-%d")], {"partition.expiration-max-num": "2"}),
    "batches": ({"dt": "STRING"}, [(text,) for text in by_text("%Y-%m-%d")], {"partition.expiration-batch-size": "2"}),
    "updates": ({"dt": "STRING"}, [("a",), ("b",)], {"partition.expiration-strategy": "update-time"}),
    "updates, old": (
        {"dt": "STRING"},
        [("a",), (None,), ("c",)],
        {"partition.expiration-strategy": "update-time", "partition.expiration-time": "1 ms"},
    ),
}


def ours(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def theirs(table: PaimonTable) -> list[tuple[Any, ...]]:
    return table.read_rows()


def table_of(tmp_path: Path, keys: dict[str, str], partitions: list[tuple[Any, ...]], options: dict[str, str]) -> Table:
    """A row in each partition; nothing expires by itself."""
    table = Catalog(tmp_path / "w").create_table(
        "db.t",
        schema={**keys, "id": "BIGINT", "v": "STRING"},
        partition_keys=list(keys),
        options={"bucket": "-1", "partition.expiration-time": "7 d", **options},
    )
    with table.with_options({"write-only": "true"}).writer("w") as writer:
        writer.write([{**dict(zip(keys, each, strict=True)), "id": n, "v": "x"} for n, each in enumerate(partitions)])
        writer.commit()
    return table


@pytest.mark.few(5)
@pytest.mark.parametrize("kind", KINDS)
def test_both_expire_the_same_partitions(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    keys, partitions, options = KINDS[kind]
    table = table_of(tmp_path, keys, partitions, options)
    shutil.copytree(tmp_path / "w", tmp_path / "w2")
    copy = paimon.table(str(tmp_path / "w2" / "db.db" / "t"))
    before = ours(table)
    said = copy.copy(AT_ONCE).expire_partitions()
    expiry = table.expire_partitions()
    assert [dict(each) for each in expiry.partitions] == said
    there = Table.open(copy.location)
    assert ours(table) == theirs(copy) == theirs(paimon.table(table.location)) == ours(there)
    assert (len(ours(table)) == len(before)) == (kind in ("updates", "prefix"))
    assert len(table.snapshots()) == len(there.snapshots()), "batches are commits"
    assert not table.check(all_snapshots=True).damage
    copy.write([(*partitions[0], 100, "after")])
    paimon.table(table.location).write([(*partitions[0], 100, "after")])
    assert ours(table) == ours(there)


def test_dates_expire_here_and_never_there(tmp_path: Path, paimon: PaimonJudge) -> None:
    """The difference: Paimon 2.0.0 takes the number of the day for a text that is no date."""
    for name, of, values in (
        ("d", "DATE", [day.date() for day in DAYS]),
        ("ts", "TIMESTAMP(3)", [day.replace(microsecond=0) for day in DAYS]),
    ):
        table = table_of(tmp_path / name, {name: of}, [(value,) for value in values], {})
        judge = paimon.table(table.location)
        before = ours(table)
        assert judge.copy(AT_ONCE).expire_partitions() == []
        assert theirs(judge) == before
        assert len(table.expire_partitions().partitions) == 3
        assert theirs(judge) == ours(table)
        assert len(ours(table)) == 3


def test_a_commit_takes_late_rows_away_on_both_sides(tmp_path: Path, paimon: PaimonJudge) -> None:
    keys, partitions, _ = KINDS["text"]
    for who in ("freshet", "paimon"):
        table = table_of(tmp_path / who, keys, partitions, AT_ONCE)
        judge = paimon.table(table.location)
        if who == "freshet":
            with table.writer("late") as writer:
                writer.write([{"dt": "2020-01-01", "id": 1, "v": "late"}])
                writer.commit()
        else:
            judge.write([("2020-01-01", 1, "late")])
        kinds = [str(snapshot.commit_kind) for snapshot in table.snapshots()]
        assert kinds == ["APPEND", "APPEND", "OVERWRITE"]
        assert theirs(judge) == ours(table)
        assert len(ours(table)) == 5
        assert "late" not in {row[-1] for row in ours(table)}


def test_end_of_input(tmp_path: Path, paimon: PaimonJudge) -> None:
    keys, partitions, _ = KINDS["text"]
    for option, left in (("true", 5), ("false", 9)):
        table = table_of(tmp_path / option, keys, partitions, {"end-input.check-partition-expire": option})
        with table.writer("w2"):
            pass
        assert len(ours(table)) == 9, "nothing was committed"
        with table.writer("w2") as writer:
            writer.commit()
        assert len(ours(table)) == left
        assert theirs(paimon.table(table.location)) == ours(table)
