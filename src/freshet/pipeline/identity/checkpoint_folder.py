"""The folder of a checkpoint: on a local disk, or wherever the engine of its query reaches.

Functions of `identity` take a path, a URI, or a folder that is open. A path or a `file:` URI is read and written here.
What lies elsewhere the engine opens (`spark/hadoop_folder`, `local/store_checkpoint`); by its URI alone nothing of it
is looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote, urlparse
from uuid import uuid4


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

    def above(self) -> CheckpointFolder | None:
        """The folder that it lies in; None at the top."""

    def write_problem(self) -> str | None:
        """Why nothing can be written here; None where it can. Leaves nothing."""


class WritableCheckpoint(CheckpointFolder, Protocol):
    """A checkpoint that an engine keeps here, without Spark."""

    def create(self, *names: str, text: str) -> bool:
        """Writes a file that is not there, and appears with all of the text, durably; False where there is one. Of two
        that create one file at once, one gets True: that is the lock of a batch."""

    def repeat(self, name: str, *names: str, text: str) -> bool:
        """Creates a file beside one that this run has created, of the same text: `repeat("8", "commits", "7", text=…)`.
        A machine that dies may forget it; a part of it is never seen. False where there is one."""

    def delete(self, *names: str) -> None:
        """Deletes a file that may be gone."""

    def forget(self, folder: str, numbers: Sequence[int]) -> None:
        """Deletes files that are not needed any more, soon; what cannot be deleted stays."""

    def names(self, *names: str) -> list[str]:
        """The names of the files in a folder of the checkpoint; none where it is not there."""


_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

CheckpointPlace: TypeAlias = str | CheckpointFolder


class LocalCheckpoint:
    """A checkpoint on this machine's file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, *names: str) -> str:
        """`CheckpointFolder.place`."""
        return os.path.join(self._folder, *names)

    def read(self, *names: str) -> str | None:
        """`CheckpointFolder.read`."""
        try:
            return self._folder.joinpath(*names).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def replace(self, name: str, text: str) -> None:
        """`CheckpointFolder.replace`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{name}.{os.getpid()}.tmp"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self._folder / name)

    def create(self, *names: str, text: str) -> bool:
        """`WritableCheckpoint.create`."""
        place = self.place(*names)
        folder = os.path.dirname(place)
        unfinished = os.path.join(folder, f".{names[-1]}.{uuid4()}.tmp")
        try:
            try:
                _write_durably(unfinished, text)
            except FileNotFoundError:
                os.makedirs(folder, exist_ok=True)
                _write_durably(unfinished, text)
            is_ours = _linked(unfinished, place)
        finally:
            _remove(unfinished)
        if is_ours:
            _sync_folder(folder)
        return is_ours

    def repeat(self, name: str, *names: str, text: str) -> bool:
        """`WritableCheckpoint.repeat`: another name of the same bytes, which are on the disk already."""
        return _linked(self.place(*names), self.place(*names[:-1], name))

    def delete(self, *names: str) -> None:
        """`WritableCheckpoint.delete`."""
        place = self.place(*names)
        _remove(place)
        _remove(_checksum(place))

    def forget(self, folder: str, numbers: Sequence[int]) -> None:
        """`WritableCheckpoint.forget`."""
        for number in numbers:
            self.delete(folder, str(number))

    def names(self, *names: str) -> list[str]:
        """`WritableCheckpoint.names`."""
        try:
            return os.listdir(self._folder.joinpath(*names))
        except FileNotFoundError:
            return []

    def numbers(self, *names: str) -> list[int]:
        """`CheckpointFolder.numbers`."""
        return [int(each) for each in self.names(*names) if each.isdecimal()]

    def above(self) -> LocalCheckpoint | None:
        """`CheckpointFolder.above`."""
        folder = self._folder.absolute()
        return None if folder.parent == folder else LocalCheckpoint(folder.parent)

    def folders(self) -> list[LocalCheckpoint]:
        """The folders in it."""
        return [LocalCheckpoint(self._folder / name) for name in sorted(self.names())]

    def write_problem(self) -> str | None:
        """`CheckpointFolder.write_problem`."""
        return write_problem(self._folder)


def _linked(source: str, target: str) -> bool:
    """Gives a file a second name, which is free; False where it is not. The checksum of a file of that name that is
    gone goes too: it would not fit."""
    _remove(_checksum(target))
    try:
        os.link(source, target)
    except FileExistsError:
        return os.path.samefile(source, target)  # a network file system has repeated a request that got no answer
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        what = (
            "no hard links, by which a run claims a batch, on this file system; put the checkpoint on one that has them"
        )
        raise OSError(error.errno, what, target) from error
    return True


def _checksum(place: str) -> str:
    """Where Hadoop keeps the checksum of a file on a local disk.

    Without it Spark reads the file unchecked. Where it does not fit, sessions of Freshet's own refuse the file; where
    it is left of a file that somebody has removed, others take the file that they write for that of a second run
    (4.2.1, tried: the two are `FileSystemBased…` and `FileContextBasedCheckpointFileManager`).
    """
    folder, name = os.path.split(place)
    return os.path.join(folder, f".{name}.crc")


def _write_durably(place: str, text: str) -> None:
    with open(place, "xb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _remove(place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)


def _sync_folder(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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


def uri_above(uri: str) -> str | None:
    """The URI of the folder that one lies in; None where that is a bucket or the root."""
    above = uri.rstrip("/").rpartition("/")[0]
    return above if urlparse(above).path.strip("/") else None


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


def write_problem(folder: Path) -> str | None:
    """Why nothing can be written into a folder, which need not be there yet; None where it can.

    Rights are not enough: root has all of them, and makes nothing under /proc or on a full or read-only disk.
    """
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir():
        return f"{nearest} is a file"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"no right to write in {nearest}"
    try:
        with tempfile.TemporaryDirectory(prefix=".freshet-check-", dir=nearest):
            return None
    except OSError as error:
        return f"nothing can be made in {nearest}: {error.strerror}"
