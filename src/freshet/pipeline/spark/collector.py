"""Which garbage collector the JVMs that we start have: the parallel one, unless another is named.

What stays fills half of Spark's default heap of 1 GB, so that G1 marks it again and again while the job runs, on cores
that the job needs: 4 of 28 µs of processor time per record with the schema next to the payload, 3 of 27 µs with
expressions in `select`. The parallel collector stops the job instead, 1 µs per record, some milliseconds at a time
(300 K records of 10 columns, two cores, medians of three runs). A service with a large heap, where a full collection
takes long, names G1 in `spark.driver.defaultJavaOptions`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

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
