"""A writer or a compactor in a process of its own, for one task after the other: `python -m tests.soak.busy_process`.

    stdin    a task as a line of JSON (`Task`); after its answer the line `go`
    stdout   `ready` when the table is open, `done` when the time of the task is over

It writes what it does to the journal of the task, a line of JSON each, before and after the fact; the journal outlives
a kill. A task that replaces a killed one begins with the last batch of the journal, under its identifier:

    {"begin": 7}                                          the rows of batch 7 are about to be written and committed
    {"done": 7, "identifier": 7, "already": false, …}     the commit has returned
    {"compacted": 3}                                      so many buckets, by the compactor
    {"error": "…"}                                        a call has failed; the task ends
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from freshet import Catalog, Table
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.exceptions import RetryableError
from freshet.storage.table_session import TableSession
from tests.soak.writer_stories import STORIES

RETRIES_MAX = 5


@dataclass(frozen=True)
class Task:
    """What one process does; `writer` is its number, None for the one that compacts."""

    warehouse: str
    table: str
    story: str
    seed: int
    seconds: float
    journal: str
    writer: int | None = None
    rows: int | None = None
    """Rows of each batch; a few if not given."""
    pause_s: float = 0.0
    """Waits so long after each commit."""
    names_commits: bool = False
    """Gives each commit its identifier, so that it can be replayed."""

    takes_turns: bool = False
    """Writes and commits while no other writer does."""

    @property
    def user(self) -> str:
        return f"writer-{self.writer}"

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Journal:
    """Lines that are in the file as soon as they are written."""

    path: Path

    def write(self, **facts: Any) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(json.dumps(facts).encode() + b"\n")

    def entries(self) -> list[dict[str, Any]]:
        """All lines; the last one is left out where a kill cut it."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        return [json.loads(line) for line in lines]

    def of(self, word: str) -> list[Any]:
        """The values of one kind of line."""
        return [entry[word] for entry in self.entries() if word in entry]


def write(task: Task, table: Table, journal: Journal) -> None:
    """Commits batch after batch until the time is over."""
    assert task.writer is not None
    story = STORIES[task.story]
    number = max(journal.of("begin"), default=0)
    with table.writer(task.user, parallelism=1) as session:
        await_go()
        end = time.monotonic() + task.seconds
        while time.monotonic() < end:
            journal.write(begin=number)
            started = time.monotonic()
            rows = story.arrow(story.batch(task.seed, task.writer, number, task.rows))
            with turn(task):
                session.write(rows)
                result, tries = commit(session, number if task.names_commits else None)
            journal.write(
                done=number,
                identifier=result.snapshots[0].commit_identifier if result.snapshots else None,
                already=result.already_committed,
                aborted=len({conflict.bucket_id for conflict in result.aborted_compactions}),
                rewrites=result.rewrite_count,
                tries=tries,
                ms=round((time.monotonic() - started) * 1000),
            )
            number += 1
            time.sleep(task.pause_s)


@contextlib.contextmanager
def turn(task: Task) -> Iterator[None]:
    """While no other writer of the table is in its turn, where they take turns; a kill ends one."""
    with open(f"{task.warehouse}.turn", "w") as file:
        if task.takes_turns:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def commit(session: TableSession, identifier: int | None) -> tuple[CommitResult, int]:
    """Commits, and retries transient errors as the session asks. The result, and the number of tries."""
    for tries in range(1, RETRIES_MAX):
        try:
            return session.commit(identifier), tries
        except RetryableError:
            continue
    return session.commit(identifier), RETRIES_MAX


def compact(task: Task, table: Table, journal: Journal) -> None:
    """Compactions of the whole table, fully or not, until the time is over."""
    chance = random.Random(f"{task.seed}/compact")
    await_go()
    end = time.monotonic() + task.seconds
    while time.monotonic() < end:
        result = table.compact(full=chance.random() < 0.5)
        journal.write(compacted=result.buckets_done)


def await_go() -> None:
    """Returns when the parent says so; without a parent there is nothing to do."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        os._exit(0)


def main() -> None:
    """Does the tasks that come, one after the other."""
    while line := sys.stdin.readline():
        task = Task(**json.loads(line))
        journal = Journal(Path(task.journal))
        try:
            (write if task.writer is not None else compact)(task, Catalog(task.warehouse).table(task.table), journal)
        except Exception:  # noqa: BLE001  # of any kind: the parent reads it in the journal
            journal.write(error=traceback.format_exc()[-3000:])
        print("done", flush=True)


if __name__ == "__main__":
    main()
