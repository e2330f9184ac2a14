"""The streaming reader, asked as Spark asks it: batches planned again are the same, the first one too."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from freshet.pipeline.config.frame_options import stream_options
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sources.stream_source import ChangeStreamReader
from freshet.storage import exceptions
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.kit.micro_batches import MicroBatches, Rows
from tests.kit.quick import some_now
from tests.logstore.logged_tables import fake_kafka, folded, held, make_logged, write
from tests.soak.counts import FIRST_BATCHES, chance_of

ISOLATIONS = ("no log", "none", "committed", "speculative")
MODES = ("latest-full", "latest", "compacted-full", "from-snapshot", "from-snapshot-full", "from-timestamp")
LIMITS = ("", "maxfilespertrigger", "maxbytespertrigger", "maxrowspertrigger", "maxoffsetspertrigger")
CASES = list(product(ISOLATIONS, MODES, LIMITS, (True, False)))


class Stopped(Exception):
    """The process ended here."""


@pytest.fixture
def log() -> Iterator[FakeLog]:
    with fake_kafka() as found:
        yield found


def make(folder: Path, isolation: str, **options: str) -> Table:
    """Two buckets; snapshot 3 is between the two writes."""
    more = {"log__system": "none"} if isolation == "no log" else {}
    table = make_logged(folder, bucket="2", **more, **options)
    write(table, " | ".join(f"+I {key} a" for key in range(8)), "+I 1 b | -D 2 x")
    return table


def query(table: Table, isolation: str, mode: str = "latest-full", **given: str) -> MicroBatches:
    third = table.snapshots()[2]
    begins = {
        "from-snapshot": {"scan.snapshot-id": "3"},
        "from-snapshot-full": {"scan.snapshot-id": "3"},
        "from-timestamp": {"scan.timestamp-millis": str(third.time_ms)},
    }
    read = {} if isolation == "no log" else {"log.read.isolation": isolation}
    options = stream_options({"scan.mode": mode, **begins.get(mode, {}), **read, **given})
    assert options is not None
    return MicroBatches(lambda: ChangeStreamReader(options.stream(Table.open(table.location)), options.limit))


def text(found: Rows) -> str:
    return " | ".join(f"{row['_ROW_KIND']} {row['k']} {row['v']}" for row in found)


def before(table: Table, mode: str) -> dict[int, str]:
    """What was there when a stream began that begins now."""
    if mode in ("latest-full", "compacted-full", "from-snapshot-full"):
        return {}
    if mode == "latest":
        return held(table)
    [third] = [each for each in table.snapshots() if each.id == 3]
    first = min(each.id for each in table.snapshots() if each.time_ms >= third.time_ms)
    found = table.scan(snapshot_id=first - 1).to_arrow().to_pylist()
    return {row["k"]: row["v"] for row in found}


@pytest.mark.parametrize("case", some_now(zip(CASES[::7]), stride=9))
def test_the_first_batch_is_planned_again_while_the_table_moves_on(
    log: FakeLog, tmp_path: Path, case: tuple[str, str, str, bool]
) -> None:
    check_first_batch(tmp_path, *case)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_first_batches_in_every_mode_with_every_limit(tmp_path: Path) -> None:
    cases = chance_of("first batches", 0).sample(CASES, FIRST_BATCHES.now())
    for number, case in enumerate(cases):
        with fake_kafka():
            try:
                check_first_batch(tmp_path / str(number), *case)
            except Exception as error:
                raise AssertionError(f"{case}: {error!r}") from error


def check_first_batch(folder: Path, isolation: str, mode: str, limit: str, available_now: bool) -> None:
    """It does not finish twice, and a writer commits whenever Spark asks where to begin."""
    table = make(folder, isolation)
    reader = query(table, isolation, mode, **({limit: "1"} if limit else {}))
    begun: dict[int, str] = {}
    tries: list[Rows] = []
    values = itertools.count()

    def busy(question: str) -> None:
        if question == "initialOffset":
            write(table, f"+I 1 c{next(values)} | +I 3 c{next(values)}")
        elif question == "latestOffset" and not reader.ends:
            begun.update(before(table, mode))

    def stops(number: int, found: Rows) -> None:
        if number == 0:
            tries.append(found)
            if len(tries) < 3:
                raise Stopped

    reader.asked, reader.sink = busy, stops
    for _ in range(2):
        with pytest.raises(Stopped):
            reader.run(available_now=available_now)
    reader.run(available_now=available_now)
    write(table, "-D 4 x | +I 9 z", "+I 9 y")
    reader.run(available_now=available_now)
    assert tries[0] == tries[1] == tries[2]
    assert folded(text(reader.rows), begun) == held(table)
    count = len(reader.batches)
    reader.run(available_now=available_now)
    assert len(reader.batches) == count


def stopped_in_its_first_batch(table: Table, isolation: str, **given: str) -> MicroBatches:
    return stopped(query(table, isolation, **given))


def stopped(reader: MicroBatches) -> MicroBatches:
    """Its process ends when its next batch was read."""
    reader.sink = stop
    with pytest.raises(Stopped):
        reader.run()
    reader.sink = lambda number, found: None
    return reader


def stop(number: int, found: Rows) -> None:
    raise Stopped


def as_before_offsets_said_where_they_begin(reader: MicroBatches) -> None:
    """What commit 7ac1e1e has written in the same place."""
    ends = [json.loads(end) for end in reader.ends]
    reader.ends = [json.dumps({key: value for key, value in end.items() if key != "begin"}) for end in ends]


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=0))
def test_an_older_checkpoint_goes_on_unless_its_first_batch_did_not_finish(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make(tmp_path, isolation)
    unfinished = stopped_in_its_first_batch(table, isolation)
    as_before_offsets_said_where_they_begin(unfinished)
    done = query(table, isolation)
    done.run()
    as_before_offsets_said_where_they_begin(done)
    done.run()
    assert len(done.batches) == 1  # what Spark compares is the same text
    write(table, "+I 1 c | +I 9 z")
    later = query(table, isolation)
    later.run()
    as_before_offsets_said_where_they_begin(later)
    write(table, "-D 3 x")
    reader = stopped(later)
    write(table, "+I 4 d")
    for each in (done, reader):
        each.run()
        assert folded(text(each.rows)) == held(table)
    with pytest.raises(InvalidRequestError, match="did not finish.*Start the query with a new checkpoint"):
        unfinished.run()


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=3))
def test_rows_that_expired_before_the_first_batch_was_planned_again(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    """A consumer keeps them."""
    table = make(tmp_path, isolation)
    reader = stopped_in_its_first_batch(table, isolation)
    kept = stopped_in_its_first_batch(table, isolation, **{"consumer-id": "audit"})
    write(table, "+I 1 c")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    kept.run()
    assert folded(text(kept.rows)) == held(table)
    write(table, "+I 1 d")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(exceptions.NotFoundError, match="with whose rows this stream begins, expired.*consumer-id"):
        reader.run()


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=2))
def test_a_query_does_not_need_what_it_has_read_to_start_again(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    """Neither the snapshot that it began with, nor the one that it was to begin at."""
    table = make(tmp_path, isolation)
    reader = query(table, isolation)
    third = query(table, isolation, "from-timestamp")
    for each in (reader, third):
        each.run()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    for each in (reader, third):
        each.run()
        assert len(each.batches) == 1


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=1))
def test_where_a_first_batch_began_is_not_looked_for_again(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    """It cannot be found by its time, since the snapshot before it has expired."""
    table = make(tmp_path, isolation)
    third = query(table, isolation, "from-timestamp")
    begun = before(table, "from-timestamp")
    stopped(third)
    first = json.loads(third.ends[0])["begin"]
    write(table, "+I 1 c")
    next_id = first["snapshot_id"] if isolation in ("no log", "none") else first["log"]["snapshot_id"] + 1
    table.reset_consumer("keeps", next_id)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    third.run()
    assert folded(text(third.rows), begun) == held(table)


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=0))
def test_another_table_of_the_same_name_is_not_read_in_its_place(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make(tmp_path, isolation)
    reader = stopped_in_its_first_batch(table, isolation)
    Catalog(str(tmp_path)).drop_table("db.t")
    with pytest.raises(exceptions.StorageError):
        reader.run()
    make(tmp_path, isolation, kafka__topic="another")
    with pytest.raises(InvalidRequestError, match="not the one that this stream begins with.*new checkpoint"):
        reader.run()


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=2))
def test_a_checkpoint_that_expiry_has_overtaken_is_not_tried_again(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make(tmp_path, isolation)
    reader = query(table, isolation)
    reader.run()
    write(table, "+I 1 c", "+I 1 d")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(InvalidRequestError, match="expired before its changes were read.*new checkpoint"):
        reader.run()


@pytest.mark.parametrize("isolation", some_now(ISOLATIONS, stride=4, first=3))
def test_a_table_that_is_dropped_under_a_live_query_is_reported(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make(tmp_path, isolation)
    reader = query(table, isolation)

    def drops(question: str) -> None:
        if reader.batches:
            Catalog(str(tmp_path)).drop_table("db.t")

    reader.asked = drops
    with pytest.raises(exceptions.NotFoundError, match="dropped"):
        reader.run()
    assert not Path(table.location).exists()
