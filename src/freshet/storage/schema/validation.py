"""What a table's schema and options must fulfil together, checked before the first file is written.

1. Names: columns are there, are not doubled, differ by more than upper and lower case, and are not system names.
2. Keys: primary and partition keys are scalar columns, not doubled; the primary key has a column that is no partition
   key; key columns are NOT NULL.
3. Options: spelled right, of the right type, supported (`options.core.check_access`), and no key, partition or secret
   among them.
4. Buckets: a keyed table has a number of them, or dynamic ones, which is the default, or postponed ones; an append
   table has a bucket key exactly when it has a number of buckets. A primary key without all partition columns needs
   dynamic buckets.
5. Combinations that contradict each other, and the options of merge engine, log and tags (`option_validation`).
6. What becomes part of a file's name can be one.

Source: FORMAT.md §2.2, §8.1, §8.2; MERGING.md §4.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from freshet.storage.codec.bucket_function import BucketFunctionType, check_bucket_function
from freshet.storage.codec.partition_names import check_partition_columns
from freshet.storage.codec.partition_path import check_partition_types
from freshet.storage.codec.stats import parse_stats_mode
from freshet.storage.codec.time_format import check_time_format
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField, DataType, RowType, ScalarType, TypeRoot, child_types
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, TableSchema, is_system_name
from freshet.storage.options.choices import DYNAMIC_BUCKET, UNAWARE_BUCKET, ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions, check_access, check_option_keys
from freshet.storage.options.declared.unsupported import MOVED_OUT
from freshet.storage.options.option import Access
from freshet.storage.options.retracts import blank_that_counts
from freshet.storage.options.secrets import check_stored
from freshet.storage.options.values import parse_file_prefix
from freshet.storage.schema.data_files import check_file_formats, check_file_indexes, check_index_parameters
from freshet.storage.schema.option_validation import check_engine, check_log_options, check_removals, check_tag_options
from freshet.storage.schema.record_expiry import time_column

_NO_PARTITION_FOLDER: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})


def validate_new_table(schema: TableSchema) -> CoreOptions:
    """Checks a table that is to be created and returns its options, parsed.

    Raises `InvalidRequestError`, or `UnsupportedFeatureError` for what the format has but Freshet does not.
    """
    check_columns(schema)
    _check_keys(schema)
    for key, argument in MOVED_OUT.items():
        if key in schema.options:
            raise InvalidRequestError(f"{key} cannot be given as an option; give {argument} instead", option=key)
    options = CoreOptions.parse(schema.options, has_primary_key=schema.has_primary_key, schema_version=schema.version)
    check_stored(schema.options)
    check_engine(schema, options, ())  # what no program supports is reported before what only Freshet does not
    check_access(options, Access.CREATE, "with these options")
    check_options(schema, options, schema.options.keys())
    check_partition_columns(schema.partition_keys, options.partition_default_name)
    check_removals(schema, options)
    check_index_parameters(schema.options, {})
    return options


def validate_changed_schema(before: TableSchema, after: TableSchema) -> CoreOptions:
    """Checks a table whose schema is to change and returns its options, parsed.

    Spelling and support are asked of the options that change only: a table made elsewhere keeps what it has.
    """
    check_columns(after, before)
    _check_keys(after, nullable_before=[name for name in before.primary_keys if before.by_name[name].type.nullable])
    changed = {key: value for key, value in after.options.items() if before.options.get(key) != value}
    check_option_keys(changed)
    check_stored(changed)
    options = CoreOptions.parse(
        after.options, has_primary_key=after.has_primary_key, schema_version=after.version, strict=False
    )
    check_engine(after, options, ())
    check_access(options, Access.CREATE, "with this option", keys=changed.keys())
    check_options(after, options, changed.keys())
    check_removals(after, options, _counting_blanks(before))
    check_index_parameters(after.options, before.options)
    return options


def _counting_blanks(schema: TableSchema) -> Collection[str]:
    """Columns in which a delete leaves something behind already."""
    options = CoreOptions.parse(
        schema.options, has_primary_key=schema.has_primary_key, schema_version=schema.version, strict=False
    )
    try:
        return blank_that_counts(schema, options)
    except InvalidRequestError:
        return ()  # made elsewhere, and mended now


def check_columns(schema: TableSchema, before: TableSchema | None = None) -> None:
    """Checks the names of the columns, nested ones too, and that the comment is text.

    Names that differ in upper and lower case only are refused unless the schema had them before: Spark SQL and other
    engines cannot distinguish them, but tables made elsewhere may have them.
    """
    if schema.comment is not None and not isinstance(schema.comment, str):
        raise InvalidRequestError(f"the comment of a table is text, not {schema.comment!r}")
    if not schema.fields:
        raise InvalidRequestError("a table needs at least one column")
    _refuse_doubles(schema.column_names, "column")
    for name in schema.column_names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidRequestError(f"a column name must be text and not blank, not {name!r}")
        if is_system_name(name) and (before is None or name not in before.by_name):
            raise InvalidRequestError(
                f"column name {name} is kept for system columns (those and names that start with {KEY_COLUMN_PREFIX}); "
                "rename the column",
                column=name,
            )
    for column in schema.fields:
        _check_nested(column.name, column.type)
    had = {} if before is None else dict(_case_clashes(before.fields))
    for name, other in _case_clashes(schema.fields):
        if had.get(name) != other:
            raise InvalidRequestError(
                f"columns {other} and {name} differ in upper and lower case only, which Spark SQL and other engines "
                "cannot distinguish; rename one of them",
                column=name,
            )


def _case_clashes(fields: Sequence[DataField], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Columns and nested fields that are spelled like an earlier one but for the case, each with that one."""
    first: dict[str, str] = {}
    for field in fields:
        path = prefix + field.name
        other = first.setdefault(path.lower(), path)
        if other != path:
            yield path, other
        for fields_of_row in _rows_in(field.type):
            yield from _case_clashes(fields_of_row, path + ".")


