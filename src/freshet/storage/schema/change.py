"""Changes of a table's schema, as values; `changed_schema` makes the schema that they lead to.

A field of a ROW is named like a column, `within` the column that it is in: `AddColumn("zip", "STRING",
within="address")`. On the way deeper the elements of an ARRAY are called `element`, the values of a MAP `value`:
`DropColumn("price", within=("items", "element"))`.

Source: FORMAT.md §2.4, §13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from freshet.storage.model.data_type import DataType

Within: TypeAlias = str | tuple[str, ...]
"""The column that a field is in, or the names on the way to it; `()` for columns."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new nullable column, last unless `first`, `after` or `before` says otherwise (`last`: also where the table puts
    new columns before its partition keys)."""

    name: str
    type: str | DataType
    comment: str | None = None
    first: bool = False
    after: str | None = None
    before: str | None = None
    last: bool = False
    within: Within = ()


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Takes a column away; adding the name again makes a new column."""

    name: str
    within: Within = ()


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Gives a column another name."""

    name: str
    new_name: str
    within: Within = ()


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Gives a column another type; its nullability stays."""

    name: str
    type: str | DataType
    within: Within = ()


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Allows or forbids nulls."""

    name: str
    nullable: bool
    within: Within = ()


@dataclass(frozen=True, slots=True)
class SetDefault:
    """What is written where a row has NULL or no value for a column, as text that its type can be cast from; None takes
    it away. Rows that are there keep what they have."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class DropPrimaryKey:
    """Makes an append table of a keyed one that nothing was committed to."""


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Puts a column first, last, behind another one or before it."""

    name: str
    first: bool = False
    after: str | None = None
    before: str | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class SetOption:
    """Sets an option of the table."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class ResetOption:
    """Takes an option back to its default."""

    key: str


@dataclass(frozen=True, slots=True)
class SetBucketCount:
    """Another fixed number of buckets for partitions to come; those that have files keep theirs until a rescale
    rewrites them (`maintenance.rescale`)."""

    count: int


@dataclass(frozen=True, slots=True)
class SetComment:
    """Comment of the table; None takes it away."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    """Comment of a column; None takes it away."""

    name: str
    comment: str | None
    within: Within = ()


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | SetNullable
    | MoveColumn
    | SetOption
    | ResetOption
    | SetBucketCount
    | SetComment
    | SetColumnComment
    | SetDefault
    | DropPrimaryKey
)

InnerChange = AddColumn | DropColumn | RenameColumn | ChangeType | SetNullable | SetColumnComment
"""What a field inside of a column can be given too."""
