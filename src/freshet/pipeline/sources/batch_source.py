"""The Spark data source `freshet`: `spark.read.format("freshet")`, Arrow batches, one Spark partition per split.

With the option `scan.mode` it is a stream: `stream_source`.

| option | meaning |
|---|---|
| `warehouse`, `table` | where the table is; `table` is `database.name`, or a system table: `database.name$files` |
| `filter` | SQL text (`filters/filter_text`): rows for which it is true; files that cannot hold any are not read |
| `s3.endpoint`, … | options of the catalog and its store, also as `catalog.KEY`; a secret as `env:NAME` |
| `columns` | comma list of the columns to read; Spark does not let a Python source know which columns a query needs |
| `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis` | at most one: the snapshot to read, else the latest |

A schema given by `.schema(...)` names the columns to read as well; its types must be those of the table. TIME and
TIMESTAMP(7-9) are BIGINT, see `arrow_bridge`; the option `filter` compares them as what they are.

    CREATE TEMPORARY VIEW orders USING freshet OPTIONS (warehouse 'file:///data', table 'shop.orders')

`where` on a frame filters and prunes nothing: Spark 4.2 keeps the filters that a Python source has accepted for the
next use of the same relation, so that rows would silently be missing there.

A frame and a view stay with the snapshot of their first use, whatever is committed later: load the frame again, or
create the view again, to see newer rows. When that snapshot expires, reading fails and says so; a tag does not expire.

This module alone knows the signatures of Spark's data sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from freshet.pipeline.config.catalogs import CATALOG_PREFIX, catalog_options_of
from freshet.pipeline.config.stream_options import (
    COLUMNS_OPTION,
    FILTER_OPTION,
    KAFKA_PREFIX,
    MODE_OPTION,
    SNAPSHOT_OPTION,
    STREAM_OPTIONS,
    TAG_OPTION,
    TIMESTAMP_OPTION,
    column_list,
    stream_options,
    table_for,
    whole_number,
)
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sources.stream_source import ChangeStreamReader, check_stream_schema, stream_struct
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.catalog import Catalog, check_no_secrets, is_catalog_option, is_system_name
from freshet.storage.model.data_type import DataField, with_nullable
from freshet.storage.table import SystemScan, Table, TableScan
from freshet.storage.table_engine import Split

FORMAT: Final = "freshet"
_TRAVEL: Final = (SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION)
_OPTIONS: Final = ("warehouse", "table", FILTER_OPTION, COLUMNS_OPTION, *_TRAVEL, *STREAM_OPTIONS)

_KNOWN: Final = frozenset(option.lower() for option in _OPTIONS)


def register(session: SparkSession) -> None:
    """Makes the format `freshet` known to a session."""
    session.dataSource.register(FreshetDataSource)


class FreshetDataSource(DataSource):
    """The source that Spark makes for `format("freshet")` and its options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark hands the names over in lower case.
        self.options = {name.lower(): text for name, text in options.items()}  # type: ignore[assignment]
        _check_options(self.options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> spark.StructType:
        """The columns that a read gives when no schema is given."""
        options = stream_options(self.options)
        if options is not None:
            self._check_is_streamed()
            return stream_struct(options.stream(self._table()))
        return spark_struct(self._scan(column_list(self.options)).fields)

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        """A reader of the columns in `schema`."""
        if MODE_OPTION in self.options:
            raise InvalidRequestError(
                f"the option {MODE_OPTION!r} makes a stream: use spark.readStream, or leave it out"
            )
        return FreshetReader(self._scan(schema.fieldNames()), schema)

    def streamReader(self, schema: spark.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of the changes."""
        self._check_is_streamed()
        options = stream_options(self.options)
        if options is None:
            raise InvalidRequestError(
                f"a stream needs the option {MODE_OPTION!r}: latest-full gives the rows of now and then each change, "
                "latest only what is committed from now on"
            )
        stream = options.stream(self._table())
        check_stream_schema(stream, schema)
        return ChangeStreamReader(stream, options.limit)

    def _check_is_streamed(self) -> None:
        name = self.options["table"]
        if is_system_name(name):
            raise InvalidRequestError(
                f"{name} is a system table and is not streamed: read it with spark.read and without {MODE_OPTION}, or "
                f"stream {name.rpartition('$')[0]}"
            )

    def _catalog(self) -> Catalog:
        return Catalog(self.options["warehouse"], options=catalog_options_of(self.options, _KNOWN))

    def _table(self) -> Table:
        return table_for(self._catalog().table(self.options["table"]), self.options)

    def _scan(self, columns: Sequence[str] | None) -> TableScan | SystemScan:
        name = self.options["table"]
        opened = self._catalog().system_table(name) if is_system_name(name) else self._table()
        return opened.scan(
            columns,
            self.options.get(FILTER_OPTION),
            snapshot_id=whole_number(self.options, SNAPSHOT_OPTION),
            tag=self.options.get(TAG_OPTION),
            timestamp_ms=whole_number(self.options, TIMESTAMP_OPTION),
        )


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """One split, as it travels to an executor."""

    split: Split


class FreshetReader(DataSourceReader):
    """Plans one query of one snapshot and reads its splits. Spark pickles it, and the scan with it."""

    def __init__(self, scan: TableScan | SystemScan, schema: spark.StructType) -> None:
        self._scan = scan
        self._fields = _fields_as_given(scan, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One per split of the pruned plan."""
        return [SplitPartition(split) for split in self._scan.plan()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one split, merged, in the carriers that Spark takes.

        Where no split is left Spark still calls it once, with None.
        """
        if not isinstance(partition, SplitPartition):
            return
        target = pa.schema([pa.field(f.name, carrier_arrow_type(f.type), f.type.nullable) for f in self._fields])
        for batch in self._scan.read_split(partition.split):
            arrays = [
                carry_array(column, field.type) for column, field in zip(batch.columns, self._fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


def _check_options(options: Mapping[str, str]) -> None:
    given = catalog_options_of(options, _KNOWN)
    check_no_secrets(given)  # Spark shows options in plans and event logs, and these are sent to tasks
    unknown = [option for option in options if not _is_known(option)]
    if unknown:
        raise InvalidRequestError(f"unknown option {unknown[0]!r} of format freshet; it has {', '.join(_OPTIONS)}")
    for needed in ("warehouse", "table"):
        if needed not in options:
            raise InvalidRequestError(f"format freshet needs the option {needed!r}")
    chosen = [option for option in _TRAVEL if option in options]
    if len(chosen) > 1:
        raise InvalidRequestError(f"give at most one of {', '.join(chosen)}")


def _is_known(option: str) -> bool:
    prefixes = (KAFKA_PREFIX, CATALOG_PREFIX)
    return option in _KNOWN or option.startswith(prefixes) or is_catalog_option(option)


def _fields_as_given(scan: TableScan | SystemScan, schema: spark.StructType) -> tuple[DataField, ...]:
    for given, field, own in zip(schema, scan.fields, spark_struct(scan.fields), strict=True):
        if given.dataType != own.dataType:
            raise InvalidRequestError(
                f"column {field.name!r} of the table is {field.type}, which Spark reads as "
                f"{own.dataType.simpleString()}, not {given.dataType.simpleString()}"
            )
    # Spark makes the columns of a given schema nullable by default; the batches must have the same.
    return tuple(
        replace(field, type=with_nullable(field.type, given.nullable))
        for field, given in zip(scan.fields, schema, strict=True)
    )
