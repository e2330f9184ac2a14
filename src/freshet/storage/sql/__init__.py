"""SQL statements, in Spark's dialect, carried out by the verbs of catalogs and tables."""
