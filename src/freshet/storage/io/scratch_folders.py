"""Folders for spilled data; those whose owner has ended are removed.

    <scratch root>/freshet-spill-<random>     locked (flock on the folder itself) by the process that made it
                                         /.made-by-freshet    without it, nothing there is removed

The operating system takes the lock away when the process ends, however it ends, so a folder that can be locked has
no owner any more and is removed by the next process that makes such a folder, or by orphan removal. Process ids would
not do: they are reused, and containers that share a disk have the same ones. A child that was forked while a folder was
in use holds its lock too, until it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from typing import Final

from freshet.storage.io.local_cache import MARK
from freshet.storage.io.local_errors import storage_error

PREFIX: Final = "freshet-spill-"
_ATTEMPTS: Final = 10


class ScratchFolders:
    """The folders that one process made below one root. May be shared by threads."""

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._descriptors: dict[str, int] = {}
        self._has_swept = False

    def new(self) -> str:
        """A new empty folder; the first call makes the root and removes what dead processes have left."""
        root = self._root or tempfile.gettempdir()
        try:
            if not self._has_swept:
                self._has_swept = True
                os.makedirs(root, exist_ok=True)
                self.sweep()
            for _ in range(_ATTEMPTS):
                folder = tempfile.mkdtemp(prefix=PREFIX, dir=root)
                descriptor = _locked(folder)
                if descriptor is None:  # another process swept it between its making and its lock
                    continue
                with self._lock:
                    self._descriptors[folder] = descriptor
                with open(os.path.join(folder, MARK), "wb"):
                    return folder
            raise OSError(f"{_ATTEMPTS} new folders were removed by others at once")
        except OSError as error:
            raise storage_error(error, "create a scratch folder in", root) from error

    def release(self, folder: str) -> None:
        """Removes a folder that `new` gave, with all in it."""
        with self._lock:
            descriptor = self._descriptors.pop(folder, None)
        if descriptor is None:
            return
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, "delete", folder) from error
        finally:
            os.close(descriptor)

    def sweep(self) -> list[str]:
        """Removes the folders whose owners are dead, as far as this user may; returns them."""
        root = self._root or tempfile.gettempdir()
        swept = []
        for name in sorted(os.listdir(root)):
            folder = os.path.join(root, name)
            descriptor = _locked(folder) if name.startswith(PREFIX) else None
            if descriptor is None:
                continue
            with suppress(OSError):  # another user's, or busy: it stays for its owner
                if os.path.isfile(os.path.join(folder, MARK)):
                    shutil.rmtree(folder)
                else:  # its owner died before it was marked, or it is none of ours
                    os.rmdir(folder)
                swept.append(folder)
            os.close(descriptor)
        return swept


def _locked(folder: str) -> int | None:
    """The descriptor of the folder, locked; None when it lives, is gone or is not ours."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except OSError:
        is_there = False
    if is_there:
        return descriptor
    os.close(descriptor)
    return None
