"""Values of one type read as another: schema evolution."""
