"""The form that a table of the source has for some of its changes, with what its relation does not say: the key, and
types of its own, as the catalogue of the server has them.

It is asked when a relation is new, so it shows the present, not the moment of the change; names and types of columns
are those of the relation.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.config.model import PostgresConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.source_types import LOOK_UP, SourceType, TypesSeen, UserType
from freshet.pipeline.postgres.wire import Relation, RelationColumn

_NO_OID: Final = 0
DEFAULT, FULL = "d", "f"
"""Replica identities with which a relation says whether its table has a primary key."""
_KEY: Final = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisprimary AND i.indisvalid ORDER BY array_position(i.indkey::int[], a.attnum::int)
"""


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


class SourceCatalog:
    """The forms of the tables of a stream."""

    def __init__(self, place: ServerPlace, config: PostgresConfig) -> None:
        self._place, self._config = place, config
        self._database: str | None = None
        self._forms: dict[Relation, TableForm] = {}
        self._types = TypesSeen()

    @property
    def publication(self) -> str:
        """The name of the publication."""
        return self._config.publication

    def form(self, relation: Relation) -> TableForm:
        """The form of a table whose changes are as the relation says."""
        found = self._forms.get(relation)
        if found is None:
            found = self._forms[relation] = self._asked(relation)
        return found

    def form_of(self, table: CopiedTable) -> TableForm:
        """The form of a table that is copied: as the relation of its changes would say."""
        keys = {table.columns[place].name for place in table.key}
        columns = tuple(
            RelationColumn(each.name, each.type_oid, each.modifier, each.name in keys) for each in table.columns
        )
        return self.form(Relation(_NO_OID, table.schema, table.name, DEFAULT, columns))

    @property
    def database(self) -> str:
        """The name of the database."""
        if self._database is None:
            ((self._database,),) = self._place.rows("SELECT current_database()::text")
        return self._database

    def _asked(self, relation: Relation) -> TableForm:
        names = tuple(each.name for each in relation.columns)
        key = tuple(each.name for each in relation.columns if each.is_identity)
        if relation.identity == FULL:
            rows = self._place.rows(_KEY, (relation.oid,))
            key = tuple(str(name) for (name,) in rows if name in names)
        types = self._types_of(relation)
        is_taken = self._config.takes(relation.schema, relation.name)
        return TableForm(relation, self.database, key, types, is_taken)

    def _types_of(self, relation: Relation) -> tuple[SourceType, ...]:
        unknown = self._types.unknown(each.type_oid for each in relation.columns)
        if unknown:
            looked_up = self._place.rows(LOOK_UP, ([*unknown],))
            self._types = TypesSeen(UserType(*row) for row in looked_up)
        return tuple(self._types.source_type(each.type_oid, each.typmod) for each in relation.columns)
