"""A PostgreSQL server as a source: what its logical decoding sends, read as columns."""
