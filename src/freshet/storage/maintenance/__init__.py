"""Compaction of a whole table, also in the background of its streams, and sorting, with their commits."""