def _rows_in(data_type: DataType) -> tuple[Sequence[DataField], ...]:
    """The fields of each row in a type."""
    if isinstance(data_type, RowType):
        return (data_type.fields,)
    return tuple(fields for child in child_types(data_type) for fields in _rows_in(child))


def check_options(schema: TableSchema, options: CoreOptions, typed: Collection[str]) -> None:
    """Checks options against columns and against each other; also for a changed schema.

    `typed` names the options that are set now; those that a table has already may be without effect.
    """
    _check_moves(schema, options)
    _check_buckets(schema, options)
    check_dynamic_options(schema, options, typed)
    check_partition_types(schema.partition_keys, schema.types_of(schema.partition_keys), options.partition_legacy_name)


def check_dynamic_options(schema: TableSchema, options: CoreOptions, typed: Collection[str]) -> None:
    """Checks options given for one opening of a table against its columns and each other; not those of buckets."""
    _check_named_columns(schema, options, typed)
    _check_combinations(schema, options)
    check_log_options(schema, options)
    check_engine(schema, options, typed)
    _check_partition_name(options)
    check_file_formats(schema, options)
    check_file_indexes(schema, options.given, typed)
    check_tag_options(options, typed)
    time_column(schema, options)
    _check_partition_times(schema, options, typed)
    of_changelogs = options.changelog_file_stats_mode_given
    if of_changelogs is not None:
        parse_stats_mode(of_changelogs)
    for mode in (options.metadata_stats_mode, *(mode for _, mode in options.metadata_stats_mode_per_level)):
        parse_stats_mode(mode)


def _check_partition_times(schema: TableSchema, options: CoreOptions, typed: Collection[str]) -> None:
    """The format in which partitions say their time, and that there are partitions which could expire."""
    if "partition.expiration-time" in typed and not schema.partition_keys:
        raise InvalidRequestError(
            "partition.expiration-time is for tables with partition keys, and this one has none; remove the option",
            option="partition.expiration-time",
        )
    if options.partition_timestamp_formatter is not None and "partition.timestamp-formatter" in typed:
        check_time_format(options.partition_timestamp_formatter)


