"""Rows as JSON, for consumers that know nothing of this library."""
