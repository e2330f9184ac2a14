"""Which interpreter runs Spark's Python workers.

Spark takes the first `python3` of PATH, whatever interpreter the program runs in: a script started as
`/venv/bin/python script.py` would get workers without its packages, or of another version.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

WORKER_FAILURE: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|No module named|ImportError|Cannot run program|bad magic number"
)
"""Texts of errors that another interpreter of the workers brings about."""


def same_environment(worker: str, own: str) -> bool:
    """True when both names are interpreters of one folder; links are not followed, as a venv is made of links."""
    found = shutil.which(worker)
    return found is not None and Path(found).absolute().parent == Path(own).absolute().parent


def other_python_hint(spark: SparkSession) -> str:
    """A sentence for errors of workers where they run in another Python than this program; else an empty text."""
    context = spark.sparkContext
    worker = context.pythonExec
    if not str(context.master).startswith("local") or same_environment(worker, sys.executable):
        return ""
    return (
        f" (Spark's workers run {shutil.which(worker) or worker}, this program runs {sys.executable}: set "
        f"{PYTHON_VARIABLE}={sys.executable} before the session starts)"
    )


def use_own_python(chosen: str | None) -> None:
    """Makes the workers of a local session run in `chosen`, or else in this program's interpreter.

    Spark reads it when the session starts.
    """
    os.environ[PYTHON_VARIABLE] = chosen or sys.executable
