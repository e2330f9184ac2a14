"""The kinds of errors, and the exit code of each.

| kind | what to do | before anything began | while it ran |
|---|---|---|---|
| `RetryableError` | try again | 75 | 75 |
| `InvalidRequestError` | fix the call, the option or the input | 2 | 65: a restart meets it again |
| `CorruptDataError` | stop, look at what the message names | 65 | 65 |
| `ConflictError` | read again and plan again: what starting again does | 75 | 75 |
| `UnknownOutcomeError` | find out first; a stream does so when it starts again | 1 | 75 |
| `InternalError` | whatever the message says | 1 | 1 |

An error is of the nearest kind among the classes that it inherits from: subclasses need not be listed anywhere. 65 and
75 are EX_DATAERR and EX_TEMPFAIL of sysexits.h.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from freshet.storage import exceptions

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_INVALID: Final = 2
EXIT_DATA: Final = 65
EXIT_RETRY: Final = 75


class ErrorKind(StrEnum):
    """What the caller should do next. The worst first: of several failures, the first one here counts."""

    CORRUPT_DATA = "CorruptDataError"
    INVALID_REQUEST = "InvalidRequestError"
    INTERNAL = "InternalError"
    UNKNOWN_OUTCOME = "UnknownOutcomeError"
    CONFLICT = "ConflictError"
    RETRYABLE = "RetryableError"


_CLASSES: Final[Mapping[type[BaseException], ErrorKind]] = {
    exceptions.RetryableError: ErrorKind.RETRYABLE,
    exceptions.InvalidRequestError: ErrorKind.INVALID_REQUEST,
    exceptions.CorruptDataError: ErrorKind.CORRUPT_DATA,
    exceptions.ConflictError: ErrorKind.CONFLICT,
    exceptions.UnknownOutcomeError: ErrorKind.UNKNOWN_OUTCOME,
    MemoryError: ErrorKind.RETRYABLE,
}

_OURS: Final = "freshet."

_MAY_PASS: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY, errno.EINTR,
    errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN,
    errno.ESTALE,
})  # fmt: skip
_OF_THE_CALL: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EFBIG}
)


def kind_of_class(error_class: type[BaseException]) -> ErrorKind:
    """The nearest kind by inheritance; internal where there is none."""
    return next((_CLASSES[each] for each in error_class.__mro__ if each in _CLASSES), ErrorKind.INTERNAL)


def kind_of_errno(code: int | None) -> ErrorKind:
    """What an error of the operating system asks for."""
    if code in _MAY_PASS:
        return ErrorKind.RETRYABLE
    return ErrorKind.INVALID_REQUEST if code in _OF_THE_CALL else ErrorKind.INTERNAL


def qualified_name(error_class: type) -> str:
    """The name by which another process finds a class, as tracebacks have it."""
    return f"{error_class.__module__}.{error_class.__qualname__}"


def class_named(name: str) -> type[BaseException] | None:
    """The class of errors of a qualified name; None where this process does not know it. Only ours are imported."""
    module_name, _, class_name = name.rpartition(".")
    module_name = module_name or "builtins"
    try:
        ours = importlib.import_module(module_name) if module_name.startswith(_OURS) else None
    except ImportError:
        return None
    found = getattr(ours or sys.modules.get(module_name), class_name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def worst(kinds: Iterable[ErrorKind]) -> ErrorKind:
    """The kind that counts where several things failed: 65 before 1 before 75."""
    order = list(ErrorKind)
    return min(kinds, key=order.index)


def exit_code(kind: ErrorKind, *, while_running: bool) -> int:
    """The exit code of an error that was met before anything began, or while a stream ran."""
    if kind is ErrorKind.INVALID_REQUEST:
        return EXIT_DATA if while_running else EXIT_INVALID
    if kind is ErrorKind.UNKNOWN_OUTCOME:
        return EXIT_RETRY if while_running else EXIT_FAILED
    codes = {
        ErrorKind.CORRUPT_DATA: EXIT_DATA,
        ErrorKind.CONFLICT: EXIT_RETRY,
        ErrorKind.RETRYABLE: EXIT_RETRY,
    }
    return codes.get(kind, EXIT_FAILED)
