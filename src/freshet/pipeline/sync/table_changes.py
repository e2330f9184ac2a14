"""What a table becomes when its source has changed: pure, from a schema and what records say to the changes to make.

| source | table |
|---|---|
| a new table | created: columns of the records, metadata and computed columns; the key of the rule or the records |
| a new field | a nullable column more |
| a wider type of the same kind (INT to BIGINT, DECIMAL(5, 2) to (9, 2)) | widened; decimals to one that takes both |
| a narrower type, or one of another kind | as it is; values that do not fit are dead letters |
| a field that is gone, or renamed | stays; a renamed one is a new column, `renamed_columns` |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from freshet._frozen import Frozen
from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.config.model import TableConfig
from freshet.pipeline.config.source_options import METADATA_COLUMNS
from freshet.pipeline.decode.described_table import NEW_COLUMNS_MAX, DescribedTable, takes, union_type
from freshet.pipeline.decode.sql_types import UNSIZED_DECIMAL
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sync.routes import Route
from freshet.pipeline.sync.table_decoding import METADATA_TYPES
from freshet.storage.model.data_type import with_nullable
from freshet.storage.model.display import sql_name
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options import DYNAMIC_BUCKET, CoreOptions
from freshet.storage.schema.change import AddColumn, ChangeType, SchemaChange


class NewTable(Frozen):
    """The table to create."""

    columns: Mapping[str, str]
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]

    def schema(self, name: str) -> TableSchema:
        """The schema that the catalog takes."""
        return TableConfig(
            warehouse="/",
            name=name,
            columns=dict(self.columns),
            primary_key=self.primary_keys,
            partition_by=self.partition_keys,
            options=dict(self.options),
        ).table_schema


def possible_columns(
    route: Route, described: DescribedTable, there: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The fields that can be columns beside those that are there, and the others: a column with the name of metadata
    would be filled with that."""
    columns, no_names = described.as_columns(there)
    hidden = [name for name in METADATA_COLUMNS if name in columns and name not in {*there, *route.metadata_columns}]
    return {name: text for name, text in columns.items() if name not in hidden}, (*no_names, *hidden)


def new_table(route: Route, described: DescribedTable) -> NewTable:
    """The table of a new source table. Raises `InvalidRequestError` naming what its rule lacks."""
    columns, _ = possible_columns(route, described)
    columns |= {name: text for name, text in route.types.items() if name in columns}
    _refuse_unsized(route, columns, described)
    columns |= own_columns(route, columns)
    keys = route.primary_key or described.keys
    unknown = [name for name in (*keys, *route.partition_by) if name not in columns]
    if unknown:
        raise InvalidRequestError(
            f"the records of {route.target} have no field {unknown[0]}, which its key or partition_by names (first "
            f"record: {described.where}); their fields are {', '.join(columns)}"
        )
    if not keys and route.without_key == "fail":
        raise InvalidRequestError(
            f"the records of {route.target} name no key (first record: {described.where}): give its rule primary_key, "
            "or without_key: append for a table that rows are only appended to"
        )
    outside = [name for name in route.partition_by if keys and name not in keys]
    if outside and CoreOptions.bucket.of(route.options) == DYNAMIC_BUCKET:
        raise InvalidRequestError(
            f"{route.target} is to be partitioned by {outside[0]}, which its key ({', '.join(keys)}) does not have: "
            "rows that move between partitions are not written by sync; add it to primary_key of the rule"
        )
    return NewTable(columns, keys, route.partition_by, route.options)


def other_key(keys: Sequence[str], described: DescribedTable, table: str) -> str | None:
    """What to say where rows of the source that are alike in the key of their table may be several; they would take
    each other's place."""
    told, own = set(described.keys), set(keys)
    is_other = own < told
    if described.knows_key and own <= described.columns.keys():  # else the records are dead letters
        is_other = not told or not told <= own
    if not own or not is_other:
        return None
    named = ", ".join(keys)
    what = f"the key of the records of {table} is {', '.join(described.keys)}"
    way_on = "let the rule name a table of its own for the new key"
    if described.knows_key:
        append = "" if told else "; with without_key: append in the rule"
        way_on = f"drop the table of the lake and copy it again (freshet resync FILE --table TABLE{append})"
    return (
        f"{what if told else f'the records of {table} have no key'} (first record: {described.where}), and that of the "
        f"table is {named}: several rows of the source would be one. If that is meant, or each has {named} of its own, "
        f"give its rule primary_key: [{named}]; else {way_on}"
    )


