"""Makes the stores of large files in the background of lookups, which read the data files meanwhile.

The file whose reading has cost this process the most comes first: with it, the most is saved. One store is made at a
time, in one thread of each process, a few rows at each step; of several processes that want one store, one makes it.
What is unfinished when the program ends is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import Env
from freshet.storage.lookup.open_stores import stores_of

_LOG: Final = logging.getLogger(__name__)


def build_later(env: Env, name: str, make: Callable[[], Iterator[None]]) -> None:
    """Has a store made; `name` is that under which `ProcessStores.read_s` has what reading has cost."""
    stores = stores_of(env)
    with stores.lock:
        stores.wanted[name] = make
    env.run_gradually("lookup stores", partial(_make_all, env))


def forget_wanted(env: Env, folder: str, kept: Collection[str]) -> None:
    """Stores below a folder are no longer wanted, but for these names: their files have left the table."""
    stores = stores_of(env)
    with stores.lock:
        for name in [name for name in stores.wanted if name.startswith(f"{folder}/") and name not in kept]:
            del stores.wanted[name]


def _make_all(env: Env) -> Iterator[None]:
    while True:
        stores = stores_of(env)
        with stores.lock:
            if not stores.wanted:
                return
            name = max(stores.wanted, key=lambda name: stores.read_s.get(name, 0.0))
            make = stores.wanted.pop(name)
        try:
            yield from make()
        except StorageError as error:  # whoever reads the data file meets it too, and says so
            _LOG.info("the lookup store %s is not made: %s", name, error)
