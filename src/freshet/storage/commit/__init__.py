"""Making changes visible, exactly once."""
