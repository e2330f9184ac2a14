"""Compaction of a whole table, beside its streams, and sorting, with the commits that belong to it."""
