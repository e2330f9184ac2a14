"""What is refused of a statement, always naming the part."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError

_SHOWN_MAX: Final = 120


def refused(part: exp.Expr | str, why: str = "") -> UnsupportedFeatureError:
    """The error for a part of a statement that nothing here carries out."""
    return UnsupportedFeatureError(f"SQL: {shown(part)!r} is not supported{f': {why}' if why else ''}")


def wrong(part: exp.Expr | str, why: str) -> InvalidRequestError:
    """The error for a part that makes no sense where it is."""
    return InvalidRequestError(f"SQL: {shown(part)!r}: {why}")


def only(node: exp.Expr, *known: str) -> None:
    """Refuses what the parser understood of a node and the caller does not carry out."""
    for name, value in node.args.items():
        if value and name not in known:
            part = value if isinstance(value, exp.Expr) else node
            raise refused(part, "" if part is not node else f"its {name.strip('_').replace('_', ' ')}")


def shown(part: exp.Expr | str) -> str:
    """A part as messages show it."""
    return cut(part if isinstance(part, str) else part.sql(dialect="spark", comments=False))


def cut(text: str) -> str:
    """A text that fits into a message."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_MAX else f"{flat[:_SHOWN_MAX]}…"
