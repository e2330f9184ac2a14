"""The Spark side of Freshet: sources, formats and transforms, micro-batches, the command line."""
