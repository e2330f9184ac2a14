"""Dead letters that were replayed leave their table: what is in it is what is outstanding.

A replay takes all letters of its pipeline that are live at a snapshot, so afterwards each of them is a row, or skipped,
or a dead letter again with its new reason. Files that hold letters of other pipelines too are written again with those.
Earlier snapshots still show what was removed, until they expire.

Letters that a replay has added and that are to be taken back are removed in the same way.

A replay into one table is one unit: it has happened when its rows are committed, and only then.

    1. begun   one commit to the dead letters: those that failed again, and a note (`query.driver.replay_journal`)
    2. rows    the commit to the table, under the number in the note
    3. done    another commit to the dead letters removes those that were replayed

| a replay dies | the next one |
|---|---|
| before 1 | finds nothing of it |
| between 1 and 2 | takes back what 1 has added, and replays all letters by the file as it is now |
| between 2 and 3 | does 3 |

Before anything is taken back, the number of the rows is used up by a commit without rows that says so. A replay that
was taken for dead and comes to 2 after all finds it there, and ends.

Replays of earlier versions left no note. What they were is read from their commits: that of the letters that failed
again, and that of the rows, had the snapshot of the dead letters as number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.replay_journal import QUERY_ID, BegunLetters, ReplayJournal, replay_user
from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, Committer, Split


def letter_names(pipeline: str) -> tuple[str, str]:
    """The names under which the letters of a pipeline are stored; the second was written by earlier versions."""
    return pipeline, replay_user(pipeline)


def is_removed(dead: Table, snapshot_id: int, pipeline: str) -> bool:
    """Whether the replay of this snapshot is over: its letters were removed, or those that it added."""
    return _committer(dead, pipeline).has_committed(snapshot_id).is_committed


def remove_replayed(dead: Table, snapshot_id: int, pipeline: str) -> None:
    """Removes the letters of a pipeline that were live at a snapshot; does nothing where the replay of it is over.

    Raises `InvalidRequestError` where they cannot be distinguished from later ones any more.
    """
    if is_removed(dead, snapshot_id, pipeline):
        return
    taken = _files_at(dead, snapshot_id)
    gone = taken.keys() - _files_at(dead, None).keys()
    if gone and _has_letters(dead, snapshot_id, gone, pipeline):
        if is_removed(dead, snapshot_id, pipeline):
            return  # meanwhile, by another process
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since the last replay, so the dead letters that are new "
            "cannot be distinguished from those replayed already; --all takes all of them"
        )
    _remove(dead, {name: entry for name, entry in taken.items() if name not in gone}, snapshot_id, pipeline)


def remove_added(dead: Table, names: Collection[str] | None, snapshot_id: int, pipeline: str) -> None:
    """Removes the files that a replay of this snapshot has added, in place of the letters that it read; does nothing
    where that replay is over. Without names they are those of its commit, as earlier versions made it.

    Raises `InvalidRequestError` where they are not known any more.
    """
    if is_removed(dead, snapshot_id, pipeline):
        return
    added = _files_of_commit(dead, replay_user(pipeline), snapshot_id) if names is None else names
    live = _files_at(dead, None)
    if not set(added) <= live.keys():
        if is_removed(dead, snapshot_id, pipeline):
            return
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since a replay was interrupted, so the letters that it has "
            "stored a second time cannot be distinguished from the others; --all takes all letters that are there, "
            "also these"
        )
    _remove(dead, {name: live[name] for name in added}, snapshot_id, pipeline)


def _remove(dead: Table, taken: Mapping[str, Any], snapshot_id: int, pipeline: str) -> None:
    """Removes the letters of a pipeline from files."""
    committer, names = _committer(dead, pipeline), pa.array(letter_names(pipeline))
    with closing(dead.engine.task_writer(base_snapshot_id=None)) as writer:
        gone: list[Any] = []
        scan = dead.scan()
        for split in scan.plan():
            for part in _files_of(split, taken.keys()):
                others, count = [], 0
                for batch in scan.read_split(part):
                    is_other = pc.invert(pc.is_in(batch.column("pipeline"), names))  # type: ignore[attr-defined]
                    count += batch.num_rows
                    others.append(batch.filter(is_other))
                rest = sum(batch.num_rows for batch in others)
                if rest == count:
                    continue
                gone.append(taken[part.files[0].file_name])
                for batch in others:
                    if batch.num_rows:
                        writer.write(pa.Table.from_batches([batch]))
        messages = [*writer.prepare_commit(), *(_without(entry) for entry in gone)]
        try:
            committer.commit(snapshot_id, messages)
        except ConflictError as error:
            dead.engine.discard(messages)
            if committer.has_committed(snapshot_id).is_committed:
                return  # by the same replay, run by another process
            raise InvalidRequestError(
                f"table {dead.name} was compacted while its replayed letters were removed; the next replay needs --all"
            ) from error


def _committer(dead: Table, pipeline: str) -> Committer:
    return dead.engine.committer(f"{replay_user(pipeline)}-removal", QUERY_ID)


def _has_letters(dead: Table, snapshot_id: int, names: Collection[str], pipeline: str) -> bool:
    """Whether files of a snapshot hold letters of a pipeline: those of others may have been replayed meanwhile."""
    scan, own = dead.scan(["pipeline"], snapshot_id=snapshot_id), pa.array(letter_names(pipeline))
    return any(
        pc.any(pc.is_in(batch.column("pipeline"), own)).as_py()
        for split in scan.plan()
        for part in _files_of(split, names)
        for batch in scan.read_split(part)
    )


def _files_of_commit(dead: Table, user: str, identifier: int) -> set[str]:
    """The files that a commit has added; raises where its snapshot has expired."""
    for snapshot in reversed(dead.snapshots()):
        if (snapshot.commit_user, snapshot.commit_identifier) == (user, identifier):
            before = _files_at(dead, snapshot.id - 1)
            return _files_at(dead, snapshot.id).keys() - before.keys()
    raise _expired(dead, identifier)


def _files_of(split: Split, names: Collection[str]) -> Iterator[Split]:
    """The files of a split that have these names, each as a split of its own."""
    for file in split.files:
        if file.file_name in names:
            yield replace(split, files=(file,))


def _without(entry: Any) -> CommitMessage:
    return CommitMessage(entry.partition, entry.bucket, entry.total_buckets, deleted_files=(entry.file,))


def _files_at(dead: Table, snapshot_id: int | None) -> dict[str, Any]:
    """The manifest entries of a snapshot's files, the latest if None, by file name."""
    try:
        return {entry.file.file_name: entry for entry in dead.files(snapshot_id=snapshot_id)}
    except NotFoundError as error:
        raise _expired(dead, snapshot_id) from error


