"""Compaction rounds of a stream on the driver: units in a thread, errors, a clean end. The engine is played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, SetOption, Table, table_sink
from freshet.pipeline.config.sections import CompactionConfig
from freshet.pipeline.query.driver import background_rounds, table_rounds
from freshet.pipeline.query.driver.background_rounds import (
    HAND_MAX,
    ONE_CORE,
    BackgroundRounds,
    hands_of,
    joined_report,
)
from freshet.pipeline.query.driver.table_commit import TableCommit, take_turns
from freshet.pipeline.query.driver.table_rounds import BackgroundReport, TableRounds
from freshet.pipeline.query.wire.batch_pin import Handed, TaskPlace
from freshet.storage.write.commit_compaction import CompactionLimit
from tests.kit.spark import inside_query

OPTIONS = {"bucket": "1", "changelog-producer": "lookup"}
BATCHES_MAX = 200
"""By then a unit was reported, on any machine: fourteen are enough where a unit lasts no longer than some batches."""


class PlayedEngine:
    """An engine whose calls run where they are asked for; `before` is called with each."""

    tasks_max = 1

    def __init__(self, cores: int = 2) -> None:
        self.parallelism = cores
        self.before: Callable[[], None] = lambda: None
        self.groups: list[str | None] = []
        self.work: Any = None
        self.cancelled: list[str] = []

    def each(self, work: Callable[..., bytes], items: Sequence[Any], *, group: str | None = None) -> list[bytes]:
        assert len(items) == 1
        self.groups.append(group)
        self.work = work
        self.before()
        return [work(item, TaskPlace(Handed())) for item in items]

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
    )


@pytest.fixture
def played() -> PlayedEngine:
    return PlayedEngine()


@pytest.fixture
def background() -> Iterator[BackgroundRounds]:
    made = BackgroundRounds("stream", budget_ms=0)
    yield made
    made.close()


@pytest.fixture
def rounds(table: Table, background: BackgroundRounds) -> TableRounds:
    return background.open(table)


def batch(table: Table, rounds: TableRounds, number: int, played: PlayedEngine, background: BackgroundRounds) -> None:
    with rounds.batch(table) as limit:
        base = table.latest_snapshot()
        writer = table.engine.task_writer(base_snapshot_id=None if base is None else base.id)
        writer.write(pa.table({"k": [number, number + 1], "v": [str(number)] * 2}))
        messages = writer.prepare_commit(number, limit=limit)
        writer.close()
        table.engine.committer("stream").commit(number, messages)
    rounds.note((message.partition, message.bucket) for message in messages)
    background.go_on(played)


def wait_for(rounds: TableRounds, is_there: Callable[[BackgroundReport], bool]) -> BackgroundReport:
    pause = threading.Event()
    for _ in range(15_000):
        report = rounds.report()
        if is_there(report):
            return report
        pause.wait(0.02)
    raise AssertionError("the rounds did not get there")


def test_units_run_in_the_background_and_are_reported_once(
    table: Table, rounds: TableRounds, background: BackgroundRounds, played: PlayedEngine
) -> None:
    for number in range(4):
        batch(table, rounds, number, played, background)
    report = wait_for(rounds, lambda report: report.units > 0)
    assert report.input_bytes > 0
    assert report.failure is None
    background.close()
    later = rounds.report()
    made = [snapshot for snapshot in table.snapshots() if snapshot.commit_user == "stream-compact"]
    assert {snapshot.commit_kind for snapshot in made} == {"COMPACT"}
    assert report.units + later.units == len(made), "one or more, by how far the batches were when the first began"
    (group,) = set(played.groups)
    assert group is not None and group.startswith("freshet-compaction"), "in a pool beside the batches"
    assert rounds.report().units == 0
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [0, 1, 2, 3, 4]


def test_an_error_is_reported_and_batches_compact_until_a_unit_succeeds(
    table: Table,
    rounds: TableRounds,
    background: BackgroundRounds,
    played: PlayedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_rounds, "RETRY_S", 0.05)
    broken, written = threading.Event(), threading.Event()
    broken.set()

    def fail() -> None:
        assert written.wait(300), "a batch after the error would leave nothing to do"
        if broken.is_set():
            raise OSError("No space left on device")

    played.before = fail
    for number in range(4):
        batch(table, rounds, number, played, background)
    written.set()
    report = wait_for(rounds, lambda report: report.failure is not None)
    assert "No space left on device" in (report.failure or "")
    with rounds.batch(table) as limit:
        assert limit is None, "the batch compacts as it would without rounds"
    broken.clear()
    assert wait_for(rounds, lambda report: report.failure is None)
    with rounds.batch(table) as limit:
        assert limit is not None


def test_close_waits_for_the_unit_that_runs(
    table: Table,
    rounds: TableRounds,
    background: BackgroundRounds,
    played: PlayedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_rounds, "STOP_WAIT_S", 300.0)
    started, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        goes_on.wait(300)

    played.before = wait
    for number in range(4):
        batch(table, rounds, number, played, background)
    assert started.wait(300)
    closing = threading.Thread(target=background.close)
    closing.start()
    assert background._stop.wait(300)
    assert closing.is_alive()
    goes_on.set()
    closing.join(300)
    assert not closing.is_alive()
    assert rounds.report().units == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "freshet-compaction-stream"]
    assert played.cancelled == []


def test_close_cancels_a_unit_that_takes_too_long(
    table: Table,
    rounds: TableRounds,
    background: BackgroundRounds,
    played: PlayedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_rounds, "STOP_WAIT_S", 0.05)
    started = threading.Event()

    def wait() -> None:
        started.set()
        pause = threading.Event()
        while not played.cancelled:
            pause.wait(0.01)
        raise OSError("job cancelled")

    played.before = wait
    for number in range(4):
        batch(table, rounds, number, played, background)
    assert started.wait(300)
    before = table.latest_snapshot()
    background.close()
    assert played.cancelled == played.groups
    assert rounds.report().units == 0
    assert table.latest_snapshot() == before
    assert rounds.report().failure is None, "nothing failed: it was stopped"


def test_one_core_leaves_the_compaction_to_the_batches(
    table: Table, rounds: TableRounds, background: BackgroundRounds
) -> None:
    batch(table, rounds, 0, PlayedEngine(cores=1), background)
    assert rounds.report().failure == ONE_CORE
    with rounds.batch(table) as limit:
        assert limit is None


def test_the_thread_ends_when_nothing_is_due(
    table: Table,
    rounds: TableRounds,
    background: BackgroundRounds,
    played: PlayedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_rounds, "IDLE_S", 0.02)
    batch(table, rounds, 0, played, background)
    (thread,) = [each for each in threading.enumerate() if each.name == "freshet-compaction-stream"] or [None]
    if thread is not None:
        thread.join(300)
        assert not thread.is_alive()
    for number in range(1, 4):
        batch(table, rounds, number, played, background)
    assert wait_for(rounds, lambda report: report.units >= 1)


def test_an_altered_table_is_followed(
    table: Table, rounds: TableRounds, background: BackgroundRounds, played: PlayedEngine
) -> None:
    batch(table, rounds, 0, played, background)
    newer = table.alter(SetOption("num-levels", "7"))
    for number in range(1, 5):
        batch(newer, rounds, number, played, background)
    assert wait_for(rounds, lambda report: report.units >= 1)


def test_a_table_that_is_altered_so_that_it_cannot_be(
    table: Table, rounds: TableRounds, background: BackgroundRounds, played: PlayedEngine
) -> None:
    batch(table, rounds, 0, played, background)
    newer = table.alter(SetOption("num-levels", "4"))
    for number in range(1, 5):
        batch(newer, rounds, number, played, background)
    report = wait_for(rounds, lambda report: report.failure is not None)
    assert "4 levels" in (report.failure or "")
    assert report.units == 0
    with rounds.batch(newer) as limit:
        assert limit is None


def test_a_table_that_failed_and_cannot_be_compacted_any_more_is_not_tried_again(
    table: Table, rounds: TableRounds
) -> None:
    """The thread would look for it again and again, without a pause."""
    rounds.fail("broken")
    assert rounds.retry_at_s is not None
    with rounds.batch(table.alter(SetOption("num-levels", "4"))):
        pass
    assert rounds.retry_at_s is None and not rounds.due_bytes()


def test_the_bucket_of_a_unit_that_nobody_puts_is_looked_at_again(
    table: Table,
    rounds: TableRounds,
    background: BackgroundRounds,
    played: PlayedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the thread ends by an error that nobody foresaw."""
    monkeypatch.setattr(background, "go_on", lambda engine: None)  # no thread: it is played here
    for number in range(4):
        batch(table, rounds, number, played, background)
    due_bytes = rounds.due_bytes()
    taken = rounds.take()
    assert taken is not None and due_bytes and not rounds.due_bytes()
    rounds.release(taken)
    assert rounds.due_bytes() == due_bytes


