"""Whether a store keeps the condition of a create: asked once by two creates of one key, before the first claim.

A store that ignores it would let two writers win one snapshot, and lose the rows of one of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.io.file_io import Created

PROBE_PREFIX: Final = ".freshet-probe-"

_KEPT: Final[set[tuple[str, str]]] = set()
"""Endpoints and buckets that have kept it, as seen by this process."""

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = threading.Lock()


def check_conditional_puts(
    endpoint: str, place: str, probe: str, create: Callable[[str], Created], delete: Callable[[str], object]
) -> None:
    """Refuses a store that lets a key be created twice; three requests for each bucket and process."""
    if (endpoint, place) in _KEPT:
        return
    with _LOCK:
        if (endpoint, place) in _KEPT:
            return
        first = create(probe)
        second = create(probe) if first is Created.WON else first
        try:
            delete(probe)
        except InvalidRequestError as error:
            _LOG.warning("the object that this store was tried with stays: %s", error)
        if first is not Created.WON or second is Created.UNKNOWN:
            raise RetryableError(
                f"{place} at {endpoint} does not say whether it has created {probe}; check the store, then try again",
                path=probe,
            )
        if second is Created.WON:
            raise InvalidRequestError(
                f"{place} at {endpoint} ignores the condition of a create (If-None-Match: *): {probe} was created "
                "twice, and so two writers could both win one snapshot; use a store or a version of it that keeps the "
                "condition",
                path=probe,
            )
        _KEPT.add((endpoint, place))
