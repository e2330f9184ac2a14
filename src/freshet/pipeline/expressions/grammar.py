"""An expression's tree and the names that it reads, where two parsers agree about it: sqlglot's, which is used, and
Spark's, whose rules of precedence are in a table here.

They differ for operators without parentheses: `a = b IS NULL` is `(a = b) IS NULL` to Spark, `a || b + c` begins at the
left. A tree in which some operator binds weaker than the one around it allows is none that Spark would make.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from freshet._frozen import Frozen

_FUNCTIONS: Final = ("CAST", "TRY_CAST")
_REFUSED: Final = re.compile(r"\\|\b(var)?char\b(?!_)|\d[eE][+-]?\d+[bB][dD]|--|/\*", re.IGNORECASE)
"""Escapes, types of which sqlglot drops the length, numbers that it reads otherwise, and comments."""
_SPECIAL_WORDS: Final = re.compile(r"current_\w+|session_user|user|localtimestamp|now", re.IGNORECASE)
_TEXT_MAX: Final = 4000


class _ExpressionParser(SparkParser):
    """Functions keep the names and arguments that they are written with."""

    STRICT_CAST: ClassVar[Any] = True
    FUNCTIONS: ClassVar[Any] = {}
    NO_PAREN_FUNCTIONS: ClassVar[Any] = {}
    FUNCTION_PARSERS: ClassVar[Any] = {name: SparkParser.FUNCTION_PARSERS[name] for name in _FUNCTIONS}


class _SparkExpressions(Spark):
    """Spark's dialect, of one expression."""

    Parser = _ExpressionParser


_DIALECT: Final = _SparkExpressions()

# How tight operators bind in Spark, and what each operand must have at least; the right one of `a - b` one more.
_OR, _AND, _NOT, _PREDICATE, _COMPARISON, _BIT_OR, _BIT_XOR, _BIT_AND, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(12)
_BINARY: Final[dict[type[exp.Expr], int]] = {
    exp.Or: _OR, exp.And: _AND,
    exp.EQ: _COMPARISON, exp.NEQ: _COMPARISON, exp.GT: _COMPARISON, exp.GTE: _COMPARISON, exp.LT: _COMPARISON,
    exp.LTE: _COMPARISON, exp.NullSafeEQ: _COMPARISON,
    exp.BitwiseOr: _BIT_OR, exp.BitwiseXor: _BIT_XOR, exp.BitwiseAnd: _BIT_AND,
    exp.Add: _SUM, exp.Sub: _SUM, exp.DPipe: _SUM,
    exp.Mul: _PRODUCT, exp.Div: _PRODUCT, exp.IntDiv: _PRODUCT, exp.Mod: _PRODUCT,
}  # fmt: skip
_PREDICATES: Final = (exp.Is, exp.In, exp.Between, exp.Like, exp.NullSafeNEQ)


class NotOursError(Exception):
    """An expression, or a part of one, that only Spark computes; the text says which part."""


class Parsed(Frozen):
    """An expression; `references` are the names it reads, split at the dots."""

    tree: exp.Expr
    references: frozenset[tuple[str, ...]]


def parse(text: str) -> Parsed:
    """The tree of an expression. Raises `NotOursError` where it may mean something else to Spark."""
    if len(text) > _TEXT_MAX or _REFUSED.search(text):
        raise NotOursError("its text")
    try:
        trees = _DIALECT.parse(text)
    except (SqlglotError, RecursionError) as error:
        raise NotOursError("its text") from error
    if len(trees) != 1 or trees[0] is None:
        raise NotOursError("its text")
    tree: exp.Expr = trees[0]
    for node in tree.walk():
        _check_operands(node)
    columns = [node for node in tree.find_all(exp.Column) if not isinstance(node.parent, exp.Bracket)]
    return Parsed(tree, frozenset(map(column_name, [*columns, *tree.find_all(exp.Bracket)])))


def column_name(node: exp.Expr) -> tuple[str, ...]:
    """The name that a column or a member has, split at the dots."""
    if isinstance(node, exp.Bracket):
        inner, keys = node.this, node.expressions
        is_member = isinstance(inner, exp.Column) and len(keys) == 1 and keys[0].is_string
        if not is_member or column_name(inner) != ("_source",):
            raise NotOursError(f"{node.sql('spark')}")
        return ("_source", str(keys[0].this))
    if not isinstance(node, exp.Column) or not all(isinstance(part, exp.Identifier) for part in node.parts):
        raise NotOursError(f"{node.sql('spark')}")
    names = tuple(part.name for part in node.parts)
    if len(names) == 1 and not node.parts[0].args.get("quoted") and _SPECIAL_WORDS.fullmatch(names[0]):
        raise NotOursError(names[0])
    return names


def _check_operands(node: exp.Expr) -> None:
    level = _BINARY.get(type(node))
    if level is not None:
        _check(node.this, level)
        _check(node.expression, level + 1)
    elif isinstance(node, exp.Not):
        is_postfix = isinstance(node.this, _PREDICATES)
        _check(node.this, _PREDICATE if is_postfix else _NOT)
    elif isinstance(node, exp.Neg | exp.BitwiseNot):
        _check(node.this, _UNARY)
    elif isinstance(node, _PREDICATES):
        _check(node.this, _COMPARISON)
        for name in ("low", "high", "expression"):
            operand = node.args.get(name)
            if isinstance(operand, exp.Expr):
                _check(operand, _COMPARISON)


def _check(operand: exp.Expr, least: int) -> None:
    if _level(operand) < least:
        raise NotOursError(f"{operand.sql('spark')} without parentheses")


def _level(node: exp.Expr) -> int:
    level = _BINARY.get(type(node))
    if level is not None:
        return level
    if isinstance(node, exp.Not):
        return _PREDICATE if isinstance(node.this, _PREDICATES) else _NOT
    if isinstance(node, exp.Neg | exp.BitwiseNot):
        return _UNARY
    return _PREDICATE if isinstance(node, _PREDICATES) else _PRIMARY
