"""Logs of a table: who provides which, what a table asks of one and a log of its table."""
