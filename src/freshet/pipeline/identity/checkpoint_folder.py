"""The folder of a checkpoint: on a local disk, or wherever Spark's file systems reach.

Functions of `identity` take a path, a URI, or a folder that is open. A path or a `file:` URI is read and written here.
What lies elsewhere only Spark can reach: the run opens it (`spark/hadoop_folder.py`); by its URI alone nothing of it is
looked at, which is so before Spark has started.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote, urlparse

from freshet.pipeline.identity.writable import write_problem


@runtime_checkable
class CheckpointFolder(Protocol):
    """Files of one checkpoint; names are those below it. What cannot be reached raises `OSError`."""

    def place(self, *names: str) -> str:
        """Where a file is, for messages."""

    def read(self, *names: str) -> str | None:
        """The text of a file; None where there is none. Raises `ValueError` where it is no text."""

    def replace(self, name: str, text: str) -> None:
        """Writes a file, which appears with all of the text; makes the folder where there is none."""

    def numbers(self, *names: str) -> list[int]:
        """The names that are numbers in a folder of the checkpoint; none where it is not there."""

    def write_problem(self) -> str | None:
        """Why nothing can be written here; None where it can. Leaves nothing."""


CheckpointPlace: TypeAlias = str | CheckpointFolder


class LocalCheckpoint:
    """A checkpoint on this machine's file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, *names: str) -> str:
        """As the protocol says."""
        return str(self._folder.joinpath(*names))

    def read(self, *names: str) -> str | None:
        """As the protocol says."""
        try:
            return self._folder.joinpath(*names).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def replace(self, name: str, text: str) -> None:
        """As the protocol says."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{name}.{os.getpid()}.tmp"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self._folder / name)

    def numbers(self, *names: str) -> list[int]:
        """As the protocol says."""
        try:
            return [int(each.name) for each in self._folder.joinpath(*names).iterdir() if each.name.isdecimal()]
        except FileNotFoundError:
            return []

    def write_problem(self) -> str | None:
        """As the protocol says."""
        return write_problem(self._folder)


def as_folder(checkpoint: CheckpointPlace) -> CheckpointFolder | None:
    """The folder that is given, or that a local path or URI names; None for the URI of another file system."""
    if not isinstance(checkpoint, str):
        return checkpoint
    folder = local_folder(checkpoint)
    return None if folder is None else LocalCheckpoint(folder)


def shown_place(checkpoint: CheckpointPlace, *names: str) -> str:
    """Where a checkpoint, or a file in it, is, for messages."""
    folder = as_folder(checkpoint)
    return "/".join([str(checkpoint).rstrip("/"), *names]) if folder is None else folder.place(*names)


def local_folder(location: str) -> Path | None:
    """The folder on this machine's file system that a path or URI names; None for other stores."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(location) if not parsed.scheme else None


def spark_path(location: str) -> str:
    """The text by which Spark finds the folder that `local_folder` finds.

    Freshet decodes a `file:` URI, as `Path.as_uri` encodes it. Hadoop's `Path` takes a text as it stands: of
    `file:///a%20b` it would make a folder named `a%20b`.
    """
    return location if urlparse(location).scheme != "file" else f"file://{local_folder(location)}"


def undecoded_folder(location: str) -> Path | None:
    """The other folder that the text of an encoded `file:` URI names where nobody decodes it: before `spark_path`,
    Spark kept its part of a checkpoint there."""
    parsed = urlparse(location)
    return Path(parsed.path) if parsed.scheme == "file" and unquote(parsed.path) != parsed.path else None
