"""`run_on: local`: the commands without Spark, with workers that are calls of this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.commands import local_running, pipelines
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.config.sections import LOCAL_INTERVAL_MS
from freshet.pipeline.local.workers import WorkerPool
from freshet.storage.catalog import Catalog
from freshet.storage.io import object_stores
from tests.kit.json_shapes import json_shapes, misfits
from tests.kit.s3_server import S3Place
from tests.pipeline.commands.kit import Freshet, fake_java

PIPELINE = """\
name: NAME
run_on: local
sources:
  - files: {path: "FOLDER/in"}
    format: json
    select: {id: id, n: "SELECT"}
table: {warehouse: "FOLDER/w", name: s.NAME, columns: {id: BIGINT, n: INT}, primary_key: [id], options: {bucket: 1}}
trigger: {available_now: true}
checkpoint: "FOLDER/c-NAME"
"""
KAFKA = """kafka: {kafka.bootstrap.servers: "127.0.0.1:1", subscribe: t}"""


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    _put(tmp_path, 1)
    return tmp_path


def _put(folder: Path, number: int, *lines: object) -> None:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines or ({"id": number, "n": number},)]
    (folder / "in" / f"{number}.json").write_text("".join(f"{each}\n" for each in texts))


def _file(folder: Path, name: str = "a", *changes: tuple[str, str], select: str = "n") -> Path:
    text = PIPELINE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("NAME", name).replace("FOLDER", str(folder)).replace("SELECT", select))
    return path


def _rows(folder: Path, name: str = "a") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Catalog(folder / "w").table(f"s.{name}").scan().to_arrow().sort_by("id").to_pylist()
    return found


def test_each_run_goes_on_where_the_last_one_stopped(freshet: Freshet, folder: Path) -> None:
    path = _file(folder)
    assert "a: batch 0: 1 record in" in freshet.good("run", path).out
    _put(folder, 2, {"id": 2, "n": 5}, {"id": 1, "n": 7})
    said = [json.loads(line) for line in freshet.good("run", path, "--progress", "json").out.splitlines()]
    assert [(each["batch"], each["records"], each["replay"]) for each in said] == [(1, 2, False)]
    assert _rows(folder) == [{"id": 1, "n": 7}, {"id": 2, "n": 5}]
    assert sorted(each.name for each in (folder / "c-a" / "commits").iterdir()) == ["0", "1"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(folder: Path, closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "freshet", "run", str(_file(folder))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, _rows(folder)) == (0, [{"id": 1, "n": 1}]), ended.stderr


@pytest.mark.parametrize("progress", ["text", "json"])
def test_a_reader_of_the_output_that_ends_is_named(folder: Path, progress: str) -> None:
    path = _file(folder, "a", ("available_now: true", "processing_time: 0 s"))
    command = [sys.executable, "-m", "freshet", "run", str(path), "--progress", progress]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline()
        program.stdout.close()
        _put(folder, 2)
        said = program.stderr.read()
    assert program.returncode == 1
    assert "the program that read standard output has ended" in said and said.count("\n") < 5, said


def test_the_option_says_the_engine_whatever_the_files_say(freshet: Freshet, folder: Path) -> None:
    a, b = _file(folder), _file(folder, "b", ("run_on: local\n", ""))
    refused = freshet("run", a, b)
    assert (refused.code, (folder / "w").exists()) == (2, False)
    assert f"b.yaml:1: run_on: is spark, and local in {a}" in refused.err
    freshet.good("run", a, b, "--on", "local")
    assert _rows(folder) == _rows(folder, "b") == [{"id": 1, "n": 1}]
    assert freshet("run", b, "--workers", 2).code == 2


BAD = {
    "read": (('files: {path: "FOLDER/in"}', KAFKA + "\n    read: spark"), "sources.0.read: Spark does not read"),
    "client": (
        ('files: {path: "FOLDER/in"}', KAFKA[:-1] + ", kafka.interceptor.classes: x}"),
        "sources.0.kafka.kafka.interceptor.classes: kafka.interceptor.classes is not followed without Spark: leave it",
    ),
    "librdkafka": (
        ('files: {path: "FOLDER/in"}', KAFKA[:-1] + ", kafka.ssl.ca.location: /ca.pem}"),
        "kafka.ssl.ca.location is not followed without Spark: write kafka.ssl.truststore.location, a file in PEM, and",
    ),
    "mechanism": (
        ('files: {path: "FOLDER/in"}', KAFKA[:-1] + ", kafka.security.protocol: SASL_SSL, kafka.sasl.username: u}"),
        "kafka.sasl.mechanism = GSSAPI is not followed without Spark: write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 there",
    ),
    "headers": (("SELECT", "size(_headers)"), "sources.0.select.n: only Spark computes 'size(_headers)'"),
    "setting": (
        ("trigger:", "spark: {spark.sql.legacy.timeParserPolicy: LEGACY}\ntrigger:"),
        "only Spark computes 'n + 1' under the setting spark.sql.legacy.timeParserPolicy",
    ),
    "checkpoint": (("FOLDER/c-NAME", "hdfs://there/c"), "checkpoint: only Hadoop's file systems reach hdfs"),
    "option": (
        ('path: "FOLDER/in"', 'path: "FOLDER/in", options: {wholetext: "true"}'),
        "files.wholetext: without Spark no such option",
    ),
    "files": (("FOLDER/in", "hdfs://there/in"), "files.path: only Hadoop's file systems read files at hdfs"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_only_spark_can_do_is_refused_by_its_name(freshet: Freshet, folder: Path, kind: str) -> None:
    change, wanted = BAD[kind]
    path = _file(folder, "a", change, select="n + 1")
    checked = freshet("check", path, "--offline")
    assert checked.code == 2 and wanted in checked.err and "run_on: spark" in checked.err, checked.err
    assert "--no-spark" not in checked.err
    on_spark = freshet("check", path, "--offline", "--no-spark", "--on", "spark")
    assert on_spark.code == 0, on_spark.err


def test_a_check_needs_neither_java_nor_spark(freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(folder / "java", "1.8.0")))
    load = pipelines.spark_part
    monkeypatch.setattr(
        pipelines, "spark_part", lambda name: pytest.fail("Spark was started") if name == "running" else load(name)
    )
    checked = freshet.good("check", _file(folder, select="n div (n - 1)"))
    assert "Java" not in checked.err and "a: ok, into s.a" in checked.out
    assert "select.n: a division by zero" in checked.err or "makes a record a dead letter" in checked.err


def test_settings_of_spark_are_passed_over_with_one_line(freshet: Freshet, folder: Path) -> None:
    settings = "spark: {spark.master: yarn, spark.sql.session.timeZone: UTC}\ntrigger:"
    called = freshet.good("run", _file(folder, "a", ("trigger:", settings)))
    assert called.err.count("passed over") == 1 and "run_on: local: spark.master\n" in called.err


def test_a_batch_comes_five_times_a_second_where_nothing_is_said(folder: Path) -> None:
    path = _file(folder, "a", ("trigger: {available_now: true}\n", ""))
    config = load_pipeline(path, {})
    assert config.trigger_ms == LOCAL_INTERVAL_MS == 200
    assert config.running_on("spark").trigger_ms == 1000
    said = load_pipeline(_file(folder, "b", ("{available_now: true}", "{processing_time: 3 s}")), {})
    assert said.trigger_ms == said.running_on("spark").trigger_ms == 3000


def test_one_file_is_refused_and_the_other_runs(freshet: Freshet, folder: Path) -> None:
    good, bad = _file(folder), _file(folder, "b", ("FOLDER/in", "FOLDER/gone"))
    called = freshet("run", "--keep-going", good, bad)
    assert called.code == 2 and "the others go on" in called.err, called.err
    assert _rows(folder) == [{"id": 1, "n": 1}]


def test_too_many_dead_letters_end_it_with_65(freshet: Freshet, folder: Path) -> None:
    _put(folder, 2, "broken", "broken")
    path = _file(folder, "a", ("trigger:", "max_dead_letters: {count: 1}\ntrigger:"))
    called = freshet("run", path)
    assert called.code == 65 and "dead letter" in called.err, called.err
    assert not Catalog(folder / "w").table("s.a").snapshots()


def test_dead_letters_go_through_their_pipeline_once_more(freshet: Freshet, folder: Path) -> None:
    _put(folder, 2, {"id": 2, "n": 1}, {"id": 3, "n": "x"})
    path = _file(folder)
    freshet.good("run", path)
    path = _file(folder, "a", ("format: json", "format: json\n    schema: {n: STRING}"), select="try_cast(n AS INT)")
    replayed = freshet.good("dead-letters", folder / "w", "s.a", "--replay", path, "--json").facts
    assert (replayed["replayed"], replayed["applied"]) == (1, 1)
    assert [row["id"] for row in _rows(folder)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("trigger", "options", "text"),
    [
        ("processing_time: 0 seconds", "bucket: 1", "up to 90,000 snapshots in the 60 min"),
        ("processing_time: 0 seconds", "bucket: 1, snapshot.time-retained: 5 min", None),
        ("processing_time: 0 seconds", "bucket: 1, snapshot.num-retained.max: 100", None),
        ("processing_time: 200 milliseconds", "bucket: 1", None),
        ("available_now: true", "bucket: 1", None),
    ],
)
def test_check_says_how_many_snapshots_a_quick_trigger_leaves(
    freshet: Freshet, folder: Path, trigger: str, options: str, text: str | None
) -> None:
    said = freshet.good("check", _file(folder, "a", ("available_now: true", trigger), ("bucket: 1", options))).err
    assert ("snapshots" in said) == (text is not None) and (text or "") in said


SYNC = """
name: shop
run_on: local
sync: {source: {kafka: {kafka.bootstrap.servers: "127.0.0.1:1", subscribe: t}, format: debezium-json},
       tables: [{from: "a.b.(.*)", to: "s.$1"}]}
