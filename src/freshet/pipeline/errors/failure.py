"""The kind of an error, wherever it comes from.

Errors of Freshet say it by their class, those of the operating system by their number. Errors that Spark has carried
from a Python worker are texts: the last exception of the worker's traceback is named there, and the classes that it
inherits from say the kind. What Spark and Kafka's client say in their own words is looked up (`known_causes`).
"""

from __future__ import annotations

import errno
import re
from typing import Final

from freshet.pipeline.errors.error_kind import (
    EXIT_RETRY,
    ErrorKind,
    class_named,
    exit_code,
    kind_of_class,
    kind_of_errno,
)
from freshet.pipeline.errors.known_causes import kind_of_text
from freshet.pipeline.exceptions import PipelineError, worker_exception
from freshet.storage.exceptions import OutOfMemoryError

_FOREIGN: Final = ("pyspark.", "py4j.")
_RAISED: Final = re.compile(r"(?P<name>[\w.]+)(?:: (?:\[Errno (?P<errno>\d+)\]|(?P<kind>\w+Error): )?|$)", re.MULTILINE)

_STOPPED: Final = re.compile(r"InterruptedException|ClosedByInterruptException|cancelled part of cancelled job group")


def is_foreign(error: BaseException) -> bool:
    """True for errors of Spark and its bridge: they carry query plans and Java traces."""
    return type(error).__module__.startswith(_FOREIGN)


def kind_of(error: BaseException) -> ErrorKind:
    """The nearest kind; internal where nothing is known."""
    if isinstance(error, PipelineError):
        return error.kind
    if isinstance(error, OSError):
        return _kind_of_os_error(type(error), error.errno)
    if is_foreign(error):
        return kind_of_foreign(whole_text(error))
    return kind_of_class(type(error))


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that ends with this error."""
    return error.exit_code if isinstance(error, PipelineError) else exit_code(kind_of(error), while_running=False)


def is_retryable(error: BaseException) -> bool:
    """True where starting again may get over it."""
    return exit_code_of(error) == EXIT_RETRY


def is_interruption(error: BaseException) -> bool:
    """True where Spark has stopped what it ran: the query was stopped, or its jobs were cancelled."""
    return is_foreign(error) and _STOPPED.search(whole_text(error)) is not None


def kind_of_foreign(text: str) -> ErrorKind:
    """The kind of a failure that Spark reports: by the exception of a Python worker, or by what Spark says itself."""
    raised = worker_exception(text)
    return kind_of_text(text) if raised is None else _kind_of_raised(raised)


def ran_out_of_memory(error: BaseException | None) -> bool:
    """True where Python, Arrow or the system had no memory left, here or in a worker."""
    while error is not None:
        raised = worker_exception(whole_text(error)) if is_foreign(error) else None
        match = None if raised is None else _RAISED.match(raised)
        error_class = type(error) if match is None else class_named(match["name"])
        code = str(getattr(error, "errno", None)) if match is None else match["errno"]
        if code == str(errno.ENOMEM) or issubclass(error_class or type(error), MemoryError | OutOfMemoryError):
            return True
        error = error.__cause__
    return False


def whole_text(error: BaseException) -> str:
    """What an error of Spark says with the Java traces of its causes: the message alone may not name them."""
    parts = [str(error)]
    cause: object = error
    while cause is not None:
        parts.append(str(getattr(cause, "_stackTrace", "")))
        cause = getattr(cause, "_cause", None)
    return "\n".join(parts)


def _kind_of_raised(raised: str) -> ErrorKind:
    """The kind of an exception as the last line of a traceback names it."""
    match = _RAISED.match(raised)
    error_class = None if match is None else class_named(match["name"])
    if match is None or error_class is None:
        return ErrorKind.INTERNAL
    if issubclass(error_class, OSError):
        return _kind_of_os_error(error_class, int(match["errno"]) if match["errno"] else None)
    if issubclass(error_class, PipelineError):
        named = [kind for kind in ErrorKind if kind == match["kind"]]
        return named[0] if named else error_class.kind
    return kind_of_class(error_class)


def _kind_of_os_error(error_class: type[OSError], code: int | None) -> ErrorKind:
    if code is None and issubclass(error_class, ConnectionError | TimeoutError):
        return ErrorKind.RETRYABLE
    return kind_of_errno(code)
