"""Snapshots and the automatic tags that Apache Paimon 2.0.0 makes of them (FORMAT.md §12.2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final


def ms(day: int, hour: int, minute: int = 0) -> int:
    """A time of January 2026, in UTC."""
    return int(datetime(2026, 1, day, hour, minute, tzinfo=UTC).timestamp() * 1000)


TIMES: Final = (ms(1, 10), ms(2, 0, 30), ms(2, 2), ms(5, 3), ms(5, 4))
"""Of snapshots 1 to 5."""

VECTORS: Final[dict[str, tuple[dict[str, str], dict[str, int]]]] = {
    "daily": ({}, {"2025-12-31": 1, "2026-01-01": 2, "2026-01-04": 4}),
    "delay": ({"tag.creation-delay": "1 h"}, {"2025-12-31": 1, "2026-01-01": 3, "2026-01-04": 4}),
    "completion": (
        {"tag.automatic-completion": "true"},
        {"2025-12-31": 1, "2026-01-01": 2, "2026-01-02": 4, "2026-01-03": 5},
    ),
    "hourly": (
        {"tag.creation-period": "hourly"},
        {"2026-01-01 09": 1, "2026-01-01 23": 2, "2026-01-02 01": 3, "2026-01-05 02": 4, "2026-01-05 03": 5},
    ),
}
"""Options, and the snapshot of each tag."""

BY_TIME: Final = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}
