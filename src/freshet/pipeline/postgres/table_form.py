"""The form that a table of the source has for some of its changes, with what its relation does not say."""

from __future__ import annotations

from functools import cached_property

from freshet._frozen import Frozen
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.postgres.source_types import SourceType
from freshet.pipeline.postgres.wire import Relation


class TableForm(Frozen, dict=True):
    """A value that travels to the workers. `key` are the columns of its key, `types` those of its columns; what is not
    `is_taken` is passed over."""

    relation: Relation
    database: str
    key: tuple[str, ...]
    types: tuple[SourceType, ...]
    is_taken: bool = True

    @cached_property
    def source_table(self) -> SourceTable:
        """The table by its names."""
        return SourceTable(self.database, self.relation.schema, self.relation.name)

    @property
    def columns(self) -> dict[str, str]:
        """The columns, and their types in a table of the lake."""
        names = (each.name for each in self.relation.columns)
        return dict(zip(names, (each.sql_type for each in self.types), strict=True))

    @cached_property
    def indexes(self) -> dict[str, int]:
        """The places of the columns, by their names."""
        return {each.name: index for index, each in enumerate(self.relation.columns)}

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        """The places of the columns of the key."""
        return tuple(self.indexes[name] for name in self.key if name in self.indexes)
