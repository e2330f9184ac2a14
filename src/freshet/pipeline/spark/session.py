"""Spark sessions as Freshet starts them: one per process, quiet, with a low floor for small micro-batches.

A user's own session is used as it is; these settings belong to sessions that the command line, the jobs and the tests
create. Whatever the caller sets wins. Floor of a micro-batch of 1000 rows and two buckets, two cores: 196-231 ms with
Spark's defaults, 127 ms with these.

| setting | why | what it costs |
|---|---|---|
| `checkpointFileManagerClass` = FileSystemBased… | 44-60 ms per batch | only local checkpoints: a weaker rename |
| `adaptive.enabled` = false | a micro-batch stays one job; 15-25 ms per batch | a user's own joins are not re-planned |
| `unix.domain.socket.enabled` = true | Arrow to the Python workers without TCP | |
| `session.timeZone` = UTC | texts without a zone mean the same on every machine | |
| `-XX:SharedArchiveFile` | a third less work at the start of the JVM, see `java_process` | `freshet prepare` |
| `python.daemon.module` | no traceback at the end of a good run, see `worker_daemon` | |
| `ui.explainMode`, `maxPlanStringLength` | Spark writes down each plan: 20 % of planning in one run | short plans |
| `shuffle.partitions` = cores | Spark's 200 empty tasks cost more than a small batch | set it to the cluster's cores |

Which garbage collector the JVMs that we start have: the parallel one, unless another is named.

What stays fills half of Spark's default heap of 1 GB, so that G1 marks it again and again while the job runs, on cores
that the job needs: 4 of 28 µs of processor time per record with the schema next to the payload, 3 of 27 µs with
expressions in `select`. The parallel collector stops the job instead, 1 µs per record, some milliseconds at a time
(300 K records of 10 columns, two cores, medians of three runs). A service with a large heap, where a full collection
takes long, names G1 in `spark.driver.defaultJavaOptions`.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.spark import worker_daemon
from freshet.pipeline.spark.jars import java_problem
from freshet.pipeline.spark.java_process import JavaDiedError, archive_option, java_death, quiet_java, stop_session
from freshet.pipeline.spark.worker_python import IMPORT_ROOT, use_own_python

LOGGING_OPTION: Final = f"-Dlog4j2.configurationFile={Path(__file__).resolve().with_name('log4j2.properties').as_uri()}"
"""For the JVM: what of Spark's logging is shown."""
_FORKS: Final = "-Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""
"""For the JVM: Hadoop runs `chmod` for each local file that it makes, eight times for a micro-batch, and waits for it.
Without the helper program that Java else starts in between, each takes a quarter less."""

_LOCAL_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# Debugging: PySpark hands the JVM the line of Python that each function was called from, in half of all calls (4,200
# instead of 9,700 where `select` has five expressions). Our messages name the entry of the pipeline file instead.
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "4000",
}
DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
SHORT_LIVED: Final[Mapping[str, str]] = {DEFAULT_OPTIONS: "-XX:TieredStopAtLevel=1"}
"""For sessions of some minutes (demos, tests): the JVM's second compiler takes more CPU than it gives back there; three
queries of a minute took 65 s of CPU instead of 122 s. A service that runs for days wants it."""

_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": _LOCAL_CHECKPOINTS,
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}

_NAMED: Final = re.compile(r"-XX:[+-]Use\w+GC\b")
_ELSEWHERE: Final = re.compile(r"(?:^|\s)@\S|-XX:(?:Flags|VMOptionsFile)=|--properties-file\b")
"""Options that are read from a file, which may name a collector as well."""
_VARIABLES: Final = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
_FILES: Final = ("spark-defaults.conf", "java-opts", "spark-env.sh")
"""Of Spark's folder of settings: those from which `spark-submit` takes options of the JVM."""


