"""Edits of a large table, one command a line: `python -m bench.edits_worker keyed | vectors | delta`.

| kind | table | how |
|---|---|---|
| keyed | Freshet, with a primary key | -D and +U rows; keys are looked up |
| vectors | Freshet, without a key, `deletion-vectors.enabled` | rows are marked by position |
| delta | Delta Lake, `delta.enableDeletionVectors`, Spark `local[2]` | DELETE and MERGE |

The changes lie in Parquet files, and reading them counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import lookup_worker
from bench.freshet_worker import serve
from freshet.storage.catalog import Catalog

SCHEMA = {**lookup_worker.SCHEMA, "score": "INT"}
SCORES = 1000
"""Values of `score`, each of which is in every page of a file."""
LOAD_ROWS = 500_000
OPTIONS = {
    "keyed": {"bucket": "4"},
    "vectors": {"bucket": "-1", "deletion-vectors.enabled": "true", "compaction.min.file-num": "1000"},
}


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Rows of about 150 bytes, with a column by which nothing can be pruned."""
    scores = (keys.astype(np.int64) * 761 + seed) % SCORES
    return lookup_worker.rows_of(keys, seed).append_column("score", pa.array(scores.astype(np.int32)))


def make_source(folder: Path, rows: int) -> None:
    """The rows of the table, as Parquet."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, LOAD_ROWS)):
        part = rows_of(np.arange(start, min(start + LOAD_ROWS, rows)), 0)
        pq.write_table(part, folder / f"part-{number:03}.parquet", row_group_size=100_000)


class FreshetEdits:
    """A table of Freshet, edited from this process."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._table: Any = None

    def load(self, source: str, folder: str) -> dict[str, object]:
        """Makes the table of the rows, compacted where it has a key."""
        keys = ["id"] if self._kind == "keyed" else []
        self._table = Catalog(folder).create_table(
            "bench.t", schema=SCHEMA, primary_keys=keys, options=OPTIONS[self._kind]
        )
        started = time.perf_counter()
        with self._table.writer("load") as writer:
            for path in sorted(Path(source).glob("*.parquet")):
                writer.write(pq.read_table(path))
            writer.commit()
        if keys:
            self._table.compact(full=True)
        return {"seconds": time.perf_counter() - started}

    def scan(self) -> dict[str, object]:
        """All rows and columns, batch by batch."""
        return _timed(lambda: {"rows": sum(batch.num_rows for batch in self._table.scan().to_batches())})

    def delete_range(self, low: str, high: str) -> dict[str, object]:
        """Rows of a range of keys."""
        return _timed(lambda: {"rows": self._table.delete(f"id >= {low} AND id < {high}").rows_deleted})

    def delete_filter(self, low: str, high: str) -> dict[str, object]:
        """Rows by a column that prunes nothing."""
        where = f"score >= {low} AND score < {high}"
        return _timed(lambda: {"rows": self._table.delete(where).rows_deleted})

    def delete_keys(self, path: str) -> dict[str, object]:
        """Rows of the keys in a file."""
        return _timed(
            lambda: {"rows": self._table.merge(pq.read_table(path), "id").when_matched_delete().execute().rows_deleted}
        )

    def merge(self, path: str) -> dict[str, object]:
        """Updates and inserts."""

        def run() -> dict[str, object]:
            merge = self._table.merge(pq.read_table(path), "id").when_matched_update_all()
            result = merge.when_not_matched_insert_all().execute()
            return {"rows": result.rows_updated + result.rows_inserted}

        return _timed(run)

    def digest(self) -> dict[str, object]:
        """How many rows there are, and sums of two columns."""
        rows = self._table.scan(["id", "n"]).to_arrow()
        ids, numbers = rows["id"].to_numpy(), rows["n"].to_numpy()
        return {"rows": rows.num_rows, "checksum": f"{ids.sum()}, {(numbers % 1_000_003).sum()}", "seconds": 0.0}


class DeltaEdits:
    """A Delta table, edited by Spark."""

    def __init__(self) -> None:
        from bench.spark_worker import DELTA_SETTINGS
        from freshet.pipeline.spark.jars import ensure_jars
        from freshet.pipeline.spark.session import create_session

        self._spark = create_session(
            "bench-edits",
            master="local[2]",
            settings={**DELTA_SETTINGS, "spark.driver.memory": "3g"},
            jars=ensure_jars("delta"),
        )
        self._name = ""

    def load(self, source: str, folder: str) -> dict[str, object]:
        """Makes the table of the rows."""
        self._name = f"delta.`{folder}/delta`"
        started = time.perf_counter()
        self._spark.sql(
            f"CREATE TABLE {self._name} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
            f"AS SELECT * FROM parquet.`{source}`"
        )
        return {"seconds": time.perf_counter() - started}

    def scan(self) -> dict[str, object]:
        """All rows and columns, as a hash, so that every value is read."""
        return _timed(lambda: {"hash": self._spark.sql(f"SELECT sum(hash(*)) FROM {self._name}").first()[0]})  # type: ignore[index]

    def delete_range(self, low: str, high: str) -> dict[str, object]:
        """Rows of a range of keys."""
        return self._sql(f"DELETE FROM {self._name} WHERE id >= {low} AND id < {high}")

    def delete_filter(self, low: str, high: str) -> dict[str, object]:
        """Rows by a column that prunes nothing."""
        return self._sql(f"DELETE FROM {self._name} WHERE score >= {low} AND score < {high}")

    def delete_keys(self, path: str) -> dict[str, object]:
        """Rows of the keys in a file: DELETE takes no subquery."""
        return self._merge(path, "WHEN MATCHED THEN DELETE")

    def merge(self, path: str) -> dict[str, object]:
        """Updates and inserts."""
        return self._merge(path, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def digest(self) -> dict[str, object]:
        """How many rows there are, and sums of two columns."""
        row = self._spark.sql(f"SELECT count(*), sum(id), sum(pmod(n, 1000003)) FROM {self._name}").first()
        assert row is not None
        return {"rows": row[0], "checksum": f"{row[1]}, {row[2]}", "seconds": 0.0}

    def _merge(self, path: str, clauses: str) -> dict[str, object]:
        return self._sql(f"MERGE INTO {self._name} AS t USING parquet.`{path}` AS s ON t.id = s.id {clauses}")

    def _sql(self, text: str) -> dict[str, object]:
        return _timed(lambda: {"rows": self._spark.sql(text).first()[0]})  # type: ignore[index]


def _timed(run: Callable[[], dict[str, object]]) -> dict[str, object]:
    started = time.perf_counter()
    answer = run()
    return {**answer, "seconds": time.perf_counter() - started}


def changes(rows: int, count: int, seed: int) -> pa.Table:
    """Rows of `count` keys: nine of ten are in the table, the others are above it."""
    chance = np.random.default_rng(seed)
    known = chance.choice(rows, count * 9 // 10, replace=False)
    new = rows + seed * count + np.arange(count - len(known))
    return rows_of(np.concatenate([known, new]).astype(np.int64), seed)


if __name__ == "__main__":
    serve(DeltaEdits() if sys.argv[1] == "delta" else FreshetEdits(sys.argv[1]))
