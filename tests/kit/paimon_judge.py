"""Apache Paimon itself (JVM) as a judge: creates, writes, compacts, reads and alters tables for the tests.

A `PaimonJudge` is a long-lived child process (`PaimonJudge.java`, run as a single source file) that speaks JSON lines;
rows travel as Arrow buffers in files (`columns_file`). One judge serves one request at a time; tests of concurrent
writers start several. An exception of the JVM arrives as a `PaimonError` with its Java class, message and stack.

    with PaimonJudge.start() as paimon:
        table = paimon.create_table(folder, {"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": 1})
        table.write([(1, "a"), (2, "b")])
        table.write([("-D", 1, "a")], compact="full")
        assert table.read_rows() == [(2, "b")]
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.pipeline.spark.jars import ensure_jars, java_command, pyspark_jars
from tests.kit.columns_file import read_columns, write_columns
from tests.kit.judge_process import JudgeProcess
from tests.kit.paimon_changes import option_texts
from tests.kit.paimon_table import PaimonTable, rows_and_kinds
from tests.kit.paimon_types import TypeJson, arrow_schema, arrow_type, type_json, type_of_arrow

SOURCE = Path(__file__).with_name("PaimonJudge.java")
JVM_OPTIONS = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")
"""Without the JVM's second compiler, which took half of the judge's CPU."""


class PaimonError(Exception):
    """What Paimon threw: `java_class`, `message`, `stack`, and `causes` (class and message each, outermost first)."""

    def __init__(self, java_class: str, message: str, stack: str, causes: Sequence[str]) -> None:
        super().__init__(f"{java_class}: {message}" + "".join(f"\n  caused by {cause}" for cause in causes))
        self.java_class = java_class
        self.message = message
        self.stack = stack
        self.causes = tuple(causes)


class PaimonJudge:
    """The child process. Use `start`, close when done."""

    def __init__(self, process: JudgeProcess) -> None:
        self._process = process

    @classmethod
    @contextlib.contextmanager
    def start(cls, *, jvm_options: Sequence[str] = JVM_OPTIONS, more_jars: Sequence[str] = ()) -> Iterator[PaimonJudge]:
        """Starts the JVM (about two seconds) and ends it when the block ends; `more_jars` are groups of `jars.toml`."""
        jars = [
            *(jar for group in ("paimon", *more_jars) for jar in ensure_jars(group)),
            *pyspark_jars("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "lz4-java", "snappy-java"),
        ]
        command = [java_command(), *jvm_options, "-cp", ":".join(map(str, jars)), SOURCE]
        with JudgeProcess.start("paimon", command) as process:
            yield cls(process)

    @property
    def pid(self) -> int:
        """The process id of the JVM, for tests that kill it."""
        return self._process.child.pid

    def call(self, op: str, **arguments: Any) -> Any:
        """One request to the child; arguments that are None are left out."""
        request = {"op": op, **{name: value for name, value in arguments.items() if value is not None}}
        answer = self._process.answer(request)
        if error := answer.get("error"):
            raise PaimonError(error["class"], error["message"], error["stack"], error["causes"])
        return answer["ok"]

    def create_table(
        self,
        location: str | Path,
        columns: Mapping[str, TypeJson] | pa.Schema,
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        comment: str = "",
        exclusive: bool = False,
    ) -> PaimonTable:
        """Creates a table; `columns` are Paimon types by name, or an Arrow schema."""
        if isinstance(columns, pa.Schema):
            columns = {field.name: type_of_arrow(field.type, nullable=field.nullable) for field in columns}
        self.call(
            "create_table",
            table=str(location),
            fields=[{"name": name, "type": type_json(of)} for name, of in columns.items()],
            primary_keys=list(primary_keys),
            partition_keys=list(partition_keys),
            options=option_texts(options or {}),
            comment=comment,
            exclusive=exclusive,
        )
        return self.table(location, exclusive=exclusive)

    def table(
        self,
        location: str | Path,
        *,
        options: Mapping[str, Any] | None = None,
        branch: str | None = None,
        exclusive: bool = False,
    ) -> PaimonTable:
        """A table in a folder. `exclusive` commits through hard links, needed where other processes commit too."""
        return PaimonTable(self, str(location), option_texts(options or {}), branch, exclusive)

    def binary_rows(self, types: Sequence[TypeJson], rows: Sequence[Sequence[Any]] | pa.Table) -> list[BinaryRowFacts]:
        """What Paimon makes of rows of these types: serialized bytes (arity first, big-endian) and hash code."""
        fields = [pa.field(f"f{index}", arrow_type(type_json(of))) for index, of in enumerate(types)]
        if not isinstance(rows, pa.Table):
            rows = rows_and_kinds([tuple(row) for row in rows], pa.schema(fields))[0]
        with self.columns_file(rows) as path:
            answer = self.call("binary_rows", types=[type_json(of) for of in types], rows=path)
        return [BinaryRowFacts(base64.b64decode(row["bytes"]), row["hash"]) for row in answer]

    def cast(self, values: pa.Array, from_type: TypeJson, to_type: TypeJson) -> tuple[pa.Array, dict[int, str]]:
        """Paimon's cast of values to another type, and what it threw, by index (the value is NULL there)."""
        with self.columns_file(pa.table({"f0": values.cast(arrow_type(type_json(from_type)))})) as path:
            answer = self.call("cast", rows=path, **{"from": type_json(from_type), "to": type_json(to_type)})
        refused = {int(index): error for index, error in answer["refused"].items()}
        return self.take_rows(answer)[0].column(0).combine_chunks(), refused

    def core_options(self) -> dict[str, list[str]]:
        """The keys of all options of Paimon's `CoreOptions`, each with its former names."""
        options: dict[str, list[str]] = self.call("core_options")
        return options

    def make_sketches(self, kind: str, members: Sequence[Sequence[int]]) -> list[bytes]:
        """Bitmaps or sketches (rbm32, rbm64, hll_sketch, theta_sketch) of these numbers, as a column holds them."""
        made = self.call("make_sketches", kind=kind, members=[list(one) for one in members])
        return [base64.b64decode(value) for value in made]

    def read_sketches(self, kind: str, values: Sequence[bytes]) -> list[list[str]]:
        """What they hold, as texts: members of bitmaps, hashes of theta sketches, precision and estimate of HLLs."""
        encoded = [base64.b64encode(value).decode() for value in values]
        held: list[list[str]] = self.call("read_sketches", kind=kind, values=encoded)
        return held

    @contextlib.contextmanager
    def columns_file(self, table: pa.Table, kinds: np.ndarray | None = None) -> Iterator[str]:
        """Rows on their way to the child."""
        path = self._process.scratch / f"{uuid.uuid4()}.columns"
        write_columns(path, table, kinds)
        try:
            yield str(path)
        finally:
            path.unlink()

    def take_rows(self, answer: Mapping[str, Any]) -> tuple[pa.Table, np.ndarray]:
        """Rows that the child left, and their kinds; the file is gone afterwards."""
        path = Path(answer["file"])
        try:
            return read_columns(path, arrow_schema(answer["fields"]))
        finally:
            path.unlink()


@dataclass(frozen=True, slots=True)
class BinaryRowFacts:
    """A row as Paimon serializes and hashes it."""

    data: bytes
    hash_code: int
