"""Reads what commits changed: which files tell it, their rows with kinds, and waiting for the next commit."""
