"""What functions take: how many arguments, of which types, constants or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.values import (
    STRING,
    Value,
    spark_name,
)
from freshet.storage.model.data_type import ScalarType

Function = Callable[[Sequence[Value]], Value]
TEXT: Final = (STRING,)


def plain(template: str, result: ScalarType, *kinds: Sequence[ScalarType | None]) -> Function:
    """A function whose SQL is a template over arguments of these types."""

    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, *kinds)
        return Value(template.format(*(f"({each.sql})" for each in arguments)), result).over(*arguments)

    return function


def want(arguments: Sequence[Value], *kinds: Sequence[ScalarType | None]) -> None:
    """Raises `NotOursError` for other arguments than of these types."""
    if len(arguments) != len(kinds):
        raise NotOursError(f"a function of {len(arguments)} arguments")
    for each, allowed in zip(arguments, kinds, strict=True):
        if each.type not in allowed:
            raise NotOursError(f"a function of {spark_name(each.type)}")


def literal(value: Value, kind: type) -> str | int:
    """A constant. Raises `NotOursError` for what is none."""
    if not isinstance(value.constant, kind):
        raise NotOursError("a function whose argument is no constant")
    return value.constant  # type: ignore[return-value]
