"""A script of a user that calls every public verb. Nothing runs it: mypy --strict reads it (`test_user_typing`)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_type

import pyarrow as pa  # type: ignore[import-untyped]

import freshet
from freshet import (
    ROW_KIND_COLUMN,
    SNAPSHOT_ID_COLUMN,
    AddColumn,
    AlreadyExistsError,
    Catalog,
    Changelog,
    ChangeStream,
    ChangeType,
    Column,
    CompactionConfig,
    ConflictError,
    CorruptDataError,
    DropColumn,
    DropPrimaryKey,
    EditResult,
    Expression,
    InvalidRequestError,
    MoveColumn,
    NotFoundError,
    Predicate,
    RenameColumn,
    ResetOption,
    RetryableError,
    RowKind,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
    SqlResult,
    StorageError,
    SystemScan,
    SystemTable,
    Table,
    TableScan,
    TableSession,
    TableTags,
    Tag,
    UnknownOutcomeError,
    UnsupportedFeatureError,
    WriteResult,
    col,
    expr,
    progress,
    register,
    sql,
    table_sink,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERRORS: tuple[type[StorageError], ...] = (
    *(AlreadyExistsError, ConflictError, CorruptDataError, InvalidRequestError, NotFoundError, RetryableError),
    *(UnknownOutcomeError, UnsupportedFeatureError),
)


def catalogs() -> Catalog:
    catalog = Catalog("/data/lake", options={"s3.endpoint": "https://s3"})
    catalog.create_database("shop", if_not_exists=True, properties={"owner": "me"})
    catalog.alter_database("shop", {"owner": None})
    properties: dict[str, str] = catalog.database_properties("shop")
    names: list[str] = [*catalog.list_databases(), *catalog.list_tables("shop"), *properties]
    table: Table = catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "total": "DECIMAL(10,2)"},
        primary_keys=["id"],
        partition_keys=(),
        options={"bucket": 4},
        comment="orders",
        if_not_exists=True,
    )
    catalog.create_table("shop.log", schema=pa.schema([("id", pa.int64())]))
    catalog.rename_table("shop.log", "shop.old", if_exists=True)
    catalog.register_table("shop.old")
    catalog.drop_table("shop.old", if_exists=True)
    catalog.drop_database("shop", cascade=True, if_exists=True)
    is_there: bool = catalog.has_table("shop.orders")
    summary = catalog.summary("shop.orders")
    keys: tuple[str, ...] = summary.primary_keys
    system: SystemTable = catalog.system_table("shop.orders$files")
    assert_type(catalog.table("shop.orders", options={"write-only": True}), Table)
    assert_type(table.name, str)
    Catalog.check_new_table(table.schema)
    behind: list[str] = [each.name for each in catalog.status() if each.is_behind]
    print(names, is_there, keys, system.name, catalog.warehouse, behind, table.status().freshness_ms)
    found: list[str] = [
        f"{each.severity}: {each.cause}, {each.remedy}" for each in (*catalog.doctor(), *table.doctor())
    ]
    reports = [*catalog.report(detailed=10), *catalog.report("shop.orders")]
    found += [each.status.name for each in reports if each.findings]
    print(*found)
    return catalog


def reads(table: Table) -> None:
    predicate: Predicate = (col("id") > 3) & (col("v").is_in([1, 2])) | ~col("v").is_null()
    column: Column = col("id")
    scan: TableScan = table.scan(["id"], predicate, snapshot_id=3, limit=10)
    for given in (None, "id > 3", predicate, [("id", ">", 3)], [[("id", ">", 3)], [("id", "=", 1)]]):
        table.scan(filter=given)
    rows: pa.Table = scan.to_arrow()
    batches: Iterator[pa.RecordBatch] = scan.to_batches()
    reader: pa.RecordBatchReader = scan.to_reader()
    count: int = scan.count()
    splits = scan.plan()
    for split in splits:
        for batch in scan.read_split(split):
            print(batch.num_rows)
    print(scan.to_pandas(), scan.to_polars(), scan.to_duckdb(), scan.fields, scan.schema)
    changes: Changelog = table.changelog(from_snapshot=1, to_snapshot=3, filter="id > 3")
    changes = table.changes_between(1, "eom", mode="diff")
    changes = table.changes_between(datetime.datetime.now(datetime.UTC), 3)
    print(changes.snapshot_ids, changes.schema, changes.to_arrow())
    stream: ChangeStream = table.stream(scan_mode="latest", consumer_id="c", max_wait_s=3.0)
    for batch in stream:
        print(batch)
    logged = table.stream(isolation="committed")
    print(logged.state, stream.next_snapshot_id)
    found = table.lookup(pa.table({"id": [1]}), ["id"])
    print(found.rows, found.positions, column)
    files: SystemTable = table.system("files")
    system: SystemScan = files.scan(["file_path"])
    print(system.to_arrow(), system.count(), rows, batches, reader, count)
    print(table.consumers(), table.files(), table.describe(), table.facts(), table.check(all_snapshots=True).damage)
    for snapshot in table.snapshots():
        print(snapshot.id, snapshot.commit_kind, snapshot.time_ms)
    latest = table.latest_snapshot()
    if latest is not None:
        print(latest.id)
    print(table.arrow_schema, table.schema.column_names, table.options, table.handle, table.location)
    print(ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN, RowKind.INSERT, freshet.__version__)


def writes(table: Table) -> None:
    done: EditResult = table.append([{"id": 1}])
    done = table.upsert(pa.table({"id": [1]}), columns="given")
    done = table.delete(col("id") == 3, dry_run=True)
    assert_type(table.delete("id = 3"), EditResult)
    value: Expression = expr("total * 2")
    done = table.update({"total": value, "city": "Ulm"}, "id = 3")
    done = (
        table.merge([{"id": 1}], on=["id"])
        .when_matched_update({"total": expr("source.total")}, condition="source.total > 3")
        .when_matched_delete(condition="source.total IS NULL")
        .when_matched_update_all()
        .when_not_matched_insert({"id": expr("source.id")})
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete()
        .execute()
    )
    done = table.overwrite([{"id": 1}], partition={"dt": "2026-11-22"})
    done = table.overwrite([{"id": 1}], dynamic=False)
    done = table.truncate(dry_run=True)
    done = table.drop_partition({"dt": "2026-11-22"}, {"dt": "2026-11-23"})
    done = table.rollback(7)
    done = table.rollback(to="eom", dry_run=True)
    done = table.rollback(undo=("user", 3), delete_newer=True, force=True)
    print(done.snapshots, done.rows_deleted)
    with table.writer("loader", parallelism=2) as writer:
        session: TableSession = writer
        session.write([{"id": 1}])
        result = session.commit(3)
        print(result.snapshots, result.already_committed)
        session.abort()
    tags: TableTags = table.tags
    tag: Tag = tags.create("eom", 3, retained=datetime.timedelta(days=3))
    tag = tags.replace("eom")
    tag = tags.rename("eom", "eoy")
    print([each.name for each in tags.list()], tags.get("eoy").snapshot_id, tags.delete("eoy", dry_run=True).tag, tag)
    print([each.name for each in tags.create_due()], [each.tag.name for each in tags.expire(dry_run=True)])
    table.branches.create("b", from_tag="eom")
    table.branches.rename("b", "c")
    print(table.branches.list())
    table.branches.drop("c")


def care(table: Table) -> None:
    print(table.compact(full=False, partition={"dt": "1"}, progress=lambda done: print(done.bytes_done)).buckets_done)
    progress()
    with progress(on=False):
        table.compact()
    print(table.rescale(8).partitions_done)
    print(table.sort_compact(["id"]).buckets_done)
    print(table.expire_snapshots(retain_max=3, dry_run=True).is_dry_run)
    print(table.expire_snapshots(retain_max=3).snapshot_ids)
    print(table.expire_partitions(older_than=datetime.timedelta(days=3)).partitions)
    print(table.remove_orphan_files(dry_run=True).size_bytes)
    print(table.compact_manifests(dry_run=True).before.count)
    paths: tuple[str, ...] = table.mark_partition_done({"day": datetime.date(2026, 3, 5)})
    print(paths, table.purge(dry_run=True))
    table.reset_consumer("c", 3)
    gone: bool = table.delete_consumer("c")
    changed: Table = table.alter(
        AddColumn("note", "STRING", after="id"),
        DropColumn("a"),
        RenameColumn("b", "c"),
        ChangeType("c", "BIGINT"),
        MoveColumn("c", first=True),
        SetOption("write-only", "true"),
        ResetOption("write-only"),
        SetColumnComment("c", None),
        SetComment("x"),
        SetDefault("c", "-"),
        DropPrimaryKey(),
        AddColumn("zip", "STRING", within="address"),
        DropColumn("price", within=("items", "element")),
        SetNullable("c", True),
        allow_lossy=True,
    )
    print(gone, changed.with_options({"write-only": True}), table.without_log(), Table.of(table.handle))
    Table.open("/data/lake/shop.db/orders", options={"read.batch-size": 3})


def spark(session: SparkSession) -> None:
    register(session)
    sink = table_sink("/data/lake", "shop.orders", commit_user="loader", compaction=CompactionConfig())
    frame = session.read.format("freshet").load("/data/lake/shop.db/orders")
    written: WriteResult = write(
        frame, "shop.orders", "upsert", warehouse="/data/lake", commit_user="night", identifier=3
    )
    selected: SqlResult = sql("SELECT * FROM shop.orders", catalog="/data/lake", spark=session)
    print(sink, written.rows, written.snapshot_id, written.already_committed, selected.to_arrow(), selected.edit)