class SessionRefusedError(ConfigurationError):
    """Spark does not start with these settings; `cause` says why, in one line."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"Spark does not start: {cause}")
        self.cause = cause


def create_session(
    name: str,
    *,
    settings: Mapping[str, str] | None = None,
    jars: Sequence[Path] = (),
    master: str | None = None,
) -> SparkSession:
    """Starts a session, or returns the one that runs (with `settings` applied as far as Spark allows).

    `master` is used where neither `settings` nor spark-submit names one; its default is `local[*]`. `jars` are added
    to whatever `spark.jars` says. Raises `SessionRefusedError` where Spark does not start with these settings.
    """
    wanted = dict(settings or {})
    submitted = submitted_settings()
    master = wanted.pop("spark.master", None) or submitted.get("spark.master") or master or "local[*]"
    is_local = master.startswith("local")
    defaults = {**_SETTINGS, **(_LOCAL_SETTINGS if is_local else {})}
    builder = SparkSession.builder.master(master).appName(name)
    given = {**submitted, **wanted}
    own = settings_of_this_machine(given) if is_local else {}
    options = {JAVA_OPTIONS: own[JAVA_OPTIONS]} if is_local and not submitted else {}
    for key, value in {**defaults, **own, **given, **options}.items():
        builder = builder.config(key, value)
    all_jars = [*_listed(wanted.get("spark.jars", submitted.get("spark.jars", ""))), *(str(jar) for jar in jars)]
    if all_jars:
        builder = builder.config("spark.jars", ",".join(dict.fromkeys(all_jars)))
    if is_local:
        use_own_python(wanted.get("spark.pyspark.python", submitted.get("spark.pyspark.python")))
    _silence_python_side()
    try:
        with _children_without_sigterm(), quiet_java():
            spark = builder.getOrCreate()
        classic: Any = spark
        classic._jsparkSession.sessionState()  # reads the settings of SQL, which a session else does when first used
    except (PySparkException, Py4JJavaError) as error:
        raise SessionRefusedError(_cause(error)) from error
    spark.sparkContext.setLogLevel(submitted.get("spark.log.level", "ERROR"))
    _silence_lost_connections(spark.sparkContext)
    return spark


@contextmanager
def session_of_a_command(
    name: str, *, settings: Mapping[str, str] | None = None, jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session for as long as a command runs. One that runs already is used as it is, and goes on afterwards."""
    is_own = SparkContext._active_spark_context is None
    spark = create_session(name, settings=settings if is_own else None, jars=jars if is_own else ())
    try:
        yield spark
    except Exception as error:
        death = None if isinstance(error, JavaDiedError) else java_death(error)
        if death is None:
            raise
        raise JavaDiedError(death) from error
    finally:
        if is_own:
            stop_session(spark)


@contextmanager
def _children_without_sigterm() -> Iterator[None]:
    """The JVM that starts within does not end by SIGTERM: stopping a service sends it to all of its processes, and
    the batch that runs could not be finished without a JVM. It ends with this process, whose end it notices.

    A signal that is ignored when a JVM starts stays ignored. Signals can be set in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def settings_of_this_machine(others: Mapping[str, str]) -> dict[str, str]:
    """Where workers find this code, and the JVM's options: for sessions that have the driver's files at hand.

    Options that are given for the JVM come after ours: of two for one thing, a JVM takes the last.
    """
    path = os.pathsep.join(
        dict.fromkeys([str(IMPORT_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    ).strip(":")
    given = others.get(JAVA_OPTIONS, "")
    collector = collector_option([others.get(DEFAULT_OPTIONS, ""), given])
    options = (LOGGING_OPTION, collector, archive_option(), _FORKS, given)
    return {
        "spark.executorEnv.PYTHONPATH": path,
        "spark.python.daemon.module": worker_daemon.__name__,
        JAVA_OPTIONS: " ".join(filter(None, options)),
    }


def submitted_settings() -> dict[str, str]:
    """The settings of spark-submit, none where the program was started otherwise.

    spark-submit has started the JVM already, so its settings are there to be asked for.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _cause(error: PySparkException | Py4JJavaError) -> str:
    """The innermost exception of the JVM that says something; without one, the JVM itself has not started."""
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        return java_problem() or "its Java process ended at once; what it said is above"
    text = str(error).strip() if isinstance(error, PySparkException) else ""
    thrown: Any = getattr(error, "_origin", None) if isinstance(error, PySparkException) else error.java_exception
    while thrown is not None:
        text = str(thrown.getMessage() or text).strip()
        thrown = thrown.getCause()
    return text.splitlines()[0] if text else type(error).__name__


def _listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _silence_python_side() -> None:
    """PySpark logs every failed call as one JSON line with the whole Java trace; the error itself says it better."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)


def _silence_lost_connections(context: SparkContext) -> None:
    """Where the Java process dies, py4j and PySpark print a traceback for each connection; what happened is said once.

    py4j logs it with the root logger; PySpark's server of accumulators has no other errors than this.
    """
    root = logging.getLogger()
    if _is_no_lost_connection not in root.filters:
        root.addFilter(_is_no_lost_connection)
    server: Any = context._accumulatorServer
    server.handle_error = lambda request, address: None


def _is_no_lost_connection(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def collector_option(options: Iterable[str]) -> str:
    """The option for a JVM with these options besides; empty where they, the environment or Spark's own files of
    settings name a collector, or refer to a file that may: a JVM with two does not start."""
    texts = (*options, *_texts())
    return "" if any(_NAMED.search(text) or _ELSEWHERE.search(text) for text in texts) else "-XX:+UseParallelGC"


def _texts() -> Iterator[str]:
    yield from (os.environ.get(name, "") for name in _VARIABLES)
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    for name in _FILES:
        if (folder / name).is_file():
            yield (folder / name).read_text(encoding="utf-8", errors="replace")
