"""The only code that opens files: the file system, the Parquet files, and the stores of metadata files."""
