"""When a snapshot becomes the tag of a period: a pure decision over its time and the newest automatic tag.

    P: the period;  t: the time of the snapshot;  last: the beginning of the period of the newest automatic tag
    no automatic tag yet                 the snapshot is tagged
    t - delay >= last + 2 P              the snapshot is tagged
    name                                 the period before the one of t; last + P with automatic completion

So the tag of a day holds the first snapshot after the day, and the first snapshot of a table has the name of the day
before it. The delay decides when, not which name. `t` is the time of the commit in one zone, or its watermark in
another; a snapshot without a watermark is passed over.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.io.env import Env
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import TagCreation, TagPeriodChoice, TagPeriodFormat
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.time_zones import Zone

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = {TagPeriodFormat.WITH_DASHES: "%Y-%m-%d"}
_HOUR: Final = {
    TagPeriodFormat.WITH_DASHES: "%Y-%m-%d %H",
    TagPeriodFormat.WITHOUT_DASHES: "%Y%m%d %H",
    TagPeriodFormat.WITHOUT_DASHES_AND_SPACES: "%Y%m%d%H",
}
_MINUTE: Final = "%Y%m%d%H%M"
_FIELDS: Final = {"%Y": "([0-9]{4})", "%m": "([0-9]{2})", "%d": "([0-9]{2})", "%H": "([0-9]{2})", "%M": "([0-9]{2})"}


class TagPeriod(Frozen):
    """A period and how its tags are called, by the beginning of the one that has ended.

    | period | `with_dashes` | `without_dashes` | `without_dashes_and_spaces` |
    |---|---|---|---|
    | daily | 2026-03-01 | 20260301 | 20260301 |
    | hourly | 2026-03-01 09 | 20260301 09 | 2026030109 |
    | two-hours | 2026-03-01 08 | the same | the same |
    | `tag.creation-period-duration` | 202603010930 | the same | the same |

    A name is an automatic one when it reads as a time; of a daily one what follows a blank does not count, so that the
    tags of a table that was hourly before are daily ones too. Times are those of a wall, in milliseconds
    (`options.time_zones`).
    """

    length_ms: int
    form: str
    """The format, as `strftime` takes it."""
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


_WATERMARKS: Final = (-62_135_596_800_000 + 86_400_000, 253_402_300_800_000 - 86_400_000)
"""Times that a calendar has, of the years 1 to 9999, a day from their ends for zones; others are no watermarks."""


class TagRule(Frozen):
    """How a table makes tags of periods."""

    by_watermark: bool
    zone: Zone
    period: TagPeriod
    delay_ms: int = 0
    completes: bool = False

    def due_ms(self, last_ms: int | None, snapshot: Snapshot) -> int | None:
        """Begin of the period whose tag this snapshot becomes; None where it becomes none. `last_ms` is that of the
        newest automatic tag."""
        time_ms = self._wall_ms(snapshot)
        if time_ms is None:
            return None
        if last_ms is None:
            return self.period.before_ms(time_ms)
        if time_ms < self.threshold_ms(last_ms):
            return None
        return last_ms + self.period.length_ms if self.completes else self.period.before_ms(time_ms)

    def threshold_ms(self, last_ms: int) -> int:
        """The earliest time of a snapshot that becomes the next tag."""
        return last_ms + 2 * self.period.length_ms + self.delay_ms

    def _wall_ms(self, snapshot: Snapshot) -> int | None:
        if not self.by_watermark:
            return self.zone.wall_ms(snapshot.time_ms)
        watermark = snapshot.watermark
        if watermark is None or not _WATERMARKS[0] <= watermark < _WATERMARKS[1]:
            return None  # none, or no time: microseconds, or the end of all time
        return self.zone.wall_ms(watermark)


def tag_rule(options: CoreOptions, env: Env) -> TagRule | None:
    """The rule of a table; None where no tags of periods are made. `InvalidRequestError` for a zone there is not."""
    match options.tag_automatic_creation:
        case TagCreation.PROCESS_TIME:
            zone = process_time_zone(options, env)
        case TagCreation.WATERMARK:
            zone = Zone(options.sink_watermark_time_zone, "sink.watermark-time-zone")
        case _:
            return None
    return TagRule(
        by_watermark=options.tag_automatic_creation is TagCreation.WATERMARK,
        zone=zone,
        period=tag_period(options),
        delay_ms=options.tag_creation_delay_ms,
        completes=options.tag_automatic_completion,
    )


def process_time_zone(options: CoreOptions, env: Env) -> Zone:
    """Where the times of commits are read: the zone of the option, else of the machine."""
    if options.sink_process_time_zone is None:
        return Zone(env.time_zone())
    return Zone(options.sink_process_time_zone, "sink.process-time-zone")
