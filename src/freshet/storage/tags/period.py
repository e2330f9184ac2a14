"""Names of automatic tags: the beginning of the period that has ended.

| period | `with_dashes` | `without_dashes` | `without_dashes_and_spaces` |
|---|---|---|---|
| daily | 2026-03-01 | 20260301 | 20260301 |
| hourly | 2026-03-01 09 | 20260301 09 | 2026030109 |
| two-hours | 2026-03-01 08 | the same | the same |
| `tag.creation-period-duration` | 202603010930 | the same | the same |

A name is an automatic one when it reads as a time; of a daily one what follows a blank does not count, so that the tags
of a table that was hourly before are daily ones too. Times are those of a wall, in milliseconds (`options.time_zones`).

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from freshet.storage.options.choices import TagPeriodChoice, TagPeriodFormat
from freshet.storage.options.core import CoreOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = {TagPeriodFormat.WITH_DASHES: "%Y-%m-%d"}
_HOUR: Final = {
    TagPeriodFormat.WITH_DASHES: "%Y-%m-%d %H",
    TagPeriodFormat.WITHOUT_DASHES: "%Y%m%d %H",
    TagPeriodFormat.WITHOUT_DASHES_AND_SPACES: "%Y%m%d%H",
}
_MINUTE: Final = "%Y%m%d%H%M"
_FIELDS: Final = {"%Y": "([0-9]{4})", "%m": "([0-9]{2})", "%d": "([0-9]{2})", "%H": "([0-9]{2})", "%M": "([0-9]{2})"}


@dataclass(frozen=True, slots=True)
class TagPeriod:
    """A period and how its tags are called."""

    length_ms: int
    form: str
    """As `strftime` takes it."""
    is_first_word: bool = False
    """Whether what follows a blank in a name does not count."""

    def name(self, begin_ms: int) -> str:
        """Name of the tag of the period that begins then."""
        return format(_EPOCH + timedelta(milliseconds=begin_ms), self.form)

    def begin_ms(self, name: str) -> int | None:
        """When the period of a tag began; None for a name that is no time."""
        text = name.split(" ")[0] if self.is_first_word else name
        found = re.fullmatch(re.sub("%.", lambda field: _FIELDS[field[0]], self.form), text)
        if found is None:
            return None
        year, month, day, *rest = (int(field) for field in found.groups())
        try:
            begin = datetime(year, month, day, *rest, tzinfo=UTC)  # type: ignore[misc,arg-type]
        except ValueError:
            return None
        return (begin - _EPOCH) // timedelta(milliseconds=1)

    def before_ms(self, wall_ms: int) -> int:
        """Begin of the last period that had ended at a time."""
        return (wall_ms // self.length_ms - 1) * self.length_ms


def tag_period(options: CoreOptions) -> TagPeriod:
    """The period that the options of a table name."""
    length_ms = options.tag_period_ms
    if options.tag_creation_period_duration_ms is not None:
        return TagPeriod(length_ms, _MINUTE)
    match options.tag_creation_period:
        case TagPeriodChoice.DAILY:
            return TagPeriod(length_ms, _DAY.get(options.tag_period_formatter, "%Y%m%d"), is_first_word=True)
        case TagPeriodChoice.HOURLY:
            return TagPeriod(length_ms, _HOUR[options.tag_period_formatter])
        case TagPeriodChoice.TWO_HOURS:
            return TagPeriod(length_ms, _HOUR[TagPeriodFormat.WITH_DASHES])
