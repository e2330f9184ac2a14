"""The Java process that Spark runs in, and its end: reported as such, not as a connection that is refused.

| exit status of the process | what it means |
|---|---|
| 52, 3 | its heap was used up (`java.lang.OutOfMemoryError`); 3 with -XX:+ExitOnOutOfMemoryError |
| -9, 137 | killed: by the kernel or a container that ran out of memory, or by a person |
| any other | see what it said itself |

A program below spark-submit is a child of the Java process: it sees that there is no answer, and not why. There the
exit code is that of spark-submit, whatever this program says.

The JVM that we start goes without the module that Spark asks for and Freshet does not use.

Spark's launcher adds `jdk.incubator.vector`, for machine learning, and the JVM warns of it in the first line that
people see; no option takes a module away again. So the launcher finds a `java` that leaves the option out and runs the
real one. Where that script cannot be written, the warning stays.

With a class-data archive of Spark a JVM that we start maps one file instead of reading its classes from 300 jars.

`freshet prepare` makes it once per machine or image (`prepare_machine`). The file's name says for which Java and which
jars it was made, and it gets that name when it is complete. A JVM whose class path is another one ignores it and says
nothing. Below spark-submit the JVM runs already: there it is not used.

`freshet run` of 100 records on two cores: 33 s of the JVM's processor time without the archive, 23 s with it; 1 M
records, from process start to exit: 57 s without, 48 s with it (medians of two and three, other work went on).
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import HEAP, READ_LESS
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.spark.jars import JarError, cache_folder, java_command

HEAP_STATUS: Final = frozenset({52, 3})
_UNKNOWN: Final = -1000

GRACE_S: Final = 10.0
"""How long a process whose connections broke has to be gone."""

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

_QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


class JavaDiedError(PipelineFailedError):
    """The Java process is gone, and every query with it; `status` is its exit status, None where it is not known."""

    def __init__(self, status: int, *, is_worth_a_try: bool = False) -> None:
        """`is_worth_a_try`: the batches that ran are not the first of their queries since the start."""
        # A heap that was too small for a batch is too small for it after a restart too.
        may_pass = is_worth_a_try and status not in HEAP_STATUS
        super().__init__(_text(status), kind=ErrorKind.RETRYABLE if may_pass else ErrorKind.INTERNAL)
        self.status = None if status == _UNKNOWN else status


def java_death(error: BaseException) -> int | None:
    """The exit status of the Java process where its death may be the cause of an error; None where it lives."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return None
    is_bridge = isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError)
    if gateway.proc is not None:
        return _status(gateway.proc, GRACE_S if is_bridge else 0.0)
    return _UNKNOWN if is_bridge and not _answers(gateway.java_parameters.port) else None


def stop_session(spark: SparkSession) -> None:
    """Ends a session, also one whose Java process is gone."""
    gateway: Any = SparkContext._gateway
    try:
        spark.stop()
    except (Py4JError, ConnectionError) as error:
        if gateway is None or java_death(error) is None:
            raise


def _status(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), GRACE_S).close()
    except OSError:
        return False
    return True


def _text(status: int) -> str:
    if status in HEAP_STATUS:
        return (
            "Spark's Java process died: its heap was used up (java.lang.OutOfMemoryError). Nothing is lost, but the "
            f"same batch comes again: raise {HEAP}, or {READ_LESS}, then start again"
        )
    how = "" if status == _UNKNOWN else f" (exit status {status})" if status >= 0 else f" (killed by signal {-status})"
    return (
        f"Spark's Java process died{how}. Nothing is lost: what was not committed comes again at the next start. Where "
        "the kernel or the container killed it because memory ran out, give the machine or the container more, or "
        f"{READ_LESS}; where it said OutOfMemoryError itself, raise {HEAP}"
    )


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


def archive_option() -> str:
    """The options by which a JVM uses the archive; empty where there is none for this Java and these jars."""
    try:
        archive = archive_file()
    except JarError:
        return ""  # there is no Java: Spark reports that when it starts
    return f"{_QUIET} -XX:SharedArchiveFile={archive}" if archive.is_file() else ""


def archive_file() -> Path:
    """Where the archive for this Java and Spark's jars is or belongs. Raises `JarError` without a Java."""
    java = Path(java_command()).resolve()
    jars = Path(_find_spark_home()) / "jars"
    words = [str(java), _text_of_file(java.parents[1] / "release"), str(jars)]
    with os.scandir(jars) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            facts = entry.stat()
            words.append(f"{entry.name} {facts.st_size} {facts.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return cache_folder().with_name("java-classes") / f"{digest[:32]}.jsa"


def _text_of_file(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
