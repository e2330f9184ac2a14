"""Creates the table of a pipeline file, or checks that the one that is there is the same.

Columns, types, primary key and partition keys must be equal, but a nullable column of the table may be missing in the
file: it is NULL in the rows of this pipeline. Of the options only those must be equal that decide what the rows mean:
all who write one table must agree on its merge engine and sequence groups. Other options belong to the table: the
pipeline file gives them when it creates it, `Table.alter` changes them. So does a fixed number of buckets, which
`Table.rescale` changes under a pipeline that is started again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig, TableConfig, revealed
from freshet.pipeline.config.rules import decides_meaning
from freshet.pipeline.config.table_arguments import alter_statement, arguments_text, sql_command, type_in_sql
from freshet.pipeline.exceptions import ConfigurationError
from freshet.storage.catalog import split_branch
from freshet.storage.model.display import sql_name
from freshet.storage.model.schema import TableSchema
from freshet.storage.options import LOCAL_FOLDERS, CoreOptions, is_secret
from freshet.storage.table import Table

BUCKET: Final = "bucket"


def open_or_create(config: PipelineConfig) -> Table:
    """The table, ready to be written."""
    refuse_other_table(config)
    wanted = config.table.table_schema
    return target_catalog(config).create_table(
        config.table.name,
        schema={field.name: field.type for field in wanted.fields},
        primary_keys=wanted.primary_keys,
        partition_keys=wanted.partition_keys,
        options=wanted.options,
        if_not_exists=True,
    )


def refuse_other_table(config: PipelineConfig) -> None:
    """Raises `ConfigurationError` when the table is there and differs from the file; creates nothing."""
    differences = check_table(config)
    if differences:
        raise ConfigurationError(
            f"table {config.table.name} in {config.table.warehouse} exists and differs from the pipeline file: "
            f"{'; '.join(differences)}. Change the file, or alter the table"
        )


def check_table(config: PipelineConfig) -> list[str]:
    """How an existing table differs from the file; nothing is created.

    Raises the storage's own error when there is none and it could not be created so, as no branch is.
    """
    catalog, wanted = target_catalog(config), config.table
    if not catalog.has_table(wanted.name) and split_branch(wanted.name)[1] is None:
        catalog.check_new_table(wanted.table_schema)
        return []
    return list(_differences(catalog.table(wanted.name).schema, wanted.table_schema, config))


def with_table(config: PipelineConfig) -> PipelineConfig:
    """The configuration with the options and defaults that the table has, where it is there: records are decoded for
    those. So they are for all of its columns where fields become columns (`on_unknown_field: add`)."""
    catalog = target_catalog(config)
    if not catalog.has_table(config.table.name):
        return config
    schema = catalog.table(config.table.name).schema
    given = {name: getattr(config.table, name) for name in TableConfig.model_fields}
    own = {key: text for key, text in schema.options.items() if key not in LOCAL_FOLDERS}  # not for this machine
    given["options"] = {**config.table.options, **own}
    if any(source.on_unknown_field == "add" for source in config.sources):
        added = {field.name: str(field.type) for field in schema.fields if field.name not in config.table.columns}
        given["columns"] = {**config.table.columns, **added}
    table = TableConfig.model_validate(given).with_defaults(schema)
    return config.model_copy(update={"table": table})


def unused_options(config: PipelineConfig) -> Iterator[str]:
    """Options of the file that the table, where it is there, has not or has with other values."""
    catalog, wanted = target_catalog(config), config.table
    if not catalog.has_table(wanted.name):
        return
    yield from unheeded_texts(
        config, wanted.name, catalog.table(wanted.name).schema.options, wanted.table_schema.options
    )


def unheeded_texts(
    config: PipelineConfig, name: str, found: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[str]:
    """What to say of options of the file that the table of this name has not or has with other values."""
    warehouse = config.table.warehouse
    for key, value in wanted.items():
        is_rescaled = _is_rescaled(key, found.get(key), value)
        if key in LOCAL_FOLDERS:  # the file's own counts
            continue
        if found.get(key) != value and (is_rescaled or not decides_meaning(key)):
            is_hidden = is_secret(key, value) or is_secret(key, found.get(key, ""))
            there, here = ("another value", "…") if is_hidden else (found.get(key), value)
            table = arguments_text(warehouse, name, revealed(config.catalog))
            statement = alter_statement(name, f"SET TBLPROPERTIES ('{key}' = '{here}')")
            changed = sql_command(warehouse, [statement], revealed(config.catalog))
            command = f"freshet rescale {table} --bucket {here}" if is_rescaled else changed
            yield (
                f"{name} exists, and its own options count: {key} is {there if key in found else 'not set'} "
                f"there, so {key}={here} of the file does nothing. It is changed with: {command}"
            )


def _is_rescaled(key: str, found: str | None, wanted: str | None) -> bool:
    """Whether the two differ by a rescale, from one fixed number of buckets to another."""
    return key == BUCKET and found != wanted and all(text is not None and text.isdecimal() for text in (found, wanted))


def _is_default_bucket(key: str, found: str | None, wanted: str | None) -> bool:
    """Whether one says what the other has by default."""
    return key == BUCKET and {found, wanted} == {None, str(CoreOptions.bucket.of({}))}


def default_buckets(config: PipelineConfig) -> Iterator[str]:
    """What to know of a keyed table that is to be created without a number of buckets."""
    wanted = config.table
    if not wanted.primary_key or BUCKET in wanted.options or target_catalog(config).has_table(wanted.name):
        return
    if wanted.moves_rows:
        return  # there is no other way
    yield (
        f"table.options has no bucket: {wanted.name} will be created with dynamic buckets (bucket=-1, the default). "
        "For a log, or for several programs that add keys, give a number such as bucket: 4; none changes from or to -1 "
        "once the table has data"
    )


def _differences(found: TableSchema, wanted: TableSchema, config: PipelineConfig) -> Iterator[str]:
    unnamed = ", ".join(name for name in found.column_names if name not in wanted.by_name)
    renamed = f". If it was renamed, give it the new name in the file, which does not name {unnamed}" if unnamed else ""
    for name in wanted.column_names:
        if name not in found.by_name:
            added = f"ADD COLUMN {sql_name(name)} {type_in_sql(wanted.by_name[name].type)}"
            statement = alter_statement(config.table.name, added)
            command = sql_command(config.table.warehouse, [statement], revealed(config.catalog))
            yield f"it has no column {name}; add it with: {command}{renamed}"
        elif str(found.by_name[name].type) != str(wanted.by_name[name].type):
            yield f"column {name} is {found.by_name[name].type} there and {wanted.by_name[name].type} in the file"
    for field in found.fields:
        if field.name not in wanted.by_name and not field.type.nullable:
            yield f"it has a column {field.name} that may not be NULL, and the file does not name it"
    if found.primary_keys != wanted.primary_keys:
        yield f"its primary key is ({', '.join(found.primary_keys)}), not ({', '.join(wanted.primary_keys)})"
    if found.partition_keys != wanted.partition_keys:
        yield f"it is partitioned by ({', '.join(found.partition_keys)}), not ({', '.join(wanted.partition_keys)})"
    yield from differing_options(found.options, wanted.options)


def differing_options(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """How the options that decide what rows mean differ from those of the file."""
    for key in sorted(filter(decides_meaning, {*found, *wanted})):
        is_set = key in wanted or key.startswith("fields.")
        there, here = found.get(key), wanted.get(key)
        if is_set and there != here and not (_is_rescaled(key, there, here) or _is_default_bucket(key, there, here)):
            yield f"option {key} is {there or 'not set'} there and {here or 'not set'} in the file"
