"""Following a table by its snapshots and its log: positions, decisions, rows."""
