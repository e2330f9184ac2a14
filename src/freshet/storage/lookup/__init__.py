"""Stored rows by key: keys in, the rows that stand (or their absence) out."""
