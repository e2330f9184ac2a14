"""Reads what commits changed: which files hold it, their rows with kinds, and waiting for the next commit."""
