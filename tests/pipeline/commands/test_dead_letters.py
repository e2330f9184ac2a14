"""dead-letters: what did not become rows, by reason, and tried again."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.pipeline.commands.replaying import LetterParts, Replay, plan_replay, run_replay
from freshet.pipeline.config.pipeline_file import PipelineConfig, load_pipeline
from freshet.pipeline.decode.raw_records import VALUE
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError, StoppedByRecordError
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.jobs import Jobs
from freshet.pipeline.query.driver.table_setup import open_or_create
from freshet.pipeline.running.spark_pipeline import SparkJobs
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import StorageError
from tests.kit.engine import local_jobs
from tests.logstore.logged_tables import fake_kafka
from tests.pipeline.commands.kit import Freshet
from tests.pipeline.records import change

TEXT = """\
name: orders
sources:
  - kafka: {kafka.bootstrap.servers: "h:1", subscribe: t}
    format: json
table:
  warehouse: "FOLDER/w"
  name: shop.orders
  columns: {id: BIGINT, total: INT}
  primary_key: [id]
  options: {bucket: 1}
checkpoint: "FOLDER/c"
"""


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    path = tmp_path / "p.yaml"
    path.write_text(TEXT.replace("FOLDER", str(tmp_path)))
    return load_pipeline(path, {})


@pytest.fixture
def jobs() -> Jobs:
    return local_jobs()


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def any_jobs(request: pytest.FixtureRequest) -> Jobs:
    return local_jobs() if request.param == "local" else SparkJobs(request.getfixturevalue("spark"))


@pytest.fixture
def dead(config: PipelineConfig) -> Table:
    open_or_create(config)
    return open_dead_letters(Catalog(config.table.warehouse), config.dead_letter_table)


def letter(
    offset: int, value: bytes, *, pipeline: str = "orders", reason: str = "bad", topic: str = "t"
) -> dict[str, Any]:
    return {
        "pipeline": pipeline, "topic": topic, "kafka_partition": 0, "log_offset": offset,
        "record_time": datetime(2026, 1, 1, 0, 0, offset, tzinfo=UTC), "reason": reason, "column_name": "id",
        "raw_key": None, "raw_value": value, "micro_batch_id": 1,
    }  # fmt: skip


def add(dead: Table, identifier: int, *rows: dict[str, Any]) -> None:
    with dead.writer("orders") as writer:
        writer.write(pa.Table.from_pylist(list(rows), dead.arrow_schema))
        writer.commit(identifier)


def test_they_are_counted_by_reason_and_the_last_are_shown(freshet: Freshet, dead: Table, tmp_path: Path) -> None:
    empty = freshet.good("dead-letters", tmp_path / "w", "shop.orders")
    assert empty.out == "0 dead letters\n"
    add(dead, 1, letter(1, b"{"), letter(2, b"\x1b[31m\xff", reason="worse"), letter(3, b"x" * 500))
    add(dead, 2, letter(4, b"y", pipeline="other"))
    lines = freshet.good("dead-letters", tmp_path / "w", "shop.orders", "--last", 2).out.splitlines()
    assert lines[0] == "4 dead letters"
    assert lines[2].split() == ["2", "orders", "id", "bad"]
    assert "orders: t partition 0 offset 3, 2026-01-01 00:00:03 UTC" in lines
    assert max(map(len, lines)) < 200
    facts = freshet.good(
        "dead-letters", tmp_path / "w", "shop.orders_dead_letters", "--pipeline", "orders", "--json"
    ).facts
    assert facts["count"] == 3
    assert [(each["count"], each["reason"]) for each in facts["reasons"]] == [(2, "bad"), (1, "worse")]
    assert [each["log_offset"] for each in facts["last"]] == [1, 2, 3]


def test_a_table_without_dead_letters(freshet: Freshet, config: PipelineConfig, tmp_path: Path) -> None:
    open_or_create(config)
    called = freshet("dead-letters", tmp_path / "w", "shop.orders")
    assert called.code == 2
    assert "there is no table shop.orders_dead_letters" in called.err


def values(config: PipelineConfig, *, everything: bool = False) -> list[bytes]:
    replay = plan_replay(config, everything=everything)
    return [] if replay is None else sorted(values_of(replay))


def values_of(replay: Replay) -> list[bytes]:
    return [row[VALUE] for split in replay.splits for batch in replay.records(split) for row in batch.to_pylist()]


def letters(dead: Table) -> list[tuple[str, bytes]]:
    found = dead.scan().to_arrow().to_pylist()
    return sorted((row["pipeline"], row["raw_value"]) for row in found)


def test_what_was_replayed_leaves_the_table_and_the_others_stay(config: PipelineConfig, dead: Table) -> None:
    assert values(config) == []
    add(dead, 1, letter(1, b"a"), letter(2, b"b", pipeline="other"), letter(3, b"c", pipeline="orders-replay"))
    add(dead, 2, letter(4, b"d", pipeline="other"))
    assert values(config) == [b"a", b"c"]
    assert values(config) == [b"a", b"c"]  # nothing was committed
    table = Catalog(config.table.warehouse).table("shop.orders")
    replay = plan_replay(config, everything=False)
    assert replay is not None
    _commit(table, replay.commit_user, replay.identifier)  # and there the process died
    add(dead, 3, letter(5, b"e"))
    assert values(config) == [b"e"]
    assert letters(dead) == [("orders", b"e"), ("other", b"b"), ("other", b"d")]
    before = dead.latest_snapshot()
    assert values(config) == [b"e"]
    assert dead.latest_snapshot() == before, "removed once"


def test_letters_that_cannot_be_distinguished_from_replayed_ones_are_refused(
    config: PipelineConfig, dead: Table
) -> None:
    add(dead, 1, letter(1, b"a"))
    replay = plan_replay(config, everything=False)
    assert replay is not None
    _commit(Catalog(config.table.warehouse).table("shop.orders"), replay.commit_user, replay.identifier)
    add(dead, 2, letter(2, b"b"))
    dead.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(InvalidRequestError, match="up to which the last replay went, has expired"):
        plan_replay(config, everything=False)
    assert values(config, everything=True) == [b"a", b"b"]


def _commit(table: Table, user: str, identifier: int) -> None:
    Committer(table.store, user, "freshet-replay").commit(identifier, [])


def test_records_of_no_source_are_refused(config: PipelineConfig, dead: Table, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    second = '  - kafka: {kafka.bootstrap.servers: "h:1", subscribe: u}\n    format: json\ntable:'
    path.write_text(TEXT.replace("FOLDER", str(tmp_path)).replace("table:", second, 1))
    two = load_pipeline(path, {})
    add(dead, 1, letter(1, b"a", topic="elsewhere"))
    replay = plan_replay(two, everything=False)
    assert replay is not None
    with pytest.raises(ConfigurationError, match="1 dead letters are of elsewhere"):
        run_replay(None, two, replay)  # type: ignore[arg-type]


def test_the_driver_holds_no_record(config: PipelineConfig, dead: Table) -> None:
    """Two columns are read to count; the records are read in the workers, a split at a time."""
    for number in range(3):
        add(dead, number, *(letter(number * 10 + place, b"x" * 100_000) for place in range(10)))
    replay = plan_replay(config, everything=False)
    assert replay is not None
    assert len(pickle.dumps(replay)) < 50_000
    assert replay.topics == {"t": 30}
    parts = LetterParts(pickle.loads(pickle.dumps(replay)), frozenset({"t"}))
    assert sum(batch.num_rows for part in range(parts.count) for batch in parts.read(part)) == 30
    elsewhere = LetterParts(replay, frozenset({"u"}))
    assert not any(batch.num_rows for part in range(elsewhere.count) for batch in elsewhere.read(part))
    assert LetterParts(replay, frozenset()).count == 0


def test_mended_records_become_rows_once(config: PipelineConfig, dead: Table, any_jobs: Jobs) -> None:
    add(dead, 1, letter(1, b'{"id": 1, "total": 5}'), letter(2, b'{"id": "x"}'))
    replay = plan_replay(config, everything=False)
    assert replay is not None
    report = run_replay(any_jobs, config, replay)
    assert (report.read_count, report.result.applied, report.result.dead_count) == (2, 1, 1)
    rows = Catalog(config.table.warehouse).table("shop.orders").scan().to_arrow().to_pylist()
    assert rows == [{"id": 1, "total": 5}]
    (again,) = dead.scan().to_arrow().to_pylist()
    assert (again["pipeline"], again["raw_value"]) == ("orders", b'{"id": "x"}')
    assert again["reason"] != "bad", "the reason of the replay"
    assert run_replay(any_jobs, config, replay).is_replay
    for _ in range(3):
        once_more = plan_replay(config, everything=False)
        assert once_more is not None
        assert values_of(once_more) == [b'{"id": "x"}']
        assert run_replay(any_jobs, config, once_more).result.dead_count == 1
        assert letters(dead) == [("orders", b'{"id": "x"}')], "stored once, however often it fails"


TWO_TABLES = """\
  - kafka: {kafka.bootstrap.servers: "h:1", subscribe: t}
    format: debezium-json
    only: {table: orders}
  - kafka: {kafka.bootstrap.servers: "h:1", subscribe: t}
    format: debezium-json
    only: {table: payments}
    select: {id: id, total: "total * 100"}
