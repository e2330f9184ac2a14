"""Pieces of Spark SQL text: literals, names, and the choice between them.

Expressions over many columns are built as SQL text: one call into the JVM per column instead of one per operator.
Texts written here hold no backslash, so they mean the same whatever `spark.sql.parser.escapedStringLiterals` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def literal(text: str) -> str:
    """A string literal; backslashes and quotes are spelled by code point, so no escape setting changes them."""
    if "'" not in text and "\\" not in text:
        return f"'{text}'"
    parts = [f"chr({ord(symbol)})" if symbol in "'\\" else f"'{symbol}'" for symbol in text]
    return f"concat({', '.join(parts)})"


def name(identifier: str) -> str:
    """A column name in back quotes."""
    return "`" + identifier.replace("`", "``") + "`"


def one_of(value: str, choices: Iterable[str]) -> str:
    """`value IN (…)` over literals."""
    return f"{value} IN ({', '.join(literal(choice) for choice in choices)})"


def case(branches: Sequence[tuple[str, str]], otherwise: str | None = None) -> str:
    """`CASE WHEN … THEN … END`; only the branch chosen is evaluated. Without branches, `otherwise` alone."""
    if not branches:
        return otherwise or "NULL"
    text = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"(CASE {text}{f' ELSE {otherwise}' if otherwise is not None else ''} END)"


def any_of(conditions: Sequence[str]) -> str:
    """The conditions joined by OR; `false` when there are none."""
    return "(" + " OR ".join(conditions) + ")" if conditions else "false"
