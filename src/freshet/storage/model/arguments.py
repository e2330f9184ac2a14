"""The border where what nobody foresaw of an expression, a name or an argument becomes an `InvalidRequestError`, with
its cause; and points in time, as people give them.

`reading` is around what looks at nothing but what a caller gave. `answering_callers` is for the classes that people
hold: an error that was not raised on purpose is looked at again with the arguments of the call, and is the fault of one
that is of another type than its method says, or that no table can hold. Without such an argument it stays what it is: a
fault of ours.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, reduce, wraps
from importlib import import_module
from numbers import Integral, Real
from types import GenericAlias
from typing import Any, Final, SupportsIndex, TypeVar

from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.model.display import one_line, shortened

TimeGiven = int | datetime.datetime
"""A point in time: epoch milliseconds, or a datetime with a time zone."""


def time_ms(name: str, value: Any) -> int:
    """Epoch milliseconds of a point in time; `InvalidRequestError` names the argument that is none."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return since // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        raise InvalidRequestError(
            f"{name}={value!r} has no time zone; give a datetime with a time zone, such as moment.astimezone()"
        )
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidRequestError(f"{name} is in epoch milliseconds, or a datetime with a time zone, not {value!r}")
    return int(value)


NESTING_MAX: Final = 100
"""Levels of lists, maps and filters in each other; Python, Arrow and DuckDB take some more."""

_DIGITS_MAX: Final = 4300
"""Digits of a whole number that Python writes as text."""
_SHOWN_MAX: Final = 200
_NOT_FORESEEN: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
_Class = TypeVar("_Class", bound=type)
_KINDS: Final = {
    **vars(builtins),
    "Callable": Callable,
    "Iterable": Iterable,
    "Mapping": Mapping,
    "None": type(None),
    "Sequence": Sequence,
    "float": Real,
    "int": Integral,
    "object": None,
}


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Around the reading of what `what` names, before anything is done with it."""
    try:
        yield
    except (StorageError, MemoryError):
        raise
    except RecursionError as error:
        raise InvalidRequestError(f"{what} is nested too deeply") from error
    except Exception as error:
        reason = shortened(one_line(f"{type(error).__name__}: {error}"), _SHOWN_MAX)
        raise InvalidRequestError(f"{what} cannot be read: {reason}") from error


def answering_callers(of: _Class) -> _Class:
    """The class, its public methods answering for the arguments that they are given."""
    for name, member in list(vars(of).items()):
        is_method = inspect.isfunction(member) and not inspect.isgeneratorfunction(member)
        if is_method and (name == "__init__" or not name.startswith("_")):
            setattr(of, name, _answering(member))
    return of


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def answer(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except _NOT_FORESEEN as error:
            fault = _fault_of_call(method, args, named)
            if fault is None:
                raise
            raise InvalidRequestError(f"{method.__qualname__}: {fault}") from error

    return answer


def _fault_of_call(method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> str | None:
    """What is wrong with the first argument that cannot be taken; None too where Python refuses the call."""
    signature = inspect.signature(method)
    try:
        given = signature.bind(*args, **named).arguments
    except TypeError:
        return None
    for name, value in list(given.items())[1:]:
        parameter = signature.parameters[name]
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        for each in values:
            if not _is_a(each, str(parameter.annotation), _Known(method)):
                return f"{name} is {parameter.annotation}, not {shown_value(each)}"
            fault = _fault_of(each, NESTING_MAX)
            if fault is not None:
                return f"{name} {fault}"
    return None


class _Known(dict[str, Any]):
    """What names in the annotations of a method mean, those too that its module imports for type checkers alone."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__({**method.__globals__, **_KINDS})
        self._imports = _imports_of(method.__module__)

    def __missing__(self, name: str) -> Any:
        module = self._imports.get(name)
        return None if module is None else getattr(import_module(module), name)


@cache
def _imports_of(module: str) -> dict[str, str]:
    """The modules of the names that a module imports, wherever it does; none where its source is not there."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module or "" for node in nodes for alias in node.names}


def _is_a(value: object, annotation: str, known: Mapping[str, Any]) -> bool:
    """Whether a value is of a type as a method declares it; what is no class among the known may be anything."""
    return any(_is_one(value, *each.partition("[")[::2], known) for each in _split(annotation, "|"))


def _is_one(value: object, name: str, inner: str, known: Mapping[str, Any]) -> bool:
    first, *rest = name.split(".")
    kind: Any = reduce(lambda found, part: getattr(found, part, None), rest, known[first])
    kind = kind.__origin__ if isinstance(kind, GenericAlias) else kind
    try:
        if kind is None or isinstance(kind, str) or not isinstance(value, kind):
            return kind is None or isinstance(kind, str)
    except TypeError:  # not of a kind that values can be asked for
        return True
    items = _split(inner.removesuffix("]"), ",")
    if isinstance(value, Mapping) and len(items) == 2:
        return all(_is_a(key, items[0], known) and _is_a(each, items[1], known) for key, each in value.items())
    is_of_one = bool(items[0]) and (len(items) == 1 or items[1] == "...")
    if is_of_one and isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_a(each, items[0], known) for each in value)
    return True


def _split(text: str, mark: str) -> list[str]:
    """The parts of an annotation between the marks that are inside no bracket."""
    parts, depth = [""], 0
    for symbol in text:
        depth += (symbol == "[") - (symbol == "]")
        if symbol == mark and not depth:
            parts.append("")
        else:
            parts[-1] += symbol
    return [part.strip() for part in parts]


def _fault_of(value: object, levels: int) -> str | None:
    """Why no table holds a value, whatever its place: half a character, too many digits or levels."""
    parts: Iterable[object] = ()
    match value:
        case str() if not value.isprintable() and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            return f"has a null or half a character: {shown_value(value)}"
        case int() if value.bit_length() > 3 * _DIGITS_MAX:
            return "is a number of thousands of digits"
        case Mapping():
            parts = (part for item in value.items() for part in item)
        case list() | tuple() | set() | frozenset():
            parts = value
        case _ if is_dataclass(value):
            parts = (getattr(value, each.name, None) for each in fields(value))
    if not levels:
        return f"is nested more than {NESTING_MAX} deep"
    return next((fault for part in parts if (fault := _fault_of(part, levels - 1)) is not None), None)


def shown_value(value: object) -> str:
    """A value as messages show it."""
    try:
        return shortened(ascii(value), _SHOWN_MAX)
    except (ValueError, RecursionError):  # too many digits, too deep
        return f"such a {type(value).__name__}"
