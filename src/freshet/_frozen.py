"""The base of frozen values: their classes are made in 15 µs, and by `dataclass(frozen=True, slots=True)` in 600.

    class Place(Frozen):
        topic: str
        names: list[str] = field(default_factory=list)

`dataclasses.replace`, `fields` and `asdict` know them; with `dict=True` they may have cached properties. Dataclasses
are what has bases of its own, what users make, and the few that `freshet --help` loads.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, dataclass_transform

from msgspec import Struct, field

__all__ = ["Frozen", "field"]


class _Fields:
    """The fields of a class, as `dataclasses` asks for them."""

    def __get__(self, value: object, kind: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
        return _fields_of(kind)


@cache
def _fields_of(kind: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
    return {
        each.name: each
        for each in dataclasses.fields(dataclasses.make_dataclass(kind.__name__, kind.__struct_fields__))
    }


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """A value: equal to those of its class with the same fields, hashed by them, and never changed."""

    __dataclass_fields__ = _Fields()
