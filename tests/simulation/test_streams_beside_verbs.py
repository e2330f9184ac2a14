"""A stream that writes and a stream that reads, both open while somebody else does a verb: each goes on, or stops and
says what to do; nothing of the writer is lost or there twice, and what the reader has told is the table."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, StorageError
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.table import Table
from tests.kit.quick import some_now
from tests.kit.sim_env import SimDisk
from tests.simulation.test_verb_faults import KINDS, VERBS, catalog_of, made, rows_of, table_of

CASES = [
    (kind, name)
    for name, verb in VERBS.items()
    for kind in ("keyed", "append")
    if KINDS[kind][1] or not verb.keyed_only
]
GONE = ("rename the table", "drop the table", "drop the database")
Rows = list[tuple[Any, ...]]


class Reader:
    """A stream with a consumer; what it has told, folded."""

    def __init__(self, table: Table, *, is_keyed: bool) -> None:
        self._is_keyed = is_keyed
        self._stream = table.engine.split_stream(StreamRequest(consumer_id="audit", upserts=is_keyed))
        self._position: Any = self._stream.first()
        self._told: list[dict[str, Any]] = []
        self.read_on()

    def read_on(self) -> None:
        while (end := self._stream.advance(self._position, StreamLimit())) != self._position:
            for batch in self._stream.read_between(self._position, end):
                self._told += batch.to_pylist()
            self._position = end
            self._stream.handed_over(end)

    @property
    def rows(self) -> Rows:
        if not self._is_keyed:
            assert all(row["_ROW_KIND"] == "+I" for row in self._told)
            return sorted((row["p"], row["id"], row["n"]) for row in self._told)
        held = {}
        for row in self._told:
            if row["_ROW_KIND"] == "-D":
                held.pop((row["p"], row["id"]), None)
            else:
                held[row["p"], row["id"]] = row["n"]
        return sorted((*key, n) for key, n in held.items())


@pytest.mark.parametrize(("kind", "name"), some_now(CASES, 6))
def test_streams_go_on_or_say_what_to_do(kind: str, name: str) -> None:
    disk = made(kind).copy()
    is_keyed = KINDS[kind][1]
    writing, reading, other = disk.boot(), disk.boot(), disk.boot()
    writer = table_of(catalog_of(writing)).writer("stream")
    write(writer, 500, 0)
    reader = Reader(table_of(catalog_of(reading)), is_keyed=is_keyed)
    assert reader.rows == rows_now(disk)
    if name == "cut":
        with pytest.raises(InvalidRequestError, match=r"consumer 'audit' has read it within the last hour"):
            VERBS[name].act(catalog_of(other))
        return
    newest = last_id(disk)
    VERBS[name].act(catalog_of(other))
    other.finish_later()
    if name in GONE:
        with pytest.raises(NotFoundError, match="dropped or renamed|was dropped"):
            write(writer, 501, 1)
        with pytest.raises(NotFoundError, match="dropped or renamed|was dropped"):
            reader.read_on()
        return
    before = rows_now(disk)
    write(writer, 501, 1)
    writer.close()
    assert rows_now(disk) == sorted([*before, ("a", 501, 1)])
    new = [each for each in table_of(catalog_of(disk.boot())).snapshots() if each.id > newest]
    try:
        reader.read_on()
    except StorageError as error:
        pytest.fail(f"what this consumer has not read was taken away: {error!r}")
    if not any(each.commit_kind is CommitKind.OVERWRITE for each in new):  # which streams pass over
        assert reader.rows == rows_now(disk)


def write(writer: Any, key: int, number: int) -> None:
    writer.write([{"p": "a", "id": key, "n": number}])
    writer.commit(number)


def rows_now(disk: SimDisk) -> Rows:
    return rows_of(table_of(catalog_of(disk.boot())))


def last_id(disk: SimDisk) -> int:
    return table_of(catalog_of(disk.boot())).snapshots()[-1].id
