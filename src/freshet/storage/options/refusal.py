"""When an option forbids what is to be done with a table: create it, write it, read it.

A refusal says what would go wrong first, and the remedy. It refuses no more than it must:

| refused | because |
|---|---|
| READ (and all below) | rows read without the feature would be wrong or incomplete |
| WRITE (and CREATE) | reading is right, but a commit without the feature would lose or break something |
| CREATE | a table would be made with a feature that Freshet does not have; existing ones are read and written |

Source: FORMAT.md §8.2, §10, §15; MERGING.md §4, §5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from freshet.storage.options.values import parse_map

Applies: TypeAlias = Callable[[str, bool], bool]
"""Asked with the option's text, and whether the table has a primary key."""

LATER: Final = "write and read it with Apache Paimon until Freshet supports it"


class Access(IntEnum):
    """What is to be done with a table; a refusal of one of them holds for the larger ones too."""

    READ = 0
    WRITE = 1
    CREATE = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values of an option that are not supported."""

    access: Access
    applies: Applies
    reason: str
    remedy: str


def is_true(text: str, has_primary_key: bool = False) -> bool:
    """The option is switched on."""
    return text.lower() == "true"


def is_set(text: str, has_primary_key: bool = False) -> bool:
    """The option has a value."""
    return bool(text.strip())


def is_none_of(*allowed: str) -> Applies:
    """The value is another one than these."""
    return lambda text, _: text.strip().lower() not in allowed


def has_level_not_of(*allowed: str) -> Applies:
    """The value of a level, in a map of levels to values, is another one than these."""
    return lambda text, _: any(value.lower() not in allowed for value in parse_map(text).values())
