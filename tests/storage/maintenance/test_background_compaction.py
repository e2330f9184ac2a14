"""Compaction in the background: batches do what is required, units the rest, and neither undoes the other's work."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, InvalidRequestError, Table
from freshet.storage.maintenance.background_compaction import (
    BackgroundCompaction,
    BackgroundUnit,
    Turns,
    alone_together,
    why_not_in_background,
)
from freshet.storage.maintenance.compaction_plan import plan_compaction
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.write.commit_compaction import CompactionLimit
from freshet.storage.write.task_writer import TaskWriter
from tests.kit.changelog_files import changelog, folded
from tests.kit.quick import some_now
from tests.storage.lookup.lookup_tables import eager

LOOKUP = {"changelog-producer": "lookup"}


def a_table(folder: Path, options: Mapping[str, str], *, keyed: bool = True) -> Table:
    kept = {"snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "1000"}
    return Catalog(str(folder)).create_table(
        "db.t",
        schema={"k": "INT NOT NULL" if keyed else "INT", "v": "BIGINT", "w": "STRING"},
        primary_keys=["k"] if keyed else [],
        options={"bucket": "1", **({} if keyed else {"bucket-key": "k"}), **kept, **options},
    )


class Stream:
    """Batches as a pipeline writes them, with units in the background."""

    def __init__(self, table: Table, budget_ms: int = 0) -> None:
        self.table = table
        self.background = table.engine.background_compaction("stream-compact")
        self.committer = table.engine.committer("stream", "query")
        self.budget_ms = budget_ms
        self.batch = 0
        self.waited = 0

    def write(self, rows: Mapping[str, Any]) -> None:
        with self.background.batch(self.budget_ms) as limit:
            writer = self.table.engine.task_writer(base_snapshot_id=getattr(self.table.latest_snapshot(), "id", None))
            try:
                writer.write(pa.table(dict(rows)))
                messages = writer.prepare_commit(self.batch, limit=limit)
                self.waited += writer.waited_buckets
            finally:
                writer.close()
            result = self.committer.commit(self.batch, messages)
        assert result.aborted_compactions == (), "no compaction of the stream is dropped"
        self.background.note([(message.partition, message.bucket) for message in messages])
        self.batch += 1

    def round(self) -> int:
        count = 0
        while (unit := self.background.next_unit()) is not None:
            assert self.finish(unit, self.table.engine.run_background_unit(unit))
            count += 1
        return count

    def finish(self, unit: BackgroundUnit, messages: list[CommitMessage]) -> bool:
        result = self.background.commit(unit, messages)
        self.background.release(unit)
        return bool(result.snapshots)


def rows_of(first: int, count: int = 10) -> dict[str, Any]:
    keys = list(range(first, first + count))
    return {"k": keys, "v": [key * 7 for key in keys], "w": [f"{key}-{first}" for key in keys]}


def levels(table: Table) -> list[int]:
    return sorted(entry.file.level for entry in table.files())


def held(table: Table) -> dict[int, dict[str, Any]]:
    return {row["k"]: row for row in table.scan().to_arrow().to_pylist()}


def emitted(table: Table) -> dict[int, dict[str, Any]]:
    """What a reader of the whole changelog has."""
    return {key[0]: dict(row) for key, row in folded(changelog(table).values(), ["k"]).items()}


def test_a_batch_compacts_level_0_and_no_more(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP))
    found = []
    for number in range(7):
        stream.write(rows_of(number))
        found.append(levels(stream.table))
    assert found[:5] == [[5], [4, 5], [3, 4, 5], [2, 3, 4, 5], [1, 2, 3, 4, 5]]
    assert found[5:] == [[1, 2, 3, 4, 5]] * 2, "what comes is merged into level 1 until other levels are free"


def test_within_its_time_a_batch_does_what_the_rule_asks_for(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP), budget_ms=10_000)
    for number in range(3):
        stream.write(rows_of(number))
    assert levels(stream.table) == [4, 5]
    limited = Stream(stream.table)
    limited.batch = stream.batch
    limited.write(rows_of(50))
    assert levels(stream.table) == [3, 4, 5]


def test_units_merge_what_batches_leave(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP))
    for number in range(6):
        stream.write(rows_of(number))
    before = held(stream.table)
    assert stream.round() == 1
    assert levels(stream.table) == [1, 5]
    (kind, user) = (stream.table.snapshots()[-1].commit_kind, stream.table.snapshots()[-1].commit_user)
    assert (kind, user) == ("COMPACT", "stream-compact")
    assert held(stream.table) == before
    stream.write(rows_of(20))
    assert levels(stream.table) == [4, 5], "level 1 moves up as soon as there is room"


def test_a_unit_lasts_over_batches_and_still_fits(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP), budget_ms=10_000)
    stream.budget_ms = 0
    for number in range(4):
        stream.write(rows_of(number))
    unit = stream.background.next_unit()
    assert unit is not None
    assert {level for _, level in unit.inputs} == {2, 3, 4, 5}
    messages = stream.table.engine.run_background_unit(unit)
    stream.budget_ms = 10_000
    for number in range(4, 9):
        stream.write(rows_of(number))
    assert levels(stream.table) == [1, 2, 3, 4, 5], "a busy bucket is left alone, whatever the time"
    assert stream.finish(unit, messages)
    assert levels(stream.table) == [1, 5]
    assert stream.background.next_unit() is None


def test_a_unit_that_conflicts_is_dropped_with_its_files(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP))
    for number in range(4):
        stream.write(rows_of(number))
    unit = stream.background.next_unit()
    assert unit is not None
    messages = stream.table.engine.run_background_unit(unit)
    made = [file.file_name for message in messages for file in message.compact_after]
    assert made
    Table.open(stream.table.location).compact()
    before = held(stream.table)
    assert not stream.finish(unit, messages)
    assert not [path for name in made for path in Path(stream.table.location).rglob(name)]
    assert held(stream.table) == before
    assert emitted(stream.table) == before


def test_a_unit_whose_files_are_gone_does_nothing(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP))
    for number in range(4):
        stream.write(rows_of(number))
    unit = stream.background.next_unit()
    assert unit is not None
    stream.table.compact()
    assert stream.table.engine.run_background_unit(unit) == []
    assert not stream.finish(unit, [])


def test_a_unit_makes_the_stores_of_its_files_so_that_no_batch_has_to(tmp_path: Path) -> None:
    cache = {"lookup.cache-dir": str(tmp_path / "cache")}
    stream = Stream(a_table(tmp_path, LOOKUP | cache))
    with eager():
        for _ in range(6):
            stream.write(rows_of(0))
        unit = stream.background.next_unit()
        assert unit is not None
        messages = stream.table.engine.run_background_unit(unit)
        stream.write(rows_of(0))  # before the unit is committed: its stores stay
        assert stream.finish(unit, messages)
        (new,) = [entry.file.file_name for entry in stream.table.files() if entry.file.level > 1]
        there = [path.name for path in (tmp_path / "cache").rglob("*.rows")]
        assert any(name.startswith(new) for name in there)


def test_without_lookup_batches_compact_only_under_back_pressure(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, {"num-sorted-run.stop-trigger": "7"}))
    for number in range(7):
        stream.write(rows_of(number))
    assert levels(stream.table) == [0] * 7
    assert stream.waited == 0
    stream.write(rows_of(8))
    assert stream.waited == 1
    assert levels(stream.table) == [5]
    for number in range(5):
        stream.write(rows_of(number))
    assert stream.round() == 1
    assert stream.waited == 1
    assert levels(stream.table) == [5]


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_append_tables_are_left_to_units(tmp_path: Path, bucket: str) -> None:
    options = {"bucket": bucket, **({} if bucket == "1" else {"bucket-key": ""})}
    table = Catalog(str(tmp_path)).create_table(
        "db.a",
        schema={"k": "INT", "v": "BIGINT", "w": "STRING"},
        options={k: v for k, v in options.items() if v} | ({"bucket-key": "k"} if bucket == "1" else {}),
    )
    stream = Stream(table, budget_ms=10_000)
    for number in range(6):
        stream.write(rows_of(number))
    assert len(table.files()) == 6
    before = sorted(table.scan().to_arrow()["w"].to_pylist())
    assert stream.round() == 1
    assert len(table.files()) < 3
    assert sorted(table.scan().to_arrow()["w"].to_pylist()) == before


def test_level_0_that_a_crash_left_behind_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path, LOOKUP)
    stream = Stream(table)
    stream.write(rows_of(0))
    store = Table.open(table.location, options={"write-only": "true"}).store
    writer = TaskWriter(store, base_snapshot=store.snapshots.latest())
    writer.write(pa.table(rows_of(5)))
    table.engine.committer("crashed").commit(0, writer.prepare_commit(0))
    writer.close()
    stream.background.note([(table.files()[0].partition, 0)])
    assert stream.background.next_unit() is None, "it may belong to a commit that goes on"
    later = table.store.env.creation_time_ms() + 61_000
    monkeypatch.setattr(type(table.store.env), "creation_time_ms", lambda env: later)
    stream.background.note([(table.files()[0].partition, 0)])
    assert stream.round() == 1
    assert 0 not in levels(table)
    assert emitted(table) == held(table)


ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.w.aggregate-function": "last_value",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}


FULL_COMPACTION: Mapping[str, str] = {
    "changelog-producer": "full-compaction",
    "full-compaction.delta-commits": "9",
}
PRODUCERS: Sequence[Mapping[str, str]] = (LOOKUP, {"force-lookup": "true"}, {}, FULL_COMPACTION)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("engine", "producer"),
    some_now(
        (
            (engine, producer)
            for engine in ENGINES
            for producer in PRODUCERS
            if not (engine == "first-row" and producer is FULL_COMPACTION)  # is refused when the table is made
        ),
        stride=3,
    ),
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()) or "none",
)
def test_units_in_the_background_change_nothing_that_is_read_or_emitted(
    tmp_path: Path, engine: str, producer: Mapping[str, str]
) -> None:
    """The same batches into a table whose batches compact as always: equal rows, equal folded changelog."""
    chance = random.Random(f"{engine}/{producer}")
    small = {"num-sorted-run.compaction-trigger": "4", "num-levels": "6"}
    options = {**ENGINES[engine], **producer, **small}
    stream = Stream(a_table(tmp_path / "background", options))
    plain = a_table(tmp_path / "plain", options).writer("plain")
    pending: tuple[BackgroundUnit, list[CommitMessage]] | None = None
    finished = 0
    # Without lookup a -D that is merged with later rows first does not reach the earlier ones any more.
    kinds = ["+I", "+U", "+U", "-D"] if engine == "deduplicate" or "lookup" in str(producer) else ["+I", "+U"]
    for batch in range(24):
        count = 30
        keys = [chance.randrange(200) for _ in range(count)]
        row_kinds = [chance.choice(kinds) for _ in keys]
        # Values of a -D would live on in what is merged upon it, and not where it was dropped before.
        rows = {
            "k": keys,
            "v": [None if kind == "-D" else chance.choice([None, chance.randrange(100)]) for kind in row_kinds],
            "w": [None if kind == "-D" else chance.choice([None, f"w{batch}"]) for kind in row_kinds],
            "_ROW_KIND": row_kinds,
        }
        stream.write(rows)
        plain.write(pa.table(rows))
        plain.commit()
        if pending is None and (unit := stream.background.next_unit()) is not None:
            pending = (unit, stream.table.engine.run_background_unit(unit))
        elif pending is not None and batch % 2:
            finished += stream.finish(*pending)
            pending = None
    assert finished >= 1
    other = Catalog(str(tmp_path / "plain")).table("db.t")
    if producer.get("changelog-producer") == "full-compaction":
        for table in (stream.table, other):
            table.compact()
    assert held(stream.table) == held(other)
    if "changelog-producer" in producer:
        assert emitted(stream.table) == held(stream.table)
    if producer is LOOKUP:
        mine, theirs = (
            [sorted(str(each) for each in found) for found in changelog(table).values()]
            for table in (stream.table, other)
        )
        assert mine == theirs, "commit by commit"


def test_a_unit_is_chosen_and_committed_between_batches(tmp_path: Path) -> None:
    stream = Stream(a_table(tmp_path, LOOKUP))
    for number in range(4):
        stream.write(rows_of(number))
    got: list[BackgroundUnit | None] = []
    asked = threading.Thread(target=lambda: got.append(stream.background.next_unit()))
    with stream.background.batch(0):
        asked.start()
        asked.join(0.2)
        assert asked.is_alive()
        assert got == []
    asked.join(300)
    assert got[0] is not None
    stream.background.release(got[0])


def test_two_streams_of_a_process_share_their_turns(tmp_path: Path) -> None:
    table = a_table(tmp_path, LOOKUP)
    one, other = table.engine.background_compaction("one-compact"), table.engine.background_compaction("other-compact")
    with one.batch(0), other.batch(0):
        pass
    stream = Stream(table)
    for number in range(4):
        stream.write(rows_of(number))
    unit = one.next_unit()
    assert unit is not None
    with other.batch(5) as limit:
        assert limit == CompactionLimit(5, frozenset({(unit.partition, unit.bucket)}))
    one.release(unit)


def test_a_thread_that_waits_to_be_alone_goes_first() -> None:
    turns, order = Turns(), []
    entered = threading.Event()

    def alone() -> None:
        entered.set()
        with turns.alone():
            order.append("alone")

    def shared() -> None:
        with turns.shared():
            order.append("shared")

    with turns.shared():
        first = threading.Thread(target=alone)
        first.start()
        assert entered.wait(300)
        while not turns._waiting:
            pass
        second = threading.Thread(target=shared)
        second.start()
    first.join(300)
    second.join(300)
    assert order == ["alone", "shared"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"write-only": "true"}, "write-only"),
        ({"deletion-vectors.enabled": "true"}, "deletion vectors"),
        ({**LOOKUP, "lookup-compact": "gentle"}, "gentle"),
        ({**LOOKUP, "num-levels": "4"}, "4 levels"),
        ({**LOOKUP, "lookup-wait": "false", "num-levels": "4"}, None),
        (LOOKUP, None),
        ({}, None),
    ],
)
def test_where_batches_must_compact_themselves(tmp_path: Path, options: Mapping[str, str], reason: str | None) -> None:
    table = a_table(tmp_path, options)
    found = why_not_in_background(table.options)
    assert (found is None) == (reason is None)
    if reason is not None:
        assert reason in (found or "")
        with pytest.raises(InvalidRequestError, match="its batches compact it"):
            BackgroundCompaction(table.store, "u")


def test_a_table_altered_meanwhile_is_followed(tmp_path: Path) -> None:
    table = a_table(tmp_path, LOOKUP)
    stream = Stream(table)
    for number in range(4):
        stream.write(rows_of(number))
    table.writer("x").commit()
    newer = table.alter(AddColumn("z", "INT"))
    newer.writer("x").commit()
    assert stream.background.next_unit() is None, "files of a later schema would lose columns"
    stream = Stream(newer)
    unit = stream.background.next_unit()
    assert unit is not None
    assert stream.finish(unit, newer.engine.run_background_unit(unit))
    assert plan_compaction(newer.store, full=False) == []


def test_two_streams_of_the_same_tables_never_wait_for_each_other(tmp_path: Path) -> None:
    """Each thread wants the turns of both tables, as batches and as units, whatever order it names them in."""
    tables = [a_table(tmp_path / name, LOOKUP) for name in "ab"]
    wanted = threading.Barrier(4)
    done: list[str] = []

    def stream(order: Sequence[int]) -> None:
        own = [tables[number].engine.background_compaction(f"s{order}-compact") for number in order]
        wanted.wait(300)
        for _ in range(300):
            first, last = sorted(own, key=lambda each: each.location)
            with first.batch(0), last.batch(0):
                pass
        done.append("batches")

    def units(order: Sequence[int]) -> None:
        own = [tables[number].engine.background_compaction(f"u{order}-compact") for number in order]
        wanted.wait(300)
        for _ in range(300):
            with alone_together(own):
                pass
        done.append("units")

    works = [(stream, (0, 1)), (stream, (1, 0)), (units, (0, 1)), (units, (1, 0))]
    threads = [threading.Thread(target=work, args=(order,), daemon=True) for work, order in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert sorted(done) == ["batches", "batches", "units", "units"]
