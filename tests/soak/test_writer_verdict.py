"""The judge of two writers: it finds nothing where all is well, and each fault that is put in front of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from freshet import Catalog
from tests.soak.busy_process import Journal
from tests.soak.two_writers import judge
from tests.soak.writer_stories import PRODUCERS, STORIES, Story
from tests.soak.writer_verdict import Fold, Verdict, overlaps

SEED = 3
USERS = ["writer-0", "writer-1"]
COMMITS = 12


def _written(folder: Path, engine: str, producer: str = "lookup") -> tuple[Verdict, list[Journal]]:
    """A table to which two writers commit in turns, one process after the other."""
    story = STORIES[engine]
    options = {"bucket": "2", **story.options, **PRODUCERS[producer]}
    table = Catalog(str(folder)).create_table("db.t", schema=story.schema, primary_keys=["k"], options=options)
    journals = [Journal(folder / f"{user}.journal") for user in USERS]
    for number in range(COMMITS):
        for writer, user in enumerate(USERS):
            with table.writer(user, parallelism=1) as session:
                journals[writer].write(begin=number)
                session.write(story.arrow(story.batch(SEED, writer, number)))
                result = session.commit()
                journals[writer].write(done=number, identifier=result.snapshots[0].commit_identifier)
    return Verdict(table, story, SEED, USERS, [None, None]), journals


def _judged(verdict: Verdict, journals: list[Journal]) -> str:
    judge(verdict, journals, random.Random(1))
    return "\n".join(verdict.faults)


@pytest.mark.dear("two writers in turns")
@pytest.mark.parametrize(
    "engine", ["sum", *(pytest.param(name, marks=pytest.mark.soak) for name in STORIES if name != "sum")]
)
def test_commits_in_turns_are_right_and_those_in_another_order_are_not(engine: str, tmp_path: Path) -> None:
    verdict, journals = _written(tmp_path, engine)
    assert _judged(verdict, journals) == ""
    assert verdict.compared["rows"] > 10
    assert verdict.compared["changelog"] > 3

    exchanged = [replace(commit, writer=1 - commit.writer) for commit in verdict.commits]
    for commits in (exchanged, verdict.commits[1:]):
        other = replace(verdict, faults=[])
        other.commits = commits
        other.check_history(random.Random(1), 20)
        assert "keys are wrong" in "\n".join(other.faults)
        other.faults = []
        other.check_changelog(random.Random(1), 20)
        assert "keys are wrong" in "\n".join(other.faults)


@pytest.mark.parametrize("producer", ["none", pytest.param("vectors", marks=pytest.mark.soak)])
def test_the_last_of_two_commits_to_a_key_wins(producer: str, tmp_path: Path) -> None:
    verdict, journals = _written(tmp_path, "deduplicate", producer)
    assert _judged(verdict, journals) == ""
    verdict.commits = sorted(verdict.commits, key=lambda commit: (commit.writer, commit.number))
    verdict.check_rows("rows as read")
    assert "rows as read: " in "\n".join(verdict.faults)


@pytest.mark.dear("two writers in turns")
def test_commits_and_journals_are_compared(tmp_path: Path) -> None:
    verdict, journals = _written(tmp_path, "sum")
    journals[0].write(done=99, identifier=99)
    journals[1].write(error="disk full")
    journals[1].path.write_bytes(journals[1].path.read_bytes().replace(b'{"begin": 4}\n', b""))
    verdict.check_commits(journals)
    assert verdict.faults == [
        "commits of writer-0 that had returned are not there: 99",
        "commits of writer-1 that it never began: 4",
        "calls of writer-1 failed: disk full",
    ]


def test_a_line_that_a_kill_has_cut_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(begin=0)
    with journal.path.open("ab") as file:
        file.write(b'{"done": 0, "iden')
    assert journal.entries() == [{"begin": 0}]


CHANGES = {
    "a row that is there is inserted": (["+I 1 5", "+I 1 6"], "there is (5,) already"),
    "another row was there": (["+I 1 5", "-U 1 4", "+U 1 6"], "there is (5,)"),
    "no row was there": (["-D 1 5"], "there is None"),
    "a +U alone": (["+I 1 5", "+U 1 6"], "do not follow"),
    "a -U alone": (["+I 1 5", "-U 1 5", "+I 1 6"], "do not follow"),
    "a -U that is the last": (["+I 1 5", "-U 1 5"], "has no +U"),
}


@pytest.mark.parametrize(("texts", "reason"), CHANGES.values(), ids=CHANGES)
def test_changes_that_do_not_fit(texts: list[str], reason: str) -> None:
    fold = _folded(texts)
    assert len(fold.faults) == 1
    assert reason in fold.faults[0]


def test_changes_that_fit() -> None:
    fold = _folded(["+I 1 5", "+I 2 7", "-U 1 5", "+U 1 6", "-D 2 7"])
    assert fold.faults == []
    assert fold.rows == {1: (6,)}


def _folded(texts: list[str]) -> Fold:
    fold = Fold(Story("one", {"v": "BIGINT"}, {}, lambda chance, writer, number: {}))
    for text in texts:
        kind, key, value = text.split()
        fold.take({"k": int(key), "v": int(value), "_ROW_KIND": kind, "_SNAPSHOT_ID": 1})
    fold.end()
    return fold


def test_files_of_one_level_overlap(tmp_path: Path) -> None:
    verdict, _ = _written(tmp_path, "sum", "none")
    verdict.table.compact(full=True)
    files = verdict.table.files()
    assert overlaps(files) == []
    first = files[0]
    twin = replace(first, file=replace(first.file, file_name="data-twin.parquet"))
    assert len(overlaps([*files, twin])) == 1
    assert overlaps([first, replace(twin, bucket=first.bucket + 1)]) == []
    assert overlaps([first, replace(twin, file=replace(twin.file, level=1))]) == []
    assert overlaps([replace(entry, file=replace(entry.file, level=0)) for entry in (first, twin)]) == []
