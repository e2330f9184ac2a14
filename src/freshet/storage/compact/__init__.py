"""Compaction: which files to merge (pure), and merging them."""
