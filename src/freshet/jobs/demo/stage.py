"""What the demos share: their pipeline files, a folder for all they write, titles, an end upon Ctrl-C, and what Apache
Paimon itself (JVM) reads of the tables, for comparison; `PaimonReader.java` runs as a single source file.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from freshet.jobs.demo.child_process import start_child, stop_child, tail
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.jars import ensure_jars, java_command, pyspark_jars
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table

PIPELINES: Final = Path(__file__).with_name("pipelines")
OUTPUT: Final = Path("demo-output")
"""Below the current folder; each demo has a folder in it."""

_MARK: Final = ".freshet-demo"
"""This file says that a folder is a demo's own, which the next run may empty."""

EXIT_INTERRUPTED: Final = 130
"""As shells have it for Ctrl-C: nothing was compared, so nothing is known to be equal."""

_PAIMON_GROUP: Final = "paimon"
_SOURCE: Final = Path(__file__).with_name("PaimonReader.java")
_JVM_OPTIONS: Final = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")
_LIMIT_S: Final = 300.0


def play(demo: Callable[[Path], int], output: Path | None, default: str) -> int:
    """Plays a demo in the folder `output`, or `default` below `OUTPUT`; returns its exit code."""
    folder = _empty_folder(output, OUTPUT / default)
    ensure_jars(_PAIMON_GROUP)  # it is needed last, too late to find that it cannot be fetched
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return demo(folder)
    except KeyboardInterrupt:
        print("\ninterrupted before the tables were compared; nothing is left running")
        return EXIT_INTERRUPTED


def headline(text: str) -> None:
    """Begins a part."""
    print(f"\n{text}", flush=True)


def _empty_folder(given: Path | None, default: Path) -> Path:
    folder = (given or default).absolute()
    if given is None and (folder / _MARK).is_file():
        shutil.rmtree(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequestError(
            f"{folder} is there already{'' if given else ' and no demo has made it'}; remove it, or name a new folder "
            "with --output"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def read_by_paimon(requests: Sequence[tuple[Literal["rows", "changes"], Table]]) -> list[pa.Table]:
    """For each request the merged rows of a table, or its changelog with the columns of `Table.changelog`."""
    jars = [
        *ensure_jars(_PAIMON_GROUP),
        *pyspark_jars("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "lz4-java", "snappy-java"),
    ]
    with tempfile.TemporaryDirectory(prefix="freshet-paimon-") as scratch:
        log_file = Path(scratch) / "log"
        files = [Path(scratch) / f"{number}.parquet" for number in range(len(requests))]
        class_path = os.pathsep.join(map(str, jars))
        command = [java_command(), *_JVM_OPTIONS, f"-Djava.io.tmpdir={scratch}", "-cp", class_path, str(_SOURCE)]
        for (what, table), file in zip(requests, files, strict=True):
            command += [what, table.location, str(file)]
        with log_file.open("wb") as log:
            child = start_child(command, log=log)
            try:
                code = child.wait(_LIMIT_S)
            finally:
                stop_child(child)
        if code:
            raise RuntimeError(f"Apache Paimon could not read the tables (exit code {code}):\n{tail(log_file)}")
        return [_with_our_kind(pq.read_table(file)) for file in files]


def _with_our_kind(rows: pa.Table) -> pa.Table:
    return rows.rename_columns([ROW_KIND_COLUMN if name == "rowkind" else name for name in rows.column_names])