def _check_keys(schema: TableSchema, nullable_before: Sequence[str] = ()) -> None:
    for what, keys in (("primary key", schema.primary_keys), ("partition", schema.partition_keys)):
        _refuse_doubles(keys, f"{what} column")
        for name in keys:
            column = _column(schema, name, f"the {what}")
            if not isinstance(column.type, ScalarType):
                raise InvalidRequestError(
                    f"column {name} of type {column.type} cannot be part of the {what}", column=name
                )
            if what == "partition" and column.type.root in _NO_PARTITION_FOLDER:
                raise InvalidRequestError(
                    f"a table cannot be partitioned by column {name} of type {column.type}", column=name
                )
    if not schema.primary_keys:
        return
    if set(schema.primary_keys) <= set(schema.partition_keys):
        raise InvalidRequestError(
            "the primary key consists of partition columns only, so that a partition would hold one row; "
            "add a column to the primary key"
        )
    for name in schema.primary_keys:
        if schema.by_name[name].type.nullable and name not in nullable_before:
            raise InvalidRequestError(f"primary key column {name} must be NOT NULL", column=name)


def _check_nested(column: str, data_type: DataType) -> None:
    for fields in _rows_in(data_type):
        names = [field.name for field in fields]
        if not all(name.strip() for name in names):
            raise InvalidRequestError(f"column {column}: a field of {data_type} has a blank name", column=column)
        _refuse_doubles(names, f"column {column}: field")
        for field in fields:
            _check_nested(f"{column}.{field.name}", field.type)


def _check_moves(schema: TableSchema, options: CoreOptions) -> None:
    """What goes with a primary key that has not all partition columns, so that rows move between partitions."""
    missing = [name for name in schema.partition_keys if name not in schema.primary_keys]
    if not schema.has_primary_key or not missing:
        return
    without = (
        f"the primary key ({', '.join(schema.primary_keys)}) is without the partition "
        f"{'column' if len(missing) == 1 else 'columns'} {', '.join(missing)}, so rows move between partitions"
    )
    if options.bucket != DYNAMIC_BUCKET:
        raise InvalidRequestError(
            f"{without}, which needs dynamic buckets: leave the option bucket out, or add the partition columns to the "
            "primary key",
            option="bucket",
        )
    if options.ignore_delete and options.merge_engine is MergeEngine.DEDUPLICATE:
        raise InvalidRequestError(
            f"{without}, and ignore-delete would pass over the deletes by which they leave: leave it out, or add the "
            "partition columns to the primary key",
            option="ignore-delete",
        )
    if options.sequence_field:
        raise InvalidRequestError(
            f"{without}, and sequence.field does not say which of two rows in two partitions is the later one: rows "
            "count in the order in which they come. Leave sequence.field out, or add the partition columns to the "
            "primary key",
            option="sequence.field",
        )


def _check_buckets(schema: TableSchema, options: CoreOptions) -> None:
    if options.bucket == UNAWARE_BUCKET:
        if options.bucket_key:
            raise InvalidRequestError(
                "bucket-key has no meaning with bucket=-1; set a number of buckets or remove it", option="bucket-key"
            )
        return
    if options.bucket < 1 and not options.has_postponed_buckets:
        others = "-1 or -2" if schema.has_primary_key else "-1 for none"
        raise InvalidRequestError(
            f"bucket={options.bucket}: the number of buckets must be positive, or {others}", option="bucket"
        )
    bucket_key = options.bucket_key or schema.trimmed_primary_keys
    if not bucket_key:
        raise InvalidRequestError(
            "an append table with buckets needs the option bucket-key, or bucket=-1 for none", option="bucket-key"
        )
    _refuse_doubles(bucket_key, "bucket-key column")
    for name in bucket_key:
        column = _column(schema, name, "bucket-key", option="bucket-key")
        if not isinstance(column.type, ScalarType):
            raise InvalidRequestError(
                f"column {name} of type {column.type} cannot be part of the bucket-key",
                option="bucket-key",
                column=name,
            )
        if name in schema.partition_keys:
            raise InvalidRequestError(
                f"bucket-key must not contain the partition column {name}", option="bucket-key", column=name
            )
        if schema.has_primary_key and name not in schema.primary_keys:
            raise InvalidRequestError(
                f"bucket-key column {name} must be part of the primary key", option="bucket-key", column=name
            )
    try:
        function = BucketFunctionType(options.bucket_function_type)
    except ValueError as error:
        raise InvalidRequestError(
            f"option bucket-function.type = {options.bucket_function_type!r} cannot be used: "
            f"expected one of {', '.join(BucketFunctionType)}",
            option="bucket-function.type",
        ) from error
    check_bucket_function(function, schema.types_of(bucket_key))


