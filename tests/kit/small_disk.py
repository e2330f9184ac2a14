"""A real file system that fills up."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.kit.components import missing


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """The folder as a file system in memory of that size, such as `256k`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("the right to mount a file system", "run this test as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
