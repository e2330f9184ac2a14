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
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, overload

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.refusal import Refusal
from freshet.storage.options.values import (
    parse_bool,
    parse_duration_ms,
    parse_file_prefix,
    parse_folder,
    parse_int,
    parse_levels,
    parse_long,
    parse_names,
    parse_size_bytes,
    split_names,
)

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


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
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


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option. `default` None means "not set".

    `former` are older names, which count where the key is not given; `former_values` are older names of values, with
    what they are called now. Numbers must be larger than `above`. `immutable` options cannot change once the table has
    a snapshot; those that `reinterpret` say what rows are there, so that they change once each key has one row.
    """

    key: str
    kind: Kind[T]
    default: T
    status: Status = Status.READ
    former: tuple[str, ...] = ()
    former_values: tuple[tuple[str, str], ...] = ()
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
        value: Any = self.kind.parse(dict(self.former_values).get(text.lower(), text))
        if self.above is not None and not value > self.above:
            least = f"greater than {self.above}" if self.above >= 0 else f"greater than or equal to {self.above + 1}"
            raise ValueError(f"Input should be {least}")
        return value  # type: ignore[no-any-return]
