"""Names in SQL: `table`, `database.table`, `catalog.database.table`, with backticks around other characters; the values
that a statement writes out: texts, options, the values of a partition, moments; and both as a table has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.literal import timestamp_value
from freshet.storage.sql.refusals import refused, wrong

if TYPE_CHECKING:
    from freshet.storage.table import Table

FILES: Final = (
    "add the rows of a file by freshet append WAREHOUSE TABLE FILE or Table.append, then name the table; Table.merge "
    "and freshet merge take the file itself"
)
"""What does the work of statements that read files."""

_CAST_TYPES = frozenset(
    {"BIGINT", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "SMALLINT", "TIMESTAMP", "TIMESTAMPLTZ", "TIMESTAMPNTZ",
     "TIMESTAMPTZ", "TINYINT"}
)  # fmt: skip

PartitionValues = Mapping[str, str | None]
"""Partition keys with their values as folders write them; None is NULL."""


class SqlName(Frozen):
    """A name with what is written before its dots. Of a database `name` is the database, and `database` None."""

    name: str
    database: str | None = None
    catalog: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.database, self.name) if part is not None)

    @classmethod
    def of(cls, parts: Sequence[str]) -> SqlName:
        """The name of a table of these parts."""
        if not 1 <= len(parts) <= 3 or not all(parts):
            raise wrong(".".join(parts), "a table is named as database.table, or catalog.database.table")
        padded = [None] * (3 - len(parts)) + list(parts)
        return cls(parts[-1], padded[1], padded[0])

    def as_database(self) -> SqlName:
        """The same parts as the name of a database: `database`, `catalog.database`."""
        if self.catalog is not None:
            raise wrong(str(self), "a database is named as database, or catalog.database")
        return SqlName(self.name, None, self.database)


def table_name(node: exp.Expr | None) -> SqlName:
    """The name of a table in a statement, which has neither an alias nor anything else."""
    if not isinstance(node, exp.Table):
        raise refused(node if node is not None else "nothing", "the name of a table is expected there")
    only_name(node)
    return name_of(node)


def name_of(node: exp.Table) -> SqlName:
    """The name of a table, whatever else is there."""
    if not all(isinstance(part, exp.Identifier) for part in node.parts):
        raise refused(node, "the name of a table is expected there")
    parts = [part.name for part in node.parts]
    if "/" in parts[-1]:
        raise refused(node, f"a table of a catalog is expected there, not a file: {FILES}")
    return SqlName.of(parts)


def only_name(node: exp.Table, *known: str) -> None:
    """Refuses what a table has besides its name."""
    for name, value in node.args.items():
        if value and name not in ("this", "db", "catalog", *known):
            raise refused(value if isinstance(value, exp.Expr) else node)


def column_name(node: exp.Expr) -> str:
    """The name of one column of the table; fields of it are refused."""
    if isinstance(node, exp.Identifier):
        return str(node.name)
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or isinstance(node.this, exp.Star):
        raise refused(node, "the name of one column is expected there, not of a field in it")
    return str(node.name)


def text_literal(node: exp.Expr | None) -> str:
    """A text in quotes."""
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise refused(node if node is not None else "nothing", "a text in quotes is expected there")


def properties(nodes: Sequence[exp.Expr]) -> dict[str, str]:
    """Options of a table, `'key' = 'value'`."""
    found: dict[str, str] = {}
    for node in nodes:
        if type(node) is not exp.Property:
            raise refused(node, "options are written as TBLPROPERTIES ('key' = 'value')")
        key, value = _key(node.this), plain_text(node.args.get("value"))
        if key in found:
            raise wrong(node, f"{key!r} has two values")
        found[key] = value
    return found


def plain_text(node: exp.Expr | None) -> str:
    """A text, a number or a truth value, as options and partition folders have them."""
    match node:
        case exp.Literal():
            return str(node.this)
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Neg(this=exp.Literal() as number) if not number.is_string:
            return f"-{number.this}"
        case exp.Cast(this=exp.Literal() as text) if node.to.this.value in _CAST_TYPES:
            return str(text.this)
    raise refused(node if node is not None else "nothing", "a value is expected there: 'text', 1, TRUE")


def partition_values(node: exp.Expr) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The keys of `PARTITION (dt = '…', hour)` with values, and those without."""
    if not isinstance(node, exp.Partition) or node.args.get("subpartition"):
        raise refused(node)
    values: dict[str, str | None] = {}
    open_keys = []
    for each in node.expressions:
        if isinstance(each, exp.EQ):
            name = column_name(each.this)
            if name in values:
                raise wrong(node, f"{name} has two values")
            values[name] = None if isinstance(each.expression, exp.Null) else plain_text(each.expression)
        elif isinstance(each, exp.Predicate):
            raise refused(
                each,
                "a partition is named by the value of its key, dt = '…'; rows of a range of them go by "
                "DELETE FROM t WHERE …",
            )
        else:
            open_keys.append(column_name(each))
    return values, tuple(open_keys)


def moment_ms(text: str, zone: tzinfo = UTC) -> int:
    """A moment as it is written, `2026-11-22 08:00:00`, in milliseconds since 1970; without a zone it is of `zone`."""
    try:
        instant = timestamp_value(text.strip())
    except ValueError as error:
        raise InvalidRequestError(f"SQL: {text!r} is no moment: {error}") from error
    if instant.has_zone is not None or zone is UTC:
        return int(instant.nanos // 1_000_000)
    local = datetime.fromtimestamp(instant.nanos / 1_000_000_000, UTC).replace(tzinfo=zone)
    return int(local.timestamp() * 1000)


def _key(node: exp.Expr) -> str:
    match node:
        case exp.Literal():
            return str(node.this)
        case exp.Identifier() | exp.Var():
            return str(node.name)
        case exp.Column() | exp.Dot():
            return ".".join(part.name for part in node.parts)
    raise refused(node, "the key of an option is expected there")


def columns_as_written(table: Table, names: Iterable[str]) -> list[str]:
    """The columns of a table as it writes them; `InvalidRequestError` for a name that is none of them."""
    known = {name.lower(): name for name in table.schema.column_names}
    for name in names:
        if name.lower() not in known:
            raise InvalidRequestError(
                f"SQL: table {table.name} has no column {name!r}; it has {', '.join(known.values())}",
                table=table.name,
                column=name,
            )
    return [known[name.lower()] for name in names]


def by_keys(table: Table, values: PartitionValues) -> dict[str, str | None]:
    """The values by keys as the table writes them; `InvalidRequestError` for a column that is no partition key."""
    keys = {key.lower(): key for key in table.schema.partition_keys}
    unknown = [key for key in values if key.lower() not in keys]
    if unknown:
        has = f"its partition keys are {', '.join(keys.values())}" if keys else "it is not partitioned"
        raise InvalidRequestError(
            f"SQL: {unknown[0]!r} is no partition key of {table.name}; {has}", table=table.name, column=unknown[0]
        )
    return {keys[key.lower()]: value for key, value in values.items()}
