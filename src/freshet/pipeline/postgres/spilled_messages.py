"""Messages of a transaction that is larger than memory: in a file on the scratch disk (TMPDIR), from which workers read
parts of it.

    file:  for each part the positions of its messages, 8 bytes each ─ its data
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from freshet._frozen import Frozen
from freshet.pipeline.postgres.wire import Messages
from freshet.storage.io.env import Env, local_env

RUN_BYTES: Final = 8 << 20
_POSITION_BYTES: Final = 8


class SpilledMessages(Frozen):
    """Where some messages are; a value that travels. `at` is where they begin in the file."""

    path: str
    at: int
    count: int
    size_bytes: int

    def read(self) -> Messages:
        """The messages."""
        with open(self.path, "rb") as file:
            file.seek(self.at)
            starts = np.frombuffer(file.read(self.count * _POSITION_BYTES), np.int64)
            return Messages(file.read(self.size_bytes), starts)


class TransactionFile:
    """One file in a scratch folder of its own: made with the first messages, removed by `close`, or by the next process
    where this one was killed. Used by one thread at a time."""

    def __init__(self, env: Env | None = None) -> None:
        self._env = env or local_env()
        self._folder: str | None = None
        self._file: Any = None

    def put(self, messages: Messages) -> SpilledMessages:
        """Puts messages behind those that are there."""
        if self._folder is None:
            self._folder = self._env.scratch_folder()
        path = f"{self._folder}/transaction"
        try:
            if self._file is None:
                self._file = open(path, "wb")  # noqa: SIM115 - closed by `close`
            at = self._file.tell()
            self._file.write(messages.starts.astype(np.int64).tobytes())
            self._file.write(messages.data)
            self._file.flush()
        except OSError as error:
            text = f"{error.strerror} (a transaction that is larger than memory; choose another disk with TMPDIR)"
            raise OSError(error.errno, text, path) from error
        return SpilledMessages(path, at, len(messages.starts), len(messages.data))

    def close(self) -> None:
        """Removes the file; the next messages make another one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            self._env.release_scratch(folder)


def read_all(parts: Sequence[Messages | SpilledMessages]) -> Messages:
    """The messages of all parts."""
    return Messages.joined([each.read() if isinstance(each, SpilledMessages) else each for each in parts])


def runs_of(
    parts: Sequence[Messages | SpilledMessages],
) -> Iterator[tuple[tuple[SpilledMessages, ...], Messages]]:
    """The messages of parts, in runs of what is in memory (the first of each pair is empty then), or in files: of these
    as much as a worker takes at once."""
    kept: list[Messages] = []
    spilled: list[SpilledMessages] = []
    for part in parts:
        if spilled and (isinstance(part, Messages) or sum(each.size_bytes for each in spilled) >= RUN_BYTES):
            yield tuple(spilled), read_all(spilled)
            spilled = []
        if isinstance(part, Messages):
            kept.append(part)
            continue
        if kept:
            yield (), read_all(kept)
            kept = []
        spilled.append(part)
    for rest in (kept, spilled):
        if rest:
            yield tuple(spilled), read_all(rest)
