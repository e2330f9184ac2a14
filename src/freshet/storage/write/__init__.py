"""Rows into files: routing to buckets, buffering, flushing, compacting, and the commit messages of it all."""
