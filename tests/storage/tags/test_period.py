"""Names of automatic tags, and the clocks of time zones."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.time_zones import Zone
from freshet.storage.tags.rule import TagPeriod, tag_period


def period(**options: str) -> TagPeriod:
    return tag_period(
        CoreOptions.parse({f"tag.{key.replace('_', '-')}": each for key, each in options.items()}, has_primary_key=True)
    )


def ms(*fields: int) -> int:
    return int(datetime(*fields, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("options", "name", "begin"),
    [
        ({}, "2026-03-01", (2026, 3, 1)),
        ({"period_formatter": "without_dashes"}, "20260301", (2026, 3, 1)),
        ({"period_formatter": "without_dashes_and_spaces"}, "20260301", (2026, 3, 1)),
        ({"creation_period": "hourly"}, "2026-03-01 09", (2026, 3, 1, 9)),
        ({"creation_period": "hourly", "period_formatter": "without_dashes"}, "20260301 09", (2026, 3, 1, 9)),
        ({"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"}, "2026030109", (2026, 3, 1, 9)),
        ({"creation_period": "two-hours"}, "2026-03-01 08", (2026, 3, 1, 8)),
        ({"creation_period": "two-hours", "period_formatter": "without_dashes"}, "2026-03-01 08", (2026, 3, 1, 8)),
        ({"creation_period_duration": "30 min"}, "202603010930", (2026, 3, 1, 9, 30)),
    ],
)
def test_names(options: dict[str, str], name: str, begin: tuple[int, ...]) -> None:
    found = period(**options)
    assert found.name(ms(*begin)) == name
    assert found.begin_ms(name) == ms(*begin)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "2026-02-30"),
        ({}, "2026-3-1"),
        ({}, "20260301"),
        ({}, "monday"),
        ({}, " 2026-03-01"),
        ({"creation_period": "hourly"}, "2026-03-01"),
        ({"creation_period": "hourly"}, "2026-03-01 24"),
        ({"creation_period": "hourly"}, "2026-03-01 09 "),
        ({"creation_period_duration": "30 min"}, "20260301093"),
        ({}, "２０２６-03-01"),
    ],
)
def test_names_of_people(options: dict[str, str], name: str) -> None:
    assert period(**options).begin_ms(name) is None


def test_what_follows_a_daily_name_does_not_count() -> None:
    assert period().begin_ms("2026-03-01 09") == ms(2026, 3, 1)


def test_the_period_before() -> None:
    assert period().before_ms(ms(2026, 3, 1)) == ms(2026, 2, 28)
    assert period().before_ms(ms(2026, 3, 1) - 1) == ms(2026, 2, 27)
    assert period(creation_period="two-hours").before_ms(ms(2026, 3, 1, 9, 59)) == ms(2026, 3, 1, 6)


@pytest.mark.parametrize(
    ("name", "hours"),
    [("UTC", 0), ("Z", 0), ("GMT-08:00", -8), ("+8", 8), ("UTC+0530", 5.5), ("-01:30", -1.5), ("Europe/Berlin", 1)],
)
def test_zones(name: str, hours: float) -> None:
    winter = ms(2026, 1, 15, 12)
    assert Zone(name).wall_ms(winter) == winter + int(hours * 3_600_000)


@pytest.mark.parametrize("name", ["Atlantis/Capital", "", "GMT+99", "../etc/passwd"])
def test_no_zone(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="sink.process-time-zone"):
        Zone(name, "sink.process-time-zone").check()


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_no_earlier_instant_shows_as_late_a_time(name: str) -> None:
    zone, chance = Zone(name), random.Random(name)
    begins = [
        ms(2026, 3, 8, 6),
        ms(2026, 3, 29),
        ms(2026, 10, 25),
        ms(2026, 11, 1, 5),
        ms(2026, 4, 4, 14),
        ms(2026, 10, 3, 15),
    ]
    for begin in begins:
        for wall in (zone.wall_ms(begin + chance.randrange(-6 * 3600, 6 * 3600) * 1000) for _ in range(20)):
            earliest = zone.earliest_instant_ms(wall)
            assert all(zone.wall_ms(earliest - step * 600_000 - 1) < wall for step in range(60))
            shown = datetime.fromtimestamp(earliest / 1000, ZoneInfo(name))
            assert zone.wall_ms(earliest) == int(shown.replace(tzinfo=UTC).timestamp() * 1000)
