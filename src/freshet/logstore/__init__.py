"""The Kafka log of a table: changes before their commit. README.md has its rooms and invariants."""

from freshet._distribution import check_front_door

check_front_door()
