"""Whether files can be made in a folder, found out without leaving anything there.

Rights are not enough: root has all of them, and still makes nothing under /proc or on a full or read-only disk.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_problem(folder: Path) -> str | None:
    """Why nothing can be written into a folder, which need not be there yet; None where it can."""
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
