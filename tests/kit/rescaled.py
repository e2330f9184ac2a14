"""Tables whose number of buckets was changed while they had data, which Freshet refuses and Apache Paimon does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet import Catalog, Table
from freshet.storage.codec.binary_row import decode_row
from tests.kit.paimon_changes import set_option
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def with_buckets(table: Table, buckets: str) -> Table:
    """The table after `ALTER TABLE … SET ('bucket' = …)`; its files stay as they are."""
    folder = Path(table.location) / "schema"
    source = json.loads((folder / f"schema-{table.schema.id}").read_text())
    source |= {"id": source["id"] + 1, "options": {**source["options"], "bucket": buckets}}
    (folder / f"schema-{source['id']}").write_text(json.dumps(source))
    return Table.open(table.location)


def rows(partition: str, value: str, *keys: int) -> pa.Table:
    return pa.table({"p": [partition] * len(keys), "k": pa.array(keys, pa.int32()), "v": [value] * len(keys)})


def expected(**values: str) -> list[tuple[str, int, str]]:
    return sorted((partition, key, value) for partition, value in values.items() for key in range(20))


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def rescaled(paimon: PaimonJudge, folder: Path, keys: list[str]) -> PaimonTable:
    """Partition a has four buckets since it was rewritten, b two as when the table was made."""
    options = {"bucket": 2} if keys else {"bucket": 2, "bucket-key": "k"}
    judge = paimon.create_table(folder, COLUMNS, primary_keys=keys, partition_keys=["p"], options=options)
    judge.write(pa.concat_tables([rows("a", "old", *range(20)), rows("b", "old", *range(20))]))
    judge.alter(set_option("bucket", 4))
    judge.write(rows("a", "old", *range(20)), overwrite={"p": "a"})
    return judge


def counts(location: str) -> dict[str, set[int]]:
    table = Catalog(str(Path(location).parent.parent)).table("db.t")
    found: dict[str, set[int]] = {}
    for entry in table.files():
        partition = decode_row(entry.partition, table.store.partition_types)[0]
        found.setdefault(str(partition), set()).add(entry.total_buckets)
    return found