def _check_named_columns(schema: TableSchema, options: CoreOptions, typed: Collection[str]) -> None:
    _refuse_doubles(options.sequence_field, "sequence.field column")
    for name in options.sequence_field:
        column = _column(schema, name, "sequence.field", option="sequence.field")
        if not isinstance(column.type, ScalarType):
            raise InvalidRequestError(
                f"sequence.field column {name} of type {column.type} has no order", option="sequence.field", column=name
            )
    if options.rowkind_field is not None:
        column = _column(schema, options.rowkind_field, "rowkind.field", option="rowkind.field")
        if column.type.root not in (TypeRoot.CHAR, TypeRoot.VARCHAR):
            raise InvalidRequestError(
                f"rowkind.field column {column.name} must be a STRING, it is {column.type}",
                option="rowkind.field",
                column=column.name,
            )
    ignored = CoreOptions.changelog_row_deduplicate_ignore_fields.key
    for name in (options.changelog_row_deduplicate_ignore_fields or ()) if ignored in typed else ():
        _column(schema, name, ignored, option=ignored)
    for key in options.given:
        parts = key.split(".")
        if parts[0] != "fields" or len(parts) < 2 or parts[1] == "default-aggregate-function":
            continue
        for name in parts[1].split(","):
            _column(schema, name, key, option=key)
        if parts[-1] == "stats-mode":
            parse_stats_mode(options.given[key])


def _check_combinations(schema: TableSchema, options: CoreOptions) -> None:
    if options.snapshot_num_retained_min > options.snapshot_num_retained_max:
        raise InvalidRequestError(
            f"snapshot.num-retained.min={options.snapshot_num_retained_min} is larger than "
            f"snapshot.num-retained.max={options.snapshot_num_retained_max}",
            option="snapshot.num-retained.min",
        )
    if options.streaming_read_overwrite and not schema.has_primary_key:
        raise InvalidRequestError(
            "streaming-read-overwrite needs a primary key; of a table without one, streams read the files that an "
            "overwrite adds with streaming-read-append-overwrite",
            option="streaming-read-overwrite",
        )
    if options.sequence_snapshot_ordering:
        _check_snapshot_ordering(schema, options)
    if schema.has_primary_key:
        return
    if options.changelog_producer is not ChangelogProducer.NONE:
        raise InvalidRequestError(
            "changelog-producer needs a primary key; append tables have no changelog files", option="changelog-producer"
        )
    if options.bucket == UNAWARE_BUCKET and options.full_compaction_delta_commits is not None:
        raise InvalidRequestError(
            "full-compaction.delta-commits has no meaning for an append table without buckets",
            option="full-compaction.delta-commits",
        )


def _check_snapshot_ordering(schema: TableSchema, options: CoreOptions) -> None:
    key = "sequence.snapshot-ordering"
    if not schema.has_primary_key:
        raise InvalidRequestError(f"{key} needs a primary key: it orders the rows of a key", option=key)
    if options.sequence_field:
        raise InvalidRequestError(
            f"{key} and sequence.field contradict each other: either the snapshot says which change is later, or a "
            "column; remove one of them",
            option=key,
        )
    if options.has_postponed_buckets:
        raise InvalidRequestError(
            f"{key} and bucket=-2 contradict each other: the compaction that puts rows into buckets numbers them. "
            "Leave it out, or give the table a number of buckets",
            option=key,
        )
    if not options.write_only:
        raise InvalidRequestError(
            f"{key} needs write-only=true: only a commit numbers the rows, so a writer cannot compact what it has "
            "written; compact with `freshet compact` or Table.compact",
            option=key,
        )


def _check_partition_name(options: CoreOptions) -> None:
    """Tables made elsewhere are read with others: in folders of partitions they are escaped."""
    try:
        parse_file_prefix(options.partition_default_name)
    except ValueError as error:
        key = "partition.default-name"
        text = f"option {key} = {options.partition_default_name!r} cannot be used: {error}"
        raise InvalidRequestError(text, option=key) from error


def _column(schema: TableSchema, name: str, where: str, option: str | None = None) -> DataField:
    column = schema.by_name.get(name)
    if column is None:
        raise InvalidRequestError(
            f"{where} names column {name!r}, which the table does not have; columns: {', '.join(schema.column_names)}",
            column=name,
            option=option,
        )
    return column


def _refuse_doubles(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequestError(f"{what} {name} is named twice", column=name)
