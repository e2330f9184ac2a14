"""freshet rescale: partitions, what it says, what it refuses, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from tests.pipeline.commands.kit import Freshet
from tests.storage.maintenance.test_rescale import a_table, counts, filled, held


def opened(folder: Path) -> Table:
    return Catalog(str(folder)).table("db.t")


def test_it_says_what_it_did(freshet: Freshet, tmp_path: Path) -> None:
    filled(a_table(tmp_path, {"bucket": "2"}), commits=2)
    wanted = held(opened(tmp_path))
    said = freshet.good("rescale", tmp_path, "db.t", "--bucket", "8", "--partition", "p=a").out
    assert said.startswith("1 partition rewritten into 8 buckets in snapshot 3, ")
    assert counts(opened(tmp_path)) == {"p=a": {8}, "p=b": {2}}
    facts = freshet.good("rescale", tmp_path, "db.t", "--bucket", "8", "--json").facts
    assert (facts["table"], facts["bucket"], facts["snapshots"], facts["partitions"], facts["repeats"]) == (
        "db.t",
        8,
        [4],
        1,
        0,
    )
    said = freshet.good("rescale", tmp_path, "db.t", "--bucket", "8").out
    assert said == "nothing to rewrite: all partitions chosen have 8 buckets\n"
    assert held(opened(tmp_path)) == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bucket", "-1"], "no index knows the buckets of its keys; create another table with that option"),
        (["--bucket", "0"], "give the number of buckets, from 1 on"),
        (["--bucket", "8", "--partition", "day=1"], "no partition key 'day'; its partition keys are p"),
        ([], "--bucket"),
    ],
)
def test_wrong_calls_change_nothing(freshet: Freshet, tmp_path: Path, arguments: list[str], message: str) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    called = freshet("rescale", tmp_path, "db.t", *arguments)
    assert called.code == 2, called.err
    assert message in called.err
    assert table.engine.latest_schema_id() == 0


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_on_spark(freshet: Freshet, tmp_path: Path, spark: SparkSession, producer: str) -> None:
    filled(a_table(tmp_path, {"bucket": "3", "changelog-producer": producer}), commits=3, kinds=("+I", "-D"))
    wanted = held(opened(tmp_path))
    said = freshet.good("rescale", tmp_path, "db.t", "--bucket", "4", "--on-spark").out
    assert "2 partitions rewritten into 4 buckets" in said
    assert held(opened(tmp_path)) == wanted and counts(opened(tmp_path)) == {"p=a": {4}, "p=b": {4}}
    assert not opened(tmp_path).check().damage
