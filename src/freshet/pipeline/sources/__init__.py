"""From what a pipeline reads to frames: records, outcomes, `select`, the changes of tables."""