def changes_of(
    schema: TableSchema, route: Route, described: DescribedTable
) -> tuple[tuple[SchemaChange, ...], tuple[str, ...]]:
    """The changes that the table needs, and the fields that cannot become columns."""
    other = None if route.primary_key else other_key(schema.primary_keys, described, route.target)
    if other is not None:
        raise InvalidRequestError(other)
    changes: list[SchemaChange] = []
    columns = {name: str(with_nullable(field.type, True)) for name, field in schema.by_name.items()}
    wanted, no_names = possible_columns(route, described, columns)
    own_names = route.metadata_columns.keys() | route.computed_columns.keys()
    after = dict(columns)
    for name, text in wanted.items():
        held = columns.get(name)
        if held is None:
            after[name] = route.types.get(name, text)
            _refuse_unsized(route, {name: after[name]}, described)
        elif name not in own_names and name not in route.types and described.is_typed and text != UNSIZED_DECIMAL:
            after[name] = union_type(held, text) or held
    for name, text in own_columns(route, after).items():
        if name not in columns or _is_wider(text, columns[name]):
            after[name] = text
    for name, text in after.items():
        if name not in columns:
            changes.append(AddColumn(name, text))
        elif text != columns[name]:
            changes.append(ChangeType(name, text))
    added = sum(isinstance(each, AddColumn) for each in changes)
    if added > NEW_COLUMNS_MAX:
        raise InvalidRequestError(
            f"the records of {route.target} bring {added} new fields at once (first record: {described.where}); more "
            f"than {NEW_COLUMNS_MAX} are not taken for a change of the source. If they are right, add the columns "
            "(ALTER TABLE … ADD COLUMNS) and start again"
        )
    return tuple(changes), no_names


def renamed_columns(
    schema: TableSchema, changes: Sequence[SchemaChange], lacks: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Columns that may be one by two names, (old, new): one that the records lack, and a new one that takes its values.

    Records do not say that a column was renamed: whoever knows it joins the two.
    """
    added = [each for each in changes if isinstance(each, AddColumn)]
    pairs = []
    for old in lacks:
        held = schema.by_name.get(old)
        text = None if held is None else str(with_nullable(held.type, True))
        found = next((each for each in added if text is not None and union_type(text, str(each.type))), None)
        if found is not None:
            added.remove(found)
            pairs.append((old, found.name))
    return tuple(pairs)


def joining_statements(schema: TableSchema, name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """The SQL that makes one column of each two, by the new name: the older one, with the values that the other has.

    Where the older one is of the key, the other has none: records without a key are dead letters.
    """
    statements, table = [], sql_name(*name.split(".", 1))
    for pair in pairs:
        old, new = map(sql_name, pair)
        if pair[0] not in schema.primary_keys:
            statements.append(f"UPDATE {table} SET {old} = {new} WHERE {new} IS NOT NULL")
        statements += [f"ALTER TABLE {table} DROP COLUMN {new}", rename_statement(name, *pair)]
    return "; ".join(statements)


def rename_statement(name: str, old: str, new: str) -> str:
    """The SQL that gives a column of a table another name."""
    return f"ALTER TABLE {sql_name(*name.split('.', 1))} RENAME COLUMN {sql_name(old)} TO {sql_name(new)}"


def _refuse_unsized(route: Route, columns: Mapping[str, str], described: DescribedTable) -> None:
    unsized = [name for name, text in columns.items() if text == UNSIZED_DECIMAL]
    if unsized:
        raise InvalidRequestError(
            f"the records of {route.target} call the type of {', '.join(unsized)} decimal, without its digits (first "
            f"record: {described.where}), as TiCDC does unless it is told otherwise: set content-compatible=true in "
            f"the sink-uri of its changefeed, or give the types in the rule, such as types: {{{unsized[0]}: "
            '"DECIMAL(14, 2)"}'
        )


def _is_wider(text: str, held: str) -> bool:
    return not takes(held, text) and takes(text, held)


def own_columns(route: Route, columns: Mapping[str, str]) -> dict[str, str]:
    """Metadata columns, and computed ones whose input is there."""
    found = {name: METADATA_TYPES[kind] for name, kind in route.metadata_columns.items()}
    for name, text in route.computed_columns.items():
        computed = ComputedColumn.parse(text)
        if computed.column is not None and computed.column not in columns:
            continue
        given = None if computed.column is None else parse_sql_type(columns[computed.column])
        try:
            found[name] = str(computed.type_over(given))
        except ValueError as error:
            raise InvalidRequestError(f"computed column {name} of {route.target}: {error}") from error
    return found
