"""Which databases and tables there are, where they lie, and how the next schema and snapshot of one are claimed."""
