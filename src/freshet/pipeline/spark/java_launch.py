"""The JVM that we start, without the module that Spark asks for and Freshet does not use.

Spark's launcher adds `jdk.incubator.vector`, for machine learning, and the JVM warns of it in the first line that
people see; no option takes a module away again. So the launcher finds a `java` that leaves the option out and runs the
real one. Where that script cannot be written, the warning stays.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final
from uuid import uuid4

from pyspark import SparkContext

from freshet.pipeline.spark.jars import JarError, cache_folder, java_command

_HOME: Final = "JAVA_HOME"
_SCRIPT: Final = """#!/bin/sh
# The launcher of Spark, which begins with this java, is to end with it too.
case " $* " in *" org.apache.spark.launcher.Main "*) ;; *) {restore} ;; esac
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


@contextmanager
def quiet_java() -> Iterator[None]:
    """Around the start of a session: the JVM that starts within, if one does, prints no warning about modules."""
    before = os.environ.get(_HOME)
    home = _home() if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ else None
    if home is None:
        yield
        return
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_HOME]
        else:
            os.environ[_HOME] = before


def _home() -> Path | None:
    """A folder for JAVA_HOME, made where it is not there."""
    if sys.platform == "win32":
        return None
    given = os.environ.get(_HOME)
    try:
        restore = f"unset {_HOME}" if given is None else f"{_HOME}={quote(given)}"
        text = _SCRIPT.format(java=quote(java_command()), restore=restore)
        home = cache_folder().with_name("java-launch") / hashlib.sha256(text.encode()).hexdigest()[:16]
        script = home / "bin" / "java"
        if not script.is_file():
            script.parent.mkdir(parents=True, exist_ok=True)
            new = script.with_name(f".{uuid4()}")  # others start at this moment, too
            new.write_text(text)
            new.chmod(0o755)
            new.replace(script)
    except (JarError, OSError):
        return None  # without a Java Spark says so itself
    return home
