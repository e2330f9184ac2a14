"""`only` of a source: which of the tables in its topics it reads.

| only | records of several tables |
|---|---|
| left out | the second table stops the run before anything of its batch is committed |
| {db: …, schema: …, table: …} | those of other tables are passed over, and counted |
| any | all are read as one table: shards, or a table that was renamed |

A name is a text, or a regular expression (Python's) that the whole name matches; keys left out take every name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

ANY: Final = "any"
_SPECIAL: Final = frozenset("\\.^$*+?{}[]|()")
_WANTED: Final = "wants any, or one or more of db, schema and table, such as {table: orders}"


def number_text(value: Any) -> Any:
    """A number as the text that it is a name or an interval by; other values as they are."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _name(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"wants a name, or a regular expression such as orders_[0-9]+ ({error.msg})") from error
    return text


_Name = Annotated[str | None, BeforeValidator(number_text), AfterValidator(_name)]


class OnlyTables(BaseModel):
    """The tables that are read; without any name, all are (`only: any`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    db: _Name = None
    of_schema: _Name = Field(default=None, alias="schema")
    table: _Name = None

    @model_validator(mode="before")
    @classmethod
    def _any(cls, value: Any) -> Any:
        if value == ANY:
            return {}
        if not isinstance(value, Mapping) or all(name is None for name in value.values()):
            raise ValueError(_WANTED)
        return value

    @property
    def is_any(self) -> bool:
        """True where all tables are read as one on purpose."""
        return self.db is None and self.of_schema is None and self.table is None

    @property
    def may_be_several(self) -> bool:
        """True where the names are patterns, or there are none: the records may be of several tables."""
        return self.is_any or any(_SPECIAL & set(name or "") for name in (self.db, self.of_schema, self.table))

    def takes(self, db: str, schema: str, table: str) -> bool:
        """True for a table that is read; a name that it has not is empty."""
        pairs = ((self.db, db), (self.of_schema, schema), (self.table, table))
        return all(wanted is None or wanted == name or _matches(wanted, name) for wanted, name in pairs)


@lru_cache(4096)
def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None
