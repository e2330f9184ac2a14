"""Tables that a pipeline reads: looked at before it starts, without Spark and without writing anything.

Columns of the target get the column of the same name, or what `select` says; columns of the source that the target does
not have are left out. Without `select` a column must have the target's type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet.pipeline.checks.local_engine import REMEDY
from freshet.pipeline.config.catalogs import source_catalog, target_catalog
from freshet.pipeline.config.frame_options import ISOLATION_OPTION, PlannedStream, stream_options, table_for
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, TableSourceConfig, revealed
from freshet.pipeline.config.source_options import nearest
from freshet.pipeline.config.table_source_rules import why_retractions_stay
from freshet.pipeline.decode.planning import mistaken_count, plain_reference
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import InvalidRequestError, KeyPath, Problem
from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.query.driver.row_works import fits, known_columns, selected_column
from freshet.storage.exceptions import StorageError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.options import CoreOptions
from freshet.storage.table import Table

_TEXTS: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)


def open_source(config: PipelineConfig, source: TableSourceConfig) -> Table:
    """The table that is read, with the options of the query; raises `NotFoundError` where there is none."""
    return table_for(source_catalog(config, source).table(source.name), source.given)


def planned_stream(source: TableSourceConfig, table: Table) -> PlannedStream:
    """The changes asked for; raises as `TableEngine.split_stream` does."""
    options = stream_options(source.given)
    assert options is not None
    return options.stream(table)


def source_problems(config: PipelineConfig) -> Iterator[Problem]:
    """What keeps the tables that a pipeline reads from being read into its table."""
    for index, source in enumerate(config.sources):
        if source.table is not None:
            yield from _problems(config, source, source.table, ("sources", index))


def _problems(
    config: PipelineConfig, source: SourceConfig, table: TableSourceConfig, key_path: KeyPath
) -> Iterator[Problem]:
    try:
        catalog = source_catalog(config, table)
        if not catalog.has_table(table.name):
            database = table.name.partition(".")[0]
            known = catalog.list_tables(database) if database in catalog.list_databases() else []
            names = [name if "." in name else f"{database}.{name}" for name in known]
            there = nearest(table.name, names)
            yield Problem(
                (*key_path, "table", "name"),
                f"there is no table {table.name} in {table.warehouse}{there}; one that another pipeline writes is "
                "there once that pipeline was started",
            )
            return
        opened = open_source(config, table)
        stream = planned_stream(table, opened)
        reason = _why_rows_would_stay(config, table)
    except (StorageError, OSError) as error:
        option = getattr(error, "option", None)
        inner = (option,) if option in table.options else ("catalog", option) if option in (table.catalog or {}) else ()
        yield Problem((*key_path, "table", *inner), str(error), kind_of(error))
        return
    if not config.table.primary_key and opened.schema.has_primary_key:
        yield Problem(
            (*key_path, "table", "name"),
            f"{table.name} has a primary key, so rows of it are updated and deleted, and {config.table.name} has none "
            "and cannot apply that; give it a primary_key",
        )
    if reason is not None:
        yield Problem(
            (*key_path, "table", "isolation"),
            f"speculative rows may be retracted, and {config.table.name} is there with options of its own: {reason}; "
            f"read committed rows ({ISOLATION_OPTION}=committed)",
        )
    yield from _columns(config, source, stream, key_path)


def _why_rows_would_stay(config: PipelineConfig, table: TableSourceConfig) -> str | None:
    """Why the target that is there would keep rows that are retracted; the file was looked at before."""
    options, catalog = stream_options(table.given), target_catalog(config)
    if options is None or options.request.isolation != "speculative" or not catalog.has_table(config.table.name):
        return None
    schema = catalog.table(config.table.name).schema
    given = {**schema.options, **config.table.write_options}
    target = CoreOptions.parse(given, has_primary_key=schema.has_primary_key, strict=False)
    return why_retractions_stay(target)


def _columns(
    config: PipelineConfig, source: SourceConfig, stream: PlannedStream, key_path: KeyPath
) -> Iterator[Problem]:
    if source.select:
        mistaken = list(_mistaken(config, source, stream, key_path))
        # Spark analyses it, where it runs.
        yield from mistaken or (_selected(config, source, stream, key_path) if config.is_local else ())
        return
    given = {field.name: field.type for field in stream.fields}
    taken = [field for field in config.table.fields if field.name in given]
    if not taken:
        yield Problem(
            key_path,
            f"the table read has the columns {', '.join(given)}, and none of {config.table.name}; give select",
        )
    for key in config.table.primary_key:
        if key not in given:
            known = nearest(key, given)
            yield Problem(
                key_path,
                f"the table read has no column {key}, which is a key column of the target{known}; give select",
            )
    for field in taken:
        if not _fits(given[field.name], field.type):
            yield Problem(
                key_path,
                f"column {field.name} is {given[field.name]} in the table read and {field.type} in the target; give "
                f"select with {field.name}: CAST({field.name} AS …)",
            )


def _mistaken(
    config: PipelineConfig, source: SourceConfig, stream: PlannedStream, key_path: KeyPath
) -> Iterator[Problem]:
    given = {field.name: field.type for field in stream.fields}
    for field in config.table.fields:
        name, *_ = plain_reference(source.select.get(field.name, "")) or ("",)
        if name in given and (reason := mistaken_count(name, given[name], field.type)) is not None:
            yield Problem((*key_path, "select", field.name), f"{reason}; say how it is computed")


def _selected(
    config: PipelineConfig, source: SourceConfig, stream: PlannedStream, key_path: KeyPath
) -> Iterator[Problem]:
    known, fields = known_columns(stream), {field.name: field for field in config.table.fields}
    for name, text in source.select.items():
        try:
            selected = selected_column(text, known, revealed(config.spark))
        except NotOursError as error:
            text = f"only Spark computes {text!r} ({error}): fill the column with a simpler expression, {REMEDY}"
            yield Problem((*key_path, "select", name), text)
            continue
        except InvalidRequestError as error:
            yield Problem((*key_path, "select", name), str(error))
            continue
        if name in fields and not fits(selected.type, fields[name]):
            text = f"{text!r} is {selected.type}, and column {name} is {fields[name].type}: cast it"
            yield Problem((*key_path, "select", name), text)


def _fits(given: DataType, wanted: DataType) -> bool:
    """Equal but for nullability and the length of texts, or a narrower integer; rows are checked when they come."""
    if isinstance(given, ScalarType) and isinstance(wanted, ScalarType):
        for family in (_TEXTS, _INTEGERS):
            if given.root in family and wanted.root in family:
                return family is _TEXTS or family.index(given.root) <= family.index(wanted.root)
    return str(with_nullable(given, True)) == str(with_nullable(wanted, True))
