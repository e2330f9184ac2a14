"""Waits for what is logged, for a reader that has handed out everything: data and control records together."""

from __future__ import annotations

from typing import Final

from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.protocol.client import LogClient, TopicPartition
from freshet.logstore.reading.reader_state import ReaderState
from freshet.logstore.reading.snapshot_log import checked_topic
from freshet.logstore.reading.tail import LogTail
from freshet.storage.logs.readers import TableHistory

TOPIC_LOOK_S: Final = 10.0
"""A reader that has waited so long for more looks whether the topic is still there: a consumer waits for one that was
deleted for ever, without a word."""


class LogWaiting:
    """Of one reader, which is called between two looks at the snapshots."""

    def __init__(
        self,
        table: str,
        history: TableHistory,
        client: LogClient,
        tail: LogTail,
        is_speculative: bool,
        falls_back: bool,
    ) -> None:
        self._table = table
        self._history = history
        self._client = client
        self._tail = tail
        self._is_speculative = is_speculative
        self._falls_back = falls_back
        self._stuck_at: ReaderState | None = None
        """Where rows came that cannot be shown: those of a batch beyond the open one."""
        self._unseen_s = 0.0
        self._was_missing = False

    def wait(self, state: ReaderState, seconds: float) -> bool:
        """Waits so long, or until something is logged; True where rows came that may show."""
        has_rows = False
        if not state.has_log or state == self._stuck_at:
            self._history.wait(seconds)
        else:
            has_rows = self._has_come(state, seconds)
            self._stuck_at = state if has_rows else None
        self._look_at_topic(state, seconds)
        return has_rows

    def _has_come(self, state: ReaderState, seconds: float) -> bool:
        positions = state.positions if self._is_speculative else {}
        wanted = {TopicPartition(state.topic, number): offset for number, offset in positions.items()}
        try:
            return self._tail.wait(state.topic, wanted, seconds)
        except LogTruncatedError:
            if not self._falls_back:
                raise
            self._history.wait(seconds)  # what is gone comes from files, when its snapshot is there
            return False

    def _look_at_topic(self, state: ReaderState, waited_s: float) -> None:
        """Raises `LogConfigError` when a reader that waits has found its topic gone twice, or to be another one."""
        self._unseen_s += waited_s
        if not state.has_log or self._unseen_s < TOPIC_LOOK_S:
            return
        self._unseen_s = 0.0
        try:
            is_missing = self._client.topic(state.topic) is None
            if not is_missing or self._was_missing:
                checked_topic(self._client, state, table=self._table)
        except LogUnavailableError:
            return  # brokers that are away are waited for
        self._was_missing = is_missing  # one that has just started may not know its topics yet
