"""Replays of dead letters that have begun to commit, as the history of a table notes them, one after the other.

Each is a commit of the user `<pipeline>-replay-begun` that carries a text: what the next replay must know if this one
dies. Its number follows the one that the replay saw when it chose its letters. So of two replays that chose theirs at
the same time one begins, and the other, whose letters may be the same, ends before it commits anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage

QUERY_ID: Final = "freshet-replay"
"""Of all commits that replays make."""


def replay_user(pipeline: str) -> str:
    """The user of what replays of a pipeline commit."""
    return f"{pipeline}-replay"


class Begun(Frozen):
    """The last replay that has begun to commit, and what it carries."""

    number: int
    text: str


class ReplayJournal:
    """The notes of one pipeline in one table."""

    def __init__(self, table: Table, pipeline: str) -> None:
        self._pipeline = pipeline
        self._committer = table.engine.committer(f"{replay_user(pipeline)}-begun", QUERY_ID)

    def last(self) -> Begun | None:
        """The newest one, done or not."""
        trace = self._committer.last_commit()
        return None if trace is None or trace.carried is None else Begun(trace.identifier, trace.carried)

    def begin(self, text: str, messages: Sequence[CommitMessage] = (), *, after: int | None) -> None:
        """Notes a replay, with these files in the same commit; `after` is the number of the one that was the last when
        its letters were chosen. Does nothing where the last one carries the same text. Raises `InvalidRequestError`
        where another one has begun since."""
        if self._carries(text):
            return
        self._committer.commit(0 if after is None else after + 1, messages, carried=text)
        if not self._carries(text):
            raise InvalidRequestError(
                f"another replay of the dead letters of {self._pipeline!r} began while this one read them, so this one "
                "has committed nothing; replay once more when the other one is through"
            )

    def _carries(self, text: str) -> bool:
        last = self.last()
        return last is not None and last.text == text


class BegunLetters(DeadLetterCommit):
    """The dead letters that failed again, committed together with the note that their replay has begun."""

    def __init__(
        self,
        dead: Table,
        begun: ReplayJournal,
        note: Callable[[Sequence[CommitMessage]], str],
        *,
        after: int | None,
        commit_user: str,
    ) -> None:
        """`note` gives what is noted, from the messages of the letters; `after` as `ReplayJournal.begin` takes it."""
        super().__init__(dead, commit_user)
        self._begun, self._note, self._after = begun, note, after

    def commit(self, batch: BatchIdentity, messages: Sequence[CommitMessage]) -> None:
        """Also where none failed: the rows are committed only by the replay whose note is there."""
        del batch
        try:
            self._begun.begin(self._note(messages), messages, after=self._after)
        except InvalidRequestError:
            self.discard(messages)
            raise
