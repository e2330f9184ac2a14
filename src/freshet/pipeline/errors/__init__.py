"""The kind of an error, and how it travels from Spark's workers to the terminal."""
