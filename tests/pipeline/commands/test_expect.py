"""`expect` of a pipeline file by the commands: what `check` refuses, what `run` says, what a replay does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.commands import local_running
from freshet.pipeline.local.workers import WorkerPool
from freshet.storage.catalog import Catalog
from tests.pipeline.commands.kit import Freshet

PIPELINE = """\
name: orders
run_on: local
sources:
  - files: {path: "FOLDER/in"}
    format: json
table:
  warehouse: "FOLDER/w"
  name: s.t
  columns: {id: BIGINT, n: INT, note: STRING, tags: ARRAY<STRING>}
  primary_key: [id]
  options: {bucket: 1}
  expect: {EXPECT}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""
SYNC = """\
name: shop
run_on: local
sync:
  source: {kafka: {kafka.bootstrap.servers: "127.0.0.1:1", subscribe: shop}, format: debezium-json}
  tables: [{from: "(.*)", to: "lake.t", expect: {EXPECT}}]
warehouse: "FOLDER/w"
checkpoint: "FOLDER/c"
dead_letters: lake.dead
"""


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


def written(folder: Path, expect: str, text: str = PIPELINE, *changes: tuple[str, str]) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "orders.yaml"
    path.write_text(text.replace("EXPECT", expect).replace("FOLDER", str(folder)))
    return path


