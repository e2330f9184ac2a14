"""What the options of automatic tags must fulfil together.

| options | rule |
|---|---|
| `tag.creation-delay` | shorter than the period: the tag of a period would come after the end of the next |
| `tag.creation-period-duration` | whole minutes: what is less is not in the names |
| `sink.process-time-zone`, `sink.watermark-time-zone` | zones that are known |

Asked when they are given, so that a table of another program is read whatever it has.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.time_zones import Zone

_MINUTE_MS: Final = 60_000
_PERIOD: Final = frozenset({"tag.creation-delay", "tag.creation-period", "tag.creation-period-duration"})


def check_tag_options(options: CoreOptions, typed: Collection[str]) -> None:
    """Raises `InvalidRequestError`, naming the option, where these do not go together."""
    if not _PERIOD.isdisjoint(typed):
        _check_period(options)
    zones = {
        "sink.process-time-zone": options.sink_process_time_zone,
        "sink.watermark-time-zone": options.sink_watermark_time_zone,
    }
    for key, name in zones.items():
        if key in typed and name is not None:
            Zone(name, key).check()


def _check_period(options: CoreOptions) -> None:
    if options.tag_period_ms % _MINUTE_MS:
        raise InvalidRequestError(
            f"tag.creation-period-duration is {options.tag_period_ms} ms; give a whole number of minutes, such as "
            "30 min: names of tags have no seconds",
            option="tag.creation-period-duration",
        )
    if options.tag_creation_delay_ms >= options.tag_period_ms:
        raise InvalidRequestError(
            f"tag.creation-delay is {options.tag_creation_delay_ms} ms, and the period {options.tag_period_ms} ms: "
            "give a delay that is shorter, or a longer tag.creation-period",
            option="tag.creation-delay",
        )
