"""Points in time as people give them."""

from __future__ import annotations

import datetime
from typing import Any, SupportsIndex

from freshet.storage.exceptions import InvalidRequestError

TimeGiven = int | datetime.datetime
"""A point in time: epoch milliseconds, or a datetime with a time zone."""


def time_ms(name: str, value: Any) -> int:
    """Epoch milliseconds of a point in time; `InvalidRequestError` names the argument that is none."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return since // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        raise InvalidRequestError(
            f"{name}={value!r} has no time zone; give a datetime with a time zone, such as moment.astimezone()"
        )
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidRequestError(f"{name} is in epoch milliseconds, or a datetime with a time zone, not {value!r}")
    return int(value)
