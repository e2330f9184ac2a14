"""The Kafka log of a table: changes before their commit. Nothing is here yet; see README.md for what will be."""

from freshet._distribution import check_front_door

check_front_door()
