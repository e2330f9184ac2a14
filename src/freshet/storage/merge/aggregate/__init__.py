"""Aggregate functions: what becomes of one column when the rows of a key are merged."""
