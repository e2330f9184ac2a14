"""Where the caches of one table lie on this machine.

A folder that its options name counts where whoever opened the table gave it, which travels with the table to other
processes, or where this process allows it (`Env.allows_local_dir`). What a schema alone says is a stranger's word, and
is passed over with one warning.
"""

from __future__ import annotations

import logging
from typing import Final

from freshet.storage.io.env import LOCAL_DIRS
from freshet.storage.io.local_cache import CacheFolder, LocalCache
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import printable
from freshet.storage.options.option import Option

WARNED_MAX: Final = 10_000

_LOG: Final = logging.getLogger(__name__)
_said: dict[tuple[str, str, str], object] = {}


def local_cache(store: TableStore, folder: CacheFolder, option: Option[str | None]) -> LocalCache:
    """Files that all processes of this user share, below what the option names."""
    parent = option.of(store.dynamic_options)
    own = option.of(store.options.given) if parent is None else None
    if own and store.env.allows_local_dir(own):
        parent = own
    elif own:
        _warn(store.name, option.key, own)
    return store.env.local_cache(folder, parent)


def _warn(table: str, key: str, path: str) -> None:
    said = object()
    if _said.setdefault((table, key, path), said) is not said:  # by another thread, maybe at this moment
        return
    if len(_said) > WARNED_MAX:
        _said.clear()
    _LOG.warning(
        "table %s: %s=%s is not used: a table does not choose folders of this machine. Allow it with the environment "
        "variable %s, or give the option where the table is opened",
        table,
        key,
        printable(path),
        LOCAL_DIRS,
    )
