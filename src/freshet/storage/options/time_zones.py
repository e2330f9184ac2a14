"""Instants as the clock on a wall of some time zone shows them, in milliseconds as if that wall were in UTC.

A zone is named as Java takes it:

| name | zone |
|---|---|
| `Europe/Berlin`, `UTC` | of the time zone database |
| `Z`, `+8`, `-08:00`, `+0530` | a fixed offset |
| `GMT+8`, `UTC-08:00`, `UT+1` | the same |

Where clocks are put back, an hour is shown twice; where they are put forward, one is never shown.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2})(?::?\d{2})?)?")


class Zone(Frozen):
    """One time zone; equal by its name."""

    name: str
    option: str | None = None
    """The option that names it."""

    def check(self) -> None:
        """Raises `InvalidRequestError` for a name of no zone."""
        _zone_info(self.name, self.option)

    def wall_ms(self, instant_ms: int) -> int:
        """What the wall shows at an instant (epoch milliseconds)."""
        at = _EPOCH + timedelta(milliseconds=instant_ms)
        offset = at.astimezone(_zone_info(self.name, self.option)).utcoffset()
        assert offset is not None, "every zone has one"
        return instant_ms + offset // timedelta(milliseconds=1)

    def earliest_instant_ms(self, wall_ms: int) -> int:
        """An instant before which the wall never showed as late a time; later ones may show an earlier time again."""
        wall = (_EPOCH + timedelta(milliseconds=wall_ms)).replace(tzinfo=_zone_info(self.name, self.option))
        offsets = [wall.replace(fold=fold).utcoffset() for fold in (0, 1)]
        return wall_ms - max(offset for offset in offsets if offset is not None) // timedelta(milliseconds=1)


@lru_cache(64)
def _zone_info(name: str, option: str | None) -> tzinfo:
    if name == "Z":
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes = int(offset["hours"]), int(offset["minutes"] or 0)
        if hours <= 18 and minutes < 60:
            distance = timedelta(hours=hours, minutes=minutes)
            return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequestError(
            f"{option or 'the time zone'} = {name!r} is no time zone that this machine knows; give one such as "
            "Europe/Berlin or GMT-08:00",
            option=option,
        ) from error
