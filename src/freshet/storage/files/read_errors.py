"""Errors of the libraries that read data files, as errors of the package: each names the file.

| what failed | error |
|---|---|
| the disk or the store | as `io.local_errors` says |
| memory ran out | `OutOfMemoryError`: it proves nothing about the bytes |
| anything that a format's library says of bytes | `CorruptDataError` |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from freshet.storage.exceptions import CorruptDataError, StorageError, UnsupportedFeatureError
from freshet.storage.io.local_errors import is_out_of_memory, out_of_memory, storage_error

_OF_ALL: Final = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)


@contextmanager
def read_errors(path: str, kind: str, *others: type[Exception]) -> Iterator[None]:
    """While the block reads a file of the format `kind`; `others` are other errors of its libraries."""
    try:
        yield
    except UnsupportedFeatureError as error:
        raise error if path in str(error) else error.reworded(f"{path}: {error}", path=path) from error
    except (StorageError, pa.ArrowCancelled):
        raise
    except (*_OF_ALL, *others) as error:
        if is_out_of_memory(error):
            raise out_of_memory("read", path) from error
        if isinstance(error, OSError) and error.errno:  # the disk failed, not the format
            raise storage_error(error, "read", path) from error
        said = str(error) if isinstance(error, pa.ArrowException) else f"{type(error).__name__}: {error}"
        raise CorruptDataError(
            f"the {kind} file cannot be read ({said[:300]}); restore it from a copy, or drop it with the data it holds",
            path=path,
        ) from error
