"""`TableEngine.split_stream`: in whatever steps and processes it is read, it gives what `Table.stream` gives."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamPosition, StreamRequest
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError
from freshet.storage.io.env import local_env
from freshet.storage.table_engine import StreamLimit
from tests.kit.hypothesis_profile import examples
from tests.storage.changes.change_tables import LoggedTable, read_changes, row

SMALL_SPLITS = {"bucket": "2", "source.split.open-file-cost": "1 gb"}


def make(folder: Path, **more: Any) -> LoggedTable:
    """Two buckets, four snapshots; key 1 changes in each."""
    more.setdefault("env", local_env())
    made = LoggedTable(folder, options={"write-only": "true", **SMALL_SPLITS, **more.pop("options", {})}, **more)
    made.log([row(key, "a") for key in range(8)], [row(key, "a") for key in range(8)])
    for number in range(3):
        made.log([row(1, f"v{number}", "+U"), row(number + 2, "b", "+U")], [row(1, f"v{number}"), row(number + 2, "b")])
    return made


def stream(logged: LoggedTable, **asked: Any) -> SplitStream:
    return logged.table.engine.split_stream(StreamRequest(**{"with_snapshot_id": True, **asked}))


def travelled(position: StreamPosition) -> StreamPosition:
    """As a checkpoint gives it back."""
    return StreamPosition.from_document(json.loads(json.dumps(position.to_document())))


def read(reader: SplitStream, start: StreamPosition, end: StreamPosition) -> list[tuple[Any, ...]]:
    """The changes between two positions, read by another process."""
    splits = pickle.loads(pickle.dumps(reader.splits(start, end)))
    other = pickle.loads(pickle.dumps(reader))
    return read_changes(
        pa.Table.from_batches([batch for split in splits for batch in other.read_split(split)], reader.schema)
    )


def everything(logged: LoggedTable, **asked: Any) -> list[tuple[Any, ...]]:
    batches = list(logged.table.stream(**{"max_wait_s": 0, "with_snapshot_id": True, **asked}))
    return read_changes(pa.Table.from_batches(batches, logged.table.stream(max_wait_s=0, with_snapshot_id=True).schema))


@pytest.mark.dear("a table for each example")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    limits=st.lists(st.builds(StreamLimit, files=st.integers(1, 4), rows=st.none() | st.integers(1, 12)), min_size=1),
    restarts=st.lists(st.booleans(), min_size=1, max_size=8),
    mode=st.sampled_from([{"scan_mode": "latest-full"}, {"from_snapshot": 1}, {"from_snapshot": 3}]),
)
def test_any_steps_give_what_the_stream_gives(
    tmp_path_factory: pytest.TempPathFactory, limits: list[StreamLimit], restarts: list[bool], mode: dict[str, Any]
) -> None:
    logged = make(tmp_path_factory.mktemp("t"))
    reader = stream(logged, **mode)
    position = travelled(reader.first())
    found: list[tuple[Any, ...]] = []
    for number in range(1000):
        if restarts[number % len(restarts)]:
            reader = stream(logged, **mode)
        end = travelled(reader.advance(position, limits[number % len(limits)]))
        if end == position:
            break
        found += read(reader, position, end)
        reader.handed_over(end)
        position = end
    assert found == everything(logged, **mode)
    assert position.snapshot_id == reader.latest().snapshot_id


def test_a_step_takes_no_more_than_the_limit_and_one_split_at_least(tmp_path: Path) -> None:
    reader = stream(make(tmp_path), from_snapshot=1)
    start = reader.first()
    first = reader.advance(start, StreamLimit(files=1))
    assert len(reader.splits(start, first)) == 1
    assert (first.snapshot_id, first.taken, first.of) == (1, 1, 2)
    assert reader.advance(start, StreamLimit(size_bytes=1)) == first
    assert reader.advance(start, StreamLimit()).snapshot_id == 5
    assert reader.advance(start, StreamLimit(), until_id=3).snapshot_id == 3


def test_a_snapshot_half_read_is_not_resumed_by_another_plan(tmp_path: Path) -> None:
    logged = make(tmp_path)
    half = stream(logged, from_snapshot=1).advance(StreamPosition(1), StreamLimit(files=1))
    other = stream(logged, from_snapshot=1, filter="id = 1")
    with pytest.raises(InvalidRequestError, match="was read in 2 splits, of which 1 were taken, and now it has 1"):
        other.advance(half, StreamLimit())


def test_a_position_of_a_history_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    logged = make(tmp_path)
    end = stream(logged).advance(StreamPosition(1), StreamLimit())
    assert end == StreamPosition(5, before_ms=end.before_ms)
    _rolled_back(logged)
    logged.log([row(9, "other")], [row(9, "other")])
    with pytest.raises(RetryableError, match="rolled back or created anew"):
        stream(logged).advance(travelled(end), StreamLimit())


def test_a_position_of_a_history_that_was_rolled_back_is_refused_after_expiry(tmp_path: Path) -> None:
    """The snapshot that took the place of the one before the position is known from the history of commits alone."""
    logged = make(tmp_path)
    end = stream(logged).advance(StreamPosition(1), StreamLimit())
    _rolled_back(logged)
    for number in range(2):
        logged.log([row(9 + number, "other")], [row(9 + number, "other")])
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert logged.store.snapshots.list_ids() == [5]
    with pytest.raises(RetryableError, match="rolled back or created anew"):
        stream(logged).advance(travelled(end), StreamLimit())


def test_a_rollback_of_a_snapshot_that_was_read_in_part_is_an_error(tmp_path: Path) -> None:
    logged = make(tmp_path)
    start = stream(logged).advance(StreamPosition(1), StreamLimit())
    logged.log([row(key, "mine", "+U") for key in range(8)], [row(key, "mine") for key in range(8)])
    half = stream(logged).advance(start, StreamLimit(files=1))
    assert (half.snapshot_id, half.taken, half.of) == (5, 1, 2)
    assert stream(logged).advance(travelled(half), StreamLimit()).snapshot_id == 6
    _rolled_back(logged, 5)
    logged.log([row(key, "other", "+U") for key in range(8)], [row(key, "other") for key in range(8)])
    with pytest.raises(RetryableError, match="snapshot 5 of .* read in part: the table was rolled back"):
        stream(logged).advance(travelled(half), StreamLimit())


def test_a_start_beyond_its_end_is_refused(tmp_path: Path) -> None:
    reader = stream(make(tmp_path), from_snapshot=1)
    for start, end in (
        (StreamPosition(3), StreamPosition(2)),
        (StreamPosition(4), StreamPosition(4, is_state=True)),
        (StreamPosition(3, taken=2, of=2), StreamPosition(3, taken=1, of=2)),
    ):
        for planned in (reader.splits, reader.groups):
            with pytest.raises(InvalidRequestError, match="which lies before it.*Begin with a new checkpoint"):
                planned(start, end)


def test_a_batch_planned_again_over_another_history_is_an_error(tmp_path: Path) -> None:
    """It was rolled back to behind the start, and has come as far again."""
    logged = make(tmp_path)
    reader = stream(logged)
    end = reader.advance(StreamPosition(1), StreamLimit())
    _rolled_back(logged)
    logged.log([row(9, "other")], [row(9, "other")])
    with pytest.raises(RetryableError, match="snapshot 4 of .* is not the one that this stream has read"):
        stream(logged).splits(StreamPosition(1), travelled(end))


def _rolled_back(logged: LoggedTable, first: int = 4) -> None:
    """To before that snapshot, which is the latest."""
    (Path(logged.location) / "snapshot" / f"snapshot-{first}").unlink()
    for hint in (Path(logged.location) / "snapshot").glob("LATEST"):
        hint.write_text(str(first - 1))


def test_a_consumer_moves_on_with_what_was_handed_over(tmp_path: Path) -> None:
    logged = make(tmp_path)
    reader = stream(logged, consumer_id="audit", scan_mode="latest-full")
    start = reader.first()
    half = reader.advance(start, StreamLimit(files=1))
    reader.handed_over(half)
    assert logged.table.consumers() == {"audit.state": 4}  # who resumes it now begins anew
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert [snapshot.id for snapshot in logged.table.snapshots()] == [4]
    reader.handed_over(reader.advance(half, StreamLimit()))
    assert logged.table.consumers() == {"audit": 5}
    logged.log([row(9, "later")], [row(9, "later")])
    again = stream(logged, consumer_id="audit", scan_mode="latest-full")
    assert replace(again.first(), before_ms=None) == StreamPosition(5)
    assert [change[1] for change in read(again, again.first(), again.advance(again.first(), StreamLimit()))] == [9]


def test_a_table_without_snapshots_begins_with_its_first(tmp_path: Path) -> None:
    logged = LoggedTable(tmp_path, env=local_env())
    reader = stream(logged)
    start = reader.first()
    assert reader.advance(start, StreamLimit()) == start == StreamPosition(1)
    logged.log([row(1, "a")], [row(1, "a")])
    assert read(reader, start, reader.advance(start, StreamLimit())) == [("+I", 1, "a", 1)]


def test_a_dropped_table_is_an_error(tmp_path: Path) -> None:
    logged = make(tmp_path)
    reader = stream(logged)
    start = reader.first()
    for path in sorted(Path(logged.location).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(NotFoundError):
        reader.advance(start, StreamLimit())


def test_a_position_is_read_as_it_was_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="is no position"):
        StreamPosition.from_document({"offset": 3})
