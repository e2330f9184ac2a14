"""Who provides which log system. Loads nothing: the front door registers here what a table may ask for later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

PROVIDERS: Final[dict[str, Callable[[], Any]]] = {}
"""By the value of `log.system`: gives the provider (`log_systems.LogProvider`) when a table needs it."""


def register_log_system(name: str, provider: Callable[[], Any]) -> None:
    """Takes the place of what was registered under the name before."""
    PROVIDERS[name] = provider
