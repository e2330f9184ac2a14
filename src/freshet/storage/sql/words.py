"""Statements word by word, for those that sqlglot has no tree for."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokens import Token, TokenType

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.refusals import refused
from freshet.storage.sql.sql_text import Statement

Value = str | int | float | bool | None
"""A value as it is written: text, a number, TRUE or FALSE, NULL."""

_NUMBERS = (TokenType.NUMBER, TokenType.DASH)


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
