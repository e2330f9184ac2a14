"""What a command prints about the error that it ends with.

    freshet: CorruptDataError: …                                                    always, on standard error
    freshet: InternalError: KeyError: …; run again with --debug …                     not raised on purpose
    {"error": "…", "kind": "CorruptDataError", "retryable": false, "exit_code": 65}   where JSON is asked for

The JSON object is one line on standard output with --json and --progress json, where it is the last one. With --format
json standard output holds rows and nothing else: the object is the last line on standard error. Of wrong
pipeline files its `problems` say file and line; of other errors there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.commands.command_list import DEBUG
from freshet.pipeline.commands.output import complain, json_line, say
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.errors.error_kind import EXIT_RETRY
from freshet.pipeline.errors.failure import exit_code_of, is_foreign, kind_of
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, PipelineFailedError, Problem, brief_reason
from freshet.storage.exceptions import StorageError

NO_FAILURE: Final[Mapping[str, Any]] = {"error": None, "kind": None, "retryable": None, "exit_code": 0, "problems": []}
"""In the place of `failure_facts`, where all is well."""

_AS_JSON: Final = "--json"
_PROGRESS: Final = "--progress"
_FORMAT: Final = "--format"


def report_failure(error: Exception, arguments: Sequence[str]) -> int:
    """Reports an error that ended a call with these arguments, and gives the exit code."""
    text = _message(error) or _unexpected_text(error, is_debug=DEBUG in arguments)
    complain(f"{kind_of(error)}: {text}")
    facts = failure_facts(error, text)
    if _AS_JSON in arguments or _has_value(arguments, _PROGRESS):
        with suppress(BrokenPipeError):  # which may be what is reported
            say(json_line(facts))
    elif _has_value(arguments, _FORMAT):
        print(json_line(facts), file=sys.stderr, flush=True)
    return exit_code_of(error)


@contextmanager
def while_running() -> Iterator[None]:
    """Around what goes on until it is stopped: an error in there was met while it ran, which its exit code says."""
    try:
        yield
    except StorageError as error:
        raise PipelineFailedError(str(error), kind=kind_of(error)) from error


def failure_facts(error: BaseException, text: str | None = None) -> Mapping[str, Any]:
    """An error for programs."""
    code = exit_code_of(error)
    facts: dict[str, Any] = {
        "error": text or str(error) or type(error).__name__,
        "kind": str(kind_of(error)),
        "retryable": code == EXIT_RETRY,
        "exit_code": code,
    }
    problems = error.problems if isinstance(error, ConfigurationError) else ()
    return facts | {"problems": [each.facts for each in problems]}


def _message(error: Exception) -> str | None:
    """What an error says; None for one that nobody raised on purpose."""
    if isinstance(error, PipelineError | StorageError | OSError | pa.ArrowException):
        return str(error)
    return brief_reason(error) if is_foreign(error) else None


def _unexpected_text(error: Exception, *, is_debug: bool) -> str:
    """One line about an error that nobody raised on purpose: its traceback says more."""
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    hint = "report it with the traceback above" if is_debug else f"run again with {DEBUG} and report the traceback"
    return f"{text}; {hint}"


def _has_value(arguments: Sequence[str], option: str, value: str = "json") -> bool:
    """True where an option is given with this value, in either form."""
    return f"{option}={value}" in arguments or (option, value) in pairwise(arguments)


class Refusals:
    """The refusals of one call."""

    def __init__(self, *, keeps_going: bool) -> None:
        self.keeps_going = keeps_going
        self._problems: list[Problem] = []

    def left(self, configs: Sequence[PipelineConfig], problems: Sequence[Problem]) -> list[PipelineConfig]:
        """The pipelines whose files have no problem. Raises `ConfigurationError` where none is left, or all end."""
        files = {problem.path for problem in problems}
        left = [config for config in configs if config.origin.path not in files]
        if problems and (not self.keeps_going or None in files or not left):
            raise ConfigurationError([*self._problems, *problems])
        self._problems += problems
        for problem in problems:
            complain(f"refused, the others go on: {problem}")
        return left

    def raise_any(self) -> None:
        """Raises `ConfigurationError` with what was refused, now that the others have ended."""
        if self._problems:
            raise ConfigurationError(self._problems)
