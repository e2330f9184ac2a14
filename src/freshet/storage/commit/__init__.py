"""Making changes visible, exactly once, and taking away what nothing names any more."""
