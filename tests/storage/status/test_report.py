"""What a report says of a table beside its status, against system tables and what was done to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import freshet
from freshet import Catalog, Table
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.status import every_table, report
from freshet.storage.status.report import BUCKETS_MAX, LISTED_MAX, reported
from tests.kit.request_log import RequestLog


@pytest.fixture
def env(tmp_path: Path) -> Env:
    return Env(MemoryFileIO(), str(tmp_path))


def made(env: Env, name: str = "shop.orders", **options: str) -> Table:
    return Catalog("/w", env=env).create_table(
        name, schema={"id": "INT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "2", **options}
    )


def written(table: Table, commits: int) -> None:
    with table.writer("writer") as writer:
        for number in range(commits):
            writer.write([{"id": key, "v": f"{number}"} for key in range(number, number + 20)])
            writer.commit()


def test_commits_and_compactions_are_those_of_the_system_tables(env: Env) -> None:
    table = made(env, **{"changelog-producer": "lookup"})
    written(table, 14)
    table.expire_snapshots(retain_max=3)
    history = reported(table.store, "/w").history
    assert history is not None
    rows = table.system("commits").scan().to_arrow().to_pylist()
    assert [(each.snapshot.id, each.is_expired) for each in history.commits] == [
        (row["snapshot_id"], row["expired"]) for row in rows
    ]
    assert sum(history.spans[-1].rows) == sum(row["rows_written"] for row in rows if row["commit_kind"] != "COMPACT")
    facts = reported(table.store, "/w").facts()
    assert [each["snapshot_id"] for each in facts["commits"]] == [row["snapshot_id"] for row in rows][
        : -LISTED_MAX - 1 : -1
    ]
    compactions = table.system("compactions").scan().to_arrow().to_pylist()
    assert [
        (each["snapshot_id"], each["bucket"], each["reason"], each["rows_dropped"]) for each in facts["compactions"]
    ] == [(row["snapshot_id"], row["bucket"], row["reason"], row["rows_dropped"]) for row in reversed(compactions)][
        :LISTED_MAX
    ]
    (reason,) = facts["reasons"]
    assert (reason["reason"], reason["compactions"]) == ("lookup", sum(row["buckets"] for row in compactions))
    assert reason["bytes_in"] == sum(row["bytes_in"] for row in compactions)


def test_status_and_findings_are_those_of_their_methods(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(env, **{"write-only": "true"})
    written(table, 8)
    now_ms = env.now_ms()
    monkeypatch.setattr(env, "now_ms", lambda: now_ms)
    found = reported(table.store, "/lake")
    assert found.status == table.status()
    assert list(found.findings) == table.doctor(warehouse="/lake")
    (each,) = Catalog("/w", env=env).report(warehouse="/lake")
    assert each == found


def test_levels_are_those_of_the_files(env: Env) -> None:
    table = made(env)
    written(table, 9)
    history = reported(table.store, "/w").history
    assert history is not None and len(history.buckets) == 2
    files: dict[tuple[int, int | None], list[int]] = {}
    for entry in table.files():
        files.setdefault((entry.bucket, entry.file.level), []).append(entry.file.file_size_bytes)
    assert {
        (bucket.bucket, level.level): (level.files, level.size_bytes)
        for bucket in history.buckets
        for level in bucket.levels
    } == {place: (len(sizes), sum(sizes)) for place, sizes in files.items()}
    many = made(env, "shop.many", bucket=str(BUCKETS_MAX * 2))
    many.append([{"id": key, "v": "a"} for key in range(1000)])
    history = reported(many.store, "/w").history
    assert history is not None and len(history.buckets) == BUCKETS_MAX


def test_holds_are_placed_at_the_time_of_their_snapshots(env: Env) -> None:
    table = made(env, **{"snapshot.num-retained.min": "1"})
    written(table, 3)
    times = {each.id: each.time_ms for each in table.snapshots()}
    table.tags.create("first", snapshot_id=1)
    table.branches.create("side", from_tag="first")
    table.reset_consumer("reader", 2)
    found = reported(table.store, "/w")
    assert found.history is not None and found.status.detail is not None
    holds = zip(found.status.detail.holds, found.history.holds_ms, strict=True)
    assert [(each.name, at) for each, at in holds] == [("first", times[1]), ("side", times[1]), ("reader", times[2])]


def test_the_history_of_the_schema(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each["changes"] for each in reported(made(env).store, "/w").facts()["schemas"]] == [["2 columns"]]
    changes = {
        "ADD COLUMN n INT": "column n INT added",
        "RENAME COLUMN n TO m": "column n renamed to m",
        "ALTER COLUMN m TYPE BIGINT": "column m: INT is now BIGINT",
        "ALTER COLUMN m FIRST": "the order of columns",
        "SET TBLPROPERTIES ('num-levels' = '4')": "option num-levels = 4",
        "UNSET TBLPROPERTIES ('num-levels')": "option num-levels unset",
        "DROP COLUMN m": "column m dropped",
    }
    for change in changes:
        freshet.sql(f"ALTER TABLE shop.orders {change}", Catalog("/w", env=env))
    found = Catalog("/w", env=env).report("shop.orders")[0].facts()["schemas"]
    assert [each["changes"] for each in reversed(found)] == [["2 columns"], *([text] for text in changes.values())]
    monkeypatch.setattr(report, "LISTED_MAX", 3)
    for number in range(4):
        freshet.sql(f"ALTER TABLE shop.orders ADD COLUMN c{number} INT", Catalog("/w", env=env))
    found = Catalog("/w", env=env).report("shop.orders")[0].facts()["schemas"]
    assert [each["changes"] for each in found] == [[f"column c{n} INT added"] for n in (3, 2, 1)]


def test_secrets_that_another_program_has_put_into_options_are_hidden(env: Env) -> None:
    key = "kafka.sasl.password"
    table = made(env, **{key: "env:KAFKA_PASSWORD"})
    path = table.store.paths.schema(0)
    env.file_io.overwrite(path, env.file_io.read_bytes(path).replace(b"env:KAFKA_PASSWORD", b"hunter2"))
    shown = Catalog("/w", env=env).report("shop.orders")[0].facts()
    assert shown["options"][key] == "***"
    freshet.sql(f"ALTER TABLE shop.orders SET TBLPROPERTIES ('{key}' = 'env:KAFKA_KEY')", Catalog("/w", env=env))
    facts = Catalog("/w", env=env).report("shop.orders")[0].facts()
    assert "hunter2" not in str(facts)
    assert facts["options"][key] == "env:KAFKA_KEY"


def test_the_newest_commits_and_no_more_requests_than_those(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SNAPSHOTS_MAX", 7)
    log = RequestLog()
    written(made(Env(log, str(tmp_path)), **{"write-only": "true"}), 20)
    fresh = Catalog("/w", env=Env(log, str(tmp_path))).table("shop.orders")
    with log.noted() as asked:
        history = reported(fresh.store, "/w").history
    assert history is not None and [each.snapshot.id for each in history.commits] == list(range(14, 21))
    assert not [str(each) for each in asked if "/freshet/history" in each.path], "the snapshots reach back far enough"
    fresh = Catalog("/w", env=Env(log, str(tmp_path))).table("shop.orders")
    with log.noted() as once:
        fresh.status()
    assert len(asked) <= len(once) + 30, "findings look for orphans, too"


def test_tables_share_in_the_commits(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_table, "COMMITS_MAX", 12)
    monkeypatch.setattr(every_table, "COMMITS_LEAST", 3)
    for number in range(4):
        written(made(env, f"shop.t{number}", **{"write-only": "true"}), 8)
    found = Catalog("/w", env=env).report(detailed=3)
    sizes = {each.status.name: None if each.history is None else len(each.history.commits) for each in found}
    assert sizes == {"shop.t0": 8, "shop.t1": 4, "shop.t2": 3, "shop.t3": None}
    assert all(each.facts() == {} for each in found if each.history is None)


def test_a_damaged_table_hides_no_other(env: Env) -> None:
    for number in range(2):
        written(made(env, f"shop.t{number}"), 1)
    env.file_io.overwrite("/w/shop.db/t1/snapshot/snapshot-1", b"{")
    damaged, well = Catalog("/w", env=env).report()
    assert damaged.status.error and damaged.facts() == {}
    assert [each.name for each in damaged.findings] == ["cannot be read"]
    assert well.status.name == "shop.t0" and well.history is not None
