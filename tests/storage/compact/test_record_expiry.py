"""Rows that expire: which ones a compaction leaves out, by the clock of `Env`, by columns of each type."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog, Table
from freshet.storage.compact.record_expiry import RecordExpiry, expired_files, record_expiry
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.risky import unheeded_options
from freshet.storage.schema.change import AddColumn, ChangeType, DropColumn, SetOption
from tests.kit.changelog_files import changelog
from tests.kit.hypothesis_profile import examples

NOW = 1_800_000_000
"""Seconds; rows expire after 100."""
COLUMNS = {"k": "INT NOT NULL", "v": "INT", "t": "BIGINT"}


class Clock(Env):
    """Stands still until it is set."""

    def __init__(self) -> None:
        super().__init__(LocalFileIO())
        self.seconds = NOW

    def now_ms(self) -> int:
        return self.seconds * 1000


def table(folder: Path, columns: Mapping[str, str] = COLUMNS, **options: str) -> tuple[Table, Clock]:
    given = {
        "bucket": "1",
        "record-level.expire-time": "100 s",
        "record-level.time-field": "t",
        **{name.replace("__", ".").replace("_", "-"): value for name, value in options.items()},
    }
    clock = Clock()
    catalog = Catalog(str(folder), env=clock)
    return catalog.create_table("db.t", schema=columns, primary_keys=["k"], options=given), clock


def write(at: Table, *rows: Mapping[str, Any]) -> None:
    with at.writer("u") as writer:
        writer.write(list(rows))
        writer.commit()


def rows_of(at: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in at.scan().to_arrow().to_pylist()), key=lambda row: row[0])


def row(k: int, v: int | None, age: int | None, kind: str = "+I") -> dict[str, Any]:
    return {"k": k, "v": v, "t": None if age is None else NOW - age, "_ROW_KIND": kind}


@pytest.mark.parametrize(
    ("kind", "kept", "dropped"),
    [
        ("INT", [NOW - 100, NOW + 5, None], [NOW - 101, 0, -1]),
        (
            "BIGINT",
            [NOW - 100, (NOW - 100) * 1000, (NOW - 100) * 1000 + 999, 999_999_999_999, 2**63 - 1, None],
            [NOW - 101, (NOW - 101) * 1000 + 999, 10**12, -(2**63)],
        ),
        (
            "TIMESTAMP(0)",
            [datetime.fromtimestamp(NOW - 100, UTC).replace(tzinfo=None), None],
            [datetime.fromtimestamp(NOW - 101, UTC).replace(tzinfo=None)],
        ),
        (
            "TIMESTAMP(3)",
            [datetime.fromtimestamp(NOW - 100, UTC).replace(tzinfo=None), None],
            [(datetime.fromtimestamp(NOW - 100, UTC) - timedelta(milliseconds=1)).replace(tzinfo=None)],
        ),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            [datetime.fromtimestamp(NOW - 100, UTC), None],
            [datetime.fromtimestamp(NOW - 100, UTC) - timedelta(microseconds=1), datetime(1960, 1, 1, tzinfo=UTC)],
        ),
    ],
)
def test_rows_are_kept_until_their_time_is_over(tmp_path: Path, kind: str, kept: list[Any], dropped: list[Any]) -> None:
    at, _ = table(tmp_path, {"k": "INT NOT NULL", "t": kind})
    write(at, *({"k": k, "t": t} for k, t in enumerate([*kept, *dropped])))
    assert len(rows_of(at)) == len(kept) + len(dropped), "readers see rows until they are rewritten"
    at.compact(full=True)
    assert [k for k, *_ in rows_of(at)] == list(range(len(kept)))


def test_seconds_are_cut_towards_zero_as_java_divides(tmp_path: Path) -> None:
    at, clock = table(tmp_path, {"k": "INT NOT NULL", "t": "TIMESTAMP(6)"})
    clock.seconds = 99  # the oldest second kept is -1
    epoch = datetime(1970, 1, 1)
    write(at, *({"k": k, "t": epoch - timedelta(microseconds=us)} for k, us in enumerate([1, 1_999_000, 1_999_001])))
    at.compact(full=True)
    assert [k for k, _ in rows_of(at)] == [0, 1]


def test_a_file_of_the_highest_level_is_rewritten_once_its_oldest_row_expired(tmp_path: Path) -> None:
    at, clock = table(tmp_path)
    write(at, row(1, 1, 0), row(2, 2, 50))
    at.compact(full=True)
    before = [entry.file.file_name for entry in at.files()]
    at.compact(full=True)
    clock.seconds += 50
    at.compact(full=True)
    assert [entry.file.file_name for entry in at.files()] == before, "nothing has expired"
    clock.seconds += 1
    at.compact(full=True)
    assert [k for k, *_ in rows_of(at)] == [1]
    clock.seconds += 1000
    at.compact(full=True)
    assert rows_of(at) == []
    assert not list(at.files())


def test_a_file_that_would_only_change_its_level_is_rewritten(tmp_path: Path) -> None:
    at, clock = table(tmp_path, write_only="true", compaction__small_file_ratio="0.00000001")
    write(at, row(1, 1, 0), row(2, 2, 90))
    clock.seconds += 50
    [level_0] = [entry.file for entry in at.files()]
    at.compact(full=True)
    [file] = [entry.file for entry in at.files()]
    assert (file.row_count, file.level) == (1, at.options.num_levels - 1)
    assert file.file_name != level_0.file_name


@pytest.mark.parametrize("options", [{"metadata__stats_mode": "none"}, {"fields__t__stats-mode": "counts"}])
def test_without_statistics_a_file_stays_as_it_is(tmp_path: Path, options: dict[str, str]) -> None:
    at, clock = table(tmp_path, **options)
    write(at, row(1, 1, 0), row(2, 2, 90))
    at.compact(full=True)
    clock.seconds += 1000
    at.compact(full=True)
    assert [k for k, *_ in rows_of(at)] == [1, 2]
    write(at, row(3, 3, -1000))
    at.compact(full=True)
    assert [k for k, *_ in rows_of(at)] == [3], "it is left out once it is merged"


def test_columns_of_an_older_schema_expire_by_what_they_were(tmp_path: Path) -> None:
    at, clock = table(tmp_path, {"k": "INT NOT NULL", "t": "INT"}, metadata__stats_dense_store="true")
    write(at, {"k": 1, "t": NOW}, {"k": 2, "t": NOW - 90})
    at.compact(full=True)
    at = at.alter(ChangeType("t", "BIGINT"), AddColumn("more", "STRING"))
    files = [entry.file for entry in at.files()]
    assert not expired_files(at.store, files)
    clock.seconds += 50
    assert expired_files(at.store, files) == {files[0].file_name}
    at.compact(full=True)
    assert [k for k, *_ in rows_of(at)] == [1]


def test_files_without_the_column_hold_no_expired_rows(tmp_path: Path) -> None:
    at, clock = table(tmp_path)
    write(at, row(1, 1, 0))
    at.compact(full=True)
    at = at.alter(AddColumn("later", "INT"), SetOption("record-level.time-field", "later"))
    clock.seconds += 1000
    assert not expired_files(at.store, [entry.file for entry in at.files()])
    with pytest.raises(InvalidRequestError, match="option 'record-level.time-field' names it"):
        at.alter(DropColumn("later"))


def test_lookup_takes_expired_rows_for_vanished(tmp_path: Path) -> None:
    at, clock = table(tmp_path, changelog_producer="lookup")
    write(at, row(1, 1, 90), row(2, 2, 0))
    at.compact(full=True)
    clock.seconds += 50
    write(at, row(1, 5, -50), row(2, 6, -50))
    assert _changes(at) == ["+I 1", "+I 2", "+I 1", "-U 2", "+U 2"]
    assert [(k, v) for k, v, _ in rows_of(at)] == [(1, 5), (2, 6)]


def test_full_compaction_takes_expired_rows_for_vanished_and_emits_no_delete(tmp_path: Path) -> None:
    at, clock = table(tmp_path, changelog_producer="full-compaction")
    write(at, row(1, 1, 90), row(2, 2, 0), row(3, 3, 90))
    clock.seconds += 50
    write(at, row(1, 5, -50), row(2, 6, -50))
    assert _changes(at) == ["+I 1", "+I 2", "+I 3", "+I 1", "-U 2", "+U 2"]
    assert [(k, v) for k, v, _ in rows_of(at)] == [(1, 5), (2, 6)]


def test_a_row_that_expired_above_is_marked_by_the_one_that_replaces_it(tmp_path: Path) -> None:
    """Otherwise both would be read."""
    at, clock = table(tmp_path, deletion_vectors__enabled="true", num_levels="4")
    write(at, row(1, 1, 90), *(row(k, k, -1000) for k in range(2, 200)))
    at.compact(full=True)
    clock.seconds += 50
    write(at, row(1, 5, -50))
    assert rows_of(at)[0][:2] == (1, 5)
    assert len(rows_of(at)) == 199


def test_first_row_knows_keys_that_are_stored_above_though_they_expired(tmp_path: Path) -> None:
    at, clock = table(tmp_path, merge_engine="first-row")
    write(at, row(1, 1, 90), *(row(k, k, -1000) for k in range(2, 200)))
    at.compact(full=True)
    clock.seconds += 50
    write(at, row(1, 5, -50))
    assert rows_of(at)[0][:2] == (1, 1)
    at.compact(full=True)
    write(at, row(1, 7, -50))
    assert rows_of(at)[0][:2] == (1, 7)


def test_sums_start_anew_when_what_was_summed_expired(tmp_path: Path) -> None:
    at, clock = table(
        tmp_path, merge_engine="aggregation", fields__v__aggregate_function="sum", fields__t__aggregate_function="max"
    )
    write(at, row(1, 1, 90))
    write(at, row(1, 2, 80), row(2, 1, 0))
    at.compact(full=True)
    assert [(k, v) for k, v, _ in rows_of(at)] == [(1, 3), (2, 1)]
    clock.seconds += 50
    write(at, row(1, 10, -50), row(2, 10, -50))
    assert [(k, v) for k, v, _ in rows_of(at)] == [(1, 13), (2, 11)], "readers merge all rows"
    at.compact(full=True)
    assert [(k, v) for k, v, _ in rows_of(at)] == [(1, 10), (2, 11)]


STEPS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 5), st.sampled_from([0, 60, 90, 120, None]), st.sampled_from(["+I", "+U", "-D"])),
            max_size=6,
        ),
        st.sampled_from([0, 0, 30, 70]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_full_compactions_agree_with_a_model(steps: list[tuple[list[tuple[int, int | None, str]], int]]) -> None:
    """After each full compaction a deduplicate table holds the last live rows, by an oracle of a few lines."""
    with tempfile.TemporaryDirectory() as folder:
        at, clock = table(Path(folder), write_only="true")
        state: dict[int, tuple[int, int | None]] = {}
        for number, (changes, wait) in enumerate(steps):
            batch = [row(k, number, age, kind) | _time(clock, age) for k, age, kind in changes]
            if batch:
                write(at, *batch)
            clock.seconds += wait
            last = {each["k"]: each for each in batch}
            state = {k: old for k, old in state.items() if _lives(old[1], clock)}
            for k, each in last.items():
                if not _lives(each["t"], clock):
                    continue
                if each["_ROW_KIND"] == "-D":
                    state.pop(k, None)
                else:
                    state[k] = (number, each["t"])
            at.compact(full=True)
            assert rows_of(at) == [(k, *values) for k, values in sorted(state.items())]


def _time(clock: Clock, age: int | None) -> dict[str, Any]:
    return {"t": None if age is None else clock.seconds - age}


def _lives(seconds: int | None, clock: Clock) -> bool:
    return seconds is None or clock.seconds <= seconds + 100


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"record_level__time_field": ""}, "needs the column that says how old a row is"),
        ({"record_level__time_field": "x"}, "which the table does not have; its columns are k, v, t"),
        ({"record_level__time_field": "s"}, "column s of type STRING, which is no time"),
    ],
)
def test_a_table_whose_rows_expire_names_a_time(tmp_path: Path, options: dict[str, str], text: str) -> None:
    columns = {**COLUMNS, "s": "STRING"} if options["record_level__time_field"] == "s" else COLUMNS
    with pytest.raises(InvalidRequestError, match="record-level.time-field") as caught:
        table(tmp_path, columns, **options)
    assert text in str(caught.value)


def test_a_column_of_another_type_is_reported_when_a_writer_of_a_foreign_table_opens(tmp_path: Path) -> None:
    at, _ = table(tmp_path)
    schema = Path(at.location, "schema", "schema-0")
    content = json.loads(schema.read_text())
    content["options"]["record-level.time-field"] = "u"
    schema.write_text(json.dumps(content))
    foreign = Table.open(at.location)
    assert foreign.scan().to_arrow().num_rows == 0
    with pytest.raises(InvalidRequestError, match="names column 'u', which the table does not have"):
        write(foreign, row(1, 1, 0))


def test_tables_without_a_key_do_not_look(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path), env=Clock())
    at = catalog.create_table(
        "db.t", schema=COLUMNS, options={"record-level.expire-time": "1 s", "record-level.time-field": "t"}
    )
    assert record_expiry(at.store) is None
    write(at, row(1, 1, 1000))
    at.compact(full=True)
    assert len(rows_of(at)) == 1


def test_batches_without_expired_rows_are_the_same_objects(tmp_path: Path) -> None:
    at, _ = table(tmp_path)
    rule = record_expiry(at.store)
    assert isinstance(rule, RecordExpiry)
    batch = pa.record_batch({"t": pa.array([NOW, None], pa.int64())})
    assert rule.live(batch) is batch


def _changes(at: Table) -> list[str]:
    found = changelog(at)
    kinds = {snapshot.id: snapshot.commit_kind for snapshot in at.snapshots()}
    assert all(kinds[number] is CommitKind.COMPACT for number in found)
    return [f"{change.kind} {change.values['k']}" for number in sorted(found) for change in found[number]]


def test_tables_without_a_key_are_warned_of() -> None:
    given = {"record-level.expire-time": "1 d"}
    [warning] = unheeded_options(CoreOptions.parse(given, has_primary_key=False))
    assert "record-level.expire-time has no effect" in warning
    assert unheeded_options(CoreOptions.parse(given, has_primary_key=True)) == []
