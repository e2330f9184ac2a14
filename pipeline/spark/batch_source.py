"""The Spark data source `freshet`: `spark.read.format("freshet")`, Arrow batches, one Spark partition per split.

| option | meaning |
|---|---|
| `warehouse`, `table` | where the table is; `table` is `database.name` |
| `columns` | comma list of the columns to read; Spark does not tell a Python source which columns a query needs |
| `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis` | at most one: the snapshot to read, else the latest |

A schema given by `.schema(...)` names the columns to read as well; its types must be those of the table. Filters are
pushed when `spark.sql.python.filterPushdown.enabled` is true (sessions of Freshet have it). The snapshot is chosen when
a query is planned and is the same for all of its partitions. TIME and TIMESTAMP(7–9) are BIGINT, see `arrow_bridge`.

    CREATE TEMPORARY VIEW orders USING freshet OPTIONS (warehouse 'file:///data', table 'shop.orders')

This module alone knows the signatures of Spark's data sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from freshet.pipeline.batch.arrow_bridge import spark_struct
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.pushed_filters import to_predicate
from freshet.storage.catalog import Catalog
from freshet.storage.io.env import local_env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_type import DataField, with_nullable
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.predicate import Predicate, conjunction
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import SplitReader
from freshet.storage.scan.time_travel import find_snapshot

FORMAT: Final = "freshet"
COLUMNS_OPTION: Final = "columns"
SNAPSHOT_OPTION: Final = "scan.snapshot-id"
TAG_OPTION: Final = "scan.tag-name"
TIMESTAMP_OPTION: Final = "scan.timestamp-millis"
_OPTIONS: Final = ("warehouse", "table", COLUMNS_OPTION, SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION)


def register(session: SparkSession) -> None:
    """Makes the format `freshet` known to a session."""
    session.dataSource.register(FreshetDataSource)


class FreshetDataSource(DataSource):
    """What Spark makes of `format("freshet")` and its options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)  # type: ignore[assignment]
        _check_options(self.options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> spark.StructType:
        """The columns that a read gives when no schema is given."""
        store, _ = self._resolve()
        return spark_struct(_chosen_fields(store, self.options.get(COLUMNS_OPTION)))

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        """A reader of the columns in `schema`."""
        return FreshetReader(*self._resolve(), schema)

    def streamReader(self, schema: spark.StructType) -> NoReturn:  # noqa: N802 - Spark's name
        """Not there yet."""
        raise InvalidRequestError("reading a table as a stream is not supported yet; use spark.read for a snapshot")

    def _resolve(self) -> tuple[TableStore, Snapshot | None]:
        """The snapshot to read, and the table at the schema to read it with: an old one has the columns it had."""
        store = Catalog(self.options["warehouse"]).table(self.options["table"]).store
        given = (
            _number(self.options, SNAPSHOT_OPTION),
            self.options.get(TAG_OPTION),
            _number(self.options, TIMESTAMP_OPTION),
        )
        snapshot = find_snapshot(store.snapshots, snapshot_id=given[0], tag=given[1], timestamp_ms=given[2])
        if snapshot is None or given == (None, None, None):
            return store, snapshot
        return _open_store(store.location, snapshot.schema_id), snapshot


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """One split, as it travels to an executor."""

    location: str
    schema_id: int
    split: Split
    fields: tuple[DataField, ...]
    filter: Predicate | None


class FreshetReader(DataSourceReader):
    """Plans one query of one snapshot and reads its splits."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, schema: spark.StructType) -> None:
        self._location = store.location
        self._schema_id = store.schema.id
        self._snapshot = snapshot
        self._fields = _fields_of(schema, store)
        self._filters: list[Predicate] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes what it applies exactly; the rest goes back to Spark."""
        table_schema = _open_store(self._location, self._schema_id).schema
        for pushed in filters:
            predicate = to_predicate(pushed, table_schema)
            if predicate is None:
                yield pushed
            else:
                self._filters.append(predicate)

    def partitions(self) -> Sequence[InputPartition]:
        """One per split of the pruned plan."""
        store = _open_store(self._location, self._schema_id)
        predicate = conjunction(self._filters)
        splits = plan_scan(store, self._snapshot, ScanFilter.bind(store.schema, predicate))
        return [SplitPartition(self._location, self._schema_id, split, self._fields, predicate) for split in splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one split, merged, in the carriers that Spark takes.

        Where no split is left Spark asks once all the same, for None.
        """
        if not isinstance(partition, SplitPartition):
            return
        fields = partition.fields
        store = _open_store(partition.location, partition.schema_id)
        scan_filter = ScanFilter.bind(store.schema, partition.filter)
        reader = SplitReader(store, tuple(field.name for field in fields), scan_filter)
        target = pa.schema([pa.field(f.name, carrier_arrow_type(f.type), f.type.nullable) for f in fields])
        for batch in reader.read(partition.split):
            arrays = [carry_array(batch.column(place), field.type) for place, field in enumerate(fields)]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


def _check_options(options: Mapping[str, str]) -> None:
    known = {option.lower() for option in _OPTIONS}
    unknown = [option for option in options if option.lower() not in known]
    if unknown:
        raise InvalidRequestError(f"unknown option {unknown[0]!r} of format freshet; it has {', '.join(_OPTIONS)}")
    for needed in ("warehouse", "table"):
        if needed not in options:
            raise InvalidRequestError(f"format freshet needs the option {needed!r}")
    chosen = [option for option in (SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION) if option in options]
    if len(chosen) > 1:
        raise InvalidRequestError(f"give at most one of {', '.join(chosen)}")


def _number(options: Mapping[str, str], option: str) -> int | None:
    text = options.get(option)
    if text is None:
        return None
    if not text.strip().lstrip("-").isdigit():
        raise InvalidRequestError(f"option {option} must be a whole number, not {text!r}")
    return int(text)


def _chosen_fields(store: TableStore, columns: str | None) -> tuple[DataField, ...]:
    if columns is None:
        return store.schema.fields
    names = [name.strip() for name in columns.split(",") if name.strip()]
    return _named(store, names)


def _fields_of(schema: spark.StructType, store: TableStore) -> tuple[DataField, ...]:
    fields = _named(store, schema.fieldNames())
    for given, field, own in zip(schema, fields, spark_struct(fields), strict=True):
        if given.dataType != own.dataType:
            raise InvalidRequestError(
                f"column {field.name!r} is {field.type} in {store.location}, which Spark reads as "
                f"{own.dataType.simpleString()}, not {given.dataType.simpleString()}"
            )
    # Spark makes every column of a given schema nullable unless told otherwise; batches must say the same.
    return tuple(
        replace(field, type=with_nullable(field.type, given.nullable))
        for field, given in zip(fields, schema, strict=True)
    )


def _named(store: TableStore, names: Sequence[str]) -> tuple[DataField, ...]:
    unknown = [name for name in names if name not in store.schema.by_name]
    if unknown or not names:
        raise InvalidRequestError(
            f"{store.location} has no column {', '.join(unknown) or '(none was named)'}; "
            f"its columns are {', '.join(store.schema.column_names)}"
        )
    return tuple(store.schema.by_name[name] for name in names)


@lru_cache(16)
def _open_store(location: str, schema_id: int) -> TableStore:
    return open_table_store(local_env(), location, schema_id=schema_id)
