"""The Spark data source `freshet`: `spark.read.format("freshet")`, Arrow batches, one Spark partition per split.

With the option `scan.mode` it is a stream: `stream_source`. It is written too: `batch_writer`.

| option | meaning |
|---|---|
| `warehouse`, `table` | where the table is; `table` is `database.name`, or a system table: `database.name$files` |
| `filter` | SQL text (`filters/filter_text`): rows for which it is true; files that cannot hold any are not read |
| `s3.endpoint`, … | options of the catalog and its store, also as `catalog.KEY`; a secret as `env:NAME` |
| `columns` | comma list of the columns to read; Spark does not let a Python source know which columns a query needs |
| `scan.*`, `incremental-between*` | the snapshot to read, else the latest; or changes (`config/frame_options`) |
| `with-snapshot-id` | `true`: changes have the column `_SNAPSHOT_ID` |
| `dynamic-partition-overwrite` | of writes: whether an overwrite replaces the partitions that occur in the rows |

A schema given by `.schema(...)` names the columns to read as well; its types must be those of the table. TIME and
TIMESTAMP(7-9) are BIGINT, see `arrow_bridge`; the option `filter` compares them as what they are.

    CREATE TEMPORARY VIEW orders USING freshet OPTIONS (warehouse 'file:///data', table 'shop.orders')

`where` on a frame filters and prunes nothing: Spark 4.2 keeps the filters that a Python source has accepted for the
next use of the same relation, so that rows would silently be missing there.

A frame and a view stay with the snapshot of their first use, whatever is committed later: load the frame again, or
create the view again, to see newer rows. When that snapshot expires, reading fails and says so; a tag does not expire.

A table of Spark's own catalog (`CREATE TABLE … USING freshet`) keeps none of its options for us: refused with what to
do instead.

The modules of this room alone know the signatures of Spark's data sources.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)

from freshet.pipeline.config.catalogs import CATALOG_PREFIX, catalog_options_of
from freshet.pipeline.config.frame_options import (
    BETWEEN_MODE_OPTION,
    BETWEEN_OPTIONS,
    COLUMNS_OPTION,
    FILTER_OPTION,
    KAFKA_PREFIX,
    MODE_OPTION,
    SNAPSHOT_COLUMN_OPTION,
    STREAM_OPTIONS,
    TRAVEL_OPTIONS,
    between_of,
    check_travel,
    column_list,
    flag,
    stream_options,
    table_for,
    travel_of,
)
from freshet.pipeline.exceptions import InvalidRequestError, PipelineError
from freshet.pipeline.sources.batch_writer import FreshetWriter
from freshet.pipeline.sources.stream_source import (
    ChangeReader,
    ChangeStreamReader,
    carried,
    changes_struct,
    check_given,
    stream_struct,
)
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.pipeline.spark.worker_python import is_connect, settle_python
from freshet.storage.catalog import Catalog, check_no_secrets, is_catalog_option, is_system_name
from freshet.storage.changes.changelog import Changelog
from freshet.storage.exceptions import StorageError
from freshet.storage.model.data_type import DataField, with_nullable
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.system_tables.system_table import SystemScan
from freshet.storage.table import Table
from freshet.storage.table_engine import Split

FORMAT: Final = "freshet"
DYNAMIC_OPTION: Final = "dynamic-partition-overwrite"
_READ_OPTIONS: Final = (
    FILTER_OPTION, COLUMNS_OPTION, *TRAVEL_OPTIONS, *BETWEEN_OPTIONS, BETWEEN_MODE_OPTION, *STREAM_OPTIONS,
)  # fmt: skip
_OPTIONS: Final = ("warehouse", "table", *_READ_OPTIONS, DYNAMIC_OPTION)
_IN_A_CATALOG: Final = (
    "a table that CREATE TABLE … USING freshet puts into Spark's catalog cannot be used: Spark hands the options of "
    "such a table to a Python data source when it is created, and never again. Use CREATE TEMPORARY VIEW orders USING "
    "freshet OPTIONS (warehouse '…', table 'shop.orders'), which can be read and inserted into; freshet.sql makes and "
    "changes tables"
)
_STREAM_WRITE: Final = (
    "df.writeStream.format('freshet') writes no tables: df.writeStream.foreachBatch(freshet.table_sink(warehouse, "
    "'shop.orders', commit_user='…')) does, and so do pipeline files (freshet run)"
)

_WORKER: Final = "pyspark.worker_util"
"""A module that workers alone load."""
_NO_TRACE: Final = "SPARK_HIDE_TRACEBACK"
_Method = TypeVar("_Method", bound=Callable[..., Any])

_KNOWN: Final = frozenset(option.lower() for option in _OPTIONS)


def register(session: SparkSession) -> None:
    """Makes the format `freshet` known to a session, and to those that `session.newSession()` makes of it.

    Workers of a local session run the interpreter of this program, unless PYSPARK_PYTHON or spark.pyspark.python names
    one. Of a session of Spark Connect, Freshet has to be installed where its server runs. Raises `InvalidRequestError`
    where the interpreter that was chosen cannot load Freshet.
    """
    if is_connect(session):
        session.dataSource.register(FreshetDataSource)
        return
    settle_python(session)
    classic: Any = session
    sessions = classic._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(classic._jsparkSession)  # in which Spark looks whether the name is taken
    try:
        session.dataSource.register(FreshetDataSource)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
    classic.newSession = partial(_new_session, session)  # a session has formats of its own


def is_registered(session: SparkSession) -> bool:
    """Whether the format is known to a session; False where it does not say."""
    classic: Any = session
    return not is_connect(session) and bool(
        classic._jsparkSession.sessionState().dataSourceManager().dataSourceExists(FORMAT)
    )


def _new_session(session: SparkSession) -> SparkSession:
    made = type(session).newSession(session)
    register(made)
    return made


def _in_one_sentence(method: _Method) -> _Method:
    """The method, of whose refusals Spark shows what they say, without a trace of Python. It runs in a process of
    Spark's that ends with the error. Not for `streamReader`: where it raises, Spark stops the reader that it has not
    got, and the trace alone has what was refused."""

    @wraps(method)
    def answer(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except (StorageError, PipelineError):
            if _WORKER in sys.modules:
                os.environ[_NO_TRACE] = "1"
            raise

    return cast(_Method, answer)


class FreshetDataSource(DataSource):
    """The source that Spark makes for `format("freshet")` and its options."""

    @_in_one_sentence
    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark hands the names over in lower case.
        self.options = {name.lower(): text for name, text in options.items()}  # type: ignore[assignment]
        _check_options(self.options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    @_in_one_sentence
    def schema(self) -> spark.StructType:
        """The columns that a read gives when no schema is given."""
        changes = self._changes()
        if changes is not None:
            return changes_struct(changes, with_snapshot_id=self._with_snapshot_id)
        options = stream_options(self.options)
        if options is not None:
            self._check_is_streamed()
            return stream_struct(options.stream(self._table()))
        return spark_struct(self._scan(column_list(self.options)).fields)

    @_in_one_sentence
    def reader(self, schema: spark.StructType) -> DataSourceReader:
        """A reader of the columns in `schema`."""
        if MODE_OPTION in self.options:
            raise InvalidRequestError(
                f"the option {MODE_OPTION!r} makes a stream: use spark.readStream, or leave it out"
            )
        changes = self._changes()
        if changes is not None:
            check_given("these changes have", changes_struct(changes, with_snapshot_id=self._with_snapshot_id), schema)
            return ChangeReader(changes, with_snapshot_id=self._with_snapshot_id)
        return FreshetReader(self._scan(schema.fieldNames()), schema)

    @_in_one_sentence
    def writer(self, schema: spark.StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of frames with this schema; raises where they do not fit the table."""
        name = self.options["table"]
        if is_system_name(name):
            raise InvalidRequestError(f"{name} is a system table and is not written; write {name.rpartition('$')[0]}")
        of_reads = [option for option in _READ_OPTIONS if option.lower() in self.options]
        if of_reads:
            raise InvalidRequestError(f"option {of_reads[0]!r} is one of reads: leave it out where rows are written")
        dynamic = flag(self.options, DYNAMIC_OPTION) if DYNAMIC_OPTION in self.options else None
        return FreshetWriter(self._table(), schema, overwrite=overwrite, dynamic=dynamic)

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
        check_given("this stream has", stream_struct(stream), schema)
        return ChangeStreamReader(stream, options.limit)

    @_in_one_sentence
    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Refused, naming what writes streams."""
        del schema, overwrite
        raise InvalidRequestError(_STREAM_WRITE)

    @property
    def _with_snapshot_id(self) -> bool:
        return flag(self.options, SNAPSHOT_COLUMN_OPTION)

    def _changes(self) -> Changelog | None:
        """The changes that a batch frame has; None where it has rows."""
        if not any(option in self.options for option in BETWEEN_OPTIONS):
            return None
        others = [option for option in STREAM_OPTIONS if option.lower() in self.options]
        if set(others) - {SNAPSHOT_COLUMN_OPTION}:
            raise InvalidRequestError(
                f"option {others[0]!r} is one of streams, and incremental-between makes a frame that is none"
            )
        if is_system_name(self.options["table"]):
            raise InvalidRequestError(
                f"{self.options['table']} is a system table, which has no changes: read its table"
            )
        table = self._table()
        between = between_of(self.options, lambda: _tags(table))
        assert between is not None, "an option asks for it"
        columns, chosen = column_list(self.options), self.options.get(FILTER_OPTION)
        return table.changes_between(between.start, between.end, columns, chosen, mode=between.mode)

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
        is_system = is_system_name(name)
        opened = self._catalog().system_table(name) if is_system else self._table()
        base = name.rpartition("$")[0] if is_system else name
        travel = travel_of(self.options, lambda: _tags(self._catalog().table(base)))
        return opened.scan(
            columns,
            self.options.get(FILTER_OPTION),
            snapshot_id=travel.snapshot_id,
            tag=travel.tag,
            timestamp_ms=travel.timestamp_ms,
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
        yield from carried(self._scan.read_split(partition.split), self._fields)


def _tags(table: Table) -> set[str]:
    return {tag.name for tag in table.tags.list()}


def _check_options(options: Mapping[str, str]) -> None:
    if "provider" in options or not options:
        raise InvalidRequestError(_IN_A_CATALOG)
    if "checkpointlocation" in options:  # Spark hands the options of a stream that writes to the source first
        raise InvalidRequestError(_STREAM_WRITE)
    given = catalog_options_of(options, _KNOWN)
    check_no_secrets(given)  # Spark shows options in plans and event logs, and these are sent to tasks
    unknown = [option for option in options if not _is_known(option)]
    if "path" in unknown:  # load("…"), as of files
        raise InvalidRequestError(
            f"format freshet takes no path, and {options['path']!r} is one: a table is named by "
            ".option('warehouse', '/data/lake').option('table', 'shop.orders')"
        )
    if unknown:
        raise InvalidRequestError(f"unknown option {unknown[0]!r} of format freshet; it has {', '.join(_OPTIONS)}")
    for needed in ("warehouse", "table"):
        if needed not in options:
            raise InvalidRequestError(f"format freshet needs the option {needed!r}")
    check_travel(options)


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
