"""freshet compact: partitions, whole databases, on Spark; what it says and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.pipeline.commands import bars
from freshet.pipeline.commands.bars import bar
from freshet.pipeline.sources.batch_source import register
from tests.pipeline.commands.kit import Freshet
from tests.storage.write.test_append_vectors import index_files, mark

ROOT = Path(__file__).parents[3]
KEPT = {"bucket": "1", "num-sorted-run.compaction-trigger": "50"}


def a_table(folder: Path, name: str = "shop.t", *, commits: int = 3) -> Table:
    table = Catalog(folder).create_table(
        name,
        schema={"dt": "STRING NOT NULL", "hh": "INT NOT NULL", "k": "INT NOT NULL"},
        primary_keys=["dt", "hh", "k"],
        partition_keys=["dt", "hh"],
        options=KEPT,
    )
    with table.writer("w") as writer:
        for number in range(commits):
            rows = [(dt, hh, number) for dt in ("2026-11-21", "a/b=c") for hh in (1, 2)]
            dts, hours, keys = zip(*rows, strict=True)
            writer.write(pa.table({"dt": dts, "hh": pa.array(hours, pa.int32()), "k": pa.array(keys, pa.int32())}))
            writer.commit()
    return table


def compacted(table: Table) -> list[str]:
    """Partitions that have no level 0."""
    levels: dict[str, set[int]] = {}
    for entry in table.files():
        levels.setdefault(table.engine.partition_path(entry.partition), set()).add(entry.file.level)
    return sorted(path for path, found in levels.items() if 0 not in found)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        (["dt=2026-11-21"], ["dt=2026-11-21/hh=1", "dt=2026-11-21/hh=2"]),
        (["dt=2026-11-21,hh=2"], ["dt=2026-11-21/hh=2"]),
        (["dt=2026-11-21/hh=2"], ["dt=2026-11-21/hh=2"]),
        (["dt=2026-11-21", "hh=2"], ["dt=2026-11-21/hh=2"]),
        (["hh=1"], ["dt=2026-11-21/hh=1", "dt=a%2Fb%3Dc/hh=1"]),
        (["hh=3"], []),
    ],
)
def test_partitions(freshet: Freshet, tmp_path: Path, arguments: list[str], paths: list[str]) -> None:
    table = a_table(tmp_path)
    given = [part for argument in arguments for part in ("--partition", argument)]
    said = freshet.good("compact", tmp_path, "shop.t", *given).out
    assert compacted(table) == paths
    assert (said == "nothing to compact\n") == (not paths)


def test_a_partition_as_values(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.compact(partition={"dt": "a/b=c"})
    assert compacted(table) == ["dt=a%2Fb%3Dc/hh=1", "dt=a%2Fb%3Dc/hh=2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.t", "--partition", "day=1"], "no partition key 'day'; its partition keys are dt, hh"),
        (["shop.t", "--partition", "dt<2026"], 'freshet sql WAREHOUSE "DELETE FROM TABLE WHERE'),
        (["shop.t", "--partition", "dt"], "--partition 'dt': write a partition key and its value"),
        (["shop.t", "--partition", "dt=1", "--partition", "dt=2"], "gives dt two values"),
        (["shop.t", "--partition", "dt=a/dt=a"], "--partition 'dt=a/dt=a' gives dt twice: write a partition key"),
        (["shop.t", "--every", "soon"], "--every: 'soon' is no interval"),
        (["shops"], "there is no database 'shops'"),
    ],
)
def test_wrong_calls_compact_nothing(freshet: Freshet, tmp_path: Path, arguments: list[str], message: str) -> None:
    table = a_table(tmp_path)
    called = freshet("compact", tmp_path, *arguments)
    assert called.code == 2, called.err
    assert message in called.err
    assert len(table.snapshots()) == 3


def test_a_database(freshet: Freshet, tmp_path: Path) -> None:
    tables = [a_table(tmp_path, f"shop.{name}") for name in ("one", "two")]
    a_table(tmp_path, "other.t")
    said = freshet.good("compact", tmp_path, "shop").out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["shop.one", "shop.two"]
    assert all(len(compacted(table)) == 4 for table in tables)
    assert compacted(Catalog(tmp_path).table("other.t")) == []


def test_a_table_that_cannot_be_compacted_holds_up_no_other(freshet: Freshet, tmp_path: Path) -> None:
    broken, good = a_table(tmp_path, "shop.a"), a_table(tmp_path, "shop.b")
    for entry in broken.files():
        for path in Path(broken.location).rglob(entry.file.file_name):
            path.unlink()
    called = freshet("compact", tmp_path, "shop")
    assert called.code == 65
    assert "shop.a was not compacted: CorruptDataError: " in called.err
    assert "1 table of shop not compacted: shop.a" in called.err
    assert len(compacted(good)) == 4


def test_a_dropped_compaction_counts_its_bucket_once(tmp_path: Path) -> None:
    table = a_table(tmp_path)

    def faster(done: object) -> None:
        if getattr(done, "buckets_done", 0) == 1:
            Table.open(table.location).compact(partition={"dt": "2026-11-21"})

    result = table.compact(partition={"dt": "2026-11-21", "hh": "1"}, progress=faster)
    assert len(result.aborted_compactions) > 1
    assert result.buckets_aborted == 1


def test_sorting(freshet: Freshet, tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("shop.a", schema={"x": "INT", "y": "INT"}, options={"bucket": "-1"})
    with table.writer("w") as writer:
        for _ in range(3):
            writer.write(pa.table({"x": pa.array([3, 1, 2], pa.int32()), "y": pa.array([1, 2, 3], pa.int32())}))
            writer.commit()
    assert "compacted in snapshot 4: 1 bucket" in freshet.good("compact", tmp_path, "shop.a", "--order-by", "x, y").out
    assert table.scan().to_arrow()["x"].to_pylist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert freshet.good("compact", tmp_path, "shop.a", "--order-by", "y,x", "--strategy", "hilbert").code == 0
    for arguments, message in (
        (["--order-by", "z"], "no column 'z'"),
        (["--order-by", ","], "name the columns"),
        (["--order-by", "x", "--strategy", "z"], "order, zorder, hilbert"),
        (["--order-by", "x", "--continuous"], "--order-by sorts once"),
        (["--order-by", "x", "--on-spark"], "in this process: leave out --every, --continuous, --on-spark"),
    ):
        called = freshet("compact", tmp_path, "shop.a", *arguments)
        assert called.code == 2, called.err
        assert message in called.err


def test_logs_show_progress_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bars, "LINE_EVERY_S", 0.0)
    with bar("compacting shop.t") as advance:
        advance(0, 0)
        advance(50, 200)
    assert capsys.readouterr().err == "freshet: compacting shop.t: 25 %\n"
    monkeypatch.setattr(bars, "LINE_EVERY_S", 1000.0)
    with bar("compacting shop.t") as advance:
        advance(50, 200)
    assert capsys.readouterr().err == ""


@pytest.mark.always("crossing: spark-submit")
@pytest.mark.spark
@pytest.mark.slow
def test_the_job_below_spark_submit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = sorted(map(str, table.scan().to_arrow().to_pylist()))
    submit = Path(sys.executable).with_name("spark-submit")
    job = [str(submit), "--master", "local[2]", str(ROOT / "src/freshet/jobs/compact_table.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable}

    def submitted(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*job, str(tmp_path), *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    ran = submitted("shop.t", "--partition", "dt=2026-11-21", "--json")
    assert ran.returncode == 0, ran.stderr[-3000:]
    facts = ran.stdout[ran.stdout.find("{") :]  # spark-submit gives both streams of the driver to the first
    assert json.loads(facts)["buckets"] == 2, ran.stdout
    assert compacted(table) == ["dt=2026-11-21/hh=1", "dt=2026-11-21/hh=2"]
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == before
    missing = submitted("shop.no")
    assert missing.returncode == 2
    said = missing.stdout + missing.stderr
    assert "there is no table shop.no" in said
    assert "Traceback" not in said


@pytest.mark.spark
def test_on_spark(freshet: Freshet, tmp_path: Path, spark: SparkSession) -> None:
    table = a_table(tmp_path)
    before = sorted(map(str, table.scan().to_arrow().to_pylist()))
    said = freshet.good("compact", tmp_path, "shop.t", "--on-spark").out
    assert "4 buckets" in said
    assert len(compacted(table)) == 4
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == before
    assert {s.commit_user.startswith("freshet-compact-") for s in table.snapshots()[3:]} == {True}


@pytest.mark.slow
@pytest.mark.spark
def test_kinds_of_tables_on_spark(freshet: Freshet, tmp_path: Path, spark: SparkSession) -> None:
    """Tasks leave out rows that are marked or have expired, and keep the order of snapshots."""
    catalog, columns = Catalog(tmp_path), {"k": "INT NOT NULL", "t": "INT"}
    keyed = {"bucket": "1", "write-only": "true"}
    marked = catalog.create_table("a.marked", schema=columns, options={"deletion-vectors.enabled": "true"})
    expiry = {"record-level.expire-time": "1 d", "record-level.time-field": "t"}
    expired = catalog.create_table("a.expired", schema=columns, primary_keys=["k"], options={**keyed, **expiry})
    ordering = {"sequence.snapshot-ordering": "true"}
    ordered = catalog.create_table("a.ordered", schema=columns, primary_keys=["k"], options={**keyed, **ordering})
    old, new = {(k, k) for k in range(1, 10)}, {(k, 2_000_000_000 + k) for k in range(5, 10)}
    for table in (marked, expired, ordered):
        with table.writer("w") as writer:
            for rows in (old, new):
                writer.write([{"k": k, "t": t} for k, t in sorted(rows)])
                writer.commit()
    mark(marked, 3, 9)
    replaced = {(k, t) for k, t in old if k < 5} | new
    register(spark)
    for name, before, after in (
        ("marked", *[{(k, t) for k, t in old | new if k not in (3, 9)}] * 2),
        ("expired", replaced, new),
        ("ordered", replaced, replaced),
    ):
        reader = spark.read.format("freshet").option("warehouse", str(tmp_path)).option("table", f"a.{name}")
        assert {(row.k, row.t) for row in reader.load().collect()} == before
        assert "1 bucket" in freshet.good("compact", tmp_path, f"a.{name}", "--on-spark").out
        assert {(row.k, row.t) for row in reader.load().collect()} == after
    assert index_files(marked) == []


@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("moves", [False, True])
def test_dynamic_buckets_on_spark(freshet: Freshet, tmp_path: Path, spark: SparkSession, moves: bool) -> None:
    """Compacted by tasks, with and without rows that have left their partition; later rows find their keys."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "3", "num-sorted-run.compaction-trigger": "50"}
    table = Catalog(tmp_path).create_table(
        "a.t",
        schema={"k": "INT NOT NULL", "p": "INT NOT NULL", "v": "INT"},
        primary_keys=["k"] if moves else ["p", "k"],
        partition_keys=["p"],
        options={**options, "cross-partition-upsert.index-dir": str(tmp_path / "index")},
    )
    held: dict[int, tuple[int, int]] = {}

    def write(number: int) -> None:
        rows = {k: ((k + number * moves) % 2, number) for k in range(number, 20)}
        with table.writer("w") as writer:
            writer.write([{"k": k, "p": p, "v": v} for k, (p, v) in rows.items()])
            writer.commit()
        held.update(rows)

    def found() -> list[tuple[int, tuple[int, int]]]:
        rows = table.scan().to_arrow().to_pylist()
        return sorted((row["k"], (row["p"], row["v"])) for row in rows)

    for number in range(3):
        write(number)
    buckets = {(entry.partition, entry.bucket) for entry in table.files()}
    assert len(buckets) >= 8
    assert f"{len(buckets)} buckets" in freshet.good("compact", tmp_path, "a.t", "--full", "--on-spark").out
    assert 0 not in {entry.file.level for entry in table.files()}
    assert found() == sorted(held.items())
    write(3)
    assert found() == sorted(held.items())
    assert moves or {(entry.partition, entry.bucket) for entry in table.files()} == buckets
    assert not table.check().damage


def test_repair_takes_no_other_way_of_compacting(tmp_path: Path, freshet: Freshet) -> None:
    a_table(tmp_path)
    said = freshet("compact", tmp_path, "shop.t", "--repair")
    assert said.code == 0
    assert "nothing to repair: no level has files that overlap" in said.out + said.err
    refused = freshet("compact", tmp_path, "shop.t", "--repair", "--full")
    assert refused.code == 2
    assert "--repair merges levels whose files overlap" in refused.err
