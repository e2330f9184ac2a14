"""Errors of the operating system as errors of the package, with what to do about them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from freshet.storage.exceptions import (
    InvalidRequestError,
    NotFoundError,
    OutOfMemoryError,
    RetryableError,
    StorageError,
)

PATH_SHOWN_MAX: Final = 500
"""Characters of a path in a message: a partition value may be of any length."""

_ROOM: Final = "free some space on that disk (expire snapshots, remove orphans)"
_NO_THREAD: Final = "can't start new thread"
"""What Python says where the system has no memory for one, or the user no more of them."""
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MAY_PASS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT})
_AWAY: Final = frozenset({errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH})


def storage_error(error: OSError, action: str, path: str, *, room: str = _ROOM) -> StorageError:
    """The error of the package for one of the operating system, with what to do about it; `room` is for a full disk."""
    code = error.errno
    shown = path if len(path) <= PATH_SHOWN_MAX else f"{path[:PATH_SHOWN_MAX]}…"
    text = f"cannot {action} {shown}: {os.strerror(code) if code else error}"
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"{text}; check the path, or whether the file was expired or cleaned")
    if code == errno.ENOMEM:
        return out_of_memory(action, shown)
    if code in _NO_SPACE:
        return RetryableError(f"{text}; {room}, then try again")
    if code in _NOT_ALLOWED:
        return InvalidRequestError(f"{text}; give this user the right to do so, or choose another warehouse")
    if code == errno.EFBIG:
        return InvalidRequestError(f"{text}; raise the limit of the process (ulimit -f), or choose another file system")
    if code == errno.ENAMETOOLONG:
        return InvalidRequestError(f"{text}; use shorter names and partition values, they become folders")
    if code in (errno.ENOTDIR, errno.EISDIR):
        return InvalidRequestError(f"{text}; the path is not what a table expects there")
    if code in _MAY_PASS | _AWAY:
        return RetryableError(f"{text}; try again (for open files: raise the limit of the process)")
    return StorageError(f"{text}; check the disk and its mount")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, which says nothing about the bytes that were being read."""
    if isinstance(error, RuntimeError):
        return _NO_THREAD in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


@contextmanager
def memory_errors(place: str) -> Iterator[None]:
    """While the block reads what is at a place: memory that runs out becomes an error of the package."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory("read", place) from error


def out_of_memory(action: str, path: str) -> OutOfMemoryError:
    """The error where memory ran out in the work on a file."""
    return OutOfMemoryError(
        f"there is not enough memory to {action} {path}, which says nothing against its bytes. Try again with more "
        "memory, or with less at a time (fewer columns, to_batches(), fewer tasks at once)",
        path=path,
    )
