"""Filters: a value compared with a column, the tree, the text that people write."""
