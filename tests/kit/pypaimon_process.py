"""The process behind `pypaimon_judge`: runs in `.venv-pypaimon`, reads JSON lines, leaves rows as Arrow IPC files.

It imports nothing of ours: another Python environment, another pyarrow.
"""

from __future__ import annotations

import json
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import Schema
from pypaimon.common.file_io import FileIO
from pypaimon.common.options.options import Options
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.table.file_store_table import FileStoreTable


def create_table(request: dict[str, Any], _scratch: Path) -> None:
    """Creates a table with the schema of the rows file."""
    with pa.ipc.open_file(request["rows"]) as rows:
        schema = rows.schema
    SchemaManager(FileIO.get(request["table"], Options({})), request["table"]).create_table(
        Schema.from_pyarrow_schema(
            schema,
            partition_keys=request["partition_keys"],
            primary_keys=request["primary_keys"],
            options=request["options"],
        )
    )


def write(request: dict[str, Any], _scratch: Path) -> None:
    """Writes the rows file as one commit."""
    table = FileStoreTable.from_path(request["table"])
    with pa.ipc.open_file(request["rows"]) as rows:
        data = rows.read_all()
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    try:
        writer.write_arrow(data)
        commit.commit(writer.prepare_commit())
    finally:
        writer.close()
        commit.close()


def read(request: dict[str, Any], scratch: Path) -> str:
    """Leaves the merged rows in a file, and names it."""
    table = FileStoreTable.from_path(request["table"])
    if request["options"]:
        table = table.copy(request["options"])
    builder = table.new_read_builder()
    if request["columns"] is not None:
        builder = builder.with_projection(request["columns"])
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    path = scratch / f"{uuid.uuid4()}.arrow"
    with pa.ipc.new_file(str(path), rows.schema) as out:
        out.write_table(rows)
    return str(path)


def read_by_rust(request: dict[str, Any], scratch: Path) -> str:
    """The same by paimon-rust, of a table of a warehouse."""
    from pypaimon_rust.datafusion import PaimonCatalog

    table = PaimonCatalog({"warehouse": request["warehouse"]}).get_table(request["name"])
    builder = table.new_read_builder(request["options"] or None)
    batches = builder.new_read().read(builder.new_scan().plan().splits())
    path = scratch / f"{uuid.uuid4()}.arrow"
    with pa.ipc.new_file(str(path), batches[0].schema if batches else pa.schema([])) as out:
        for batch in batches:
            out.write_batch(batch)
    return str(path)


OPERATIONS = {
    "create_table": create_table,
    "write": write,
    "read": read,
    "read_by_rust": read_by_rust,
    "ping": lambda _request, _scratch: pa.__version__,
}


def main(scratch: Path) -> None:
    """Answers until standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": OPERATIONS[request["op"]](request, scratch)}
        except Exception as error:  # noqa: BLE001  (it travels to the test, which raises it)
            answer = {"error": f"{type(error).__name__}: {error}", "stack": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
