"""Lengths of time as people write them: `5 s`, `500 ms`, `1 min`, `2 hours`, `1 second`.

Spark's trigger knows only the words (`500 milliseconds`), so what is written is brought into that form.
"""

from __future__ import annotations

import re
from typing import Final

_UNIT_MS: Final = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_UNIT_OF: Final = {
    name: unit
    for unit, names in {
        "millisecond": "ms milli millis millisecond milliseconds",
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
    }.items()
    for name in names.split()
}
_WRITTEN: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")
_MS_MAX: Final = 366 * 86_400_000


def spark_interval(text: str) -> str:
    """The interval as Spark's trigger takes it, such as `500 milliseconds`.

    Raises `ValueError` that says how an interval is written. `0` and `0 s` start the next batch at once.
    """
    if text.strip() == "0":
        return "0 seconds"
    match = _WRITTEN.fullmatch(text)
    unit = _UNIT_OF.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{text!r} is no interval; write a whole number and a unit (ms, s, min, h, d), such as 500 ms, 5 s or 1 min"
        )
    number = int(match[1])
    if number * _UNIT_MS[unit] > _MS_MAX:
        raise ValueError(f"{text!r} is longer than a year; write a shorter interval, such as 1 h")
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def interval_ms(interval: str) -> int:
    """Milliseconds of what `spark_interval` gives."""
    number, unit = interval.split()
    return int(number) * _UNIT_MS[unit.removesuffix("s")]
