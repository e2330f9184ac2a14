"""check and run find what is wrong with a pipeline file before anything starts: one message, its line, exit code 2."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from freshet import Catalog
from freshet.logstore.kafka.cluster import ClusterAnswer
from freshet.pipeline.commands import brokers, pipelines
from tests.kit.fake_log import FakeLog
from tests.kit.folders import unchanged
from tests.kit.mock_kafka import mock_kafka
from tests.pipeline.commands.kit import Freshet, fake_java

TEXT = """\
name: orders
sources:
  - files: {path: "FOLDER/in"}
    format: json
    select: {id: id, total: total}
table:
  warehouse: "FOLDER/w"
  name: shop.orders
  columns: {id: BIGINT, total: INT}
  primary_key: [id]
  options: {bucket: 1}
checkpoint: "FOLDER/c"
"""
KAFKA = '- kafka: {kafka.bootstrap.servers: "127.0.0.1:PORT", subscribe: t}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "p.yaml"
    path.write_text(text.replace("FOLDER", str(folder)))
    return path


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("FOLDER/in", "FOLDER/missing", "p.yaml:3: sources.0.files.path"),
        ("FOLDER/in", "missing", "p.yaml:3: sources.0.files.path: "),
        ("FOLDER/c", "~nobody-of-this-name/c", "p.yaml:12: checkpoint: '~nobody-of-this-name/c' is no folder"),
        ("FOLDER/c", "FOLDER/p.yaml/c", "p.yaml:12: checkpoint: "),
        (
            "bucket: 1",
            "bucket-key: id",
            "p.yaml:11: table.options.bucket-key: bucket-key has no meaning with bucket=-1",
        ),
        ("checkpoint:", "trigger: {processing_time: 5 parsecs}\ncheckpoint:", "'5 parsecs' is no interval"),
    ],
)
def test_nothing_is_made_where_something_is_wrong(
    freshet: Freshet, folder: Path, command: str, old: str, new: str, part: str
) -> None:
    path = written(folder, (old, new))
    with unchanged(folder):
        called = freshet(command, path)
    assert called.code == 2, called.err
    assert part in called.err, called.err


def test_folders_of_the_current_folder(freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder, ("FOLDER/in", "in"), ("FOLDER/w", "w"), ("FOLDER/c", "c"))
    monkeypatch.chdir(folder)
    assert freshet.good("check", "--no-spark", path).out == "orders: ok, into shop.orders\n"
    Catalog("w").create_table("shop.orders", schema={"id": "BIGINT", "more": "INT"}, options={"bucket": "-1"})
    called = freshet("check", "--no-spark", path)
    assert called.code == 2, called.err
    assert "shop.orders exists and differs" in called.err
    for warehouse in ("w", "./w", "file:w", "../" + folder.name + "/w"):
        assert freshet.good("tables", warehouse, "--json").facts == freshet.good("tables", folder / "w", "--json").facts


def test_check_without_spark_says_so(freshet: Freshet, folder: Path) -> None:
    called = freshet.good("check", "--no-spark", written(folder))
    assert called.out == "orders: ok, into shop.orders\n"
    assert "select were not analysed" in called.err


def test_a_checkpoint_that_only_spark_reaches_is_said_to_be_unchecked(freshet: Freshet, folder: Path) -> None:
    called = freshet.good("check", "--no-spark", written(folder, ("FOLDER/c", "s3://lake/c")))
    assert "orders: s3a://lake/c was not looked at: only Spark can reach it" in called.err


def test_check_as_json(freshet: Freshet, folder: Path) -> None:
    path = written(folder, ("bucket: 1", "bucket: 1, write-only: true, changelog-producer: lookup"))
    called = freshet.good("check", "--no-spark", "--json", path)
    (fact,) = called.facts["pipelines"]
    assert (called.facts["problems"], fact["pipeline"], fact["table"]) == ([], "orders", "shop.orders")
    assert "write-only=true never does" in fact["warnings"][0]
    missing = freshet("check", "--no-spark", "--json", written(folder, ("FOLDER/in", "FOLDER/missing")))
    assert missing.code == 2
    (problem,) = missing.facts["problems"]
    assert list(problem) == ["message", "path", "line", "kind"]
    assert (problem["path"], problem["line"], problem["kind"]) == (str(path), 3, "InvalidRequestError")
    assert problem["message"].startswith("sources.0.files.path: ")
    assert (missing.facts["kind"], missing.facts["retryable"]) == ("InvalidRequestError", False)
    assert "\nfreshet: InvalidRequestError: " in missing.err
    assert [each["pipeline"] for each in missing.facts["pipelines"]] == ["orders"]
    broken = freshet("check", "--json", written(folder, ("name: orders", "nam: orders")))
    assert broken.code == 2
    assert {each["path"] for each in broken.facts["problems"]} == {str(path)}
    assert broken.facts["pipelines"] == []


def test_check_of_plain_columns_starts_no_spark(
    freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "spark_part", lambda name: pytest.fail("Spark was started"))
    freshet.good("check", written(folder, ("    select: {id: id, total: total}\n", "")))


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        (None, "no java in JAVA_HOME="),
        ("1.8.0_452", "is Java 8, and Spark needs Java 17 or newer"),
        ("11.0.2", "is Java 11, and Spark needs Java 17 or newer"),
        ("17.0.15", None),
        ("25", None),
        ("of unknown make", None),
    ],
)
def test_check_warns_of_a_java_that_spark_does_not_start_with(
    freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, warning: str | None
) -> None:
    path = written(folder, ("    select: {id: id, total: total}\n", ""))
    home = folder / "java"
    monkeypatch.setenv("JAVA_HOME", str(home if version is None else fake_java(home, version)))
    called = freshet.good("check", "--json", path)
    warnings = called.facts["pipelines"][0]["warnings"]
    assert [warning in each for each in warnings] == [True] if warning else warnings == []
    assert called.err.count("freshet: warning: this machine cannot run it: ") == len(warnings)
    assert "java" not in freshet.good("check", "--no-spark", path).err.lower()


def test_check_asks_the_broker_unless_offline(freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers.ask_once, "__defaults__", (1.0,))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = written(folder, ('- files: {path: "FOLDER/in"}', KAFKA.replace("127.0.0.1:PORT", address)))
        called = freshet("check", "--no-spark", path)
        assert called.code == 2
        assert f"p.yaml:3: sources.0.kafka.kafka.bootstrap.servers: no broker answers at {address}" in called.err
        assert "ok, into" in freshet.good("check", "--offline", "--no-spark", path).out


LOGGED = "{bucket: 2, changelog-producer: lookup, log.system: kafka, kafka.topic: t"


def test_check_asks_for_the_log_of_a_table(freshet: Freshet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(options: str, rest: str = "") -> str:
        called = freshet("check", "--no-spark", written(folder, ("{bucket: 1}", f"{options}}}{rest}")))
        assert called.code == 2, called.out
        return called.err

    assert "p.yaml:11: table.options: log.system=kafka needs kafka.bootstrap.servers" in problem(LOGGED)
    servers = "\n  write_options:\n    kafka.bootstrap.servers: '127.0.0.1:1'"
    misspelled = problem(f"{LOGGED}, kafka.sasl.pasword: hunter2", servers)
    assert "the options kafka.* for 127.0.0.1:1, where the log of shop.orders goes are refused: " in misspelled
    assert "sasl.pasword" in misspelled
    assert "hunter2" not in misspelled
    monkeypatch.setattr(brokers.ask_once, "__defaults__", (1.0,))
    text = problem(LOGGED, servers)
    assert "p.yaml:13: table.write_options.kafka.bootstrap.servers: no broker answers at 127.0.0.1:1, where the" in text
    answer = ClusterAnswer(frozenset({"t"}), {"t": 3})
    monkeypatch.setattr(brokers, "ask_once", lambda asked: answer)
    assert "p.yaml:11: table.options.kafka.topic: table shop.orders has 2 buckets and topic t" in problem(
        LOGGED, servers
    )
    answer = ClusterAnswer(frozenset({"t"}), {"t": 2})
    log = FakeLog()
    monkeypatch.setattr(brokers.KafkaLogClient, "of_options", lambda options: log.client())
    path = written(folder, ("{bucket: 1}", f"{LOGGED}}}{servers}"))
    assert "ok, into" in freshet.good("check", "--no-spark", path).out
    assert "ok, into" in freshet.good("check", "--no-spark", "--offline", path).out


def check_text(freshet: Freshet, folder: Path, options: str, *changes: tuple[str, str]) -> str:
    """What `check` says to stderr with these options of the table."""
    return freshet.good("check", "--no-spark", written(folder, ("{bucket: 1}", f"{{{options}}}"), *changes)).err


def table_with(folder: Path, **columns: str) -> None:
    schema = {"id": "BIGINT", "total": "INT", **columns}
    Catalog(folder / "w").create_table("shop.orders", schema=schema, primary_keys=["id"], options={"bucket": "1"})


@pytest.mark.parametrize("select", [True, False])
def test_a_column_that_the_file_leaves_out_though_records_carry_it(
    freshet: Freshet, folder: Path, select: bool
) -> None:
    table_with(folder, note="STRING", more="STRING")
    changes = () if select else (("    select: {id: id, total: total}\n", ""),)
    path = written(folder, *changes)
    (folder / "in" / "a.json").write_text('{"id": 1, "total": 2}\n{"id": 2, "other": 1}\n')
    assert "warning" not in freshet.good("check", "--no-spark", path).err
    (folder / "in" / "b.json").write_text('{"id": 1, "total": 2}\nno json\n\n{"id": 2, "note": "x"}\n')
    called = freshet.good("check", "--no-spark", "--json", path)
    (warning,) = called.facts["pipelines"][0]["warnings"]
    assert warning.startswith(
        "records carry a field note, and the table has a column of that name, which this pipeline"
    )
    assert "table.columns" in warning
    assert f"orders: warning: {warning}" in called.err
    filled = written(folder, *changes, ("total: INT}", "total: INT, note: STRING}"))
    assert "warning" not in freshet.good("check", "--no-spark", filled).err


def test_a_column_that_the_last_records_of_a_topic_carry(freshet: Freshet, folder: Path) -> None:
    table_with(folder, note="STRING")
    with mock_kafka({"t": 3}) as cluster:
        source = KAFKA.replace("127.0.0.1:PORT", cluster.bootstrap_servers)
        path = written(folder, ('- files: {path: "FOLDER/in"}', source))
        assert "warning" not in freshet.good("check", "--no-spark", path).err, "an empty topic"
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for key in range(500):
            producer.produce("t", json.dumps({"id": key, "total": 1, **({"note": "x"} if key > 400 else {})}).encode())
        assert producer.flush(60) == 0
        assert "records carry a field note" in freshet.good("check", "--no-spark", path).err
        offline = freshet.good("check", "--no-spark", "--offline", path).err
        assert "leaves out (note)" in offline
        assert "was not looked at" in offline


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_changelog_that_nobody_makes_is_reported(freshet: Freshet, folder: Path, producer: str) -> None:
    text = "write-only=true never does"
    options = f"bucket: 1, changelog-producer: {producer}"
    assert text in check_text(freshet, folder, f"{options}, write-only: true")
    mine = ("checkpoint:", "  write_options: {write-only: true}\ncheckpoint:")
    assert text in check_text(freshet, folder, options, mine)
    assert text not in check_text(freshet, folder, options)
    table = Catalog(str(folder / "w")).create_table(
        "shop.orders",
        schema={"id": "BIGINT", "total": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "changelog-producer": producer, "write-only": "true"},
    )
    assert text in check_text(freshet, folder, "bucket: 1"), "by the options that the table has"
    with table.writer("u") as writer:
        writer.write(pa.table({"id": [1], "total": pa.array([1], pa.int32())}))
        writer.commit(1)
    assert text in check_text(freshet, folder, "bucket: 1")
    table.compact()
    assert text not in check_text(freshet, folder, "bucket: 1"), "another process compacts"


def test_an_input_changelog_fed_without_the_rows_before_is_reported(freshet: Freshet, folder: Path) -> None:
    text = "do not carry the row before a change"
    options = "bucket: 1, changelog-producer: input"
    assert f"json {text}" in check_text(freshet, folder, options)
    unwrapped = ("format: json", "format: debezium-unwrapped")
    assert f"debezium-unwrapped {text}" in check_text(freshet, folder, options, unwrapped)
    assert text not in check_text(freshet, folder, options, ("format: json", "format: debezium-json"))
    assert text not in check_text(freshet, folder, "bucket: 1, changelog-producer: lookup")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("total +", "not a Spark SQL expression"),
        ("nofunc(total)", "Cannot resolve routine `nofunc`"),
        ("sum(total)", "must give one value per row"),
        ("array(1, 2)", "the column is INT"),
    ],
)
def test_check_analyses_select(freshet: Freshet, folder: Path, expression: str, part: str) -> None:
    path = written(folder, ("total: total", f'total: "{expression}"'))
    with unchanged(folder):
        called = freshet("check", path)
    assert called.code == 2
    assert f"p.yaml:5: sources.0.select.total: {part}" in called.err or (
        "p.yaml:5: sources.0.select.total: " in called.err and part in called.err
    ), called.err


@pytest.mark.spark
@pytest.mark.slow
def test_check_warns_of_expressions_that_fail_for_some_values(freshet: Freshet, folder: Path) -> None:
    called = freshet.good("check", written(folder, ("total: total", 'total: "CAST(100 / CAST(total AS INT) AS INT)"')))
    assert "orders: warning: select.total: a division by zero makes a record a dead letter" in called.err
