"""What Apache Paimon itself (JVM) reads of tables, for comparison; `PaimonReader.java` runs as a single source file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from freshet.jobs.demo.child_process import start_child, stop_child, tail
from freshet.pipeline.spark.jars import ensure_jars, java_command, pyspark_jars
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table

PAIMON_GROUP: Final = "paimon"
SOURCE: Final = Path(__file__).with_name("PaimonReader.java")
JVM_OPTIONS: Final = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")
LIMIT_S: Final = 300.0


def read_by_paimon(requests: Sequence[tuple[Literal["rows", "changes"], Table]]) -> list[pa.Table]:
    """For each request the merged rows of a table, or its changelog with the columns of `Table.changelog`."""
    jars = [
        *ensure_jars(PAIMON_GROUP),
        *pyspark_jars("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "lz4-java", "snappy-java"),
    ]
    with tempfile.TemporaryDirectory(prefix="freshet-paimon-") as scratch:
        log_file = Path(scratch) / "log"
        files = [Path(scratch) / f"{number}.parquet" for number in range(len(requests))]
        class_path = os.pathsep.join(map(str, jars))
        command = [java_command(), *JVM_OPTIONS, f"-Djava.io.tmpdir={scratch}", "-cp", class_path, str(SOURCE)]
        for (what, table), file in zip(requests, files, strict=True):
            command += [what, table.location, str(file)]
        with log_file.open("wb") as log:
            child = start_child(command, log=log)
            try:
                code = child.wait(LIMIT_S)
            finally:
                stop_child(child)
        if code:
            raise RuntimeError(f"Apache Paimon could not read the tables (exit code {code}):\n{tail(log_file)}")
        return [_with_our_kind(pq.read_table(file)) for file in files]


def _with_our_kind(rows: pa.Table) -> pa.Table:
    return rows.rename_columns([ROW_KIND_COLUMN if name == "rowkind" else name for name in rows.column_names])
