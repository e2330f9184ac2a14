"""What is looked at before a pipeline starts, without Spark and without writing anything.

    files.path is there  ·  tables that are read are there and fit  ·  the table is as the file says
    ·  the checkpoint is this pipeline's, or new and writable
    ·  the dead-letter table is one  ·  neither table holds commits of an earlier query of this name
    ·  no other pipeline writes the log of the table  ·  what keeps the index of a table whose rows move is installed
    ·  nothing needs Spark in a file that runs without it (`local_engine`)
    ·  the rules of `expect` are conditions over the columns of the table

An earlier query: with table and checkpoint removed to start over, and the dead letters kept, a pipeline would run until
the first dead letter, and then be refused at every start.

Of a file with `sync` the columns of a table are known once the table is there: the rules of `expect` that name its
table are looked at then. At `run_on: spark`, what only Spark computes is left to Spark (`sources.select_check`).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from freshet.pipeline.checks.local_engine import local_problems
from freshet.pipeline.config.catalogs import target_catalog, target_location
from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.config.rules import warnings
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.expectations import ONLY_SPARK, condition_of
from freshet.pipeline.decode.planning import meaning_settings
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import ConfigurationError, KeyPath, Problem
from freshet.pipeline.identity.checkpoint_folder import (
    CheckpointFolder,
    CheckpointPlace,
    as_folder,
    local_folder,
    undecoded_folder,
    write_problem,
)
from freshet.pipeline.identity.checkpoint_owner import checkpoint_problem, query_id_of
from freshet.pipeline.query.driver.table_setup import check_table, default_buckets, unused_options, with_table
from freshet.storage.catalog import is_catalog_option
from freshet.storage.exceptions import InvalidRequestError, StorageError, UnknownOutcomeError
from freshet.storage.model.data_type import DataField
from freshet.storage.table import Table

DEAD_LETTER_KEYS: Final = ("pipeline", "reason", "raw_value", "micro_batch_id")
"""Columns by which a dead-letter table is known."""

_NEW_QUERY: Final = "a query that has not begun"

_PLACES: Final = ("{", "$")


def problems_before_start(config: PipelineConfig) -> list[Problem]:
    """Everything that would keep a pipeline from running, with the keys in its file."""
    looks: tuple[Callable[[PipelineConfig], Iterator[Problem]], ...] = (
        local_problems,
        _expectation_problems,
        _files,
        _read_tables,
        _tables,
        _libraries,
    )
    return [config.origin.placed(problem) for look in looks for problem in look(config)]


def checkpoint_problems(config: PipelineConfig, folder: CheckpointFolder) -> list[Problem]:
    """The same of a checkpoint that lies elsewhere than on a local disk, and of what the tables hold of its query."""
    return [config.origin.placed(problem) for problem in _tables(config, folder)]


def warnings_before_start(config: PipelineConfig) -> list[str]:
    """What a run should say before it starts, by the file and by the table, where it is there; nothing here stops it.

    A table that cannot be looked at is a problem, reported elsewhere.
    """
    from freshet.pipeline.config.changelog_rules import changelog_warnings
    from freshet.pipeline.config.toast_columns import toast_warnings

    try:
        known = with_table(config)
        catalog = target_catalog(config)
        is_compacted = catalog.has_table(config.table.name) and catalog.table(config.table.name).engine.is_compacted()
        unused = [*unused_options(config), *default_buckets(config)]
    except (StorageError, OSError):
        known, is_compacted, unused = config, False, []
    changelog = changelog_warnings(known, is_compacted=is_compacted)
    # Of sources that are alike it is said once.
    return list(dict.fromkeys([*warnings(config), *toast_warnings(known), *changelog, *unused]))


def _files(config: PipelineConfig) -> Iterator[Problem]:
    for index, source in enumerate(config.sources):
        local = None if source.files is None else local_folder(source.files.path)
        if local is None:
            continue
        key_path, path = ("sources", index, "files", "path"), str(local)
        if glob.has_magic(path):
            parts = local.parts
            path = str(Path(*parts[: next(i for i, part in enumerate(parts) if glob.has_magic(part))]))
        if not os.path.exists(path):
            yield Problem(key_path, f"{path} is not there; make the folder, it may be empty")
        elif os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
            yield Problem(key_path, f"no right to read {path}")


def _read_tables(config: PipelineConfig) -> Iterator[Problem]:
    """The tables that are read, of a file that reads any."""
    if config.follows_tables:
        from freshet.pipeline.checks.table_sources import source_problems

        yield from source_problems(config)


def _libraries(config: PipelineConfig) -> Iterator[Problem]:
    """What the first batch would need: of this machine, those of executors are not looked at."""
    try:
        moves_rows = with_table(config).table.moves_rows
    except (StorageError, OSError):
        return  # said elsewhere
    if not moves_rows:
        return
    from freshet.storage.place_index.index_database import is_rocksdb_installed

    if not is_rocksdb_installed():
        yield Problem(
            ("table", "primary_key"),
            f"it has not all columns of partition_by, so rows of {config.table.name} move between partitions, and the "
            'index of its keys is kept in RocksDB, which is not installed: pip install "freshet-lake[rocksdb]" here '
            "and where tasks run, or add the partition columns to the primary key of a new table",
        )


def _tables(config: PipelineConfig, folder: CheckpointFolder | None = None) -> Iterator[Problem]:
    """The table, what belongs to it, and the checkpoint: its folder, where Spark has opened it."""
    checkpoint = folder or config.checkpoint
    try:
        differences = check_table(config)
        catalog = target_catalog(config)
        table = catalog.table(config.table.name) if catalog.has_table(config.table.name) else None
        dead = catalog.table(config.dead_letter_table) if catalog.has_table(config.dead_letter_table) else None
    except (StorageError, OSError) as error:
        yield Problem(_key_path_of(error, config), str(error), kind_of(error))
        return
    for text in differences:
        yield Problem(
            ("table",), f"{config.table.name} exists and differs: {text}. Change the file, or alter the table"
        )
    problem = checkpoint_problem(checkpoint, pipeline=config.name, table=table)
    if problem:
        yield Problem(("checkpoint",), problem)
        return
    warehouse = local_folder(target_location(config))
    reason = write_problem(warehouse) if warehouse is not None else None
    if reason:
        yield Problem(
            ("table", "warehouse"), f"{config.table.warehouse} cannot be written: {reason}; choose another folder"
        )
        return
    if table is not None:
        remedy = _REMEDY_TABLE + (_REMEDY_LOG if table.options.logs_changes else "")
        yield from _earlier_query(config, checkpoint, table, ("checkpoint",), remedy)
        yield from _other_log_user(config, table)
    if dead is None:
        return
    if not set(DEAD_LETTER_KEYS) <= set(dead.schema.column_names) or dead.schema.has_primary_key:
        columns = ", ".join(dead.schema.column_names)
        yield Problem(
            ("dead_letters",), f"table {dead.name} is no dead-letter table (its columns: {columns}); name another one"
        )
    else:
        yield from _earlier_query(config, checkpoint, dead, ("dead_letters",), _REMEDY_DEAD)


_REMEDY_TABLE: Final = (
    "Restore the checkpoint, or give the pipeline another name: it then starts as a new writer and may repeat rows "
    "that are in the table already"
)
_REMEDY_LOG: Final = "; a log has one writer, so the table then needs another kafka.topic"
_REMEDY_DEAD: Final = (
    "Name another table under dead_letters, drop this one once its records have been looked at, or give the pipeline "
    "another name"
)


def _earlier_query(
    config: PipelineConfig, checkpoint: CheckpointPlace, table: Table, key_path: KeyPath, remedy: str
) -> Iterator[Problem]:
    """Whether a table holds commits under this pipeline's name that were not made with this checkpoint."""
    if as_folder(checkpoint) is None:
        return  # looked at once Spark runs
    query_id = query_id_of(checkpoint)
    try:
        table.engine.has_committed(config.name, query_id or _NEW_QUERY, 0)
    except UnknownOutcomeError:
        return  # history has expired: for a batch to decide
    except InvalidRequestError:
        whose = "the checkpoint is new" if query_id is None else f"the checkpoint belongs to query {query_id}"
        if query_id is None:
            remedy = _remedy_undecoded(config.checkpoint) or remedy
        yield Problem(
            key_path,
            f"table {table.name} holds commits that an earlier query made under the name {config.name!r}, and {whose}: "
            f"the run would be refused. {remedy}",
        )
    except (StorageError, OSError) as error:
        yield Problem(key_path, str(error), kind_of(error))


