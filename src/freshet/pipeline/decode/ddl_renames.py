"""Which columns a statement of MySQL, MariaDB or Oracle renames, read from its text; nothing else of it is understood.

    ALTER … TABLE name  clause, clause, …      RENAME COLUMN old TO new  |  CHANGE [COLUMN] old new type …

A statement is cut into words, names in quotes, texts and marks; comments are left out. Clauses end at commas outside of
brackets, so that whatever else stands in one (types, defaults, comments, partitions) is passed over. Of a text that is
cut off in the middle nothing is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ | --(?=\s|$)[^\n]* | \#[^\n]* | /\*M?!\d* | \*/ | /\*(?!M?!).*?\*/ )
    | (?P<text>  '(?:[^'\\]|''|\\.)*' )
    | (?P<double>"(?:[^"\\]|""|\\.)*" )
    | (?P<name>  `(?:[^`]|``)*` )
    | (?P<word>  [\w$]+ )
    | (?P<mark>  (?!/\*)[^'"`] )
    """,
    re.VERBOSE | re.DOTALL,
)
"""A conditional comment (`/*!50100 … */`) is run by the servers that it is meant for: only its marks are left out."""


class _Kind(Enum):
    WORD = auto()
    QUOTED = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str

    def says(self, *words: str) -> bool:
        return self.kind is _Kind.WORD and self.text.upper() in words

    @property
    def is_name(self) -> bool:
        return self.kind is not _Kind.OTHER


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """A table that a statement alters: its name without that of the database, (old, new) of its columns, and whether it
    gets another name itself, perhaps in another database."""

    table: str
    renames: tuple[tuple[str, str], ...]
    is_moved: bool = False


def renames_of(ddl: str) -> tuple[AlteredTable, ...]:
    """The tables of whose columns the statements of a text rename some; names as the text has them."""
    tokens = _tokens(ddl)
    if tokens is None:
        return ()
    found = (_altered(statement) for statement in _cut(tokens, ";"))
    return tuple(each for each in found if each is not None and each.renames)


def _tokens(ddl: str) -> list[_Token] | None:
    tokens: list[_Token] = []
    place = 0
    while place < len(ddl):
        match = _TOKEN.match(ddl, place)
        if match is None:
            return None  # a quote or a comment that is not closed
        place = match.end()
        text = match[0]
        match match.lastgroup:
            case "word":
                tokens.append(_Token(_Kind.WORD, text))
            case "name" | "double":
                mark = text[0]
                tokens.append(_Token(_Kind.QUOTED, text[1:-1].replace(mark * 2, mark)))
            case "text" | "mark":
                tokens.append(_Token(_Kind.OTHER, text))
    return tokens


def _cut(tokens: Sequence[_Token], mark: str) -> Iterator[list[_Token]]:
    """The pieces between the marks that stand outside of brackets."""
    piece: list[_Token] = []
    depth = 0
    for token in tokens:
        if token.kind is _Kind.OTHER:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == mark and depth == 0:
                yield piece
                piece = []
                continue
        piece.append(token)
    yield piece


def _altered(statement: list[_Token]) -> AlteredTable | None:
    at = 0

    def skip(*words: str) -> bool:
        nonlocal at
        if at < len(statement) and statement[at].says(*words):
            at += 1
            return True
        return False

    if not skip("ALTER"):
        return None
    while skip("ONLINE", "OFFLINE", "IGNORE"):
        pass
    if not skip("TABLE"):
        return None
    if skip("IF"):
        skip("EXISTS")
    table = None
    while at < len(statement) and statement[at].is_name:
        table = statement[at].text
        at += 1
        if at >= len(statement) or statement[at] != _Token(_Kind.OTHER, "."):
            break
        at += 1
    if table is None:
        return None
    if skip("WAIT"):
        at += 1
    skip("NOWAIT")
    clauses = list(_cut(statement[at:], ","))
    renames = (_rename(clause) for clause in clauses)
    return AlteredTable(
        table,
        tuple(each for each in renames if each is not None and each[0] != each[1]),
        is_moved=any(_renames_table(clause) for clause in clauses),
    )


def _rename(clause: Sequence[_Token]) -> tuple[str, str] | None:
    """(old, new) of a clause that renames a column."""
    match clause:
        case [verb, column, *rest] if verb.says("RENAME") and column.says("COLUMN"):
            match _without_condition(rest):
                case [old, to, new] if old.is_name and to.says("TO") and new.is_name:
                    return old.text, new.text
        case [verb, *rest] if verb.says("CHANGE"):
            rest = rest[1:] if rest and rest[0].says("COLUMN") else rest
            match _without_condition(rest):
                case [old, new, kind, *_] if old.is_name and new.is_name and kind.is_name:
                    return old.text, new.text
    return None


def _renames_table(clause: Sequence[_Token]) -> bool:
    """Whether a clause is `RENAME [TO | AS | =] name`."""
    return len(clause) > 1 and clause[0].says("RENAME") and not clause[1].says("COLUMN", "INDEX", "KEY")


def _without_condition(tokens: Sequence[_Token]) -> Sequence[_Token]:
    return tokens[2:] if len(tokens) > 2 and tokens[0].says("IF") and tokens[1].says("EXISTS") else tokens
