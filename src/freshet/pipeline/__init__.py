"""The Spark side of Freshet: sources, decoders, micro-batches, the command line."""

from freshet._distribution import check_front_door

check_front_door()