def _remedy_undecoded(checkpoint: str) -> str | None:
    """What to do where Spark's part of a checkpoint lies in the folder that the URI names as it stands."""
    other, folder = undecoded_folder(checkpoint), local_folder(checkpoint)
    if other is None or folder is None or query_id_of(str(other)) is None:
        return None
    return f"An earlier version has left a part of it in {other}: move what is there into {folder}, and remove {other}"


def _other_log_user(config: PipelineConfig, table: Table) -> Iterator[Problem]:
    """Whether another user writes the log of the table."""
    try:
        user = table.with_options(dict(config.table.write_options)).engine.log.user()
    except (StorageError, OSError) as error:
        yield Problem(("table",), str(error), kind_of(error))
        return
    if user not in (None, config.name):
        yield Problem(
            ("table", "name"),
            f"{user!r} writes the log of table {table.name}, and a log has one writer. Write through that pipeline (it "
            f"may have several sources), or stop it for good and give the table another kafka.topic ({_SET_TOPIC})",
        )


_SET_TOPIC: Final = "ALTER TABLE … SET TBLPROPERTIES ('kafka.topic' = '…')"


def _key_path_of(error: Exception, config: PipelineConfig) -> KeyPath:
    """Where in a file an error of the storage belongs, as far as it says what it is about."""
    column, option = getattr(error, "column", None), getattr(error, "option", None)
    if option in config.catalog:
        return ("catalog", option)
    if option and is_catalog_option(option):
        return ("table", "warehouse")
    if option:
        return ("table", "options", option)
    return ("table", "columns", column) if column else ("table",)


