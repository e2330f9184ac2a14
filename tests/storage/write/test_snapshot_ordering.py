"""`sequence.snapshot-ordering`: of two changes of a key the one of the later snapshot wins, whoever wrote it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog, Table
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN
from tests.kit.changelog_files import changelog
from tests.kit.hypothesis_profile import examples

COLUMNS = {"k": "INT NOT NULL", "v": "INT"}
OPTIONS = {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"}


def table(folder: Path, **options: str) -> Table:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return Catalog(str(folder)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options={**OPTIONS, **given})


def write(at: Table, *rows: tuple[Any, ...], user: str = "u") -> None:
    with at.writer(user) as writer:
        writer.write([_row(*row) for row in rows])
        writer.commit()


def rows_of(at: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in at.scan().to_arrow().to_pylist()}


def numbers(at: Table) -> list[tuple[int, int, int]]:
    """Level, and smallest and largest number by its manifest entry, of each file."""
    files = [entry.file for entry in at.files()]
    return sorted((file.level, file.min_sequence_number, file.max_sequence_number) for file in files)


def _row(k: int, v: int | None, kind: str = "+I") -> dict[str, Any]:
    return {"k": k, "v": v, "_ROW_KIND": kind}


def test_vector_6_a_later_snapshot_wins_over_larger_numbers(tmp_path: Path) -> None:
    at = table(tmp_path)
    write(at, *((10, 999) for _ in range(100)))
    write(at, (10, 1))
    assert rows_of(at) == {10: 1}
    assert numbers(at) == [(0, 1, 1), (0, 2, 2)]
    at.compact(full=True)
    assert rows_of(at) == {10: 1}
    assert numbers(at) == [(5, 2, 2)]


def test_vector_7_a_delete_of_a_later_snapshot_removes_the_row(tmp_path: Path) -> None:
    at = table(tmp_path)
    write(at, (10, 100))
    write(at, (10, None, "-D"))
    assert rows_of(at) == {}
    at.compact(full=True)
    assert rows_of(at) == {}


def test_of_two_writers_the_one_that_commits_last_wins_without_writing_again(tmp_path: Path) -> None:
    at = table(tmp_path)
    with at.writer("early") as early, at.writer("late") as late:
        late.write([_row(1, 1)])
        early.write([_row(1, 2), _row(2, 2)])
        early.commit()
        late.commit()
    assert rows_of(at) == {1: 1, 2: 2}
    assert numbers(at) == [(0, 1, 1), (0, 2, 2)]


def test_compacted_rows_keep_the_numbers_of_their_snapshots(tmp_path: Path) -> None:
    at = table(tmp_path)
    write(at, (1, 1), (2, 1))
    write(at, (2, 2), (3, 2))
    at.compact(full=True)
    [file] = [entry.file for entry in at.files()]
    assert (file.file_source, file.min_sequence_number, file.max_sequence_number) == (FileSource.COMPACT, 1, 2)
    write(at, (1, 9))
    assert rows_of(at) == {1: 9, 2: 2, 3: 2}
    at.compact(full=True)
    assert rows_of(at) == {1: 9, 2: 2, 3: 2}
    [entry] = at.files()
    batches = DataFileRead(at.store, entry.partition, 0, entry.file, ("k",), system_columns=True).batches()
    found = [(row["k"], row[SEQUENCE_NUMBER_COLUMN]) for batch in batches for row in batch.to_pylist()]
    assert found == [(1, 4), (2, 2), (3, 2)]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction", "input"])
def test_changelogs_follow_the_order_of_snapshots(tmp_path: Path, producer: str) -> None:
    at = table(tmp_path, changelog_producer=producer)
    write(at, *((1, v) for v in range(50)))
    at.compact(full=True)
    write(at, (1, 5), (2, 7))
    at.compact(full=True)
    write(at, (1, None, "-D"))
    at.compact(full=True)
    found = [str(change) for _, changes in sorted(changelog(at).items()) for change in changes]
    if producer == "input":
        assert found == [*(f"+I 1,{v}" for v in range(50)), "+I 1,5", "+I 2,7", found[-1]]
    else:
        assert found == ["+I 1,49", "-U 1,49", "+U 1,5", "+I 2,7", "-D 1,5"]
    assert rows_of(at) == {2: 7}


@pytest.mark.parametrize(
    "options",
    [
        {"merge_engine": "first-row", "changelog_producer": "lookup"},
        {"merge_engine": "partial-update"},
        {"deletion_vectors__enabled": "true"},
        {"bucket": "-1"},
    ],
    ids=str,
)
def test_engines_and_kinds_of_tables(tmp_path: Path, options: dict[str, str]) -> None:
    at = table(tmp_path, **options)
    write(at, *((1, 1 + (v % 3)) for v in range(30)))
    at.compact(full=True)
    write(at, (1, 77), (2, 2))
    at.compact(full=True)
    assert rows_of(at) == {1: 1 if "first-row" in options.values() else 77, 2: 2}


def test_of_files_of_one_commit_the_one_written_last_wins(tmp_path: Path) -> None:
    """Apache Paimon leaves it open; the rows of a commit are several files where the buffer may not spill."""
    at = table(
        tmp_path,
        write_buffer_size="32 kb",
        write_buffer_spillable="false",
        num_sorted_run__compaction_trigger="2",
        num_levels="3",
    )
    for commit in range(4):
        with at.writer("u") as writer:
            for piece in range(3):
                writer.write([_row(k, commit * 10 + piece) for k in range(4000)])
            writer.commit()
        assert len(list(at.files())) > 2
        assert set(rows_of(at).values()) == {commit * 10 + 2}
        at.compact(full=False)
        assert set(rows_of(at).values()) == {commit * 10 + 2}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "full", "minor"]),
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 99), st.sampled_from(["+I", "+U", "-D"])),
            min_size=1,
            max_size=8,
        ),
    ),
    max_size=10,
)


@settings(max_examples=examples(20), deadline=None)
@given(steps=STEPS)
def test_histories_agree_with_a_dictionary(steps: list[tuple[str, list[tuple[int, int, str]]]]) -> None:
    catalog = Catalog("/w", env=Env(MemoryFileIO()))
    at = catalog.create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=OPTIONS)
    state: dict[int, int] = {}
    for what, rows in steps:
        if what == "write":
            write(at, *rows)
            for k, v, kind in rows:
                state.pop(k, None)
                if kind != "-D":
                    state[k] = v
        else:
            at.compact(full=what == "full")
        assert rows_of(at) == state


@pytest.mark.parametrize(
    ("keys", "options", "text"),
    [
        ([], {}, "needs a primary key"),
        (["k"], {"sequence.field": "v"}, "contradict each other"),
        (["k"], {"write-only": "false"}, "needs write-only=true"),
    ],
)
def test_what_it_needs(tmp_path: Path, keys: list[str], options: Mapping[str, str], text: str) -> None:
    bucket = {"bucket": "1", "bucket-key": "k"} if not keys else {}
    with pytest.raises(InvalidRequestError, match=text):
        Catalog(str(tmp_path)).create_table(
            "db.t", schema=COLUMNS, primary_keys=keys, options={**OPTIONS, **bucket, **options}
        )


def test_a_writer_does_not_compact_what_it_has_not_committed(tmp_path: Path) -> None:
    at = table(tmp_path)
    write(at, (1, 1))
    with at.writer("u") as writer:
        writer.write([_row(1, 2)])
        writer.compact(full=True)
        writer.commit()
    assert rows_of(at) == {1: 2}
    assert numbers(at) == [(0, 1, 1), (0, 2, 2)]


def test_a_file_that_says_nothing_of_its_source_is_refused(tmp_path: Path) -> None:
    at = table(tmp_path)
    write(at, (1, 1))
    [entry] = at.files()
    old = replace(entry.file, file_source=None)
    with pytest.raises(CorruptDataError, match="older than the option"):
        DataFileRead(at.store, entry.partition, 0, old, ("k",), system_columns=True).batches()
