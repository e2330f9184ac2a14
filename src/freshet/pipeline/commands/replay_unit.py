"""A replay into one table is one unit: it has happened when its rows are committed, and only then.

    1. begun   one commit to the dead letters: those that failed again, and a note (`batch.begun_replay`)
    2. rows    the commit to the table, under the number in the note
    3. done    another commit to the dead letters removes those that were replayed (`replayed`)

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

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import orjson

from freshet.pipeline.batch.begun_replay import QUERY_ID, BegunLetters, BegunReplays, replay_user
from freshet.pipeline.commands.replayed import is_removed, remove_added, remove_replayed
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage


@dataclass(frozen=True, slots=True)
class _Note:
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
        """As the history carries it."""
        return orjson.dumps([self.snapshot_id, self.number, self.added, self.token]).decode()


class ReplayUnit:
    """The replays of one pipeline into one table."""

    def __init__(self, pipeline: str, table: Table, dead: Table) -> None:
        self._pipeline, self._dead = pipeline, dead
        self._rows = table.engine.committer(replay_user(pipeline), QUERY_ID)
        self._begun = BegunReplays(dead, pipeline)

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
