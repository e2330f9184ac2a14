"""Pipelines that run: their queries, restarts, progress and end."""
