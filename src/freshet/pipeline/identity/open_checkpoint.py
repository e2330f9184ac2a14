"""Opens the folder of a checkpoint wherever it lies; needs a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, as_folder
from freshet.pipeline.spark.hadoop_folder import HadoopFolder


def open_checkpoint(spark: SparkSession, checkpoint: str) -> CheckpointFolder:
    """The folder of a path or URI, through Spark's file systems where it is not on a local disk.

    Raises `OSError` where Spark has no file system for it.
    """
    return as_folder(checkpoint) or HadoopFolder(spark, checkpoint)