def _expectation_problems(config: PipelineConfig) -> Iterator[Problem]:
    """What is wrong with the rules of a file, of each the first thing."""
    if isinstance(config, SyncPipelineConfig):
        for index, rule in enumerate(config.sync.tables):
            fields = _fields_of(config, rule.to or "") if rule.expect else None
            yield from _wrong(rule.expect, fields, ("sync", "tables", index, "expect"), "use a simpler condition")
        return
    if config.follows_tables or not config.table.expect:
        return
    known = config
    with suppress(StorageError, OSError):  # said elsewhere
        known = with_table(config)
    fields, key_path = known.table.fields, ("table", "expect")
    settings = meaning_settings(revealed(config.spark))
    under = f"under the setting {settings[0]}, " if settings else ""
    remedy = f"{under}use a simpler condition, or write run_on: spark" if config.is_local else None
    found = list(_wrong(config.table.expect, fields, key_path, remedy, is_sparks=bool(settings)))
    yield from found
    for name, expected in config.table.expect.items():
        if not any(problem.key_path[-1] == name for problem in found):
            yield from _unfilled(config, fields, expected, (*key_path, name))


def _wrong(
    rules: Mapping[str, Expectation],
    fields: Sequence[DataField] | None,
    key_path: KeyPath,
    remedy: str | None,
    *,
    is_sparks: bool = False,
) -> Iterator[Problem]:
    """`fields` are the columns of the table, None where they are not known; with a `remedy`, what only Spark computes
    is refused; `is_sparks`: all of them are such."""
    for name, rule in rules.items():
        try:
            condition = condition_of(fields, rule.sql) if fields is not None else None
        except ConfigurationError as error:
            yield Problem((*key_path, name), str(error))
            continue
        if remedy is not None and (is_sparks or (condition is not None and condition.sql is None)):
            yield Problem((*key_path, name), f"{ONLY_SPARK.format(sql=rule.sql)}: {remedy}")


def _unfilled(
    config: PipelineConfig, fields: Sequence[DataField], rule: Expectation, key_path: KeyPath
) -> Iterator[Problem]:
    """A rule of which no source fills all columns judges nothing."""
    read = [fields[index] for index in condition_of(fields, rule.sql).reads or ()]
    names = [each.name for each in read if each.default_value is None]
    if config.sources and not any(all(map(source.fills, names)) for source in config.sources):
        text = f"no source fills {' and '.join(names)}, which {rule.sql!r} reads: it would judge no row"
        yield Problem(key_path, text)


def _fields_of(config: SyncPipelineConfig, target: str) -> Sequence[DataField] | None:
    """The columns of the table that a rule names; None where it names many, or the table is not there."""
    if any(mark in target for mark in _PLACES):
        return None
    try:
        catalog = target_catalog(config)
        return catalog.table(target).schema.fields if catalog.has_table(target) else None
    except (StorageError, OSError):
        return None  # said elsewhere
