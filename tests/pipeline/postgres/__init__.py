"""Tests of PostgreSQL as a source."""
