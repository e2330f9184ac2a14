"""A query's batches, exactly once: what the driver does, what runs in a worker, and what travels between them."""
