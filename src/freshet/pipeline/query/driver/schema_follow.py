"""What a running stream makes of a table whose schema changes under it.

| change | the stream |
|---|---|
| a nullable column is added | goes on; the column is NULL in its rows |
| anything else about a column that the frame has | is refused with the remedy: its rows were made for the old one |

The rows of a frame of outcomes were decoded for the schema of the pipeline file; `_d0` … are its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema


def refuse_other_columns(decoded: TableSchema, table: TableSchema, name: str) -> None:
    """Raises `InvalidRequestError` where rows decoded for one schema do not fit the table's."""
    differences = list(column_differences(decoded, table))
    if differences:
        raise InvalidRequestError(
            f"table {name} was changed while the stream ran: {'; '.join(differences)}. Nothing of this "
            "batch was written. Change the pipeline file where it names the column, then start it again; a column that "
            "on_unknown_field: add has added is added again where records have the field, and left out with ignore"
        )


def column_differences(decoded: TableSchema, table: TableSchema) -> Iterator[str]:
    """How the table's columns differ from those that rows were decoded for, in a way that the rows cannot follow."""
    for field in decoded.fields:
        found = table.by_name.get(field.name)
        if found is None:
            yield f"it has no column {field.name} any more"
        elif not _same_but_null(str(found.type), str(field.type)):
            yield f"column {field.name} is {found.type} there and {field.type} in the file"
    for found in table.fields:
        if found.name not in decoded.by_name and not found.type.nullable:
            yield f"it has a column {found.name} that must not be NULL, and the file does not name it"
    if decoded.primary_keys != table.primary_keys:
        yield f"its primary key is ({', '.join(table.primary_keys)}), not ({', '.join(decoded.primary_keys)})"


def _same_but_null(left: str, right: str) -> bool:
    """A column that may be NULL now takes all that the frame has; the writer checks the other way round."""
    return left.removesuffix(" NOT NULL") == right.removesuffix(" NOT NULL")


def check_names(given: Sequence[str], schema: TableSchema) -> None:
    """Every column that may not be NULL and has no default must be there; no other than the table's."""
    missing = [
        field.name
        for field in schema.fields
        if field.name not in given and not field.type.nullable and field.default_value is None
    ]
    unknown = [name for name in given if name not in schema.by_name and name != ROW_KIND_COLUMN]
    if missing or unknown:
        found = [f"lacks {', '.join(missing)}"] if missing else []
        found += [f"has {', '.join(unknown)}, which the table does not"] if unknown else []
        raise InvalidRequestError(
            f"the frame {' and '.join(found)}; the table's columns are {', '.join(schema.column_names)}"
        )
