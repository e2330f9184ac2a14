"""SQL text taken apart: its statements, each as sqlglot's tree, where sqlglot has one, and as tokens, which `Words`
reads one by one.

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
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.filters.filter_text import reason_of
from freshet.storage.model.arguments import reading, shown_value
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.refusals import cut, refused

Value = str | int | float | bool | None
"""A value as it is written: text, a number, TRUE or FALSE, NULL."""

_SPLITTER: Final = "$"
_NUMBERS = (TokenType.NUMBER, TokenType.DASH)


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


class Words:
    """Reads the tokens of a statement from left to right."""

    def __init__(self, statement: Statement, tokens: Sequence[Token] | None = None) -> None:
        self._statement = statement
        self._tokens = statement.tokens if tokens is None else tuple(tokens)
        self._at = 0

    @property
    def rest(self) -> tuple[Token, ...]:
        """What is not read yet."""
        return self._tokens[self._at :]

    def accept(self, *words: str) -> bool:
        """Reads these words if they come next."""
        ahead = self.rest[: len(words)]
        if len(ahead) < len(words) or any(not _is_word(each, word) for each, word in zip(ahead, words, strict=True)):
            return False
        self._at += len(words)
        return True

    def accept_one(self, *words: str) -> bool:
        """Reads one of these words if it comes next."""
        return any(self.accept(word) for word in words)

    def expect(self, *words: str) -> None:
        """Reads these words; refuses what is there instead."""
        if not self.accept(*words):
            raise self.unexpected(f"{' '.join(words)} is expected there")

    def name(self) -> str:
        """A name: a word, or anything in backticks."""
        token = self.rest[0] if self.rest else None
        if token is None or not (token.token_type is TokenType.IDENTIFIER or _is_plain_name(token)):
            raise self.unexpected("a name is expected there")
        self._at += 1
        return token.text

    def dotted(self) -> SqlName:
        """A name with what is before its dots."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return SqlName.of(parts)

    def is_text(self) -> bool:
        """Whether a text in quotes comes next."""
        return bool(self.rest) and self.rest[0].token_type is TokenType.STRING

    def text(self) -> str:
        """A text in quotes."""
        value = self.value()
        if not isinstance(value, str):
            raise self.unexpected("a text in quotes is expected before it")
        return value

    def value(self) -> Value:
        """A text in quotes, a number, TRUE, FALSE or NULL; DATE and TIMESTAMP before a text say nothing more."""
        if len(self.rest) > 1 and self.rest[1].token_type is TokenType.STRING:
            self.accept_one("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.accept(word):
                return value
        is_negative = self.accept("-")
        token = self.rest[0] if self.rest else None
        if token is not None and token.token_type is TokenType.NUMBER:
            self._at += 1
            digits = token.text.rstrip("lL")
            number = int(digits) if digits.isdigit() else _float(token.text)
            if number is not None:
                return -number if is_negative else number
            self._at -= 1
        if token is not None and token.token_type is TokenType.STRING and not is_negative:
            self._at += 1
            return token.text
        raise self.unexpected("a text in quotes, a number, TRUE, FALSE or NULL is expected there")

    def pairs(self) -> dict[str, str]:
        """`('key' = 'value', …)`, keys also without quotes."""
        found: dict[str, str] = {}
        self.expect("(")
        while True:
            key = self.key()
            self.expect("=")
            value = self.value()
            if found.setdefault(key, text_of(value)) != text_of(value):
                raise self.unexpected(f"{key!r} has two values before it")
            if not self.accept(","):
                break
        self.expect(")")
        return found

    def key(self) -> str:
        """An option's key: a text in quotes, or words with dots between."""
        if self.rest and self.rest[0].token_type is TokenType.STRING:
            return self.text()
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return ".".join(parts)

    def end(self) -> None:
        """Refuses what is left."""
        if self.rest:
            raise self.unexpected()

    def unexpected(self, why: str = "") -> UnsupportedFeatureError:
        """The error for what comes next."""
        if not self.rest:
            return refused(self._statement.text, why or "it ends too soon")
        whole = self._statement.whole
        return refused(whole[self.rest[0].start : self._tokens[-1].end + 1], why)


def text_of(value: Value) -> str:
    """A value as options have it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_word(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _is_plain_name(token: Token) -> bool:
    return token.token_type is not TokenType.STRING and token.text.replace("$", "_").isidentifier()


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
