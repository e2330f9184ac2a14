"""The loop of a query that runs here: each batch once whatever dies, one of two runs, intervals, waiting, the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.local_query import BatchPoint, LocalQuery, Trigger, WallClock
from freshet.pipeline.running.progress import ProgressHub
from tests.pipeline.local.counted import Counted, Died, FakeClock, Once, count_of, mortal, offset

NOW = Trigger(available_now=True)


def _run_all(folder: LocalCheckpoint, source: Counted, table: Once) -> None:
    source.most = None
    mortal(folder, [source], table.write, NOW).run()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_dies_each_record_is_in_one_batch(tmp_path: Path, seed: int) -> None:
    """Runs that die at any point, or in the writing before or after the commit, over batch 10 and batch 101."""
    chance, folder, table = random.Random(seed), LocalCheckpoint(tmp_path / "c"), Once()
    there = 0
    ids = set()
    while len(table.batches) < 115:
        source = Counted(there := there + chance.randrange(60), limit=chance.choice([3, 7, 20]))
        left = chance.randrange(24)

        def meets(point: BatchPoint | str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        def write(batch: Any, meets: Callable[[str], None] = meets) -> None:
            meets("before the commit")
            table.write(batch)
            meets("after the commit")

        query = mortal(folder, [source], write, NOW)
        query.meets = meets
        ids.add(query.query_id)
        try:
            query.run()
        except Died:
            continue
    source = Counted(there)
    _run_all(folder, source, table)
    assert table.counts()[-1] == there
    assert len(ids) == 1
    assert sorted(folder.numbers("offsets"))[-1] == sorted(folder.numbers("commits"))[-1] == len(table.batches) - 1
    assert 100 < len(folder.numbers("offsets")) <= 111
    assert all(path.name.isdecimal() for path in (tmp_path / "c" / "commits").iterdir())


@pytest.mark.parametrize("point", [BatchPoint.PLANNED, BatchPoint.WRITTEN])
def test_a_planned_batch_ends_where_it_was_planned(tmp_path: Path, point: BatchPoint) -> None:
    folder, table = LocalCheckpoint(tmp_path), Once()
    query = mortal(folder, [Counted(5)], table.write, NOW)

    def meets(at: BatchPoint) -> None:
        if at is point:
            raise Died

    query.meets = meets
    with pytest.raises(Died):
        query.run()
    source = Counted(9)
    _run_all(folder, source, table)
    assert table.counts() == [5, 9]
    assert source.told == [5, 9]


def test_sources_that_were_not_told_are_told_at_the_next_start(tmp_path: Path) -> None:
    folder, table, source = LocalCheckpoint(tmp_path), Once(), Counted(5)
    query = mortal(folder, [source], table.write, NOW)

    def meets(at: BatchPoint) -> None:
        if at is BatchPoint.DONE:
            raise Died

    query.meets = meets
    with pytest.raises(Died):
        query.run()
    assert source.told == [] and source.is_closed
    _run_all(folder, source, table)
    assert source.told == [5]
    assert table.runs == 1


@pytest.mark.parametrize("point", list(BatchPoint))
def test_of_two_runs_one_goes_on(tmp_path: Path, point: BatchPoint) -> None:
    """The other run does its batches while this one is at a point."""
    folder, table, first, second = LocalCheckpoint(tmp_path), Once(), Counted(30, limit=10), Counted(40, limit=10)
    slow, quick = mortal(folder, [first], table.write, NOW), mortal(folder, [second], table.write, NOW)

    def meets(at: BatchPoint) -> None:
        if at is point and not second.is_closed:
            quick_again = mortal(folder, [second], table.write, NOW)
            assert quick_again.query_id == quick.query_id == slow.query_id
            quick_again.run()

    slow.meets = meets
    with pytest.raises(PipelineFailedError, match=r"(offsets|commits)/\d: another run of this pipeline") as raised:
        slow.run()
    assert raised.value.kind is ErrorKind.INVALID_REQUEST
    assert str(tmp_path) in str(raised.value)
    assert table.counts() == [10, 20, 30, 40]
    assert first.is_closed


def test_two_threads_on_one_checkpoint(tmp_path: Path) -> None:
    folder, table, lock, ends = LocalCheckpoint(tmp_path), Once(), threading.Lock(), []

    def write(batch: Any) -> None:
        with lock:
            table.write(batch)

    def run(query: LocalQuery) -> None:
        try:
            query.run()
            ends.append("read all")
        except PipelineFailedError as error:
            ends.append(error.kind)

    threads = [
        threading.Thread(target=run, args=(mortal(folder, [Counted(60, limit=3)], write, NOW),)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.counts() == list(range(3, 61, 3))
    assert sorted(ends)[-1] == "read all" and sorted(ends)[0] in ("read all", ErrorKind.INVALID_REQUEST)


def test_batch_0_of_an_empty_source_says_where_it_begins(tmp_path: Path) -> None:
    """As on Spark; a source that begins with nothing gives no batch."""
    folder, table = LocalCheckpoint(tmp_path / "a"), Once()
    _run_all(folder, Counted(), table)
    _run_all(folder, Counted(), table)
    assert table.batches == {0: ((0, 0),)}
    other = LocalCheckpoint(tmp_path / "b")
    _run_all(other, Counted(has_first=False), table)
    assert other.numbers("offsets") == []


def test_a_source_without_news_keeps_its_offset(tmp_path: Path) -> None:
    folder, table = LocalCheckpoint(tmp_path), Once()
    sources = [Counted(4), Counted(has_first=False), Counted(2)]
    mortal(folder, sources, table.write, NOW).run()
    assert (folder.read("offsets", "0") or "").split("\n")[2:] == [offset(4), "-", offset(2)]
    sources = [Counted(4), Counted(3, has_first=False), Counted(2)]
    query = mortal(folder, sources, table.write, NOW)
    query.run()
    assert query.offsets(1) == (offset(4), offset(3), offset(2))
    assert sources[1].told == [3]
    assert table.batches[1] == ((4, 4), (0, 3), (2, 2))


def test_at_most_one_batch_begins_in_a_multiple_of_the_interval(tmp_path: Path) -> None:
    """A batch that takes longer lets the next one begin at once; one that waits begins with the first record."""
    clock = FakeClock(10_000)
    # at 10 000 at once; 350 late, so the next one at once; 10 400; quiet from 10 600; a record at 10 730, then 10 800
    source = Counted(1, clock=clock, comes={10_100: 1, 10_390: 1, 10_730: 1, 10_735: 1})
    begun: list[int] = []
    lasts = [350, 10, 10, 10, 10]

    def write(batch: Any) -> None:
        begun.append(clock.now)
        clock.now += lasts[len(begun) - 1]
        if len(begun) == len(lasts):
            query.stop()

    query: LocalQuery = mortal(LocalCheckpoint(tmp_path), [source], write, Trigger(interval_ms=200))
    query.run()
    assert begun == [10_000, 10_350, 10_400, 10_730, 10_800]
    assert [Trigger(5000).next_ms(at) for at in (12_345, 15_000)] == [15_000, 20_000]
    assert Trigger().next_ms(12_345) == 12_345


def test_waiting_does_not_spin_and_looks_now_and_then(tmp_path: Path) -> None:
    clock = FakeClock()
    source = Counted(1, clock=clock, comes={clock.now + 21_000: 1})
    idle: list[tuple[str, int | None]] = []

    def write(batch: Any) -> None:
        if batch.number == 1:
            query.stop()

    def on_idle(query_id: str, lag: int | None) -> None:
        idle.append((query_id, lag))

    query: LocalQuery = mortal(LocalCheckpoint(tmp_path), [source], write, Trigger(), on_idle=on_idle)
    query.run()
    assert [each for each, _ in idle] == [query.query_id] * 2
    assert {lag for _, lag in idle} == {0}
    assert source.waits <= 211 and source.looks <= 24
    assert clock.pauses == []


@pytest.mark.parametrize(("interval_ms", "looks"), [(0, 100), (200, 5), (3_600_000, 1)])
def test_a_source_that_calls_for_nothing_is_not_asked_without_a_pause(
    tmp_path: Path, interval_ms: int, looks: int
) -> None:
    class Ending(FakeClock):
        def pause(self, ends: threading.Event, seconds: float) -> None:
            super().pause(ends, seconds)
            if self.now >= begun_ms + 2000:
                query.stop()

    begun_ms = 3_600_000 * 9
    source = Counted(1, clock=Ending(begun_ms - 1), cries_wolf=True)
    query: LocalQuery = mortal(LocalCheckpoint(tmp_path), [source], lambda batch: None, Trigger(interval_ms))
    query.run()
    assert 2 * looks <= source.looks <= 2 * looks + 4


def test_several_sources_wait_in_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    quiet, busy = (
        Counted(1, clock=clock),
        Counted(1, clock=clock, comes={clock.now + 500 * at: 1 for at in range(1, 9)}),
    )
    late: list[int] = []

    def write(batch: Any) -> None:
        late.append((clock.now - 1_000_000) % 500)
        if batch.number == 8:
            query.stop()

    query = mortal(LocalCheckpoint(tmp_path), [quiet, busy], write, Trigger())
    query.run()
    assert max(late) <= 20
    assert abs(quiet.waits - busy.waits) <= 9


def test_stop_ends_a_wait_and_a_pause(tmp_path: Path) -> None:
    class Slow(Counted):
        def wait(self, start: str | None, timeout_s: float) -> bool:
            assert timeout_s < 0.5
            time.sleep(timeout_s)
            return False

    for number, trigger in enumerate((Trigger(), Trigger(interval_ms=3_600_000))):
        source = Slow(3)
        query = mortal(
            LocalCheckpoint(tmp_path / str(number)), [source], lambda batch: None, trigger, clock=WallClock()
        )
        thread = threading.Thread(target=query.run)
        thread.start()
        while not source.told:
            time.sleep(0.001)
        begun = time.monotonic()
        query.stop()
        thread.join()
        assert time.monotonic() - begun < 60
        assert source.is_closed


@pytest.mark.parametrize(("is_asked", "kind"), [(True, "away"), (False, "away"), (True, "gone")])
def test_a_source_that_does_not_answer_while_the_query_is_to_end_is_no_failure(
    tmp_path: Path, is_asked: bool, kind: str
) -> None:
    table, error = Once(), LogUnavailableError("away") if kind == "away" else LogTruncatedError("gone")

    class Away(Counted):
        def latest(self, start: str | None) -> str | None:
            if is_asked:
                query.stop()
            assert self.is_left is is_asked
            raise error

        is_left = False

        def leave(self) -> None:
            self.is_left = True

    source = Away(5)
    query = LocalQuery("q", LocalCheckpoint(tmp_path), [source], table.write, mock.Mock(), Trigger(), lambda _: None)
    with nullcontext() if is_asked and kind == "away" else pytest.raises(type(error)):
        query.run()
    assert source.is_closed and not table.batches


def test_the_plan_is_written_while_the_job_runs(tmp_path: Path) -> None:
    """The batch waits for it before its tables are changed, and it is there though a batch waits for nothing."""
    written = threading.Event()

    class Slow(LocalCheckpoint):
        def create(self, *names: str, text: str) -> bool:
            assert names[0] != "offsets" or written.wait(300)
            return super().create(*names, text=text)

    folder, seen = Slow(tmp_path), []

    def write(batch: Any) -> None:
        seen.append((folder.numbers("offsets"), batch.offsets()))
        written.set()
        if batch.number == 0:
            batch.settle()
            seen.append((folder.numbers("offsets"), batch.offsets()))
            written.clear()

    mortal(folder, [Counted(2, limit=1)], write, NOW).run()
    assert seen == [([], (offset(1),)), ([0], (offset(1),)), ([0], (offset(2),))]
    assert sorted(folder.numbers("commits")) == sorted(folder.numbers("offsets")) == [0, 1]


def test_what_fails_is_raised_and_the_batch_stays_planned(tmp_path: Path) -> None:
    folder, source = LocalCheckpoint(tmp_path), Counted(3)

    def write(batch: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        mortal(folder, [source], write, NOW).run()
    assert source.is_closed
    assert (folder.numbers("offsets"), folder.numbers("commits")) == ([0], [])


def test_progress_is_what_the_hub_reads(tmp_path: Path) -> None:
    progress: list[dict[str, Any]] = []
    query = mortal(LocalCheckpoint(tmp_path), [Counted(7, limit=4)], lambda batch: None, NOW, progress=progress)
    query.run()
    first, second = progress
    assert [each["batchId"] for each in progress] == [0, 1]
    assert first["sources"] == [
        {"startOffset": {"offset": 0, "timestamp": 0}, "endOffset": {"offset": 4, "timestamp": 4}, "lag": 3}
    ]
    assert (second["name"], second["id"], second["runId"]) == ("counted", query.query_id, query.run_id)
    assert set(first["durationMs"]) == {"latestOffset", "walCommit", "addBatch", "commitOffsets", "triggerExecution"}
    ProgressHub(lambda each: None).add_engine_progress(first)
    assert count_of(query.span(1, 0)[1]) == 7