def _expired(dead: Table, snapshot_id: int | None) -> InvalidRequestError:
    return InvalidRequestError(
        f"table {dead.name}: snapshot {snapshot_id}, up to which the last replay went, has expired, so the dead "
        "letters that are new cannot be distinguished from those replayed already; --all takes all of them"
    )


class _Note(Frozen):
    """What a replay notes: the snapshot of the dead letters, the number of its rows, the files that it added (None
    where that is not known), and what tells it from all others."""

    snapshot_id: int
    number: int
    added: tuple[str, ...] | None
    token: str = ""

    @classmethod
    def parsed(cls, text: str) -> _Note:
        """The one in a text."""
        snapshot_id, number, added, token = orjson.loads(text)
        return cls(snapshot_id, number, tuple(added), token)

    @property
    def text(self) -> str:
        """The text that the history carries."""
        return orjson.dumps([self.snapshot_id, self.number, self.added, self.token]).decode()


class ReplayUnit:
    """The replays of one pipeline into one table."""

    def __init__(self, pipeline: str, table: Table, dead: Table) -> None:
        self._pipeline, self._dead = pipeline, dead
        self._rows = table.engine.committer(replay_user(pipeline), QUERY_ID)
        self._begun = ReplayJournal(dead, pipeline)

    def settle(self, *, everything: bool = False) -> int | None:
        """Ends the last replay, if it has begun and is not over; gives the number of its note, None if there is none.

        Raises `InvalidRequestError` where the files of dead letters have changed so that it cannot be ended. With
        `everything` that is no error, and letters that were replayed are not removed.
        """
        begun = self._begun.last()
        note = self._without_note() if begun is None else _Note.parsed(begun.text)
        if note is not None and not is_removed(self._dead, note.snapshot_id, self._pipeline):
            if not self._are_rows_forbidden(note):
                if not everything:
                    remove_replayed(self._dead, note.snapshot_id, self._pipeline)
            else:
                with suppress(*((InvalidRequestError,) if everything else ())):
                    remove_added(self._dead, note.added, note.snapshot_id, self._pipeline)
        return None if begun is None else begun.number

    def next_number(self, snapshot_id: int) -> int:
        """The number of the rows of a replay of this snapshot, larger than all before. Snapshots may be numbered anew
        where the table of dead letters is another one."""
        last = self._rows.last_commit()
        return snapshot_id if last is None else max(snapshot_id, last.identifier + 1)

    def letters(self, snapshot_id: int, number: int, *, after: int | None) -> BegunLetters:
        """What commits the letters that fail again, with the note."""
        token = str(uuid4())

        def note(messages: Sequence[CommitMessage]) -> str:
            added = tuple(file.file_name for message in messages for file in message.new_files)
            return _Note(snapshot_id, number, added, token).text

        user = replay_user(self._pipeline)
        return BegunLetters(self._dead, self._begun, note, after=after, commit_user=user)

    def finish(self, snapshot_id: int, number: int, *, is_known: bool) -> None:
        """Removes the letters of a replay whose rows are committed. `is_known` says that its number was there when it
        came to commit them: by the same replay, or since another one has taken it back, for which it raises
        `InvalidRequestError`."""
        begun = self._begun.last() if is_known else None
        if is_known:
            note = None if begun is None else _Note.parsed(begun.text)
            is_same = note is not None and (note.snapshot_id, note.number) == (snapshot_id, number)
            if not is_same or self._is_forbidden(number):
                raise InvalidRequestError(
                    f"another replay of the dead letters of {self._pipeline!r} has taken over, so this one ends; its "
                    "letters are applied by the other one, or are still dead letters: replay once more for those"
                )
        remove_replayed(self._dead, snapshot_id, self._pipeline)

    def _without_note(self) -> _Note | None:
        """The last replay of an earlier version; one of an earlier table of dead letters does not count."""
        letters = self._dead.engine.committer(replay_user(self._pipeline), QUERY_ID)
        traces = [each for each in (self._rows.last_commit(), letters.last_commit()) if each is not None]
        created_ms = self._dead.engine.created_ms()
        last = max((each.identifier for each in traces if each.time_ms >= created_ms), default=None)
        return None if last is None else _Note(last, last, None)

    def _are_rows_forbidden(self, note: _Note) -> bool:
        """Uses up the number of the rows, unless they are there; gives whether they can never be there."""
        if not self._rows.has_committed(note.number).is_committed:
            self._rows.commit(note.number, (), carried=_forbidden(note.number))
        return self._is_forbidden(note.number)

    def _is_forbidden(self, number: int) -> bool:
        last = self._rows.last_commit()
        return last is not None and last.identifier == number and last.carried == _forbidden(number)


def _forbidden(number: int) -> str:
    """What the commit carries that stands in the place of the rows of this number."""
    return f"replay {number} was taken back"
