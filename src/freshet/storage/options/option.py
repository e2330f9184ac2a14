"""An option of a table as it is declared: key, type, default, and what becomes of it.

    class ReadOptions:
        split_target_size_bytes = Option("source.split.target-size", SIZE, 128 * MB, above=0)
        \"\"\"Bytes that one reading task gets.\"\"\"

Code reads `options.split_target_size_bytes` of a `CoreOptions`, which has the value; the class has the declaration,
which reads a single option from texts: `CoreOptions.split_target_size_bytes.of(texts)`. The text below the declaration
goes into docs/reference/table-options.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.values import (
    parse_bool,
    parse_duration_ms,
    parse_file_prefix,
    parse_folder,
    parse_int,
    parse_levels,
    parse_long,
    parse_map,
    parse_names,
    parse_size_bytes,
    split_names,
)

Applies: TypeAlias = Callable[[str, bool], bool]
"""Asked with the option's text, and whether the table has a primary key."""

LATER: Final = "write and read it with Apache Paimon until Freshet supports it"


class Access(IntEnum):
    """What is to be done with a table; a refusal of one of them holds for the larger ones too."""

    READ = 0
    WRITE = 1
    CREATE = 2


class Refusal(Frozen):
    """Values of an option that are not supported: when it forbids what is to be done with a table.

    A refusal says what would go wrong first, and the remedy. It refuses no more than it must:

    | refused | because |
    |---|---|
    | READ (and all below) | rows read without the feature would be wrong or incomplete |
    | WRITE (and CREATE) | reading is right, but a commit without the feature would lose or break something |
    | CREATE | a table would be made with a feature that Freshet does not have; existing ones are read and written |

    Source: FORMAT.md §8.2, §10, §15; MERGING.md §4, §5.
    """

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


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

MB: Final = 1024 * 1024


class Status(StrEnum):
    """What Freshet does with an option."""

    READ = "read"
    REFUSED = "refused"
    """Read only to refuse values that ask for what is not supported."""
    TOLERATED = "tolerated"
    """Kept as it is, without effect here."""


class Kind(Frozen, Generic[T_co]):
    """A type of values: what it is called, and how its text is read; `parse` raises `ValueError`."""

    name: str
    parse: Callable[[str], T_co]


def one_of(choices: type[E]) -> Kind[E]:
    """One of some words, in any case."""

    def parse(text: str) -> E:
        try:
            return choices(text.lower())
        except ValueError:
            raise ValueError(f"expected one of {', '.join(choices)}") from None

    return Kind(", ".join(f"`{choice}`" for choice in choices), parse)


SIZE: Final = Kind("size", parse_size_bytes)
DURATION: Final = Kind("duration", parse_duration_ms)
INT: Final = Kind("integer", parse_int)
LONG: Final = Kind("integer", parse_long)
RATIO: Final = Kind("number", float)
FLAG: Final = Kind("boolean", parse_bool)
NAMES: Final = Kind("names", parse_names)
COLUMN_NAMES: Final = Kind("names", split_names)
RAW_NAMES: Final = Kind("names", lambda text: tuple(text.split(",")))
LEVELS: Final = Kind("map", lambda text: tuple(parse_levels(text).items()))
WORD: Final = Kind("text", str.lower)
TEXT: Final = Kind("text", str)
FILE_PREFIX: Final = Kind("text", parse_file_prefix)
FOLDER: Final = Kind("text", parse_folder)
LOCAL_FOLDER: Final = Kind("local folder", str)
"""On the machine of who opens the table, which heeds those of a schema only where it allows them."""
COLUMN: Final = Kind("text", str)


class Option(Frozen, Generic[T]):
    """One option. `default` None means "not set".

    `former` are older names, which count where the key is not given. Numbers must be larger than `above`. `immutable`
    options cannot change once the table has a snapshot; those that `reinterpret` say what rows are there, so that they
    change once each key has one row.
    """

    key: str
    kind: Kind[T]
    default: T
    status: Status = Status.READ
    former: tuple[str, ...] = ()
    above: int | None = None
    immutable: bool = False
    reinterprets: bool = False
    refusals: tuple[Refusal, ...] = ()

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Option[T] | T:
        return self if instance is None else self.default

    def of(self, options: Mapping[str, str]) -> T:
        """The value among options as text; raises `InvalidRequestError`."""
        key = next((key for key in (self.key, *self.former) if key in options), None)
        if key is None:
            return self.default
        try:
            return self._parsed(options[key])
        except ValueError as error:
            raise InvalidRequestError(
                f"option {self.key} = {options[key]!r} cannot be used: {error}", option=self.key
            ) from error

    def _parsed(self, text: str) -> T:
        value: Any = self.kind.parse(text)
        if self.above is not None and not value > self.above:
            least = f"greater than {self.above}" if self.above >= 0 else f"greater than or equal to {self.above + 1}"
            raise ValueError(f"Input should be {least}")
        return value  # type: ignore[no-any-return]
