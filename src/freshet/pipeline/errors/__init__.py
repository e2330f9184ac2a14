"""Of which kind an error is, and how it travels from Spark's workers to the terminal."""
