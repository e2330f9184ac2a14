"""Tags that whoever commits makes of periods that have ended, on a disk in memory."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import CrashPoint
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.automatic import create_due_tags
from freshet.storage.tags.rule import TagRule, tag_rule
from freshet.storage.tags.table_tags import TableTags
from tests.kit.hand_made import bare_snapshot, make_table, message, new_file
from tests.kit.sim_env import Crash, Fault, SimDisk
from tests.storage.tags.meanwhile import Meanwhile
from tests.storage.tags.vectors import BY_TIME, TIMES, VECTORS, ms

LOCATION = "/warehouse/db.db/t"
KEPT = {"snapshot.num-retained.min": "100"}


def commit_at(
    store: TableStore, disk: SimDisk, time_ms: int, user: str = "u", watermark: int | None = None
) -> Snapshot:
    """A commit of one file whose snapshot has this time, with what follows it."""
    number = (store.snapshots.latest_id() or 0) + 1
    made = [message(store, new=[new_file(store, f"{user}-{number}")])]
    disk.now_ms = max(disk.now_ms, time_ms - 50)
    result = Committer(store, user, after_commit=upkeep_later).commit(number, made, watermark=watermark)
    [snapshot] = result.snapshots
    assert abs(snapshot.time_ms - disk.now_ms) < 100
    return snapshot


def names(store: TableStore) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in TableTags(store).list()}


def reopened(store: TableStore) -> TableStore:
    return open_table_store(store.env, LOCATION)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("reopens", [False, True])
def test_vectors(name: str, *, reopens: bool) -> None:
    """Each commit makes what is due, whether its process has made the others or not."""
    options, expected = VECTORS[name]
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, **KEPT, **options})
    for time_ms in TIMES:
        commit_at(store, disk, time_ms + 60_000)
        store = reopened(store) if reopens else store
    assert names(store) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_caught_up(name: str) -> None:
    """The same names when a writer that makes no tags has committed, and another comes afterwards."""
    options, expected = VECTORS[name]
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, **KEPT, **options})
    silent = store.with_options({"write-only": "true"})
    for time_ms in TIMES:
        commit_at(silent, disk, time_ms + 60_000)
    assert names(store) == {}
    latest = store.snapshots.latest()
    assert latest is not None
    assert create_due_tags(store, latest) == list(expected)
    assert names(store) == expected
    assert create_due_tags(reopened(store), latest) == []


def test_by_watermark() -> None:
    options = {"tag.automatic-creation": "watermark", "sink.watermark-time-zone": "GMT+02:00", **KEPT}
    disk = SimDisk()
    store = make_table(disk.boot(), options=options)
    watermarks = [None, -(2**63), ms(1, 10), ms(1, 21, 59), ms(1, 22), ms(4, 22), ms(4, 23)]
    for watermark in watermarks:
        commit_at(store, disk, 0, watermark=watermark)
    assert names(store) == {"2025-12-31": 3, "2026-01-01": 5, "2026-01-04": 6}


def test_none_and_write_only_make_none() -> None:
    for options in ({}, {**BY_TIME, "write-only": "true"}):
        disk = SimDisk()
        store = make_table(disk.boot(), options=options)
        for time_ms in TIMES:
            commit_at(store, disk, time_ms)
        assert names(store) == {}


def test_the_zone_decides_the_day() -> None:
    for zone, expected in {
        "Asia/Tokyo": {"2025-12-31": 1, "2026-01-01": 2},
        "GMT-08:00": {"2025-12-30": 1, "2025-12-31": 2},
    }.items():
        disk = SimDisk()
        store = make_table(disk.boot(), options={**BY_TIME, "sink.process-time-zone": zone})
        commit_at(store, disk, ms(1, 7))
        commit_at(store, disk, ms(1, 16))
        assert {name: each for name, each in names(store).items() if name < "2026-01-02"} == expected


def test_the_oldest_go_and_the_tags_of_people_stay() -> None:
    disk = SimDisk()
    options = {
        **BY_TIME,
        "tag.num-retained-max": "2",
        "snapshot.num-retained.min": "1",
        "snapshot.time-retained": "1 s",
    }
    store = make_table(disk.boot(), options=options)
    commit_at(store, disk, ms(1, 1))
    TableTags(store).create("mine", 1)
    for day in range(2, 7):
        commit_at(store, disk, ms(day, 1))
    assert names(store) == {"mine": 1, "2026-01-04": 5, "2026-01-05": 6}
    assert store.snapshots.list_ids() == [5, 6], "tags are made before snapshots expire"


def test_an_existing_name_is_kept_and_counts_as_made() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, **KEPT})
    commit_at(store, disk, ms(1, 1))
    commit_at(store, disk, ms(1, 2))
    TableTags(store).create("2026-01-01", 2)
    commit_at(store, disk, ms(2, 1))
    commit_at(store, disk, ms(3, 1))
    assert names(store) == {"2025-12-31": 1, "2026-01-01": 2, "2026-01-02": 4}


def test_tags_go_when_their_time_is_over() -> None:
    disk = SimDisk()
    options = {**BY_TIME, **KEPT, "tag.default-time-retained": "36 h"}
    store = make_table(disk.boot(), options=options)
    for day in (1, 2, 3, 4):
        commit_at(store, disk, ms(day, 1))
    assert names(store) == {"2026-01-02": 3, "2026-01-03": 4}
    off = make_table(SimDisk().boot(), options={**options, "tag.time-expire-enabled": "false"})
    for day in (1, 2, 3, 4):
        commit_at(off, off.env._disk, ms(day, 1))  # type: ignore[attr-defined]
    assert len(names(off)) == 4


def test_two_committers_make_each_tag_once() -> None:
    """Both have looked, and neither knows what the other has made."""
    disk = SimDisk()
    first = make_table(disk.boot(), options={**BY_TIME, **KEPT, "tag.num-retained-max": "3"})
    second = open_table_store(disk.boot(), LOCATION)
    for number, time_ms in enumerate([*TIMES, ms(6, 1), ms(7, 1), ms(8, 1)]):
        commit_at((first, second)[number % 2], disk, time_ms, user=f"u{number % 2}")
        latest = first.snapshots.latest()
        assert latest is not None
        create_due_tags(second, latest)
        create_due_tags(first, latest)
    assert names(first) == {"2026-01-05": 6, "2026-01-06": 7, "2026-01-07": 8}
    made = [path for path, _ in disk.created if "/tag/" in path]
    assert len(made) == len(set(made)) == 6, "each was created once"


@pytest.mark.parametrize("point", [CrashPoint.TAG_WRITTEN, CrashPoint.TAG_REMOVED, CrashPoint.COMMIT_SNAPSHOT_CREATED])
def test_a_crash_leaves_what_the_next_commit_completes(point: CrashPoint) -> None:
    disk = SimDisk()
    options = {**BY_TIME, **KEPT, "tag.num-retained-max": "2"}
    make_table(disk.boot(), options=options)
    times = [ms(1, 1), ms(2, 1), ms(3, 1), ms(4, 1)]
    store = open_table_store(disk.boot(Fault(point=point, visit=1 if point is CrashPoint.TAG_REMOVED else 2)), LOCATION)
    crashed = 0
    for time_ms in times:
        try:
            commit_at(store, disk, time_ms)
        except Crash:
            crashed += 1
            store = open_table_store(disk.boot(), LOCATION)
    commit_at(store, disk, ms(5, 1))
    assert crashed == 1
    assert names(store) == {"2026-01-03": 4, "2026-01-04": 5}


def test_a_commit_that_is_not_due_asks_nothing() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, **KEPT})
    latest = commit_at(store, disk, ms(1, 1))
    store.snapshots.remember(replace(latest, id=2))
    before = store.env.file_io.read_count  # type: ignore[attr-defined]
    assert create_due_tags(store, replace(latest, id=2)) == []
    assert store.env.file_io.read_count == before  # type: ignore[attr-defined]


def test_a_process_that_begins_reads_few_of_many_snapshots() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, "snapshot.num-retained.min": "1000"})
    silent = store.with_options({"write-only": "true"})
    commit_at(store, disk, ms(1, 1))
    for minute in range(200):
        commit_at(silent, disk, ms(1, 2 + minute // 60, minute % 60))
    fresh = open_table_store(disk.boot(), LOCATION)
    latest = fresh.snapshots.latest()
    assert latest is not None
    before = fresh.env.file_io.read_count  # type: ignore[attr-defined]
    assert create_due_tags(fresh, latest) == []
    assert fresh.env.file_io.read_count - before < 15  # type: ignore[attr-defined]


def test_a_table_that_was_rolled_back_goes_on_by_its_names() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, **KEPT})
    for time_ms in TIMES:
        commit_at(store, disk, time_ms)
    for snapshot_id in (5, 4):
        store.env.file_io.delete(store.paths.snapshot(snapshot_id))
    store.env.file_io.delete(store.paths.tag("2026-01-04"))
    store.snapshots.write_latest_hint(3)
    commit_at(store, disk, ms(6, 1), user="after")
    assert names(store) == {"2025-12-31": 1, "2026-01-01": 2, "2026-01-05": 4}


def paimon_tags(rule: TagRule, snapshots: list[Snapshot]) -> dict[str, int]:
    """FORMAT.md §12.2 word by word, over all snapshots at once."""
    made: dict[str, int] = {}
    next_tag: int | None = None
    length = rule.period.length_ms
    for snapshot in snapshots:
        time_ms = rule.zone.wall_ms(snapshot.time_ms)
        if next_tag is None or time_ms - rule.delay_ms >= next_tag + length:
            this = time_ms // length * length - length
            if rule.completes and next_tag is not None:
                this = next_tag
            made.setdefault(rule.period.name(this), snapshot.id)
            next_tag = this + length
    return made


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(25))
def test_like_the_rules_whoever_commits_and_whenever_processes_begin(seed: int) -> None:
    chance = random.Random(seed)
    zone = chance.choice(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
    options = {
        **BY_TIME,
        "sink.process-time-zone": zone,
        "tag.creation-period": chance.choice(["daily", "hourly", "two-hours"]),
        "tag.creation-delay": chance.choice(["0", "10 min", "59 min"]),
        "tag.automatic-completion": chance.choice(["true", "false"]),
        "snapshot.num-retained.min": "1000",
    }
    disk = SimDisk(seed)
    store = make_table(disk.boot(), options=options)
    stores = [store, store.with_options({"write-only": "true"}), open_table_store(disk.boot(), LOCATION)]
    # Over the nights in which clocks are put back and forward.
    disk.now_ms = chance.choice([1_774_710_000_000, 1_792_850_000_000, 1_767_225_600_000])
    for _ in range(40):
        step = chance.choice([60_000, 20 * 60_000, 3_600_000, 5 * 3_600_000, 40 * 3_600_000])
        which = chance.randrange(3)
        commit_at(stores[which], disk, disk.now_ms + step, user=f"u{which}")
        if chance.random() < 0.2:
            stores[2] = open_table_store(disk.boot(), LOCATION)
    commit_at(store, disk, disk.now_ms)
    rule = tag_rule(store.options, store.env)
    assert rule is not None
    assert names(store) == paimon_tags(rule, store.snapshots.all()), f"seed {seed}"


def test_a_snapshot_that_expires_meanwhile_leaves_its_place_to_the_next() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**BY_TIME, "write-only": "true"})
    for time_ms in TIMES:
        commit_at(store, disk, time_ms)
    env = Meanwhile(disk, None, random.Random(1))
    tagging = open_table_store(env, LOCATION)
    latest = tagging.snapshots.latest()
    assert latest is not None
    assert len(tagging.snapshots.all()) == 5  # in memory
    gone = [store.paths.snapshot(snapshot_id) for snapshot_id in (1, 2)]
    env.do_at(CrashPoint.TAG_WRITTEN, lambda: store.env.file_io.delete_all(gone))
    assert create_due_tags(tagging, latest) == ["2026-01-01", "2026-01-04"]
    assert names(store) == {"2026-01-01": 3, "2026-01-04": 4}


def test_decisions_need_no_table() -> None:
    rule = tag_rule(make_table(SimDisk().boot(), options=BY_TIME).options, SimDisk().boot())
    assert rule is not None
    first = bare_snapshot(1, time_ms=ms(1, 10))
    assert rule.due_ms(None, first) == ms(1, 0) - 86_400_000
    assert rule.due_ms(ms(1, 0), replace(first, time_ms=ms(3, 0) - 1)) is None
    assert rule.due_ms(ms(1, 0), replace(first, time_ms=ms(3, 0))) == ms(2, 0)
