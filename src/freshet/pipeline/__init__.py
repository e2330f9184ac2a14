"""The Spark side of Freshet: sources, decoders, micro-batches, the command line."""
