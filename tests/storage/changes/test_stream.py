"""`Table.stream`: what it begins with, what follows, waiting, consumers, expiry, rollback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.storage.changes.stream import ChangeStream
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import FileStatus
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hypothesis_profile import examples
from tests.storage.changes.change_tables import LoggedTable, folded, read_changes, row

WRITE_ONLY = {"write-only": "true"}


class CountedFileIO(LocalFileIO):
    """Notes which files are read and which folders listed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self.calls.append(Path(path).name)
        return super().read_bytes(path)

    def entries(self, path: str) -> Iterator[FileStatus]:
        self.calls.append(f"{Path(path).name}/")
        return super().entries(path)


class WaitingEnv(Env):
    """Waiting takes no time: each wait does the next of the things that are to happen meanwhile."""

    def __init__(self) -> None:
        super().__init__(CountedFileIO())
        self.meanwhile: list[Callable[[], Any]] = []
        self.waits: list[float] = []

    def sleep_s(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.fixture
def env() -> WaitingEnv:
    return WaitingEnv()


@pytest.fixture
def logged(tmp_path: Path, env: WaitingEnv) -> LoggedTable:
    return make(tmp_path, env)


def make(folder: Path, env: Env, **more: Any) -> LoggedTable:
    """Snapshots 1 (keys 1 and 2 come) and 2 (key 1 changes)."""
    options = {**WRITE_ONLY, **more.pop("options", {})}
    made = LoggedTable(folder, options=options, env=env, **more)
    made.log([row(1, "a"), row(2, "b")], [row(1, "a"), row(2, "b")])
    made.log([row(1, "a", "-U"), row(1, "A", "+U")], [row(1, "A")])
    return made


def stream(logged: LoggedTable, **asked: Any) -> ChangeStream:
    return logged.table.stream(**{"max_wait_s": 0, "with_snapshot_id": True, **asked})


def test_it_begins_with_the_rows_of_the_latest_and_follows(logged: LoggedTable, env: WaitingEnv) -> None:
    env.meanwhile = [
        lambda: None,
        lambda: logged.log([row(3, "c")], [row(3, "c")]),
        lambda: logged.log([row(2, "b", "-D")], [row(2, "b", "-D")]),
    ]
    found = stream(logged, max_wait_s=25)
    assert found.next_snapshot_id is None, "the rows it begins with are still to come"
    assert read_changes(found) == [("+I", 1, "A", 2), ("+I", 2, "b", 2), ("+I", 3, "c", 3), ("-D", 2, "b", 4)]
    assert found.next_snapshot_id == 5
    assert env.waits == [10, 10, 10, 10, 10, 5], "as long without news as was asked"


def test_looking_for_more_reads_two_files_and_lists_none(logged: LoggedTable, env: WaitingEnv) -> None:
    calls = env.file_io.calls
    env.meanwhile = [lambda: None, calls.clear]
    stopped = stream(logged, max_wait_s=20)
    assert len(read_changes(stopped)) == 2
    assert sorted(calls) == ["snapshot-2", "snapshot-3"]


def test_each_scan_mode(logged: LoggedTable, env: WaitingEnv) -> None:
    at = logged.store.snapshots.snapshot(2).time_ms
    first, second = [("+I", 1, "a", 1), ("+I", 2, "b", 1)], [("-U", 1, "a", 2), ("+U", 1, "A", 2)]
    third = ("+I", 3, "c", 3)
    for asked, expected in (
        ({"scan_mode": "latest"}, []),
        ({"from_snapshot": 1}, first + second),
        ({"scan_mode": "from-snapshot-full", "from_snapshot": 1}, first + second),
        ({"from_timestamp": at + 1}, []),
    ):
        streamed = stream(logged, **asked)
        assert read_changes(streamed) == expected, asked
    following = stream(logged, scan_mode="latest", max_wait_s=1)
    env.meanwhile = [lambda: logged.log([row(3, "c")])]
    assert read_changes(following) == [third]


def test_a_table_without_snapshots_is_waited_for(tmp_path: Path, env: WaitingEnv) -> None:
    logged = LoggedTable(tmp_path, env=env, options=WRITE_ONLY)
    for asked in ({}, {"scan_mode": "latest"}, {"from_snapshot": 1}):
        assert read_changes(stream(logged, **asked)) == []
    waiting = [stream(logged, max_wait_s=20), stream(logged, max_wait_s=20, scan_mode="latest")]
    env.meanwhile = [lambda: logged.log([row(1, "a")], [row(1, "a")])]
    assert [read_changes(each) for each in waiting] == [[("+I", 1, "a", 1)]] * 2


def test_columns_filters_and_intervals(logged: LoggedTable, env: WaitingEnv) -> None:
    found = logged.table.stream(["v"], "id = 1", from_snapshot=1, max_wait_s=0)
    assert found.schema == pa.schema([("v", pa.string()), pa.field("_ROW_KIND", pa.string(), nullable=False)])
    assert read_changes(found) == [("+I", "a"), ("-U", "a"), ("+U", "A")]
    often = logged.table.with_options({"continuous.discovery-interval": "500 ms"})
    assert read_changes(often.stream(scan_mode="latest", max_wait_s=0.75)) == []
    assert env.waits == [0.5, 0.25]


def test_young_snapshots_may_be_held_back(logged: LoggedTable) -> None:
    table = logged.table.with_options({"streaming.read.snapshot.delay": "1 h"})
    assert read_changes(table.stream(from_snapshot=1, max_wait_s=0)) == []


def test_a_reader_whose_clock_is_behind_sees_what_is_there(
    logged: LoggedTable, env: WaitingEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_ms = env.now_ms() - 60_000
    monkeypatch.setattr(env, "now_ms", lambda: behind_ms)
    assert [kind for kind, *_ in read_changes(stream(logged, from_snapshot=1))] == ["+I", "+I", "-U", "+U"]


def test_bad_calls(logged: LoggedTable, tmp_path: Path) -> None:
    for asked in ({"max_wait_s": -1}, {"max_wait_s": "1"}, {"consumer_id": "a/b"}, {"columns": ["x"]}):
        with pytest.raises(InvalidRequestError):
            stream(logged, **asked)
    upserts = LoggedTable(tmp_path / "other", producer="none", options=WRITE_ONLY)
    upserts.place([row(1, "a")])
    upserts.place([row(1, None, "-D")])
    with pytest.raises(InvalidRequestError, match="upserts=True"):
        stream(upserts)
    found = read_changes(stream(upserts, upserts=True, from_snapshot=1))
    assert found == [("+I", 1, "a", 1), ("-D", 1, None, 2)]
    assert read_changes(stream(upserts, upserts=True)) == [], "no row is left"


def test_rows_that_the_changelog_has_not_emitted_are_not_begun_with(tmp_path: Path, env: WaitingEnv) -> None:
    logged = LoggedTable(tmp_path, producer="lookup", options=WRITE_ONLY, env=env)
    logged.place([row(1, "a"), row(2, "b")], level=5)
    logged.place([row(1, "A")])
    assert read_changes(stream(logged)) == [("+I", 1, "a", 2), ("+I", 2, "b", 2)]


def test_rows_below_level_0_are_not_left_out_by_what_hides_them(tmp_path: Path, env: WaitingEnv) -> None:
    options = {"merge-engine": "first-row", **WRITE_ONLY}
    logged = LoggedTable(tmp_path, producer="none", options=options, env=env)
    logged.place([row(1, "a")], level=5)
    logged.place([row(1, "b"), row(2, "b")])
    assert read_changes(stream(logged, upserts=True)) == [("+I", 1, "a", 2), ("+I", 2, "b", 2)], "level 0 counts"
    assert read_changes(stream(logged, upserts=True, filter="v = 'b'")) == [("+I", 2, "b", 2)]


# ------------------------------------------------------------------------------------------------------------ consumers


def test_a_consumer_goes_on_where_it_stopped(logged: LoggedTable) -> None:
    first = stream(logged, consumer_id="c", from_snapshot=1)
    assert logged.table.consumers() == {"c": 1}, "held back from the beginning"
    assert read_changes([next(first)]) == [("+I", 1, "a", 1), ("+I", 2, "b", 1)]
    assert logged.table.consumers() == {"c": 1}, "not handed over yet"
    next(first)
    assert logged.table.consumers() == {"c": 2}
    first.close()
    again = stream(logged, consumer_id="c", scan_mode="latest")
    assert read_changes(again) == [("-U", 1, "a", 2), ("+U", 1, "A", 2)], "handed over, but not come back from"
    assert logged.table.consumers() == {"c": 3}
    assert read_changes(stream(logged, consumer_id="c")) == []
    assert read_changes(stream(logged, consumer_id="other")) == [("+I", 1, "A", 2), ("+I", 2, "b", 2)]
    assert logged.table.consumers() == {"c": 3, "other": 3}


def test_rows_to_begin_with_come_again_until_they_were_handed_over(logged: LoggedTable) -> None:
    first = stream(logged, consumer_id="c")
    next(first)
    first.close()
    assert logged.table.consumers() == {"c.state": 2}, "the snapshot is kept until they were"
    assert read_changes(stream(logged, consumer_id="c")) == [("+I", 1, "A", 2), ("+I", 2, "b", 2)]
    assert logged.table.consumers() == {"c": 3}


def test_progress_may_be_ignored(logged: LoggedTable) -> None:
    logged.table.reset_consumer("c", 3)
    table = logged.table.with_options({"consumer.ignore-progress": "true"})
    assert len(read_changes(table.stream(consumer_id="c", from_snapshot=2, max_wait_s=0))) == 2
    assert table.consumers() == {"c": 3}


def test_a_consumer_holds_back_expiry(logged: LoggedTable) -> None:
    reader = stream(logged, consumer_id="c", from_snapshot=2)
    for number in range(3):
        logged.log([row(10 + number, "x")])
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert [each.id for each in logged.table.snapshots()] == [2, 3, 4, 5]
    assert [change[-1] for change in read_changes(reader)] == [2, 2, 3, 4, 5]
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert [each.id for each in logged.table.snapshots()] == [5]
    assert logged.table.delete_consumer("c")
    assert logged.table.consumers() == {}


def test_a_consumer_whose_changes_are_gone(logged: LoggedTable) -> None:
    logged.log([row(3, "c")])
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    logged.table.reset_consumer("late", 2)
    logged.table.reset_consumer("early", 9)
    left = "changes of snapshots 3 to 3 are there"
    with pytest.raises(
        NotFoundError, match=rf"'late' wants the changes of snapshot 2 .*expired: {left}.*reset_consumer"
    ):
        stream(logged, consumer_id="late")
    with pytest.raises(NotFoundError, match=rf"'early' wants snapshot 9 .*not committed yet: {left}.*reset_consumer"):
        stream(logged, consumer_id="early")


# --------------------------------------------------------------------------------------------- expiry, rollback, drop


def test_a_reader_overtaken_by_expiry(logged: LoggedTable) -> None:
    reader = stream(logged, from_snapshot=1)
    next(reader)
    for number in range(3):
        logged.log([row(10 + number, "x")])
    logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(RetryableError, match=r"snapshot 2 of .* expired before.*changes of snapshots 5 to 5 are there"):
        next(reader)


def roll_back(logged: LoggedTable, to: int) -> None:
    for snapshot_id in logged.store.snapshots.list_ids():
        if snapshot_id > to:
            Path(logged.store.paths.snapshot(snapshot_id)).unlink()
    Path(logged.store.paths.latest_hint).write_text(str(to))


def test_a_rollback_is_noticed_while_it_waits(logged: LoggedTable, env: WaitingEnv) -> None:
    reader = stream(logged, from_snapshot=1, max_wait_s=60)
    env.meanwhile = [lambda: roll_back(logged, 1)]
    with pytest.raises(RetryableError, match="was rolled back to a snapshot before 2"):
        read_changes(reader)


def test_a_rollback_is_noticed_after_the_table_went_on(logged: LoggedTable, env: WaitingEnv) -> None:
    def roll_back_and_go_on() -> None:
        roll_back(logged, 1)
        for number in range(3):
            logged.log([row(20 + number, "y")])

    reader = stream(logged, from_snapshot=1, max_wait_s=60)
    env.meanwhile = [roll_back_and_go_on]
    with pytest.raises(RetryableError, match="was rolled back to a snapshot before 2"):
        read_changes(reader)


def test_a_rollback_is_noticed_after_the_snapshots_that_took_its_place_have_expired(
    logged: LoggedTable, env: WaitingEnv
) -> None:
    def roll_back_go_on_and_expire() -> None:
        roll_back(logged, 1)
        for number in range(3):
            logged.log([row(20 + number, "y")])
        logged.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
        assert logged.store.snapshots.list_ids() == [4]

    reader = stream(logged, from_snapshot=1, max_wait_s=60)
    logged.log([row(10, "x")])
    env.meanwhile = [roll_back_go_on_and_expire]
    with pytest.raises(RetryableError, match="was rolled back to a snapshot before 3"):
        read_changes(reader)


@pytest.mark.parametrize("damage", ["none", "history"])
def test_a_reader_that_lags_goes_on_where_the_snapshot_it_read_last_has_expired(
    logged: LoggedTable, damage: str
) -> None:
    reader = stream(logged, from_snapshot=1)
    next(reader)
    for number in range(3):
        logged.log([row(10 + number, "x")])
    logged.table.expire_snapshots(retain_max=4, retain_min=4, older_than_ms=0)
    assert logged.store.snapshots.list_ids() == [2, 3, 4, 5]
    if damage == "history":
        for file in Path(logged.store.paths.history_folder).iterdir():
            file.write_bytes(b"damaged")
    assert next(reader)["_SNAPSHOT_ID"].to_pylist() == [2, 2]


def test_a_table_dropped_while_it_is_followed(logged: LoggedTable, env: WaitingEnv) -> None:
    reader = stream(logged, max_wait_s=60)
    env.meanwhile = [lambda: env.file_io.delete_prefix(logged.location)]
    with pytest.raises(NotFoundError, match="was dropped"):
        read_changes(reader)


@pytest.mark.parametrize("begins", [{"consumer_id": "c"}, {"scan_mode": "latest"}, {"from_snapshot": 2}])
def test_a_table_created_anew_before_the_first_snapshot_was_read(
    tmp_path: Path, logged: LoggedTable, env: WaitingEnv, begins: dict[str, Any]
) -> None:
    logged.table.reset_consumer("c", 3)
    reader = stream(logged, **begins)
    env.file_io.delete_prefix(logged.location)
    anew = make(tmp_path, env, options={"num-sorted-run.compaction-trigger": "6"})
    anew.log([row(1, "A", "-U"), row(1, "other", "+U")], [row(1, "other")])
    with pytest.raises(NotFoundError, match="dropped and created again"):
        read_changes(reader)
    assert anew.table.consumers() == {}


# ----------------------------------------------------------------------------------------------------------- overwrites


def overwrite(logged: LoggedTable, keys: list[int]) -> None:
    """Replaces all files by one with these keys, as INSERT OVERWRITE does."""
    store = logged.store
    live = logged.table.files()
    added = tuple(
        logged._write(store, live[0].partition, 0, logged._key_values(store, [row(k, "new") for k in keys]), 0)
    )
    message = CommitMessage(
        live[0].partition, 0, store.options.bucket, new_files=added, deleted_files=tuple(e.file for e in live)
    )
    logged.identifier += 1
    result = Committer(store, "placed").commit(logged.identifier, [message])
    assert result.snapshots[-1].commit_kind is CommitKind.OVERWRITE


@pytest.mark.parametrize("reads", [False, True])
def test_overwrites_of_keyed_tables(tmp_path: Path, env: WaitingEnv, reads: bool) -> None:
    logged = make(tmp_path, env, options={"streaming-read-overwrite": str(reads).lower()})
    overwrite(logged, [2, 7])
    gone, come = [("-D", 1, "A", 3), ("-D", 2, "b", 3)], [("+I", 2, "new", 3), ("+I", 7, "new", 3)]
    assert read_changes(stream(logged, from_snapshot=3)) == (gone + come if reads else [])
    changes = read_changes(logged.table.changelog().to_arrow())
    assert (folded(changes) == {2: "new", 7: "new"}) is reads


@pytest.mark.parametrize("reads", [False, True])
def test_overwrites_of_append_tables(tmp_path: Path, env: WaitingEnv, reads: bool) -> None:
    logged = make(tmp_path, env, keys=(), options={"streaming-read-append-overwrite": str(reads).lower()})
    overwrite(logged, [2, 7])
    assert read_changes(stream(logged, from_snapshot=3)) == (
        [("+I", 2, "new", 3), ("+I", 7, "new", 3)] if reads else []
    )


@pytest.mark.parametrize(
    ("options", "keys", "remedy"),
    [
        ({}, ("id",), "latest-full. With streaming-read-overwrite=true streams follow overwrites"),
        ({"changelog-producer": "lookup"}, ("id",), "latest-full"),
        ({}, (), "latest-full"),
    ],
)
def test_a_stream_that_passes_over_an_overwrite_says_so_once(
    tmp_path: Path,
    env: WaitingEnv,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    keys: tuple[str, ...],
    remedy: str,
) -> None:
    """It went on in silence, with rows that a rollback had taken away."""
    logged = make(tmp_path, env, keys=keys, options=options)
    reader = stream(logged, from_snapshot=3)
    overwrite(logged, [2, 7])
    overwrite(logged, [3])
    assert read_changes(reader) == []
    (said,) = caplog.messages
    assert "passes over snapshot 3, an OVERWRITE by placed" in said
    assert said.endswith(remedy)


# --------------------------------------------------------------------------------------------------- any history at all


def commits() -> st.SearchStrategy[list[list[tuple[int, str | None]]]]:
    """Each commit changes some keys: to a value, or away (None)."""
    change = st.tuples(st.integers(0, 5), st.one_of(st.none(), st.text("abc", min_size=1, max_size=2)))
    return st.lists(st.lists(change, max_size=5, unique_by=lambda pair: pair[0]), min_size=1, max_size=6)


def changes_of(state: dict[int, str], commit: list[tuple[int, str | None]]) -> Iterator[dict[str, Any]]:
    for key, value in sorted(commit):
        before = state.get(key)
        if value is None and before is not None:
            yield row(key, state.pop(key), "-D")
        elif value is not None and before is None:
            state[key] = value
            yield row(key, value)
        elif value is not None:
            yield row(key, before, "-U")
            state[key] = value
            yield row(key, value, "+U")


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(commits(), st.integers(0, 6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_folded_changes_are_the_table_wherever_readers_stop(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[list[tuple[int, str | None]]],
    begin: int,
    buckets: int,
    chance: Any,
) -> None:
    env = WaitingEnv()
    logged = LoggedTable(tmp_path_factory.mktemp("history"), env=env, options={"bucket": str(buckets), **WRITE_ONLY})
    state: dict[int, str] = {}
    applied: list[tuple[Any, ...]] = []
    for number, commit in enumerate(history):
        if number == begin:
            applied += read_some(logged, chance)
        changes = list(changes_of(state, commit))
        logged.log(changes, [each for each in changes if each["_ROW_KIND"] != "-U"])
    for _ in range(50):
        applied += read_some(logged, chance)
    applied += read_changes(stream(logged, consumer_id="c", with_snapshot_id=False))
    assert folded(applied) == state
    assert folded(read_changes(logged.table.changelog(["id", "v"]).to_arrow())) == state
    assert {each["id"]: each["v"] for each in logged.table.scan().to_arrow().to_pylist()} == state


def read_some(logged: LoggedTable, chance: Any) -> list[tuple[Any, ...]]:
    """Reads some batches as a consumer that then dies; gives what it had been handed over for good."""
    reader = stream(logged, consumer_id="c")
    by_snapshot: dict[int, list[tuple[Any, ...]]] = {}
    for _ in range(chance.randrange(4)):
        batch = next(reader, None)
        if batch is None:
            break
        for kind, key, value, snapshot_id in read_changes([batch]):
            by_snapshot.setdefault(snapshot_id, []).append((kind, key, value))
    reader.close()
    done = reader.next_snapshot_id or 0
    return [change for snapshot_id, changes in by_snapshot.items() if snapshot_id < done for change in changes]
