"""Folders of a local or mounted POSIX disk: what object stores do not have."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from typing import Final

from freshet.storage.exceptions import AlreadyExistsError, RetryableError
from freshet.storage.io.local_errors import storage_error

DELETE_TRIES: Final = 20

_LOG: Final = logging.getLogger(__name__)


class LocalFolders:
    """`Folders` on POSIX calls."""

    def make(self, path: str) -> None:
        """Creates what is missing."""
        make_folder(path)

    def remove_empty(self, path: str, *, below: str) -> None:
        """Stops at the first folder that holds something, or cannot be removed."""
        while path.startswith(f"{below}/"):
            try:
                os.rmdir(path)
            except OSError:
                return
            path = os.path.dirname(path)

    def way_out(self, path: str, *, below: str) -> str | None:
        """Asks for each part."""
        current = below
        for part in path[len(below) + 1 :].split("/")[:-1] if path.startswith(f"{below}/") else ():
            current = f"{current}/{part}"
            if part == ".." or os.path.islink(current):
                return current
        return None

    def sync(self, path: str) -> None:
        """One `fsync`."""
        try:
            fsync_folder(path)
        except OSError as error:
            raise storage_error(error, "sync", path) from error

    def rename(self, source: str, target: str) -> None:
        """One `rename`; then both folders that name them are synced."""
        taken = AlreadyExistsError(f"{target} exists already; choose another name for {source}", path=target)
        if os.path.lexists(target):
            raise taken
        try:
            make_folder(os.path.dirname(target))
            os.rename(source, target)
            fsync_folder(os.path.dirname(target))
            fsync_folder(os.path.dirname(source))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # made since we looked
                raise taken from error
            raise storage_error(error, "rename", source) from error


def make_folder(path: str) -> None:
    """Creates what is missing and syncs the folders that got a new entry, so that the names survive a crash."""
    missing = []
    current = path
    while current and not os.path.isdir(current):
        missing.append(current)
        current = os.path.dirname(current)
    try:
        os.makedirs(path, exist_ok=True)
        for created in missing:
            fsync_folder(os.path.dirname(created))
    except OSError as error:
        raise storage_error(error, "create", path) from error


def delete_folder(path: str) -> None:
    """Removes a folder and all below it, also while others create and delete files there.

    Links are removed and not followed, neither those below it nor the path itself.
    """
    if os.path.islink(path):
        _LOG.warning("%s is a link: it is removed, and what it leads to, %s, stays", path, os.path.realpath(path))
        _unlink(path)
        return
    for tries_left in reversed(range(DELETE_TRIES)):
        try:
            shutil.rmtree(path)
            return
        except FileNotFoundError:  # the folder itself, or a file in it that another has deleted
            if not os.path.lexists(path):
                return
        except NotADirectoryError:  # a file: nothing lies below it
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise storage_error(error, "delete", path) from error
    raise RetryableError(f"{path} was not deleted: other programs write in it. Stop them, and try again")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "delete", path) from error


def fsync_folder(path: str) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
