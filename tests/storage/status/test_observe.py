"""The facts of a table at a moment, against what the table says otherwise; and the requests they cost a store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.status import observe
from freshet.storage.status.observe import HOLDS_MAX, SNAPSHOTS_MAX, batches_by_user, observed
from freshet.storage.system_tables.commits import commits_of
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.request_log import RequestLog
from tests.kit.sim_env import SimDisk

MINUTE_MS = 60_000


def made(env: Env, name: str = "shop.orders", **options: str) -> Table:
    return Catalog("/w", env=env).create_table(
        name,
        schema={"id": "INT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "2", **{key.replace("__", "."): text for key, text in options.items()}},
    )


def written(table: Table, commits: range) -> None:
    with table.writer("writer") as writer:
        for number in commits:
            writer.write([{"id": key, "v": f"{number}"} for key in range(number, number + 20)])
            writer.commit(identifier=number)


@pytest.fixture
def env(tmp_path: Path) -> Env:
    return Env(MemoryFileIO(), str(tmp_path))


def rows_of(table: Table, noun: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.system(noun).scan().to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_equal_to_what_the_table_says_otherwise(env: Env, producer: str) -> None:
    table = made(env, **{"changelog-producer": producer})
    written(table, range(7))
    table.expire_snapshots(retain_max=3)
    glance, status = table.status(detail=False), table.status()
    files = rows_of(table, "files")
    assert status.rows == glance.rows == table.snapshots()[-1].total_record_count
    assert status.files == glance.files == len(files)
    assert status.live_bytes == glance.live_bytes == sum(row["file_size_in_bytes"] for row in files)
    assert glance == replace(status, detail=None, observed_ms=glance.observed_ms, freshness_ms=glance.freshness_ms)
    assert status.detail is not None
    by_bucket = Counter(row["bucket"] for row in files if row["level"] == 0)
    assert status.detail.levels.level_0_max == max(by_bucket.values(), default=0)
    runs = {(row["bucket"], row["level"] or row["file_path"]) for row in files}
    assert status.detail.levels.runs_max == max(Counter(bucket for bucket, _ in runs).values())
    commits, compactions = rows_of(table, "commits"), rows_of(table, "compactions")
    hour = status.detail.hour
    assert hour.commits == 7
    assert hour.compacted_bytes == sum(row["bytes_in"] for row in compactions)
    assert hour.reasons == Counter(row["reason"] for row in compactions)
    earliest = table.snapshots()[0].id
    kept = sum(row["bytes_deleted"] for row in commits if row["snapshot_id"] > earliest)
    kept += sum(row["changelog_bytes"] for row in commits if row["snapshot_id"] >= earliest)
    assert status.detail.history.kept_bytes == kept
    assert status.detail.changelog_behind == (None if producer == "none" else 0)


def test_rows_whose_changes_wait(env: Env) -> None:
    table = made(env, **{"changelog-producer": "lookup", "write-only": "true"})
    written(table, range(3))
    detail = table.status().detail
    assert detail is not None
    assert (detail.changelog_behind, detail.levels.waiting_rows) == (3, 60)
    assert detail.levels.backlog_bytes == table.status().live_bytes
    assert detail.levels.backlog_minutes is None, "nothing was compacted in the last hour"
    table.compact()
    detail = table.status().detail
    assert detail is not None
    assert (detail.changelog_behind, detail.levels.waiting_rows, detail.levels.backlog_bytes) == (0, 0, 0)


def test_who_holds_what(env: Env) -> None:
    table = made(env, **{"write-only": "true"})
    written(table, range(2))
    table.tags.create("old")
    table.branches.create("side", from_tag="old")
    table.reset_consumer("reader", 2)
    written(table, range(2, 4))
    before = table.status().live_bytes
    table.compact()
    table.expire_snapshots(retain_max=1)
    detail = table.status().detail
    assert detail is not None
    tag, branch, consumer = detail.holds
    assert [(each.kind, each.name, each.snapshot_id) for each in detail.holds] == [
        ("tag", "old", 2),
        ("branch", "side", 2),
        ("consumer", "reader", 2),
    ]
    assert tag.since_ms and branch.since_ms and consumer.since_ms
    assert tag.kept_bytes == branch.kept_bytes
    assert 0 < (tag.kept_bytes or 0) < (before or 0)
    assert consumer.kept_bytes == before == detail.history.kept_bytes


def test_changelogs_are_kept_by_snapshots_too(env: Env) -> None:
    table = made(env, **{"changelog-producer": "input"})
    written(table, range(3))
    table.reset_consumer("reader", 2)
    sizes = [row["changelog_bytes"] for row in table.system("commits").scan().to_arrow().to_pylist()]
    detail = table.status().detail
    assert detail is not None and all(sizes)
    assert (detail.history.kept_bytes, detail.holds[0].kept_bytes) == (sum(sizes), sum(sizes[1:]))


def test_rows_of_commits_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_table(SimDisk().boot())
    Committer(store, "u").commit(0, [message(store, new=[new_file(store, "a", rows=3)])])
    Committer(store, "u").commit(1, [message(store, new=[new_file(store, "b", rows=4)])])
    monkeypatch.setattr(observe, "parse_facts", lambda _: None)
    detail = observed(store).detail
    assert detail is not None
    assert (detail.hour.commits, detail.hour.rows_written) == (2, 7)


@pytest.mark.parametrize(
    ("target", "age_ms", "is_behind"),
    [(None, 10**9, False), ("1 min", 59_000, False), ("1 min", 61_000, True), ("2 h", 61_000, False)],
)
def test_freshness_against_the_target(target: str | None, age_ms: int, is_behind: bool) -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={} if target is None else {"freshet.freshness-target": target})
    assert observed(store).is_behind == (target is not None), "no rows at all"
    Committer(store, "u").commit(0, [message(store, new=[new_file(store, "a")])])
    disk.now_ms += age_ms
    after = [new_file(store, "c", level=5)]
    Committer(store, "c").commit(0, [message(store, before=list(_files(store)), after=after)], force_empty=False)
    status = observed(store, detail=False)
    assert status.newest is not None and status.newest.kind == "COMPACT"
    assert status.freshness_ms is not None and status.freshness_ms >= age_ms, "a compaction brings no rows"
    assert status.is_behind == is_behind
    for number in range(40):  # each compaction says when rows came last
        before, after = after, [new_file(store, f"d{number}", level=5)]
        Committer(store, f"c{number}").commit(0, [message(store, before=before, after=after)], force_empty=False)
    assert (observed(store, detail=False).freshness_ms or 0) >= age_ms


def _files(store: Any) -> list[Any]:
    return [entry.file for entry in store.live.at(store.snapshots.latest()).entries()]


def test_the_last_hour_reaches_into_the_history() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    for number in range(90):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"a{number}", sequence=number)])])
        disk.now_ms += MINUTE_MS
        if number % 20 == 19:
            expire_snapshots(store)
    detail = observed(store).detail
    assert detail is not None
    assert (detail.hour.commits, detail.history.snapshots) == (59, 12)


def test_batches_of_pipelines() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    committer = Committer(store, "orders")
    for number in range(20):
        now_ms = store.env.now_ms()
        facts = BatchFacts(
            100, {"no number": 1}, (now_ms - 2_000, now_ms - 1_000), {"look": 1, "job": 40}, {"short": 2}
        )
        committer.commit(number, [], batch=facts)
        disk.now_ms += 10_000
    Committer(store, "other").commit(0, [])
    now_ms = store.env.now_ms()
    commits = [replace(each, facts=each.facts and replace(each.facts, duration_ms=30)) for each in commits_of(store)]
    found = batches_by_user(commits, now_ms)
    assert found.keys() == {"orders"}
    batches = found["orders"]
    assert (batches.batches, batches.records) == (20, 2_000)
    assert batches.records_per_s == pytest.approx(10, rel=0.05)
    assert batches.event_to_commit_ms_p50 == pytest.approx(1_500, abs=60)
    assert batches.event_to_commit_ms_p99 == pytest.approx(2_000, abs=60)
    assert batches.dead_letters == {"no number": 20}
    assert batches.phases_ms == {"job": 40, "commit": 30, "look": 1}
    assert list(batches.phases_ms) == ["job", "commit", "look"]
    later = batches_by_user(commits_of(store), now_ms + 20 * MINUTE_MS)["orders"]
    assert (later.batches, later.dead_letters, later.broken_rules) == (0, {"no number": 20}, {"short": 40})


@pytest.mark.dear("six hundred commits")
def test_requests_to_a_store_are_bounded(tmp_path: Path) -> None:
    log = RequestLog()
    store = make_table(Env(log, str(tmp_path)), options={"write-only": "true"})
    committer = Committer(store, "u")
    for number in range(20):
        committer.commit(number, [message(store, new=[new_file(store, f"a{number}", sequence=number)])])
    for number in range(20, SNAPSHOTS_MAX + 100):
        committer.commit(number, [])
    committer.finish()  # writes the hint, which single commits to a store leave out
    store.env.finish_later()
    with log.noted() as opening:
        fresh = open_table_store(Env(log, str(tmp_path)), store.location)
    with log.noted() as glance:
        observed(fresh, detail=False)
    assert len(opening) + len(glance) <= 6, [*map(str, opening), *map(str, glance)]
    with log.noted() as detail:
        status = observed(open_table_store(Env(log, str(tmp_path)), store.location))
    assert status.detail is not None and status.detail.history.snapshots == SNAPSHOTS_MAX + 100
    others = [each for each in detail if "/snapshot/snapshot-" not in each.path and "/manifest/" not in each.path]
    assert len(detail) - len(others) <= SNAPSHOTS_MAX + 60
    assert 0 < status.detail.hour.span_ms < 3_600_000
    assert len(others) <= 12 + HOLDS_MAX, [*map(str, others)]


def test_the_tables_of_a_warehouse_the_worst_first(env: Env) -> None:
    catalog = Catalog("/w", env=env)
    for number, target in enumerate(("1 h", "1 ms", None, "1 ms")):
        options = {} if target is None else {"freshet__freshness-target": target}
        table = made(env, f"shop.t{number}", **options)
        if number != 3:
            written(table, range(1))
    env.now_ms = lambda: Env.now_ms(env) + 1_000  # type: ignore[method-assign]
    found = catalog.status()
    assert [each.name for each in found] == ["shop.t1", "shop.t3", "shop.t0", "shop.t2"]
    assert [each.is_behind for each in found] == [True, True, False, False]
    assert all(each.detail is None for each in found)
