"""Pipelines, on Spark or without it: sources, decoders, micro-batches, the command line."""

from freshet._distribution import check_front_door

check_front_door()
