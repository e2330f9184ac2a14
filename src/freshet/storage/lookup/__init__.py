"""Stored rows by key: keys in, the stored rows (or their absence) out."""
