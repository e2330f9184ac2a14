"""Refuses a query that compares a text with a number: engines read the text as a number, and fail at the first row in
which it is none. Whether a query can be computed would be a matter of its rows.

A text that is written in the query (`n = '7'`) is read once, before any row, and so it is taken. Scans refuse the same
(`filter_text`). What the types of a query cannot be told of is left to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.schema import MappingSchema

from freshet.storage.sql.refusals import shown, wrong

_DIALECT: Final = "spark"
_COMPARISONS: Final = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between),
)
_WRITTEN: Final = "freshet-written"
_REMEDY: Final = "a text cannot be compared with a number: write the value as text, in quotes, or CAST one of them"


def note_comparisons(tree: exp.Query) -> None:
    """Keeps how comparisons are written, before the tables in the tree get other names."""
    for node in tree.find_all(*_COMPARISONS):
        node.meta[_WRITTEN] = shown(node)


def refuse_mixed_comparisons(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> None:
    """Raises `InvalidRequestError` for a comparison of a text that is not a literal with a number. `schemas` are those
    of the tables, by the names that they have in the tree; `note_comparisons` came before."""
    for node in _typed(tree, schemas).find_all(*_COMPARISONS):
        sides = list(node.iter_expressions())
        has_texts = any(_is_of(each, exp.DataType.TEXT_TYPES) and not _is_literal(each) for each in sides)
        if has_texts and any(_is_of(each, exp.DataType.NUMERIC_TYPES) for each in sides):
            raise wrong(node.meta.get(_WRITTEN, node), _REMEDY)


def _typed(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> exp.Expr:
    """The query with the types of its parts, as far as they can be told."""
    types: dict[str, object] = {
        label: {field.name: _type_of(field.type) for field in schema} for label, schema in schemas.items()
    }
    try:
        known = MappingSchema(types, dialect=_DIALECT)
        named = qualify_tables(normalize_identifiers(tree.copy(), dialect=_DIALECT), dialect=_DIALECT)
        qualified = qualify_columns(named, known, expand_stars=False, allow_partial_qualification=True)
        return annotate_types(qualified, known, dialect=_DIALECT)
    except (SqlglotError, RecursionError):
        return exp.Null()


def _type_of(column: pa.DataType) -> exp.DataType:
    if pa.types.is_string(column):
        return exp.DataType.build("TEXT")
    is_number = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
    return exp.DataType.build("DOUBLE" if is_number else "UNKNOWN")


def _is_of(part: exp.Expr, types: frozenset[exp.DType] | set[exp.DType]) -> bool:
    return part.type is not None and part.type.this in types


def _is_literal(part: exp.Expr) -> bool:
    return isinstance(part.unnest(), exp.Literal)
