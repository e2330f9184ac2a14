"""Which snapshots may expire: a pure decision over ids and times.

    start = max(latest - retain_max + 1, earliest)
    end   = min(latest - retain_min + 1, smallest next snapshot of a consumer, earliest + limit)
    for id in [start, end): if snapshot id + 1 is not older than the time retained: end = id, stop
    expire [earliest, end), nothing if end <= earliest

A snapshot may go only when its *successor* has lived longer than the time retained: a reader that opened it just
before the successor came has had that long. Source: FORMAT.md §12.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from freshet.storage.exceptions import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history stays. `retain_max` None is unlimited; `limit` bounds one round, None is unbounded."""

    retain_min: int
    retain_max: int | None
    time_retained_ms: int
    limit: int | None

    def __post_init__(self) -> None:
        check_whole(self.retain_min, self.retain_max, self.time_retained_ms, self.limit)
        if self.time_retained_ms < 0:
            raise InvalidRequestError(
                f"the age of snapshots to retain must be 0 ms or more, not {self.time_retained_ms}"
            )
        if self.retain_min < 1:
            raise InvalidRequestError(f"snapshots to retain at least must be 1 or more, not {self.retain_min}")
        if self.retain_max is not None and self.retain_max < self.retain_min:
            raise InvalidRequestError(
                f"snapshots to retain at most ({self.retain_max}) must not be less than at least ({self.retain_min}); "
                "see snapshot.num-retained.max and snapshot.num-retained.min"
            )
        if self.limit is not None and self.limit < 1:
            raise InvalidRequestError(f"the limit of snapshots to expire at once must be 1 or more, not {self.limit}")


def check_whole(*values: int | None) -> None:
    """Refuses what is not a whole number, before anything is compared with it."""
    for value in values:
        if value is not None and not isinstance(value, int):
            raise InvalidRequestError(f"snapshots and ages to retain are whole numbers, not {value!r}")


def bounds(retention: Retention, *, earliest: int, latest: int, consumer_next: int | None) -> tuple[int, int]:
    """`start` and `end` of the module, the end as far as times allow."""
    start = earliest if retention.retain_max is None else max(latest - retention.retain_max + 1, earliest)
    end = latest - retention.retain_min + 1
    if consumer_next is not None:
        end = min(end, consumer_next)
    if retention.limit is not None:
        end = min(end, earliest + retention.limit)
    return start, end


def expire_end(
    retention: Retention,
    *,
    earliest: int,
    latest: int,
    now_ms: int,
    consumer_next: int | None,
    time_of: Callable[[int], int | None],
) -> int:
    """End (exclusive) of the ids to expire; `earliest` or less when nothing may go.

    `time_of(id)` is the time of a snapshot, None when its file is gone (another process expires, too).
    """
    start, end = bounds(retention, earliest=earliest, latest=latest, consumer_next=consumer_next)
    for snapshot_id in range(start, end):
        successor_time_ms = time_of(snapshot_id + 1)
        if successor_time_ms is not None and successor_time_ms >= now_ms - retention.time_retained_ms:
            return snapshot_id
    return end
