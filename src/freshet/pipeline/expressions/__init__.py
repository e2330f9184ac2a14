"""Spark SQL expressions that DuckDB computes over Arrow exactly as Spark does; all others stay Spark's."""
