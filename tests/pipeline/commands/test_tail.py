"""The command tail, over a log in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import fake_kafka, make_logged, rows
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def log() -> Iterator[FakeLog]:
    with fake_kafka() as found:
        yield found


def test_rows_then_changes(freshet: Freshet, log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    with table.writer("u") as writer:
        for text in ("+I 1 a", "+I 1 b"):
            writer.write(rows(text))
            writer.commit()
    place = (tmp_path, "db.t", "--max-wait", 0)
    assert freshet.good("tail", *place).out.splitlines()[1:] == ['1,"b","+I"']
    for how in ((), ("--speculative",)):
        out = freshet.good("tail", *place, *how, "--from-snapshot", 1, "--format", "json").out
        assert [json.loads(line) for line in out.splitlines()] == [
            {"k": 1, "v": "a", "_ROW_KIND": "+I"},
            {"k": 1, "v": "a", "_ROW_KIND": "-U"},
            {"k": 1, "v": "b", "_ROW_KIND": "+U"},
        ]
    filtered = freshet.good("tail", *place, "--from-snapshot", 1, "--filter", "v = 'b'", "--columns", "v")
    assert filtered.out.splitlines()[1:] == ['"b","+I"']
    assert len(freshet.good("tail", *place, "--from-snapshot", 1, "--limit", 2).out.splitlines()) == 3


def test_a_table_without_a_log_says_so(freshet: Freshet, tmp_path: Path) -> None:
    make_logged(tmp_path, log__system="none")
    called = freshet("tail", tmp_path, "db.t")
    assert called.code == 2 and "has no log; set log.system=kafka" in called.err


def test_where_it_cannot_begin_is_reported_in_the_words_of_the_command(
    freshet: Freshet, log: FakeLog, tmp_path: Path
) -> None:
    table = make_logged(tmp_path)
    place = (tmp_path, "db.t", "--max-wait", 0)
    assert "Begin at one that is there, or at 1, the next one" in freshet("tail", *place, "--from-snapshot", 7).err
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a"))
        writer.commit()
    latest = table.latest_snapshot()
    assert latest is not None
    assert (
        f"changes of snapshots 1 to {latest.id} are there"
        in freshet("tail", *place, "--from-snapshot", latest.id + 2).err
    )
    assert freshet.good("tail", *place, "--from-snapshot", latest.id + 1).out.splitlines()[1:] == []
    assert "--scan-mode" in freshet("tail", *place, "--scan-mode", "from-timestamp").err


def test_secrets_are_in_no_output(freshet: Freshet, log: FakeLog, tmp_path: Path) -> None:
    made = make_logged(tmp_path, kafka__sasl__username="me")
    schema = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    content = json.loads(schema.read_text("utf-8"))
    content["options"]["kafka.sasl.password"] = "hunter2"  # as tables of earlier versions have it
    schema.write_text(json.dumps(content), encoding="utf-8")
    table = Table.open(made.location)
    for how in ((), ("--json",)):
        out = freshet.good("describe", tmp_path, "db.t", *how).out
        assert "hunter2" not in out and "***" in out
    assert "hunter2" not in repr(table.engine.log.logged_table) + repr(table) + repr(table.options)
