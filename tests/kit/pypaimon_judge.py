"""pypaimon as a second judge, in a process and an environment of its own (`make venv-pypaimon`): it needs pyarrow < 20.

It reads tables and writes simple ones. Known to be wrong there, so do not ask: TIMESTAMP(9) on merge reads (cut to
microseconds), sequence groups, `ignore-retract`, aggregates on lookup tables.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.kit.judge_process import JudgeProcess

PYTHON = Path(__file__).parents[2] / ".venv-pypaimon" / "bin" / "python"
PROCESS = Path(__file__).with_name("pypaimon_process.py")


class PypaimonError(Exception):
    """What pypaimon raised; `stack` is its traceback."""

    def __init__(self, message: str, stack: str) -> None:
        super().__init__(message)
        self.stack = stack


class PypaimonJudge:
    """The child process; use `start`."""

    def __init__(self, process: JudgeProcess) -> None:
        self._process = process

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[PypaimonJudge]:
        """Starts the process and ends it when the block ends."""
        if not PYTHON.exists():
            raise RuntimeError(f"{PYTHON} is missing; run `make venv-pypaimon`")
        with JudgeProcess.start("pypaimon", [PYTHON, PROCESS]) as process:
            yield cls(process)

    def call(self, op: str, **arguments: Any) -> Any:
        """One request to the child."""
        answer = self._process.answer({"op": op, **arguments})
        if "error" in answer:
            raise PypaimonError(answer["error"], answer["stack"])
        return answer["ok"]

    def create_table(
        self,
        location: str | Path,
        schema: pa.Schema,
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates a table in a folder."""
        with self._rows_file(schema.empty_table()) as rows:
            self.call(
                "create_table",
                table=str(location),
                rows=rows,
                primary_keys=list(primary_keys),
                partition_keys=list(partition_keys),
                options={key: str(value) for key, value in (options or {}).items()},
            )

    def write(self, location: str | Path, rows: pa.Table) -> None:
        """Writes rows (no deletes: pypaimon has none) as one commit."""
        with self._rows_file(rows) as path:
            self.call("write", table=str(location), rows=path)

    def read_arrow(
        self,
        location: str | Path,
        columns: Sequence[str] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        snapshot_id: int | None = None,
        sort_by: Sequence[str] = (),
    ) -> pa.Table:
        """The merged rows."""
        dynamic = {key: str(value) for key, value in (options or {}).items()}
        if snapshot_id is not None:
            dynamic["scan.snapshot-id"] = str(snapshot_id)
        rows = self._taken(self.call("read", table=str(location), columns=columns and list(columns), options=dynamic))
        return rows.sort_by([(column, "ascending") for column in sort_by]) if sort_by else rows

    def read_by_rust(self, warehouse: str, name: str, options: Mapping[str, str] | None = None) -> pa.Table:
        """The merged rows, as paimon-rust gives them."""
        answer = self.call("read_by_rust", warehouse=warehouse, name=name, options=dict(options or {}))
        return self._taken(answer)

    def _taken(self, answer: str) -> pa.Table:
        path = Path(answer)
        try:
            with pa.OSFile(str(path)) as source:
                return pa.ipc.open_file(source).read_all()
        finally:
            path.unlink()

    @contextlib.contextmanager
    def _rows_file(self, rows: pa.Table) -> Iterator[str]:
        path = self._process.scratch / f"{uuid.uuid4()}.arrow"
        with pa.ipc.new_file(str(path), rows.schema) as out:
            out.write_table(rows)
        try:
            yield str(path)
        finally:
            path.unlink()