table:"""


def envelope(number: int, total: object, table: str) -> bytes:
    return json.dumps(change("c", None, {"id": number, "total": total}, table=table)).encode()


def test_sources_that_share_a_topic_each_take_the_letters_of_their_table(
    dead: Table, any_jobs: Jobs, tmp_path: Path
) -> None:
    path = tmp_path / "two.yaml"
    one = TEXT.replace("FOLDER", str(tmp_path))
    path.write_text(one[: one.index("  - kafka")] + TWO_TABLES + one.split("table:", 1)[1])
    two = load_pipeline(path, {})
    bad = [letter(3, b"{"), letter(4, envelope(4, "x", "payments"))]
    add(dead, 1, letter(1, envelope(1, 5, "orders")), letter(2, envelope(2, 6, "payments")), *bad)
    for read in (4, 2):
        replay = plan_replay(two, everything=False)
        assert replay is not None
        report = run_replay(any_jobs, two, replay)
        assert (report.read_count, report.result.dead_count) == (read, 2)
        rows = Catalog(two.table.warehouse).table("shop.orders").scan().to_arrow().sort_by("id").to_pylist()
        assert rows == [{"id": 1, "total": 5}, {"id": 2, "total": 600}]
        assert dead.scan().count() == 2, "each once"


def test_a_replay_is_held_to_the_table_of_its_pipeline(
    config: PipelineConfig, dead: Table, jobs: Jobs, tmp_path: Path
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(path.read_text().replace("format: json", "format: debezium-json"))
    table = Catalog(config.table.warehouse).table("shop.orders")
    Committer(table.store, "orders", "q").commit(0, [], carried='{"0": ["shop", "public", "orders"]}')
    add(dead, 1, letter(1, envelope(1, 5, "payments")))
    replay = plan_replay(load_pipeline(path, {}), everything=False)
    assert replay is not None
    with pytest.raises(StoppedByRecordError, match=r"shop.public.orders \(until now\) and shop.public.payments"):
        run_replay(jobs, load_pipeline(path, {}), replay)
    assert table.scan().count() == 0 and dead.scan().count() == 1
    add(dead, 2, letter(2, envelope(2, 6, "orders")))
    path.write_text(path.read_text().replace("debezium-json", "debezium-json\n    only: {table: orders}"))
    replay = plan_replay(load_pipeline(path, {}), everything=False)
    assert replay is not None
    assert run_replay(jobs, load_pipeline(path, {}), replay).result.skipped_count == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "total": 6}]


LOG_OPTIONS = (
    "bucket: 1, changelog-producer: lookup, log.system: kafka, kafka.topic: t, kafka.bootstrap.servers: 'nowhere:9'"
)


def with_log(folder: Path, options: str = LOG_OPTIONS) -> PipelineConfig:
    path = folder / "logged.yaml"
    path.write_text(TEXT.replace("FOLDER", str(folder)).replace("bucket: 1", options))
    return load_pipeline(path, {})


def test_a_table_with_a_log_takes_a_replay_from_its_files(tmp_path: Path, jobs: Jobs) -> None:
    with fake_kafka():
        logged = with_log(tmp_path)
        table = open_or_create(logged)
        dead = open_dead_letters(Catalog(logged.table.warehouse), logged.dead_letter_table)
        with table.writer("orders") as writer:
            writer.write({"id": [1, 2], "total": [5, 6]})
            writer.commit()
        streams = [table.stream(isolation=each, max_wait_s=0.0) for each in ("committed", "speculative")]
        for stream in streams:
            assert sum(batch.num_rows for batch in stream) == 2
        add(dead, 1, letter(1, b'{"id": 2, "total": 7}'))
        replay = plan_replay(logged, everything=False)
        assert replay is not None
        assert run_replay(jobs, logged, replay).result.applied == 1
        for stream in streams:
            resumed = table.stream(isolation="committed", log_state=stream.state, max_wait_s=0.0)
            rows = [row for batch in resumed for row in batch.to_pylist()]
            assert [(row["_ROW_KIND"], row["id"], row["total"]) for row in rows] == [("-U", 2, 6), ("+U", 2, 7)]
        with table.writer("orders") as writer:  # the pipeline goes on
            writer.write({"id": [2], "total": [8]})
            writer.commit()
        assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "total": 5}, {"id": 2, "total": 8}]


def test_a_table_whose_readers_stop_at_commits_without_a_log_refuses_a_replay(tmp_path: Path) -> None:
    logged = with_log(tmp_path, f"{LOG_OPTIONS}, log.on-lake-only: fail")
    open_or_create(logged)
    open_dead_letters(Catalog(logged.table.warehouse), logged.dead_letter_table)
    with pytest.raises(StorageError, match=r"log.on-lake-only=fail: .*Set log.on-lake-only=apply"):
        plan_replay(logged, everything=False)