warehouse: "FOLDER/w"
checkpoint: "FOLDER/c-shop"
"""


@pytest.mark.dear("commands on a server of S3")
def test_workers_are_forked_before_a_store_is_used(
    freshet: Freshet, folder: Path, s3: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a look at a table in a store starts, no fork has: workers could not open their tables."""
    used: list[int | None] = []

    def pool(count: int, **_: object) -> WorkerPool:
        used.append(object_stores._used_in)
        return WorkerPool(0)

    catalog = f"catalog: {json.dumps(s3.sent_options)}\ndead_letters: s.dead\n"
    warehouse = f"{s3.root}/w"
    path = _file(folder, "a", ("FOLDER/w", warehouse), ("trigger", f"{catalog}trigger"))
    many = folder / "shop.yaml"
    many.write_text(SYNC.replace("FOLDER/w", warehouse).replace("FOLDER", str(folder)) + catalog)
    monkeypatch.setattr(local_running, "WorkerPool", pool)
    calls = [
        ("resume", many, "--table", "s.x"),
        ("resync", many, "--table", "s.x", "--yes"),
        ("dead-letters", warehouse, "s.a", "--replay", path, *_given(s3)),
        ("run", path),  # last: what it leaves in the background uses the store too
    ]
    for call in calls:
        monkeypatch.setattr(object_stores, "_used_in", None)
        done = freshet(*call)
        assert object_stores._used_in is not None, call
    assert used == [None] * len(calls)
    assert done.code == 0, done.err


def _given(s3: S3Place) -> list[str]:
    return [text for key, value in s3.options.items() for text in ("--catalog-option", f"{key}={value}")]


@pytest.mark.parametrize("progress", ["text", "json"])
def test_the_first_line_says_what_is_waited_for(freshet: Freshet, folder: Path, progress: str) -> None:
    ran = freshet.good("run", _file(folder), "--progress", progress)
    assert ran.err.splitlines()[0] == "freshet: a: looking at tables and files"
    assert all(len(line) <= 80 for line in ran.out.splitlines() if progress == "text" and ": batch " in line)
    found = [json.loads(line) for line in ran.out.splitlines() if progress == "json"]
    assert [misfits(each, json_shapes()["freshet run --progress json"]) for each in found] == [[]] * len(found)


def test_the_first_line_of_a_run_on_spark(folder: Path) -> None:
    files = [_file(folder, "a", ("run_on: local", "run_on: spark")), _file(folder, "b", ("run_on: local\n", ""))]
    one, two = (load_pipeline(file) for file in files)
    assert pipelines.start_text([one]) == "a: looking at tables and files, then starting Spark (up to a minute)"
    assert pipelines.start_text([one, two]).startswith("2 pipelines: looking at tables and files, then starting")
