"""Which databases and tables there are, where they lie, and how a schema and a snapshot of one come to be."""
