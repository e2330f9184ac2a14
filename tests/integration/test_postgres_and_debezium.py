"""One database captured twice, by Debezium over Kafka and by a pipeline that reads it: equal tables, judged by Apache
Paimon, but for the types that the page names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.jobs.demo import database_demo, debezium_demo
from freshet.jobs.demo.database_demo import differences
from freshet.jobs.demo.debezium_demo import connector
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.jobs.demo.kafka_connect import KafkaConnect
from freshet.jobs.demo.postgres_server import PostgresServer
from freshet.jobs.demo.source_database import DATABASE, TARGETS, SourceDatabase
from freshet.jobs.demo.stage import PIPELINES
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from tests.kit.paimon_judge import PaimonJudge

pytestmark = [pytest.mark.kafka, pytest.mark.judge, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-postgresql.md"
ROUNDS = 3
DIFFERENT = {
    "bit(1)": ("BOOLEAN", "STRING"),
    "bit(8)": ("BYTES", "STRING"),
    "interval": ("BIGINT", "STRING"),
    "money": ("DECIMAL(38, 2)", "DECIMAL(19, 2)"),
    "numeric": ("DECIMAL(38, 18)", "STRING"),
}
"""Types of PostgreSQL whose columns have other types: of Debezium's records, of ours."""


def test_both_captures_are_equal(
    tmp_path: Path, kafka_broker: ForeignBroker, paimon: PaimonJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresServer.start(DATABASE) as server:
        database = SourceDatabase(server, database_demo.EXACT)
        monkeypatch.setenv("SHOP_PASSWORD", server.password)
        given = {"SHOP_DSN": server.dsn(), "KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers}
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        database.play("tables")
        database.play("published")
        with KafkaConnect.start(tmp_path, kafka_broker.bootstrap_servers, connector(server)) as connect:
            _until(connect.runs, connect)
            _run(tmp_path, database_demo.PIPELINES, {**given, "WAREHOUSE": str(ours)})  # the copy
            for number in range(1, ROUNDS + 1):
                database.play("work", number)
            database.play("alter")
            database.play("resend")
            database.play("new_table")
            database.play("truncate")
            database.play("work", ROUNDS + 1)
            end = database.position()
            database.play("end")
            _until(lambda: database.has_sent(end, [debezium_demo.SLOT]), connect)
        _run(tmp_path, database_demo.PIPELINES, {**given, "WAREHOUSE": str(ours)})
        _run(tmp_path, debezium_demo.PIPELINES, {**given, "WAREHOUSE": str(theirs)})
        seen: dict[str, tuple[str, str]] = {}
        for target, sources in TARGETS.items():
            our_table, their_table = Catalog(ours).table(target), Catalog(theirs).table(target)
            read = paimon.table(our_table.location).read_arrow()
            rows = our_table.scan().to_arrow()
            assert differences(list(database.rows(sources)), read.cast(rows.schema)) == [], target
            types = [{field.name: str(field.type) for field in each.schema.fields} for each in (our_table, their_table)]
            kinds = database.columns(sources[0])
            assert types[0].keys() == types[1].keys(), target
            same = [name for name in kinds if types[0][name] == types[1][name]]
            for name in set(kinds) - set(same):
                seen[kinds[name]] = (types[1][name], types[0][name])
            captured = their_table.scan(columns=same).to_arrow().select(same)
            assert _sorted(captured) == _sorted(rows.select(same)), target
    assert seen == DIFFERENT
    page = PAGE.read_text(encoding="utf-8")
    for kind, (theirs_type, our_type) in DIFFERENT.items():
        assert f"| `{kind}` | `{theirs_type}` | `{our_type}` |" in page


def _run(folder: Path, names: tuple[str, ...], given: dict[str, str]) -> None:
    configs = []
    for name in names:
        text = (PIPELINES / f"{name}.yaml").read_text(encoding="utf-8")
        path = folder / f"{name}.yaml"
        path.write_text(
            text.replace("trigger: {processing_time: 100 ms}", "trigger: {available_now: true}")
            .replace("trigger: {processing_time: 1 second}", "trigger: {available_now: true}")
            .replace("\nsync:", "\nsync:" if "run_on" in text else "\nrun_on: local\nsync:")
        )
        configs.append(load_pipeline(path, given))
    Runner(LocalPipelines(WorkerPool(0)), configs).run()


def _sorted(rows: object) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))  # type: ignore[attr-defined]


def _until(is_true: object, connect: KafkaConnect) -> None:
    end = time.monotonic() + 300
    while not is_true():  # type: ignore[operator]
        assert connect.failure() is None
        assert time.monotonic() < end
        time.sleep(0.2)
