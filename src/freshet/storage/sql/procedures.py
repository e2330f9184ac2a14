"""The procedures of CALL, by Apache Paimon's names and arguments, each by the verb that the table has for it.

| procedure | differs from Apache Paimon |
|---|---|
| `rollback`, `rollback_to_…` | the rows come back in a new snapshot, the later ones stay (`Table.rollback`) |
| `remove_orphan_files` | one after the other: without `parallelism`, `mode` |
| `purge_files` | orphans younger than a day stay |
| `mark_partition_done` | a file in the folder, no other action |
| `repair` | tables alone |
| `compact`, `rescale` | partitions by `partitions`; without `where`, `partition_idle_time` |

Moments without a zone are of the session's zone, UTC without Spark.

Those of Apache Paimon that are not carried out are refused, naming what does it instead.

Source: Apache Paimon 2.0.0, the procedures of its Spark module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import NotFoundError
from freshet.storage.options.values import parse_duration_ms, split_names
from freshet.storage.sql.arguments import Arguments, age_ms, done, partitions_of, table_of, with_options
from freshet.storage.sql.names import SqlName, moment_ms
from freshet.storage.sql.refusals import refused, wrong
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table


def expire_tags(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tags whose time is over, and those that were made before `older_than`."""
    text = given_.get("older_than")
    moment = None if text is None else moment_ms(text, session.engine.zone)
    gone = table_of(session, given_["table"]).tags.expire(older_than=moment)
    return given({"expired_tags": [each.tag.name for each in gone] or ["No expired tags."]})


