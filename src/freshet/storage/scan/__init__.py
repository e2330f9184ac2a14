"""Plans what to read at a snapshot, and reads it."""
