"""Errors of a Spark task that a second attempt would meet again: they are results, so that Spark does not try again.

The workers write a document, the driver raises what it says: the class that the worker raised, or the nearest one
among those that it inherits from and that the driver knows. An error of another library comes with the line in the
code where it arose. What a second attempt may get over (the disk, memory) is raised in the worker.

    {"error": class, "text": …, "classes": [qualified names, the nearest first], "facts": {attribute: value}}
    {"error": class, "text": …, "where": function, file and line}      of another library
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.errors.error_kind import class_named, qualified_name
from freshet.pipeline.exceptions import PipelineFailedError, StoppedByRecordError
from freshet.storage import exceptions

ErrorDocument = Mapping[str, Any]

REPEATING_ERRORS: Final = (
    StoppedByRecordError,
    exceptions.StorageError,
    ValueError,  # pa.ArrowInvalid among them
    TypeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    NotImplementedError,
    RecursionError,
    pa.lib.ArrowCapacityError,
    pa.lib.ArrowSerializationError,
)
"""Errors that the same rows would meet again. `RetryableError` is a `StorageError` but none of these: it must be let
through before."""


class ReportedError(Exception):
    """An error that another worker reported; passed on as it is."""

    def __init__(self, document: ErrorDocument) -> None:
        super().__init__(str(document.get("text")))
        self.document = document


def error_document(error: Exception) -> ErrorDocument:
    """What an error says, for JSON."""
    if isinstance(error, StoppedByRecordError):
        return {"error": type(error).__name__, "text": error.message}
    document: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
    if isinstance(error, exceptions.StorageError):
        document["classes"] = [qualified_name(each) for each in type(error).__mro__]
        document["facts"] = {name: value if _is_plain(value) else None for name, value in vars(error).items()}
    else:
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "freshet" in frame.filename]
        document["where"] = "".join(f"{frame.name} in {frame.filename}:{frame.lineno}" for frame in ours[-1:])
    return document


def error_of(document: ErrorDocument) -> Exception:
    """The error of a document, to be raised by the driver."""
    if document["error"] == StoppedByRecordError.__name__:
        return StoppedByRecordError(document["text"])
    if "where" in document:
        return PipelineFailedError(
            f"a task failed, and would fail again: {document['error']}: {document['text']} ({document['where']}); "
            "nothing was committed"
        )
    found = map(class_named, document["classes"])
    nearest = next(each for each in found if each is not None and issubclass(each, exceptions.StorageError))
    error = nearest.__new__(nearest, document["text"])  # its own __init__ may want what did not travel
    vars(error).update(vars(exceptions.StorageError()) | dict(document["facts"]))
    return error


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
