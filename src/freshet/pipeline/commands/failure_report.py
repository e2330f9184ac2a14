"""What a command tells of the error that it ends with.

    freshet: CorruptDataError: …                                                    always, on standard error
    {"error": "…", "kind": "CorruptDataError", "retryable": false, "exit_code": 65}   for who asked for JSON

The JSON object is one line on standard output with --json and --progress json, where it is the last one. With --format
json standard output holds rows and nothing else: the object is the last line on standard error. Of wrong
pipeline files it has `problems` too, with file and line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.commands.output import complain, json_line, say
from freshet.pipeline.errors.error_kind import EXIT_RETRY
from freshet.pipeline.errors.failure import exit_code_of, is_foreign, kind_of
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, PipelineFailedError, brief_reason
from freshet.storage.exceptions import StorageError

_AS_JSON: Final = "--json"
_PROGRESS: Final = "--progress"
_FORMAT: Final = "--format"


def tell_failure(error: Exception, arguments: Sequence[str]) -> int | None:
    """Tells of an error that ended a call with these arguments, and gives the exit code.

    None where nobody raised it on purpose: that is a bug of ours, of which the traceback says most.
    """
    text = _message(error)
    if text is not None:
        complain(f"{kind_of(error)}: {text}")
    facts = failure_facts(error, text)
    if _AS_JSON in arguments or _has_value(arguments, _PROGRESS):
        say(json_line(facts))
    elif _has_value(arguments, _FORMAT):
        print(json_line(facts), file=sys.stderr, flush=True)
    return None if text is None else exit_code_of(error)


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
    return facts | {"problems": error.problems} if isinstance(error, ConfigurationError) else facts


def _message(error: Exception) -> str | None:
    """What to tell of an error; None for one that nobody raised on purpose."""
    if isinstance(error, PipelineError | StorageError | OSError | pa.ArrowException):
        return str(error)
    return brief_reason(error) if is_foreign(error) else None


def _has_value(arguments: Sequence[str], option: str, value: str = "json") -> bool:
    """True where an option is given with this value, in either form."""
    return f"{option}={value}" in arguments or (option, value) in pairwise(arguments)
