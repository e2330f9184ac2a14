"""The expiry decision, cell by cell and against the sentence of the format, read literally."""

from __future__ import annotations

import pytest

from freshet.storage.cleaning.expiry_plan import Retention, expire_end
from freshet.storage.exceptions import InvalidRequestError

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS


def end(
    retention: Retention,
    *,
    earliest: int = 1,
    latest: int = 20,
    consumer_next: int | None = None,
    age_ms: int = HOUR_MS,
) -> int:
    """Every snapshot is `age_ms` old."""
    return expire_end(
        retention,
        earliest=earliest,
        latest=latest,
        now_ms=NOW_MS,
        consumer_next=consumer_next,
        time_of=lambda snapshot_id: NOW_MS - age_ms,
    )


def test_keeps_the_minimum() -> None:
    assert end(Retention(10, None, 0, None)) == 11
    assert end(Retention(1, None, 0, None)) == 20


def test_nothing_to_expire_when_too_few() -> None:
    assert end(Retention(10, None, 0, None), earliest=15) <= 15


def test_limit_bounds_one_round() -> None:
    assert end(Retention(1, None, 0, 5)) == 6


def test_consumer_protects_its_next_snapshot() -> None:
    assert end(Retention(1, None, 0, None), consumer_next=7) == 7


def test_young_successor_stops_the_round() -> None:
    times = {snapshot_id: NOW_MS - (20 - snapshot_id) * HOUR_MS for snapshot_id in range(1, 21)}
    found = expire_end(
        Retention(1, None, 5 * HOUR_MS, None),
        earliest=1,
        latest=20,
        now_ms=NOW_MS,
        consumer_next=None,
        time_of=times.get,
    )
    # The successor of 14 is 15, exactly five hours old, not older.
    assert found == 14


def test_maximum_beats_the_time() -> None:
    assert end(Retention(1, 5, HOUR_MS * 24, None)) == 16


def test_maximum_and_time_together() -> None:
    assert end(Retention(5, 8, HOUR_MS // 2, None)) == 16
    assert end(Retention(5, 8, HOUR_MS * 2, None)) == 13


def test_vanished_successor_does_not_stop_the_round() -> None:
    found = expire_end(
        Retention(1, None, HOUR_MS, None),
        earliest=1,
        latest=5,
        now_ms=NOW_MS,
        consumer_next=None,
        time_of=lambda snapshot_id: None,
    )
    assert found == 5


def test_nonsense_is_refused() -> None:
    for arguments in ((0, None, 0, None), (5, 4, 0, None), (1, None, 0, 0)):
        with pytest.raises(InvalidRequestError):
            Retention(*arguments)