def put(folder: Path, *rows: dict[str, Any]) -> None:
    number = len(list((folder / "in").iterdir()))
    (folder / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


TABLE_SOURCE = ('  - files: {path: "FOLDER/in"}\n    format: json', '  - table: {warehouse: "FOLDER/w", name: s.other}')
UNFILLED = ("    format: json", "    format: json\n    select: {id: id, n: n}")
SETTING = ("trigger:", "spark: {spark.sql.legacy.timeParserPolicy: LEGACY}\ntrigger:")
BAD: dict[str, tuple[str, tuple[tuple[str, str], ...], str]] = {
    "an unknown column": ('a: {sql: "m > 0"}', (), "table.expect.a: 'm > 0' reads m, which is no column of the table"),
    "a case that differs": ('a: {sql: "N > 0"}', (), "reads N, which is no column of the table (did you mean 'n'?)"),
    "metadata": ('a: {sql: "_op = 1"}', (), "table.expect.a: '_op = 1' reads _op, which is no column of the table"),
    "no condition": ('a: {sql: "n + 1"}', (), "table.expect.a: 'n + 1' is INT, and a rule is a condition"),
    "a function of Spark's": (
        'a: {sql: "regexp_count(note, \'a\') > 1"}', (), "only Spark computes \"regexp_count(note, 'a') > 1\"",
    ),
    "a nested column": ('a: {sql: "size(tags) > 1"}', (), "table.expect.a: only Spark computes 'size(tags) > 1'"),
    "no SQL": ('a: {sql: "n >"}', (), "table.expect.a: only Spark computes 'n >'"),
    "under a setting": ('a: {sql: "n > 0"}', (SETTING,), "under the setting spark.sql.legacy.timeParserPolicy"),
    "no text": ('a: {sql: ""}', (), "table.expect.a.sql: must not be empty"),
    "no sql": ("a: {or: drop}", (), "table.expect.a.sql: is missing"),
    "no such end": ('a: {sql: "n > 0", or: keep}', (), "table.expect.a.or: "),
    "no name": ('"a b": {sql: "n > 0"}', (), "table.expect: 'a b' is no name of a rule"),
    "a share above 1": ('a: {sql: "n > 0", share: 1.5}', (), "table.expect.a.share: "),
    "a share below 0": ('a: {sql: "n > 0", share: -0.1}', (), "table.expect.a.share: "),
    "a share that is no number": ('a: {sql: "n > 0", share: nan}', (), "table.expect.a.share: "),
    "a share of stop": ('a: {sql: "n > 0", or: stop, share: 0.1}', (), "share goes with drop and quarantine"),
    "another key": ('a: {sql: "n > 0", shares: 0.1}', (), "unknown key (did you mean 'share'?)"),
    "of a table": ('a: {sql: "n > 0"}', (TABLE_SOURCE,), "table.expect: belongs to records"),
    "of what nothing fills": ('a: {sql: "length(note) > 0"}', (UNFILLED,), "table.expect.a: no source fills note"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_rule_is_said_before_anything_runs(freshet: Freshet, tmp_path: Path, case: str) -> None:
    expect, changes, wanted = BAD[case]
    path = written(tmp_path, expect, PIPELINE, *changes)
    for command in ("check", "run"):
        called = freshet(command, path)
        assert called.code == 2 and wanted in called.err, called.err
    assert not (tmp_path / "w").exists() and not (tmp_path / "c").exists()


OF_SYNC = {
    "an unknown column": ('a: {sql: "m > 0"}', "sync.tables.0.expect.a: 'm > 0' reads m, which is no column"),
    "no condition": ('a: {sql: "n"}', "sync.tables.0.expect.a: 'n' is INT"),
    "only Spark": ('a: {sql: "n > rand()"}', "sync.tables.0.expect.a: only Spark computes 'n > rand()'"),
    "a share": ('a: {sql: "n > 0", share: 2}', "sync.tables.0.expect.a.share"),
}


@pytest.mark.parametrize("case", OF_SYNC)
def test_rules_of_sync_are_looked_at_where_their_table_is_there(freshet: Freshet, tmp_path: Path, case: str) -> None:
    expect, wanted = OF_SYNC[case]
    Catalog(tmp_path / "w").create_table("lake.t", schema={"id": "BIGINT NOT NULL", "n": "INT"})
    called = freshet("check", "--offline", written(tmp_path, expect, SYNC))
    assert called.code == 2 and wanted in called.err, called.err


def test_a_run_counts_by_rule_and_a_replay_goes_by_the_rules_of_now(freshet: Freshet, tmp_path: Path) -> None:
    rules = 'positive: {sql: "n >= 0"}, short: {sql: "length(note) < 5", or: drop}'
    path = written(tmp_path, rules)
    put(tmp_path, {"id": 1, "n": 1}, {"id": 2, "n": -2}, {"id": 3, "n": -300}, {"id": 4, "n": 4, "note": "too long"})
    said = json.loads(freshet.good("run", path, "--progress", "json").out.splitlines()[0])
    assert said["broken_rules"] == {"positive": 2, "short": 1}
    assert (said["dead_letters"], said["skipped"]) == ({"positive": 2}, {"dropped by short": 1})
    shown = freshet.good("status", path).out
    assert "  broken rules    1 × short in the last hour" in shown and "broken rules    2 × positive" not in shown
    put(tmp_path, {"id": 5, "n": -5})
    assert "rules broken so far: 1 × positive" in freshet.good("run", path).out
    commits = freshet.good(
        "sql", tmp_path / "w", "SELECT broken_rules, dead_letter_causes FROM s.`t$commits`", "--json"
    )
    assert [dict(json.loads(line)["broken_rules"]) for line in commits.out.splitlines()] == [
        {"positive": 2, "short": 1}, {"positive": 1},
    ]  # fmt: skip
    letters = freshet.good("dead-letters", tmp_path / "w", "s.t", "--json").facts
    assert letters["reasons"] == [{"count": 3, "pipeline": "orders", "column": "n", "reason": "positive"}]

    written(tmp_path, 'positive: {sql: "n >= -10", share: 0}')
    replayed = freshet.good("dead-letters", tmp_path / "w", "s.t", "--replay", path, "--json").facts
    assert (replayed["replayed"], replayed["applied"], replayed["dead_letters"]) == (3, 2, {"positive": 1})
    written(tmp_path, 'all: {sql: "n >= 0", or: stop}')
    refused = freshet("dead-letters", tmp_path / "w", "s.t", "--replay", path)
    assert refused.code == 65 and "breaks the rule all of expect" in refused.err
    written(tmp_path, 'all: {sql: "n >= 0", or: drop}')
    replayed = freshet.good("dead-letters", tmp_path / "w", "s.t", "--replay", path, "--json").facts
    assert (replayed["replayed"], replayed["skipped"]) == (1, {"dropped by all": 1})
    assert freshet.good("dead-letters", tmp_path / "w", "s.t", "--json").facts["count"] == 0
    rows = Catalog(tmp_path / "w").table("s.t").scan().to_arrow().sort_by("id").to_pylist()
    assert [row["n"] for row in rows] == [1, -2, -5]


def test_a_run_that_a_rule_stops_goes_on_once_the_rule_is_another(freshet: Freshet, tmp_path: Path) -> None:
    path = written(tmp_path, 'positive: {sql: "n >= 0", or: stop}')
    put(tmp_path, {"id": 1, "n": 1}, {"id": 2, "n": -2}, {"id": 3, "n": -3})
    stopped = freshet("run", path)
    assert stopped.code == 65
    assert "2 of the 3 records of the batch break the rule positive of expect (n >= 0)" in stopped.err
    assert f"{tmp_path}/in/0.json (2 records)\n" in stopped.err
    for command in ("status", "doctor"):
        said = freshet(command, path)
        assert said.code == 3 and "\\n" not in said.out and "(2 records) Correct the" in " ".join(said.out.split())
    assert "since its start)" in said.out
    assert Catalog(tmp_path / "w").table("s.t").latest_snapshot() is None
    written(tmp_path, 'positive: {sql: "n >= 0"}')
    said = freshet.good("run", path).out
    assert "1 applied, 2 dead letters" in said and "rules broken so far: 2 × positive" in said
