"""Java's class-data archive of Spark: a JVM that we start maps one file instead of reading its classes from 300 jars.

`freshet prepare` makes it once per machine or image (`prepare_machine`). The file's name says for which Java and which
jars it was made, and it gets that name when it is complete. A JVM whose class path is another one ignores it and says
nothing. Below spark-submit the JVM runs already: there it is not used.

`freshet run` of 100 records on two cores: 33 s of the JVM's processor time without the archive, 23 s with it; 1 M
records, from process start to exit: 57 s without, 48 s with it (medians of two and three, other work went on).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from freshet.pipeline.spark.jars import JarError, cache_folder, java_command

_QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


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
    words = [str(java), _text(java.parents[1] / "release"), str(jars)]
    with os.scandir(jars) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            facts = entry.stat()
            words.append(f"{entry.name} {facts.st_size} {facts.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return cache_folder().with_name("java-classes") / f"{digest[:32]}.jsa"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
