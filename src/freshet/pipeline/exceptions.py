"""The errors of `pipeline`, by what the caller should do next.

    PipelineError
    ├── InvalidRequestError       fix the call; nothing was started, nothing was written
    │   └── ConfigurationError    fix the pipeline file; carries every problem with file and line
    └── PipelineFailedError       it ran and stopped; `kind` is that of what made it fail
        └── StoppedByRecordError  a record says what cannot be applied; found by workers, raised by the driver

Each has a `kind`, which says what to do and which exit code it is (`error_kind`). Errors of `storage` pass through
unchanged: their class says what to do already. Facts are attributes, the message is for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from freshet.pipeline.errors.error_kind import ErrorKind, exit_code, worst
from freshet.pipeline.errors.known_causes import (
    dead_worker,
    lost_offsets,
    missing_file,
    missing_file_system,
    out_of_memory,
    second_run,
)
from freshet.storage.model.display import printable

_OURS: Final = re.compile(r"freshet\.[\w.]*exceptions\.\w+: .")
"""An exception of ours at the end of a trace: its message says it all."""
_TRACE: Final = "Traceback (most recent call last):"

REASON_LINES_MAX = 12
REASON_TEXT_MAX = 2000


class PipelineError(Exception):
    """Root of every error that `pipeline` raises on purpose."""

    kind = ErrorKind.INTERNAL
    while_running = False
    """Met after streams had begun to run."""

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with this error."""
        return exit_code(self.kind, while_running=self.while_running)


class InvalidRequestError(PipelineError):
    """The call or its arguments are wrong; nothing was started."""

    kind = ErrorKind.INVALID_REQUEST


KeyPath = tuple[str | int, ...]
"""A path of keys and list indexes in a pipeline file, for example ("sources", 0, "select", "total")."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong at a key of a pipeline file, or in all of it (no key).

    A rule knows no more than this; `Origin.placed` adds the file and the line (from 1, None where there is none).
    """

    key_path: KeyPath
    message: str
    kind: ErrorKind = ErrorKind.INVALID_REQUEST
    """What is wrong need not be the file: the table that it names may be damaged, or away."""
    path: str | None = None
    line: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The form that `--json` shows."""
        return {"message": self._text, "path": self.path, "line": self.line, "kind": self.kind}

    @property
    def _text(self) -> str:
        name = printable(".".join(str(part) for part in self.key_path))
        message = "\n  ".join(map(printable, self.message.splitlines()))
        return f"{name}: {message}" if name else message

    def __str__(self) -> str:
        if self.path is None:
            return self._text
        path = printable(self.path)
        return f"{path}:{self.line}: {self._text}" if self.line else f"{path}: {self._text}"


class ConfigurationError(InvalidRequestError):
    """A pipeline file or a setting is wrong; `problems` holds all of them, not just the first."""

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        found = (Problem((), problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in found))
        self.problems = found
        self.kind = worst(problem.kind for problem in found) if found else ErrorKind.INVALID_REQUEST


class PipelineFailedError(PipelineError):
    """A pipeline stopped while it ran; `pipeline` is its name, `micro_batch_id` None before the first batch."""

    while_running = True

    def __init__(
        self,
        message: str,
        *,
        pipeline: str | None = None,
        micro_batch_id: int | None = None,
        kind: ErrorKind | None = None,
    ) -> None:
        where = f"pipeline {pipeline!r}: " if pipeline else ""
        super().__init__(where + message)
        self.pipeline = pipeline
        self.micro_batch_id = micro_batch_id
        if kind is not None:
            self.kind = kind


class StoppedByRecordError(PipelineFailedError):
    """A record that must stop the run. Raised in workers, reported to the driver and raised again there."""

    kind = ErrorKind.INVALID_REQUEST

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def brief_reason(error: BaseException) -> str:
    """What an error says, without the query plan and the Java trace that Spark adds to its own.

    Where a Python worker failed, its last exception is what happened: it is at the end of a long text.
    """
    text = str(error)
    known = missing_file(text) or missing_file_system(text) or second_run(text) or lost_offsets(text)
    known = known or out_of_memory(text) or dead_worker(text)
    if known is not None:
        return known
    raised = worker_exception(str(error))
    if raised is not None:
        return raised.partition(": ")[2] if _OURS.match(raised) else f"a Python worker failed: {raised}"
    lines: list[str] = []
    for line in str(error).splitlines():
        if line.startswith(("=== ", "JVM stacktrace", "\tat ", "Current Committed Offsets", "'", "+-")):
            break
        if line.strip():
            lines.append(line)
    text = "\n".join(lines[:REASON_LINES_MAX])[:REASON_TEXT_MAX]
    return text or type(error).__name__


def worker_exception(text: str) -> str | None:
    """The last exception of the last Python trace in a text of Spark's, or the one of ours; None where there is
    neither."""
    _, mark, trace = text.rpartition(_TRACE)
    said = None if mark else _OURS.search(text)  # of the data source, whose refusals have none
    if not mark and said is None:
        return None
    lines = iter(trace.splitlines()[1:] if said is None else text[said.start() :].splitlines())
    first = next((line for line in lines if line.strip() and not line.startswith((" ", "\t"))), None)
    if first is None:
        return None
    more = takewhile(
        lambda line: line.strip() and not line.startswith(("\tat ", "SQLSTATE", "Driver stacktrace")), lines
    )
    return "\n".join([first, *more][:REASON_LINES_MAX])[:REASON_TEXT_MAX]
