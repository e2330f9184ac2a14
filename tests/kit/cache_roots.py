"""Where caches lie below a folder that options of a test name."""

from __future__ import annotations

import os
from pathlib import Path

from freshet.storage.io.local_cache import MARK, CacheFolder
from freshet.storage.lookup.store_cache import FOLDER as LOOKUP_STORES
from freshet.storage.place_index.share_index import FOLDER as PLACE_INDEXES


def cache_root(parent: Path | str, folder: CacheFolder) -> Path:
    """The folder of this user."""
    return Path(parent) / f"{folder.name}-{os.geteuid()}"


def lookup_stores(parent: Path | str) -> Path:
    """That of lookup stores."""
    return cache_root(parent, LOOKUP_STORES)


def place_indexes(parent: Path | str) -> Path:
    """That of indexes of places."""
    return cache_root(parent, PLACE_INDEXES)


def files_of_cache(folder: Path) -> list[Path]:
    """Files below a folder, but for the mark."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARK)
