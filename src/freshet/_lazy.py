"""Modules that are loaded when a name of them is first used: what a program does not use, its start does not pay for.

    if TYPE_CHECKING:
        from freshet.storage import table as _table
    else:
        _table = LazyModule("freshet.storage.table")

Libraries are imported at the top of the modules that use them; a seam is where such a module is named. The architecture
test counts `LazyModule("…")` as an import of that module, and another one holds what the seams keep out of a start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for the module of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
