"""Data files: their formats (Parquet, ORC, Avro), their readers and writers."""
