"""The command: what it prints, its exit codes, and that errors are messages and not traces."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.pipeline.commands.kit import Freshet

ROOT = Path(__file__).resolve().parents[3]

PIPELINE = """
name: from-files
sources:
  - files: {{path: "{folder}/input"}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: shop.orders
  columns: {{id: BIGINT, total: "DECIMAL(10,2)"}}
  primary_key: [id]
  options: {{bucket: 2}}
trigger: {trigger}
checkpoint: "{folder}/checkpoint"
"""


def _freshet(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own; what needs none is called through the fixture `freshet`."""
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def _pipeline(folder: Path, trigger: str = "{available_now: true}", **changes: str) -> Path:
    text = PIPELINE.format(folder=folder, trigger=trigger)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "input").mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return path


def _input(folder: Path, *lines: object, name: str = "1") -> None:
    (folder / "input").mkdir(exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path = folder / "input" / f"{name}.json"
    written = path.with_name(f".{path.name}")  # a query that runs meanwhile sees a file that is whole
    written.write_text("\n".join(texts) + "\n")
    written.rename(path)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of two commits."""
    table = Catalog(str(tmp_path)).create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    with table.writer("loader") as writer:
        for identifier in (1, 2):
            writer.write(pa.table({"id": [identifier, 10 + identifier]}))
            writer.commit(identifier)
    return table


def test_looking_at_a_table(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    described = freshet("describe", tmp_path, "shop.orders")
    assert described.code == 0, described.err
    assert "primary key (id)" in described.out
    assert "bucket-0" in described.out
    snapshots = freshet("snapshots", tmp_path, "shop.orders")
    assert [line.split()[0] for line in snapshots.out.splitlines()] == ["snapshot", "1", "2"]
    files = freshet("files", tmp_path, "shop.orders")
    assert len(files.out.splitlines()) == 3
    assert len(freshet("files", tmp_path, "shop.orders", "--snapshot", 1).out.splitlines()) == 2


def test_expiry_names_the_consumer_that_holds_it_back(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    freshet.good("consumers", tmp_path, "shop.orders", "--reset", "bi tool", "--next", 1)
    call = ("expire", tmp_path, "shop.orders", "--retain-max", 1)
    held = freshet.good(*call).out
    assert re.search(
        r"consumer bi tool wants snapshot 1 next since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+ s ago\), and "
        r"holds back 1 snapshot and \d[\d.]* [KM]?B of data files",
        held,
    )
    assert f"freshet consumers {tmp_path} shop.orders --delete 'bi tool'" in held
    (holder,) = json.loads(freshet.good(*call, "--json").out)["held_by"]
    assert holder.pop("moved_at").endswith("Z") and holder.pop("data_bytes") >= 0
    assert holder == {"consumer": "bi tool", "next_snapshot": 1, "snapshots": 1}
    (listed,) = freshet.good("consumers", tmp_path, "shop.orders", "--json").facts
    assert listed.pop("moved_at").endswith("Z")
    assert listed == {"consumer": "bi tool", "next_snapshot": 1, "snapshots_behind": 2}
    shown = freshet.good("consumers", tmp_path, "shop.orders").out
    assert "read on" in shown and re.search(r" s ago\)$", shown.rstrip())
    freshet.good("consumers", tmp_path, "shop.orders", "--delete", "bi tool")
    assert freshet.good(*call).out.startswith("1 snapshot expired")


def test_looking_after_a_table(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    assert "compacted in snapshot 3" in freshet("compact", tmp_path, "shop.orders").out
    call = ("expire", tmp_path, "shop.orders", "--retain-max", 1, "--retain-min", 1, "--older-than-hours", 0)
    said = freshet.good(*call, "--dry-run")
    assert said.out.startswith("2 snapshots would expire, ") and "would go; nothing was removed" in said.out
    assert json.loads(freshet.good(*call, "--dry-run", "--json").out)["dry_run"] is True
    expired = freshet(*call)
    assert expired.out == said.out.replace("would expire", "expired").replace("would go; nothing was ", ""), expired.err
    (Path(table.location) / "bucket-0" / "data-lost-0.parquet").write_bytes(b"lost")
    listed = freshet("orphans", tmp_path, "shop.orders", "--older-than-hours", 0)
    assert "data-lost-0.parquet" in listed.out
    assert "nothing was removed" in listed.out
    assert freshet("orphans", tmp_path, "shop.orders", "--older-than-hours", 0, "--delete").code == 0
    assert not (Path(table.location) / "bucket-0" / "data-lost-0.parquet").exists()
    assert table.scan().to_arrow().num_rows == 4


@pytest.mark.slow
def test_a_compaction_job_works_until_it_is_stopped(tmp_path: Path, table: Table) -> None:
    command = [
        sys.executable,
        "-m",
        "freshet.pipeline.commands.command_line",
        "compact",
        str(tmp_path),
        "shop.orders",
        "--every",
        "0.1",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            writer = table.with_options({"write-only": "true"}).writer("loader")
            with writer:
                for identifier in range(3, 15):
                    writer.write(pa.table({"id": [identifier, 10 + identifier]}))
                    writer.commit(identifier)
            deadline = time.monotonic() + 300
            while len([entry for entry in table.files() if entry.file.level == 0]) > 5:
                assert program.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            program.terminate()
            out, err = program.communicate(timeout=300)
        finally:
            if program.poll() is None:
                program.kill()
    assert program.returncode == 0, err
    assert out.startswith("compacted in snapshot "), out
    assert "nothing to compact" not in out
    assert err == ""
    kinds = {snapshot.commit_user[:15]: str(snapshot.commit_kind) for snapshot in table.snapshots()}
    assert kinds == {"loader": "APPEND", "freshet-compact": "COMPACT"}
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted({*range(1, 15), *range(11, 25)})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compact", "{folder}", "shop.nothing", "--every", "1"], 2, "there is no table"),
        (["compact", "{folder}", "shop.orders", "--every", "-1"], 2, "--every"),
        (["describe", "{folder}", "shop.nothing"], 2, "there is no table"),
        (["snapshots", "{folder}"], 2, "TABLE"),
        (["nonsense"], 2, "nonsense"),
        (["check", "{folder}/missing.yaml"], 2, "missing.yaml"),
        (["files", "{folder}", "shop.orders", "--snapshot", "9"], 2, "9"),
    ],
)
def test_wrong_calls(
    freshet: Freshet, tmp_path: Path, table: Table, arguments: list[str], code: int, message: str
) -> None:
    ran = freshet(*[argument.format(folder=tmp_path) for argument in arguments])
    assert ran.code == code
    assert message in ran.err
    assert "Traceback" not in ran.err
    debug = freshet("--debug", *[argument.format(folder=tmp_path) for argument in arguments])
    assert debug.code == code


def test_a_corrupt_table_is_exit_code_65(freshet: Freshet, tmp_path: Path, table: Table) -> None:
    (Path(table.location) / "snapshot" / "snapshot-2").write_text("{")
    ran = freshet("describe", tmp_path, "shop.orders", "--json")
    assert ran.code == 65
    assert ran.err.startswith("freshet: CorruptDataError: ")
    assert "snapshot-2" in ran.err
    assert "Traceback" not in ran.err
    facts = json.loads(ran.out)
    assert (facts["kind"], facts["retryable"], facts["exit_code"]) == ("CorruptDataError", False, 65)
    assert "snapshot-2" in facts["error"]


def test_check_names_the_line_and_the_nearest_key(freshet: Freshet, tmp_path: Path) -> None:
    good = freshet("check", _pipeline(tmp_path))
    assert (good.code, good.out) == (0, "from-files: ok, into shop.orders\n"), good.err
    bad = freshet("check", _pipeline(tmp_path, **{"primary_key:": "primary_keys:"}))
    assert bad.code == 2
    assert "pipeline.yaml:10" in bad.err
    assert "primary_key" in bad.err
    assert not (tmp_path / "warehouse").exists()


def test_check_compares_the_table_that_is_there(freshet: Freshet, tmp_path: Path) -> None:
    path = _pipeline(tmp_path)
    Catalog(str(tmp_path / "warehouse")).create_table(
        "shop.orders", schema={"id": "BIGINT", "total": "INT"}, primary_keys=["id"], options={"bucket": "2"}
    )
    ran = freshet("check", path)
    assert ran.code == 2
    assert "column total is INT there and DECIMAL(10, 2) in the file" in ran.err


@pytest.mark.slow
@pytest.mark.spark
def test_run_to_the_end_of_the_input_and_again(tmp_path: Path, spark: SparkSession, freshet: Freshet) -> None:
    """First in a process of its own, then in the session that is there."""
    path = _pipeline(tmp_path)
    _input(tmp_path, {"id": 1, "total": "1.50"}, {"id": 2, "total": 2}, {"id": "x"}, {"id": 1, "total": 3, "more": 1})
    ran = _freshet("run", path)
    assert ran.returncode == 0, ran.stderr
    assert "from-files: batch 0: 4 records in " in ran.stdout
    assert "3 applied, 1 dead letter" in ran.stdout
    assert "dead letters so far, in shop.orders_dead_letters: 1 × " in ran.stdout
    assert "Traceback" not in ran.stderr
    catalog = Catalog(str(tmp_path / "warehouse"))
    rows = {row["id"]: str(row["total"]) for row in catalog.table("shop.orders").scan().to_arrow().to_pylist()}
    assert rows == {1: "3.00", 2: "2.00"}
    assert catalog.table("shop.orders_dead_letters").scan().to_arrow()["column_name"].to_pylist() == ["id"]
    _input(tmp_path, {"id": 5, "total": 5}, name="2")
    freshet.good("run", path)
    snapshots = catalog.table("shop.orders").snapshots()
    assert [snapshot.commit_identifier for snapshot in snapshots] == [0, 1]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_batch_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    path = _pipeline(tmp_path, trigger="{processing_time: 200 milliseconds}")
    _input(tmp_path, {"id": 1, "total": 1})
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        try:
            catalog = Catalog(str(tmp_path / "warehouse"))
            deadline = time.monotonic() + 600
            while not (catalog.has_table("shop.orders") and catalog.table("shop.orders").snapshots()):
                assert program.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            _input(tmp_path, *[{"id": n, "total": n} for n in range(1000)], name="2")
            os.killpg(program.pid, number)
            out, err = program.communicate(timeout=300)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, err
    assert str(ROOT / "src") not in err, err
    assert "finishing the batches" in out
    # Whole batches or nothing: the second file is in the table completely, or not at all.
    assert catalog.table("shop.orders").scan().to_arrow().num_rows in (1, 1000)
    again = _freshet("run", _pipeline(tmp_path))
    assert again.returncode == 0, again.stderr
    assert catalog.table("shop.orders").scan().to_arrow().num_rows == 1000


@pytest.mark.spark
@pytest.mark.slow
def test_checkpoints_belong_to_one_table(tmp_path: Path) -> None:
    path = _pipeline(tmp_path)
    _input(tmp_path, {"id": 1, "total": 1})
    assert _freshet("run", path).returncode == 0
    catalog = Catalog(str(tmp_path / "warehouse"))
    catalog.drop_table("shop.orders")
    dropped = _freshet("run", path)
    assert dropped.returncode == 2
    assert "which is not there (it may have been dropped or renamed)" in dropped.stderr
    assert not catalog.has_table("shop.orders")
    moved = _freshet("run", _pipeline(tmp_path, **{"shop.orders": "shop.others"}))
    assert moved.returncode == 2
    assert "belongs to the table at" in moved.stderr
    assert not catalog.has_table("shop.others")


@pytest.mark.spark
@pytest.mark.slow
def test_a_deleted_checkpoint_is_reported_with_the_remedy(tmp_path: Path) -> None:
    path = _pipeline(tmp_path)
    _input(tmp_path, {"id": 1, "total": 1})
    assert _freshet("run", path).returncode == 0
    for file in sorted((tmp_path / "checkpoint").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    ran = _freshet("run", path)
    assert ran.returncode == 2
    assert "holds commits that an earlier query made under the name 'from-files'" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(Catalog(str(tmp_path / "warehouse")).table("shop.orders").snapshots()) == 1


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_the_same(tmp_path: Path) -> None:
    path = _pipeline(tmp_path)
    _input(tmp_path, {"id": 1, "total": 1}, {"id": 2, "total": 2})
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable}
    command = [str(submit), "--master", "local[2]", str(ROOT / "src/freshet/jobs/run_pipeline.py"), str(path)]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )

    ran = run()
    assert ran.returncode == 0, ran.stderr[-3000:]
    table = Catalog(str(tmp_path / "warehouse")).table("shop.orders")
    assert table.scan().to_arrow().num_rows == 2
    (Path(table.location) / "snapshot" / "snapshot-1").write_text("{")
    damaged = run("--progress", "json")
    assert damaged.returncode == 65, damaged.stderr[-3000:]
    facts = json.loads(damaged.stdout.splitlines()[-1])
    assert (facts["kind"], facts["retryable"]) == ("CorruptDataError", False)


def test_paragraphs_of_the_help_are_as_wide_as_the_terminal(freshet: Freshet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not broken where the lines of the source end."""
    monkeypatch.setenv("COLUMNS", "110")
    assert " carried out, one after the other; each is" in freshet.good("sql", "--help").out