def trigger_tag_automatic_creation(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tags that are due; then those whose time is over go, as after a commit."""
    table = table_of(session, given_["table"])
    table.tags.create_due()
    if table.options.tag_time_expire_enabled:
        table.tags.expire()
    return done()


def compact_manifest(session: SqlSession, given_: Arguments) -> SqlResult:
    """In one snapshot; a dry run changes nothing."""
    table = with_options(table_of(session, given_["table"]), given_.get("options"))
    table.compact_manifests(dry_run=bool(given_.get("dry_run")))
    return done()


def mark_partition_done(session: SqlSession, given_: Arguments) -> SqlResult:
    """The partitions are checked before the first is marked."""
    table = table_of(session, given_["table"])
    table.mark_partition_done(*filter(None, partitions_of(table, given_["partitions"])))
    return done()


def purge_files(session: SqlSession, given_: Arguments) -> SqlResult:
    """Orphans of a day and more go with the rest."""
    table_of(session, given_["table"]).purge()
    return given({"result": ["Success"]})


def repair(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tables, with commas between, whose files the catalog does not know."""
    names = [each.strip() for each in given_["database_or_table"].split(",")]
    for name in names:
        if "." not in name:
            raise refused(
                f"CALL sys.repair({name!r})",
                "databases are not searched; name tables: 'shop.orders,shop.items'",
            )
    for name in names:
        session.catalog.register_table(name.replace("`", ""))
    return done()


_FUNCTIONS: Final = "functions are those of DuckDB, or of the Spark session that is given as spark="
_GLOBAL_INDEX: Final = "global indexes are neither read nor written here; filters prune by the statistics of files"
_MIGRATION: Final = (
    "with a Spark session that reads the old table, CREATE TABLE … AS SELECT … copies it (freshet.sql(…, spark=spark))"
)

INSTEAD: Final[Mapping[str, str]] = {
    "alter_function": _FUNCTIONS,
    "alter_view_dialect": "there are no views; a Spark session that is given as spark= has its own",
    "compact_chain_table": "chain tables are not supported",
    "copy": "CREATE TABLE u LIKE t, then INSERT INTO u SELECT * FROM t; or create_tag and create_branch, which copy no "
    "files",
    "create_function": _FUNCTIONS,
    "create_global_index": _GLOBAL_INDEX,
    "drop_function": _FUNCTIONS,
    "drop_global_index": _GLOBAL_INDEX,
    "fast_forward": "INSERT OVERWRITE t SELECT * FROM t$branch_b puts the rows of the branch into the table, with "
    "dynamic-partition-overwrite=false also where it has partitions that the branch lacks",
    "merge_branch": "INSERT INTO t SELECT * FROM t$branch_b adds the rows of the branch to the table",
    "migrate_database": _MIGRATION,
    "migrate_table": _MIGRATION,
    "remove_unexisting_files": "it would make the loss of rows silent. freshet check-table names the files that are "
    "missing: restore them from a backup, or go back to a snapshot that has all of its own (CALL sys.rollback)",
    "repair_earliest_snapshot": "CALL sys.expire_snapshots takes away what lies below a gap of the snapshots, and "
    "writes the hint",
    "rewrite_file_index": "new files get the indexes that the table's options ask for, older files when they are "
    "compacted (CALL sys.compact)",
}


class Procedure(Frozen):
    """One procedure: its arguments in order, whether each is needed, their types, and what it does."""

    run: Callable[[SqlSession, Arguments], SqlResult]
    required: Mapping[str, type]
    optional: Mapping[str, type]

    @property
    def types(self) -> dict[str, type]:
        """All arguments, in order."""
        return {**self.required, **self.optional}


def _retained(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(milliseconds=parse_duration_ms(text))


def _compact(session: SqlSession, given_: Arguments) -> SqlResult:
    table = with_options(table_of(session, given_["table"]), given_.get("options"))
    strategy, order = given_.get("compact_strategy") or "full", given_.get("order_strategy") or "none"
    columns = [name.strip() for name in (given_.get("order_by") or "").split(",") if name.strip()]
    if strategy.lower() not in ("full", "minor"):
        raise wrong(strategy, "compact_strategy is 'full' or 'minor'")
    if (order.lower() == "none") == bool(columns):
        raise wrong(order, "order_strategy and order_by go together")
    for partition in partitions_of(table, given_.get("partitions")):
        if columns:
            table.sort_compact(columns, order.lower(), partition=partition)
        else:
            table.compact(full=strategy.lower() == "full", partition=partition)
    return done()


def _compact_database(session: SqlSession, given_: Arguments) -> SqlResult:
    databases = re.compile(given_.get("including_databases") or ".*")
    included = re.compile(given_.get("including_tables") or ".*")
    excluded = re.compile(given_.get("excluding_tables") or r"(?!)")
    names = [
        f"{database}.{name}"
        for database in session.catalog.list_databases()
        if databases.fullmatch(database)
        for name in session.catalog.list_tables(database)
    ]
    chosen = [name for name in names if included.fullmatch(name) and not excluded.fullmatch(name)]
    for name in chosen:
        with_options(session.catalog.table(name), given_.get("options")).compact(full=False)
    return given({"result": ["Success"]})


def _rescale(session: SqlSession, given_: Arguments) -> SqlResult:
    table = table_of(session, given_["table"])
    count = given_.get("bucket_num")
    for partition in partitions_of(table, given_.get("partitions")):
        table.rescale(table.options.bucket if count is None else count, partition=partition)
    return done()


def _expire_snapshots(session: SqlSession, given_: Arguments) -> SqlResult:
    table = with_options(table_of(session, given_["table"]), given_.get("options"))
    if given_.get("max_deletes") is not None:
        table = table.with_options({"snapshot.expire.limit": str(given_["max_deletes"])})
    expired = table.expire_snapshots(
        retain_max=given_.get("retain_max"),
        retain_min=given_.get("retain_min"),
        older_than_ms=age_ms(session, table, given_.get("older_than")),
    )
    count = len(expired.snapshot_ids)
    return given({"deleted_snapshots_count": [count]}, {"deleted_snapshots_count": pa.int32()})


_PARTITION_OPTIONS: Final = {
    "expiration_time": "partition.expiration-time",
    "timestamp_formatter": "partition.timestamp-formatter",
    "timestamp_pattern": "partition.timestamp-pattern",
    "expire_strategy": "partition.expiration-strategy",
    "max_expires": "partition.expiration-max-num",
}


def _expire_partitions(session: SqlSession, given_: Arguments) -> SqlResult:
    table = with_options(table_of(session, given_["table"]), given_.get("options"))
    options = {key: str(given_[name]) for name, key in _PARTITION_OPTIONS.items() if given_.get(name) is not None}
    expired = (table.with_options(options) if options else table).expire_partitions().partitions
    names = [", ".join(f"{key}={value}" for key, value in each.items()) for each in expired]
    return given({"expired_partitions": names or ["No expired partitions."]})


def _create_tag(session: SqlSession, given_: Arguments) -> SqlResult:
    tags = table_of(session, given_["table"]).tags
    tags.create(given_["tag"], given_.get("snapshot"), retained=_retained(given_.get("time_retained")))
    return done()


def _replace_tag(session: SqlSession, given_: Arguments) -> SqlResult:
    tags = table_of(session, given_["table"]).tags
    tags.replace(given_["tag"], given_.get("snapshot"), retained=_retained(given_.get("time_retained")))
    return done()


def _create_tag_from_timestamp(session: SqlSession, given_: Arguments) -> SqlResult:
    """The tag of the first snapshot that was committed at the time or later."""
    table = table_of(session, given_["table"])
    known = [*table.snapshots(), *(tag.snapshot for tag in table.tags.list())]
    later = sorted((each.time_ms, each.id) for each in known if each.time_ms >= given_["timestamp"])
    if not later:
        raise NotFoundError(
            f"table {table.name} has no snapshot that was committed at {given_['timestamp']} ms or later",
            table=table.name,
        )
    tag = table.tags.create(given_["tag"], later[0][1], retained=_retained(given_.get("time_retained")))
    watermark = tag.snapshot.watermark
    return given(
        {
            "tagName": [tag.name],
            "snapshot": [tag.snapshot_id],
            "commit_time": [tag.snapshot.time_ms],
            "watermark": [None if watermark is None else str(watermark)],
        },
        {"snapshot": pa.int64(), "commit_time": pa.int64()},
    )


def _rename_tag(session: SqlSession, given_: Arguments) -> SqlResult:
    table_of(session, given_["table"]).tags.rename(given_["tag"], given_["target_tag"])
    return done()


def _delete_tag(session: SqlSession, given_: Arguments) -> SqlResult:
    tags = table_of(session, given_["table"]).tags
    names = split_names(given_["tag"])
    for name in names:
        tags.get(name)  # all of them, before the first one goes
    for name in names:
        tags.delete(name)
    return done()


def _create_branch(session: SqlSession, given_: Arguments) -> SqlResult:
    branches = table_of(session, given_["table"]).branches
    is_quiet = str(given_.get("ignoreIfExists") or "false").lower() == "true"
    if not (is_quiet and given_["branch"] in branches.list()):
        branches.create(given_["branch"], from_tag=given_.get("tag") or None)
    return done()


def _delete_branch(session: SqlSession, given_: Arguments) -> SqlResult:
    branches = table_of(session, given_["table"]).branches
    for name in split_names(given_["branch"]):
        branches.drop(name)
    return done()


def _rollback(session: SqlSession, given_: Arguments) -> SqlResult:
    given_targets = [given_.get(name) for name in ("version", "snapshot", "tag")]
    targets = [each for each in given_targets if each is not None]
    if len(targets) != 1:
        raise wrong("rollback", "give one of version, snapshot and tag")
    target = targets[0]
    if given_.get("version") is not None and target.isascii() and target.isdigit():
        target = int(target)
    return _rolled_back(table_of(session, given_["table"]), target)


def _rollback_to_timestamp(session: SqlSession, given_: Arguments) -> SqlResult:
    table = table_of(session, given_["table"])
    snapshot = table.scan(timestamp_ms=given_["timestamp"]).snapshot
    assert snapshot is not None, "a scan of a time has a snapshot, or is refused"
    return _rolled_back(table, snapshot.id)


def _rollback_to_watermark(session: SqlSession, given_: Arguments) -> SqlResult:
    """To the newest snapshot whose watermark is not above this one."""
    table = table_of(session, given_["table"])
    marks = {each.id: each.watermark for each in table.snapshots() if each.watermark is not None}
    below = [snapshot_id for snapshot_id, mark in marks.items() if mark <= given_["watermark"]]
    if not below:
        has = f"the lowest is {min(marks.values())}" if marks else "none of its snapshots has one"
        raise NotFoundError(
            f"table {table.name} has no snapshot with a watermark of {given_['watermark']} or below; {has}",
            table=table.name,
        )
    return _rolled_back(table, max(below))


def _rename_branch(session: SqlSession, given_: Arguments) -> SqlResult:
    table_of(session, given_["table"]).branches.rename(given_["from_branch"], given_["to_branch"])
    return done()


def _rolled_back(table: Table, target: int | str) -> SqlResult:
    before = table.latest_snapshot()
    result = table.rollback(target)
    now = result.snapshots[-1] if result.snapshots else before
    ids = [None if each is None else each.id for each in (before, now)]
    columns = {"previous_snapshot_id": ids[:1], "current_snapshot_id": ids[1:]}
    return SqlResult(given(columns, dict.fromkeys(columns, pa.int64())).rows, result, table=table.name)


def _remove_orphan_files(session: SqlSession, given_: Arguments) -> SqlResult:
    files, size = 0, 0
    for table in _tables(session, given_["table"]):
        age = age_ms(session, table, given_.get("older_than"))
        is_dry = bool(given_.get("dry_run"))
        found = (
            table.remove_orphan_files(dry_run=is_dry)
            if age is None
            else table.remove_orphan_files(older_than_ms=age, dry_run=is_dry)
        )
        files += len(found.files)
        size += found.size_bytes
    columns = {"deletedFileCount": [files], "deletedFileTotalLenInBytes": [size]}
    return given(columns, dict.fromkeys(columns, pa.int64()))


def _tables(session: SqlSession, text: str) -> Iterator[Table]:
    """One table, or all of `database.*`."""
    if not text.endswith(".*"):
        yield table_of(session, text)
        return
    database = text.removesuffix(".*")
    for name in session.catalog.list_tables(database):
        yield session.table(SqlName(name, database))


def _reset_consumer(session: SqlSession, given_: Arguments) -> SqlResult:
    table = table_of(session, given_["table"])
    if given_.get("nextSnapshotId") is None:
        table.delete_consumer(given_["consumerId"])
    else:
        table.reset_consumer(given_["consumerId"], given_["nextSnapshotId"])
    return done()


def _clear_consumers(session: SqlSession, given_: Arguments) -> SqlResult:
    table = table_of(session, given_["table"])
    included = re.compile(given_.get("includingConsumers") or ".*")
    excluded = re.compile(given_.get("excludingConsumers") or r"(?!)")
    for name in table.consumers():
        if included.fullmatch(name) and not excluded.fullmatch(name):
            table.delete_consumer(name)
    return done()


_TABLE: Final = {"table": str}
_TAG: Final = {"table": str, "tag": str}
_TAG_MORE: Final = {"snapshot": int, "time_retained": str}
PROCEDURES: Final[Mapping[str, Procedure]] = {
    "compact": Procedure(
        _compact,
        _TABLE,
        {
            "partitions": str,
            "compact_strategy": str,
            "order_strategy": str,
            "order_by": str,
            "where": type(None),
            "options": str,
            "partition_idle_time": type(None),
        },
    ),
    "compact_database": Procedure(
        _compact_database,
        {},
        {"including_databases": str, "including_tables": str, "excluding_tables": str, "options": str},
    ),
    "rescale": Procedure(_rescale, _TABLE, {"bucket_num": int, "partitions": str, "where": type(None)}),
    "expire_snapshots": Procedure(
        _expire_snapshots,
        _TABLE,
        {"retain_max": int, "retain_min": int, "older_than": str, "max_deletes": int, "options": str},
    ),
    "expire_partitions": Procedure(
        _expire_partitions,
        _TABLE,
        {
            "expiration_time": str,
            "timestamp_formatter": str,
            "timestamp_pattern": str,
            "expire_strategy": str,
            "max_expires": int,
            "options": str,
        },
    ),
    "create_tag": Procedure(_create_tag, _TAG, _TAG_MORE),
    "replace_tag": Procedure(_replace_tag, _TAG, _TAG_MORE),
    "create_tag_from_timestamp": Procedure(
        _create_tag_from_timestamp, {**_TAG, "timestamp": int}, {"time_retained": str}
    ),
    "rename_tag": Procedure(_rename_tag, {**_TAG, "target_tag": str}, {}),
    "delete_tag": Procedure(_delete_tag, _TAG, {}),
    "create_branch": Procedure(_create_branch, {"table": str, "branch": str}, {"tag": str, "ignoreIfExists": str}),
    "delete_branch": Procedure(_delete_branch, {"table": str, "branch": str}, {}),
    "rollback": Procedure(_rollback, _TABLE, {"version": str, "snapshot": int, "tag": str}),
    "rollback_to_timestamp": Procedure(_rollback_to_timestamp, {"table": str, "timestamp": int}, {}),
    "rollback_to_watermark": Procedure(_rollback_to_watermark, {"table": str, "watermark": int}, {}),
    "rename_branch": Procedure(_rename_branch, {"table": str, "from_branch": str, "to_branch": str}, {}),
    "expire_tags": Procedure(expire_tags, _TABLE, {"older_than": str}),
    "trigger_tag_automatic_creation": Procedure(trigger_tag_automatic_creation, _TABLE, {}),
    "compact_manifest": Procedure(compact_manifest, _TABLE, {"options": str, "dry_run": bool}),
    "mark_partition_done": Procedure(mark_partition_done, {"table": str, "partitions": str}, {}),
    "purge_files": Procedure(purge_files, _TABLE, {}),
    "repair": Procedure(repair, {"database_or_table": str}, {}),
    "remove_orphan_files": Procedure(
        _remove_orphan_files,
        _TABLE,
        {"older_than": str, "dry_run": bool, "parallelism": type(None), "mode": type(None)},
    ),
    "reset_consumer": Procedure(_reset_consumer, {"table": str, "consumerId": str}, {"nextSnapshotId": int}),
    "clear_consumers": Procedure(_clear_consumers, _TABLE, {"includingConsumers": str, "excludingConsumers": str}),
}
"""Arguments of the type of None are Apache Paimon's, and refused when they are given a value."""


def procedure(name: str) -> Procedure:
    """The procedure; refuses those that there are not, saying what does the same."""
    found = PROCEDURES.get(name.lower())
    if found is None:
        instead = INSTEAD.get(name.lower(), f"procedures are {', '.join(sorted(PROCEDURES))}")
        raise refused(f"CALL sys.{name}", instead)
    return found
