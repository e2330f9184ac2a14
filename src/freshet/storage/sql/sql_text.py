"""SQL text taken apart: its statements, each as tokens, and as sqlglot's tree for those that sqlglot has a tree for.

Names of system tables and branches need no backticks here (`shop.orders$files`), though Spark wants them. A quote in a
text may be written twice, as in Spark 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import reason_of
from freshet.storage.model.arguments import reading, shown_value
from freshet.storage.sql.refusals import cut, refused

_SPLITTER: Final = "$"


class _StatementParser(SparkParser):
    """The reading of Spark 4: a CAST that fails is an error, not NULL."""

    STRICT_CAST: ClassVar[Any] = True

    def _warn_unsupported(self) -> None:
        """What sqlglot has no tree for is refused here, and needs no warning besides."""


class _SparkWords(Spark):
    """Spark's dialect in which every statement is words, also those that sqlglot would hand over as one text."""

    Parser = _StatementParser

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[Any] = frozenset()


_WORDS: Final = _SparkWords()


class Statement(Frozen):
    """One statement: its text, and its tokens as positions in the `whole` text."""

    text: str
    tokens: tuple[Token, ...]
    whole: str

    def starts_with(self, *choices: str | tuple[str, ...]) -> bool:
        """Whether it begins with these words, each one of several."""
        if len(self.tokens) < len(choices):
            return False
        pairs = zip(self.tokens, choices, strict=False)
        return all(token.text.upper() in ((each,) if isinstance(each, str) else each) for token, each in pairs)

    def tree(self, tokens: Sequence[Token] | None = None) -> exp.Expr:
        """What sqlglot makes of it, or of some of its tokens; `InvalidRequestError` names the place that it cannot
        read."""
        try:
            parsed = _WORDS.parser().parse(list(self.tokens if tokens is None else tokens), self.whole)
        except SqlglotError as error:
            raise InvalidRequestError(f"the SQL {cut(self.text)!r} cannot be read: {reason_of(error)}") from error
        if len(parsed) != 1 or parsed[0] is None:
            raise refused(self.text)
        return parsed[0]


def statements(text: str) -> list[Statement]:
    """The statements of a text, which semicolons part."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"SQL is text, not {shown_value(text)}")
    with reading(f"the SQL {cut(text)!r}"):
        try:
            tokens = _joined(_WORDS.tokenize(text), text)
        except SqlglotError as error:
            raise InvalidRequestError(f"the SQL {cut(text)!r} cannot be read: {reason_of(error)}") from error
    found: list[Statement] = []
    current: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            found.append(Statement(text[current[0].start : current[-1].end + 1], tuple(current), text))
            current = []
    return found


def _joined(tokens: Sequence[Token], whole: str) -> list[Token]:
    """The tokens with `orders`, `$`, `files` as one name, and `'it'`, `'s'` as one text with a quote, where nothing is
    between them."""
    joined: list[Token] = []
    for token in tokens:
        before = joined[-1] if joined else None
        if before is None or before.end + 1 != token.start:
            joined.append(token)
        elif _continues(before, token):
            kind = TokenType.PARAMETER if token.text == _SPLITTER else TokenType.IDENTIFIER
            joined[-1] = _longer(before, kind, before.text + token.text, token)
        elif before.token_type is token.token_type is TokenType.STRING and whole[before.end] == whole[token.start]:
            joined[-1] = _longer(before, TokenType.STRING, before.text + whole[token.start] + token.text, token)
        else:
            joined.append(token)
    return joined


def _longer(before: Token, kind: TokenType, text: str, last: Token) -> Token:
    return Token(kind, text, before.line, before.col, before.start, last.end)


def _continues(before: Token, token: Token) -> bool:
    is_name = before.text.replace(_SPLITTER, "_").isidentifier() and before.token_type is not TokenType.STRING
    if token.text == _SPLITTER:
        return is_name and before.text != _SPLITTER
    return is_name and before.text.endswith(_SPLITTER) and before.text != _SPLITTER and token.text.isidentifier()
