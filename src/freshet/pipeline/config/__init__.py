"""Pipeline files: their shape, their rules, how they are read."""
