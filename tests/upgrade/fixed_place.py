"""Folders of golden archives that must be where they were: lookup stores, indexes of places and batches of files name
the place of what they are of."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def fixed_place(name: str) -> Iterator[Path]:
    """The place of this name, empty, for one process at a time."""
    place = Path(f"/tmp/freshet-golden-{name}")
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            shutil.rmtree(place)
