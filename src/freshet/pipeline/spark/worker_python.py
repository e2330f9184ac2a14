"""Which interpreter runs Spark's Python workers.

Spark takes the first `python3` of PATH, whatever interpreter the program runs in: a script started as
`/venv/bin/python script.py` would get workers without its packages, or of another version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from freshet.pipeline.exceptions import InvalidRequestError

PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"
IMPORT_ROOT: Final = Path(__file__).resolve().parents[3]
"""The folder that workers must find on their path: `src` of a checkout, or site-packages."""

_CHOSEN: Final = "spark.pyspark.python"
_SHIPPED: Final = ("spark.submit.pyFiles", "spark.archives")
_ANSWER_S: Final = 60.0

WORKER_FAILURE: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|No module named|ImportError|Cannot run program|bad magic number|"
    r"reading the port number"
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


def is_connect(session: object) -> bool:
    """Whether a session, or a frame of one, is of Spark Connect: it has no JVM here, and no context."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def settle_python(session: SparkSession) -> None:
    """Makes the workers of a local session run the interpreter of this program, where nobody has chosen another one.

    Raises `InvalidRequestError` where one was chosen that cannot load Freshet.
    """
    context: Any = session.sparkContext
    worker, conf = context.pythonExec, context.getConf()
    if not str(context.master).startswith("local") or same_environment(worker, sys.executable):
        return
    if not os.environ.get(PYTHON_VARIABLE) and not conf.contains(_CHOSEN):
        context.pythonExec = sys.executable
        known = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(IMPORT_ROOT), *known])).strip(os.pathsep)
        return
    failure = None if any(conf.get(key, "") for key in _SHIPPED) else _failure_of(worker)
    if failure is not None:
        raise InvalidRequestError(
            f"Spark's workers run {shutil.which(worker) or worker}, which cannot load Freshet ({failure}): set "
            f"{PYTHON_VARIABLE}={sys.executable} before the session starts"
        )


@lru_cache(8)
def _failure_of(worker: str) -> str | None:
    """Why an interpreter does not load this package; None where it does."""
    try:
        done = subprocess.run(
            [worker, "-c", "import freshet"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines()
    return None if not done.returncode else said[-1] if said else f"it ends with exit status {done.returncode}"


def use_own_python(chosen: str | None) -> None:
    """Makes the workers of a local session run in `chosen`, or else in this program's interpreter.

    Spark reads it when the session starts.
    """
    os.environ[PYTHON_VARIABLE] = chosen or sys.executable
