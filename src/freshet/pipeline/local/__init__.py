"""The engine without Spark: one driver, workers that are processes of this machine, and a checkpoint as Spark's."""