# --- many tables ------------------------------------------------------------------------------------------------------


class Tables:
    """Tables of one query, by a name of one letter; each batch writes some of them."""

    def __init__(self, folder: Path, background: BackgroundRounds, played: PlayedEngine) -> None:
        self.catalog = Catalog(str(folder))
        self.background, self.played = background, played
        self.tables: dict[str, Table] = {}
        self.rounds: dict[str, TableRounds] = {}
        self.numbers: dict[str, int] = {}

    def add(self, *names: str) -> None:
        for name in names:
            self.tables[name] = self.catalog.create_table(
                f"db.{name}", schema={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
            )
            self.rounds[name] = self.background.open(self.tables[name])
            self.numbers[name] = 0

    def write(self, names: str, count: int = 4) -> None:
        for _ in range(count):
            for name in names:
                number, self.numbers[name] = self.numbers[name], self.numbers[name] + 1
                batch(self.tables[name], self.rounds[name], number, self.played, self.background)

    def units(self, name: str) -> int:
        return sum(each.commit_user == "stream-compact" for each in self.tables[name].snapshots())

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(15_000):
            if is_there():
                return
            pause.wait(0.02)
        raise AssertionError("the rounds did not get there")

    def held(self, name: str) -> list[int]:
        return sorted(self.tables[name].scan().to_arrow()["k"].to_pylist())


@pytest.fixture
def tables(tmp_path: Path, background: BackgroundRounds, played: PlayedEngine) -> Tables:
    return Tables(tmp_path, background, played)


def name_of(played: PlayedEngine) -> str:
    """Of the table whose unit runs."""
    return str(played.work.table.location).rsplit("/", 1)[-1]


def unit_under_way(tables: Tables, name: str) -> threading.Event:
    """Makes a table whose unit runs until the event is set."""
    started, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        goes_on.wait(300)

    tables.played.before = wait
    tables.add(name)
    tables.write(name)
    assert started.wait(300)
    return goes_on


def threads() -> int:
    return sum(each.name == "freshet-compaction-stream" for each in threading.enumerate())


def test_all_tables_of_a_query_have_one_thread(tables: Tables, background: BackgroundRounds) -> None:
    tables.add("a", "b", "c")
    tables.write("abc", 1)
    assert threads() == 1
    tables.write("abc", 5)
    tables.wait_for(lambda: all(tables.units(name) for name in "abc"))
    tables.add("d")  # appears later
    tables.write("abd")
    tables.wait_for(lambda: tables.units("d") > 0)
    assert threads() == 1
    report = background.report()
    assert report is not None and report.failure is None and report.units >= 4 and report.input_bytes > 0
    assert all(tables.held(name) == list(range(tables.numbers[name] + 1)) for name in "abcd")


def test_a_table_whose_compaction_fails_is_named_and_the_others_go_on(
    tables: Tables, background: BackgroundRounds, played: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rounds, "RETRY_S", 0.05)
    tables.add("a", "b")
    broken, is_written = threading.Event(), threading.Event()
    broken.set()

    def fail() -> None:
        is_written.wait(300)  # a batch after a failure compacts the table, which ends the failure
        if broken.is_set() and name_of(played) == "a":
            raise KeyError("a bug of whatever kind")

    played.before = fail
    tables.write("ab", 6)
    is_written.set()
    tables.wait_for(lambda: tables.units("b") > 0)
    found: list[BackgroundReport | None] = []

    def is_told() -> bool:
        found.append(background.report())
        return bool(found[-1] and found[-1].failure)

    tables.wait_for(is_told)
    assert found[-1] is not None and "table db.a: " in (found[-1].failure or "")
    with tables.rounds["a"].batch(tables.tables["a"]) as failing, tables.rounds["b"].batch(tables.tables["b"]) as other:
        assert failing is None and other is not None, "only the table that fails is compacted by its batches"
    broken.clear()
    tables.wait_for(lambda: tables.units("a") > 0)
    tables.wait_for(lambda: getattr(background.report(), "failure", "") is None)


def test_a_table_that_is_dropped_ends_no_other(
    tables: Tables, background: BackgroundRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rounds, "RETRY_S", 0.02)
    tables.add("a", "b")
    tables.write("ab", 1)
    tables.catalog.drop_table("db.a")
    tables.rounds["a"].note([(b"", 0)])
    tables.write("b", 6)
    tables.wait_for(lambda: tables.units("b") > 0)
    background.leave(tables.rounds["a"])  # as a table that is set apart
    tables.wait_for(lambda: getattr(background.report(), "failure", "") is None)
    tables.write("b", 6)
    tables.wait_for(lambda: tables.units("b") > 1)
    assert not tables.catalog.has_table("db.a"), "nothing brings it back"
    assert not Path(tables.tables["a"].location).exists()


def test_a_table_that_leaves_while_its_unit_runs(tables: Tables, background: BackgroundRounds) -> None:
    goes_on = unit_under_way(tables, "a")
    background.leave(tables.rounds["a"])
    tables.add("b")
    goes_on.set()
    tables.write("b", 6)
    tables.wait_for(lambda: tables.units("b") > 0)
    assert tables.units("a") == 1, "it has changed no rows"
    assert tables.held("a") == [0, 1, 2, 3, 4]


def test_a_unit_of_a_table_that_was_created_again_changes_nothing_there(
    tables: Tables, background: BackgroundRounds
) -> None:
    goes_on = unit_under_way(tables, "a")
    tables.catalog.drop_table("db.a")
    tables.tables.pop("a")
    new = tables.catalog.create_table(
        "db.a", schema={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
    )
    with new.writer("other") as writer:
        writer.write([{"k": 7, "v": "new"}])
        writer.commit()
    before = new.snapshots()
    goes_on.set()
    tables.add("b")
    tables.write("b", 6)
    tables.wait_for(lambda: tables.units("b") > 0)
    assert new.snapshots() == before and not new.check().damage
    assert new.scan().to_arrow().to_pylist() == [{"k": 7, "v": "new"}]


def test_turns_of_several_tables_are_taken_in_one_order(tmp_path: Path) -> None:
    """Of two queries of the same tables each would else hold what the other waits for."""
    catalog, taken = Catalog(str(tmp_path)), list[str]()

    class Noted(TableCommit):
        def turn(self) -> AbstractContextManager[CompactionLimit | None]:
            taken.append(self.table.name)
            return nullcontext(CompactionLimit(len(taken)))

    for name in ("db.a", "db.b", "db.c"):
        catalog.create_table(name, schema={"k": "INT NOT NULL"}, primary_keys=["k"], options={"bucket": "1"})
    with ExitStack() as turns:
        given = [Noted(catalog.table(name), "stream") for name in ("db.c", "db.a", "db.b")]
        limits = take_turns(given, turns)
    assert taken == ["db.a", "db.b", "db.c"]
    assert [limit and limit.budget_ms for limit in limits] == [3, 1, 2]


def test_tables_take_turns_and_those_with_most_come_first(
    tables: Tables, background: BackgroundRounds, played: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_rounds, "HAND_MAX", 2)
    order: list[str] = []
    full = threading.Event()

    def note() -> None:
        full.wait(300)
        order.append(name_of(played))

    played.before = note
    tables.add("x")
    tables.write("x")  # the thread waits with a unit of this one
    sizes = {"small": 4, "large": 4, "mid": 4, "tiny": 4}
    tables.add(*sizes)
    widths = {"tiny": 10, "small": 2_000, "mid": 20_000, "large": 80_000}
    for name, width in widths.items():
        for number in range(4):
            rounds, table = tables.rounds[name], tables.tables[name]
            with rounds.batch(table) as limit:
                writer = table.engine.task_writer(base_snapshot_id=getattr(table.latest_snapshot(), "id", None))
                writer.write(pa.table({"k": range(number, number + width), "v": [str(number)] * width}))
                messages = writer.prepare_commit(number, limit=limit)
                writer.close()
                table.engine.committer("stream").commit(number, messages)
            rounds.note([message.bucket_id for message in messages])
    full.set()
    background.go_on(played)
    tables.wait_for(lambda: len(order) >= 5)
    assert order[:5] == ["x", "large", "mid", "small", "tiny"]


def test_small_tables_are_taken_together() -> None:
    def sizes(*given: int) -> list[int]:
        return [len(hand) for hand in hands_of((size, cast(TableRounds, None)) for size in given)]

    assert sizes() == []
    assert sizes(*[1] * (2 * HAND_MAX + 1)) == [HAND_MAX, HAND_MAX, 1]
    assert sizes(1 << 40, 1 << 26, 1, 1) == [1, 1, 2]


def test_the_reports_of_many_tables_are_one() -> None:
    one, other = BackgroundReport(2, 1, 100, None), BackgroundReport(1, 0, 10, "no space")
    assert joined_report([]) is None
    assert joined_report([("db.a", other)]) == other
    assert joined_report([("db.a", one), ("db.b", other)]) == BackgroundReport(3, 1, 110, "table db.b: no space")
    many = joined_report([("db.a", one), ("db.b", other), ("db.c", other), ("db.d", other)])
    assert many is not None and many.failure == "table db.b: no space (2 other tables fail too)"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "kind", ["fixed", pytest.param("dynamic", marks=pytest.mark.slow), pytest.param("moving", marks=pytest.mark.slow)]
)
def test_units_are_tasks_of_the_application(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """Also where keys are assigned, and where each batch moves its rows into another partition."""
    options = {**OPTIONS, "bucket": "2" if kind == "fixed" else "-1", "dynamic-bucket.target-row-num": "30"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"},
        primary_keys=["k"],
        partition_keys=["p"] if kind == "moving" else [],
        options={**options, "cross-partition-upsert.index-dir": str(tmp_path / "index")},
    )
    held: dict[int, tuple[str, str]] = {}
    reports: list[Any] = []
    sink = table_sink(
        str(tmp_path), "db.t", commit_user="s", compaction=CompactionConfig(background=True, batch_budget="0"),
        on_report=reports.append,
    )  # fmt: skip
    try:
        for number in range(BATCHES_MAX):
            rows = [(key, "abc"[(key + number) % 3], f"{key}-{number}") for key in range(number, number + 40)]
            with inside_query(spark):
                sink(spark.createDataFrame(rows, "k int, p string, v string"), number)
            held |= {key: (p, v) for key, p, v in rows}
            if number >= 13 and sum(report.background.units for report in reports) >= 1:
                break
    finally:
        sink.close()
    snapshots = table.snapshots()
    assert {snapshot.commit_user for snapshot in snapshots} == {"s", "s-compact"}
    assert all(report.background.failure is None for report in reports), reports[-1].background
    assert sum(report.background.units for report in reports) >= 1
    found = table.scan().to_arrow().to_pylist()
    assert len(found) == len(held) and {row["k"]: (row["p"], row["v"]) for row in found} == held
    assert not table.check().damage
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("freshet-compaction")]
