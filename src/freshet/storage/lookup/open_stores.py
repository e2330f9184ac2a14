"""What one process knows of lookup stores: those that it has open, and what reading data files has cost it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from freshet.storage.io.env import Env
from freshet.storage.lookup.lookup_store import LookupStore


@dataclass(slots=True)
class OpenStore:
    """A store, and when its use was last noted on disk."""

    file: LookupStore
    noted_ms: int


@dataclass(slots=True)
class SpareRoom:
    """Room that need not be looked for until then."""

    bytes_left: int
    until_ms: int


@dataclass(slots=True)
class ProcessStores:
    """What one process knows of the stores below all roots."""

    process_id: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: OrderedDict[str, OpenStore] = field(default_factory=OrderedDict)
    read_s: OrderedDict[str, float] = field(default_factory=OrderedDict)
    idle_until_ms: dict[str, int] = field(default_factory=dict)
    spare: dict[str, SpareRoom] = field(default_factory=dict)
    """By root: room for stores that need not be looked for."""
    wanted: dict[str, Callable[[], Iterator[None]]] = field(default_factory=dict)
    """Stores to be made in the background (`store_builder`)."""


_by_env: WeakKeyDictionary[Env, ProcessStores] = WeakKeyDictionary()


def forget_open_stores(env: Env) -> None:
    """Lets go of all stores and costs, as if the process had just started."""
    _by_env.pop(env, None)


def stores_of(env: Env) -> ProcessStores:
    """Those of this process."""
    stores = _by_env.setdefault(env, ProcessStores())
    if stores.process_id != os.getpid():  # a lock of the parent may be held by a thread that is not here
        stores = _by_env[env] = ProcessStores()
    return stores
