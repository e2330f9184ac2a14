"""A writer, or a compactor, in a process of its own: `python -m tests.kit.writer_process WAREHOUSE TABLE USER …`.

    write USER FIRST_KEY COMMITS ROWS     commits rows FIRST_KEY … with v = USER; each commit repeats half of the last
compact USER ROUNDS                   full compactions, one after the other
  route USER FIRST_KEY COMMITS ROWS   as `write`, with time between rows and commit; what a rescale refuses is written
                                      again
rescale USER ROUNDS                   into 2 to 7 buckets, again and again
 stream USER FIRST_KEY COMMITS ROWS   as `write`, with background compaction; batches committed before are left out
                           [NEW]      after so many commits of its own it waits to be killed

With `and-wait` at the end, all but `stream` wait to be killed when they are done.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet import Catalog, ConflictError, Table
from freshet.jobs.demo.child_process import start_child, tail
from freshet.storage.maintenance.background_compaction import BackgroundCompaction
from freshet.storage.model.manifest import BucketId
from tests.kit.child_process import wait_to_be_killed

AND_WAIT = "and-wait"

Buckets = queue.Queue[list[BucketId] | None]
"""The buckets of each batch; None at the end."""


def write(table: Table, user: str, first_key: int, commits: int, rows: int) -> None:
    """Keys [first_key, first_key + rows * (commits + 1) / 2), each with the number of its last commit as `n`."""
    with table.writer(user, parallelism=1) as writer:
        for number in range(commits):
            writer.write(_rows(user, first_key, number, rows))
            writer.commit(number)


def route(table: Table, user: str, first_key: int, commits: int, rows: int) -> None:
    """The same rows, with time for a rescale between those of a commit and the commit."""
    with table.writer(user, parallelism=1) as writer:
        for number in range(commits):
            while True:
                writer.write(_rows(user, first_key, number, rows))
                time.sleep(0.05)
                try:
                    writer.commit(number)
                    break
                except ConflictError:
                    writer.abort()


def rescale(table: Table, user: str, rounds: int) -> None:
    """Other numbers of buckets, in the order of their rounds."""
    for number in range(rounds):
        with suppress(ConflictError):  # another rescale
            table.rescale(2 + (3 * number + len(user)) % 6)


def stream(table: Table, user: str, first_key: int, commits: int, rows: int, new: int | None = None) -> None:
    """The same rows, written as a query that is started again after a crash does; `new` commits, then it waits.

    Every fifth commit waits for the compaction units that are due by then, so that some run on every machine.
    """
    background, committer = table.engine.background_compaction(f"{user}-compact"), table.engine.committer(user, "query")
    written: Buckets = queue.Queue()
    units = threading.Thread(target=_units, args=(table, background, written))
    units.start()
    done = 0
    try:
        for number in range(commits):
            if done == new:
                wait_to_be_killed()
            with background.batch(0) as limit:
                if committer.has_committed(number).is_committed:
                    continue
                latest = table.latest_snapshot()
                writer = table.engine.task_writer(base_snapshot_id=None if latest is None else latest.id)
                try:
                    writer.write(_rows(user, first_key, number, rows))
                    messages = writer.prepare_commit(number, limit=limit)
                finally:
                    writer.close()
                committer.commit(number, messages)
            done += 1
            written.put([(message.partition, message.bucket) for message in messages])
            if number % 5 == 4:
                written.join()
    finally:
        written.put(None)
        units.join()


def _units(table: Table, background: BackgroundCompaction, written: Buckets) -> None:
    while (buckets := written.get()) is not None:
        try:
            background.note(buckets)
            while (unit := background.next_unit()) is not None:
                background.commit(unit, table.engine.run_background_unit(unit))
                background.release(unit)
        finally:
            written.task_done()


def _rows(user: str, first_key: int, number: int, rows: int) -> pa.Table:
    start = first_key + number * rows // 2
    return pa.table(
        {"k": list(range(start, start + rows)), "v": [user] * rows, "n": pa.array([number] * rows, pa.int32())}
    )


def expected(user: str, first_key: int, commits: int, rows: int) -> dict[int, tuple[str, int]]:
    """What `write` leaves in the table."""
    result = {}
    for number in range(commits):
        start = first_key + number * rows // 2
        result |= dict.fromkeys(range(start, start + rows), (user, number))
    return result


def start_process(folder: Path, name: str, what: str, *arguments: object) -> tuple[subprocess.Popen[Any], Path]:
    """One of them, on a table of the warehouse `folder`, and the file that it writes its errors to."""
    log = folder / f"{what}-{arguments[0]}-{time.monotonic_ns()}.txt"
    command = [sys.executable, "-m", "tests.kit.writer_process", what, str(folder), name, *map(str, arguments)]
    with log.open("wb") as output:
        return start_child(command, log=output), log


def wait_for_snapshot(table: Table, snapshot_id: int, children: Sequence[tuple[subprocess.Popen[Any], Path]]) -> None:
    """Until the table has come so far, or one of the processes has ended: kills fall amid work."""
    deadline = time.monotonic() + 300
    while (table.store.snapshots.latest_id() or 0) < snapshot_id and all(c.poll() is None for c, _ in children):
        assert time.monotonic() < deadline, "\n".join(tail(log) for _, log in children)
        time.sleep(0.005)


def main() -> None:
    """Runs one of them."""
    what, warehouse, name, user, *numbers = (word for word in sys.argv[1:] if word != AND_WAIT)
    table = Catalog(warehouse).table(name)
    jobs: dict[str, Callable[..., None]] = {"write": write, "stream": stream, "route": route, "rescale": rescale}
    if what in jobs:
        jobs[what](table, user, *(int(number) for number in numbers))
    else:
        for _ in range(int(numbers[0])):
            table.compact(full=True)
    if AND_WAIT in sys.argv:
        wait_to_be_killed()


if __name__ == "__main__":
    main()
