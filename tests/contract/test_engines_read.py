"""Which engine reads which table rightly: what docs/how-to/let-others-read.md says, of every engine that can be had
here.

`files` stands for engines that read the files of a snapshot one by one, as ClickHouse and duckdb-paimon do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import Catalog, Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.pypaimon_judge import PypaimonError, PypaimonJudge

pytestmark = pytest.mark.judge

Rows = list[tuple[int, int | None]]
TAG = "for-others"
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "write-only": {"write-only": "true"},
    "lookup changelog": {"changelog-producer": "lookup"},
    "compacted by each commit": {"changelog-producer": "full-compaction"},
    "partial-update": {"merge-engine": "partial-update"},
    "removing": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "dynamic buckets": {"bucket": "-1"},
    "append": {"bucket": "-1"},
}
REFUSED = {("removing", "pypaimon")}
"""It says that it does not know the option."""
RIGHT_AS_IT_IS = {"append", "first-row", "compacted by each commit"}
"""Tables of which the files of the newest snapshot are the rows."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(str(tmp_path_factory.mktemp("lake")))
    for name, options in TABLES.items():
        table = catalog.create_table(
            f"s.{name.replace(' ', '_').replace('-', '_')}",
            schema={"k": "INT", "v": "INT"},
            primary_keys=[] if name == "append" else ["k"],
            options={"bucket": "1", **options},
        )
        has_deletes = "k" in table.schema.primary_keys and name not in ("partial-update", "aggregation", "first-row")
        written(table, has_deletes=has_deletes)
        table.compact(full=True)
        table.tags.create(TAG)
        written(table, has_deletes=has_deletes)
    return catalog


def written(table: Table, *, has_deletes: bool) -> None:
    with table.writer("w") as writer:
        for low, high in ((0, 10), (0, 5)):
            writer.write([{"k": key, "v": 100 * low + 10 * high + key} for key in range(low, high)])
            writer.commit()
        if has_deletes:
            keys = {"k": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}
            writer.write(pa.table({**keys, "_ROW_KIND": ["-D"]}))
            writer.commit()


def rows_of(data: pa.Table) -> Rows:
    return sorted(zip(data["k"].to_pylist(), data["v"].to_pylist(), strict=True), key=repr)


def by_files(table: Table, tag: str | None) -> Rows:
    files = table.files(snapshot_id=None if tag is None else table.tags.get(tag).snapshot_id)
    paths = [Path(table.store.data_file(*entry.bucket_id, entry.file.file_name)) for entry in files]
    return sorted((row for path in paths for row in rows_of(pq.ParquetFile(path).read(["k", "v"]))), key=repr)


def by_duckdb(table: Table, tag: str | None) -> Rows:
    reader = table.scan(tag=tag).to_reader()
    with duckdb.connect() as connection:
        connection.register("rows", reader)
        return sorted(connection.sql("SELECT k, v FROM rows").fetchall(), key=repr)


Engine = Callable[[Table, str | None], Rows]


@pytest.fixture(scope="module")
def engines(paimon: PaimonJudge, pypaimon: PypaimonJudge, lake: Catalog) -> dict[str, Engine]:
    def by_rust(table: Table, tag: str | None) -> Rows:
        return rows_of(pypaimon.read_by_rust(lake.warehouse, table.name, {"scan.tag-name": tag} if tag else {}))

    def by_pypaimon(table: Table, tag: str | None) -> Rows:
        return rows_of(pypaimon.read_arrow(table.location, options={"scan.tag-name": tag} if tag else {}))

    return {
        "Apache Paimon": lambda table, tag: rows_of(paimon.table(table.location).read_arrow(tag=tag)),
        "pypaimon": by_pypaimon,
        "paimon-rust": by_rust,
        "DuckDB by Arrow": by_duckdb,
        "files": by_files,
    }


def those_that_read(engines: dict[str, Engine], name: str) -> dict[str, Engine]:
    return {engine: read for engine, read in engines.items() if (name, engine) not in REFUSED}


@pytest.mark.parametrize(("name", "engine"), REFUSED)
def test_what_is_refused(lake: Catalog, engines: dict[str, Engine], name: str, engine: str) -> None:
    with pytest.raises(PypaimonError, match="NotImplementedError"):
        engines[engine](lake.table(f"s.{name}"), None)


@pytest.mark.parametrize("name", TABLES)
def test_the_newest_rows(lake: Catalog, engines: dict[str, Engine], name: str) -> None:
    """Engines that merge are right; those that do not are where nothing is to be merged, which doctor says."""
    table = lake.table(f"s.{name.replace(' ', '_').replace('-', '_')}")
    wanted = rows_of(table.scan().to_arrow())
    wrong = {engine for engine, read in those_that_read(engines, name).items() if read(table, None) != wanted}
    noted = {each.name for each in table.doctor()} & {"readers that do not merge"}
    assert wrong == (set() if name in RIGHT_AS_IT_IS else {"files"})
    assert bool(noted) == bool(wrong)


@pytest.mark.parametrize("name", TABLES)
def test_a_tag_after_a_full_compaction_is_right_for_all(lake: Catalog, engines: dict[str, Engine], name: str) -> None:
    table = lake.table(f"s.{name.replace(' ', '_').replace('-', '_')}")
    wanted = rows_of(table.scan(tag=TAG).to_arrow())
    assert wanted
    for engine, read in those_that_read(engines, name).items():
        assert read(table, TAG) == wanted, engine


@pytest.mark.parametrize("name", [name for name in TABLES if name != "append"])
def test_ro_has_the_rows_that_need_no_merging(lake: Catalog, paimon: PaimonJudge, name: str) -> None:
    """Older than the newest, and no row twice."""
    table = lake.table(f"s.{name.replace(' ', '_').replace('-', '_')}")
    ours = rows_of(table.system("ro").scan().to_arrow())
    assert rows_of(paimon.table(table.location).system("ro")) == ours
    assert len({key for key, _ in ours}) == len(ours)
