"""Functions of texts; and what functions take: how many arguments, of which types, constants or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from freshet.pipeline.expressions.casts import cast
from freshet.pipeline.expressions.grammar import NotOursError
from freshet.pipeline.expressions.odd_texts import ODD_LETTERS_LOWER, ODD_LETTERS_UPPER, ODD_LOWER, ODD_UPPER
from freshet.pipeline.expressions.values import BINARY, BOOLEAN, INT, SMALLINT, STRING, TINYINT, Value, spark_name
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


def _cased(name: str, odd: str, letters: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, TEXT)
        text = arguments[0].sql
        is_odd = f"strlen({text}) <> length({text}) AND regexp_matches({text}, '[{letters}]')"
        sql = f"CASE WHEN {is_odd} THEN {odd}({text}) ELSE {name}({text}) END"
        return Value(sql, STRING).over(*arguments)

    return function


def _concat(arguments: Sequence[Value]) -> Value:
    if not arguments or any(each.type == BINARY for each in arguments):
        raise NotOursError("concat of binary values")
    texts = [cast(each, STRING) for each in arguments]
    return Value(f"({' || '.join(f'({each.sql})' for each in texts)})", STRING).over(*arguments, is_lazy=False)


def _concat_ws(arguments: Sequence[Value]) -> Value:
    if len(arguments) < 2 or any(each.type != STRING for each in arguments):
        raise NotOursError("concat_ws of other values than texts")
    parts = ", ".join(each.sql for each in arguments)
    return Value(f"concat_ws({parts})", STRING).over(*arguments, is_lazy=False)


def _substring(arguments: Sequence[Value]) -> Value:
    if len(arguments) not in (2, 3):
        raise NotOursError(f"substring of {len(arguments)} arguments")
    text, start = arguments[0], arguments[1]
    want(arguments, TEXT, *[(INT, SMALLINT, TINYINT)] * (len(arguments) - 1))
    constants = [each.constant for each in arguments[1:]]
    if len(constants) == 2 and all(isinstance(each, int) and each >= 0 for each in constants):
        return Value(f"substring({text.sql}, {max(1, int(constants[0] or 0))}, {constants[1]})", STRING).over(text)
    count = f"CAST(length({text.sql}) AS BIGINT)"
    at = f"CAST({start.sql} AS BIGINT)"
    if isinstance(start.constant, int):
        begin = f"{start.constant - 1}" if start.constant > 0 else f"({count} + {start.constant})"
        begin = "0" if start.constant == 0 else begin
    else:
        begin = f"(CASE WHEN {at} > 0 THEN {at} - 1 WHEN {at} < 0 THEN {count} + {at} ELSE 0 END)"
    wanted = f"CAST({arguments[2].sql} AS BIGINT)" if len(arguments) == 3 else "CAST(2147483647 AS BIGINT)"
    end = f"least({begin} + {wanted}, {count})"
    taken = f"greatest({end} - greatest({begin}, 0), 0)"
    sql = f"substring({text.sql}, greatest({begin}, 0) + 1, {taken})"
    is_null = " OR ".join(f"({each.sql}) IS NULL" for each in arguments[1:] if each.constant is None)
    return Value(f"CASE WHEN {is_null} THEN NULL ELSE {sql} END" if is_null else sql, STRING).over(*arguments)


def _left(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, (INT,))
    return _substring([arguments[0], Value("1", INT, constant=1), arguments[1]])


def _right(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, (INT,))
    text, count = (each.sql for each in arguments)
    kept = f"least(CAST({count} AS BIGINT), length({text}))"
    sql = f"CASE WHEN ({count}) <= 0 THEN '' ELSE right({text}, {kept}) END"
    sql = f"CASE WHEN ({text}) IS NOT NULL AND ({count}) IS NOT NULL THEN {sql} END"
    return Value(sql, STRING).over(*arguments)


def _trimmed(name: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        want(arguments, TEXT)
        text = arguments[0].sql
        has_blanks = f"starts_with({text}, ' ') OR ends_with({text}, ' ')"
        return Value(f"CASE WHEN {has_blanks} THEN {name}({text}, ' ') ELSE {text} END", STRING).over(*arguments)

    return function


def _padded(name: str) -> Function:
    def function(arguments: Sequence[Value]) -> Value:
        pad = arguments[2] if len(arguments) == 3 else Value("' '", STRING, constant=" ")
        want([*arguments[:2], pad], TEXT, (INT,), TEXT)
        width = literal(arguments[1], int)
        if not 0 <= int(width) <= 10_000 or not literal(pad, str):
            raise NotOursError(f"{name} to such a width")
        return Value(f"{name}({arguments[0].sql}, {width}, {pad.sql})", STRING).over(arguments[0])

    return function


def _repeated(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, (INT,))
    count = literal(arguments[1], int)
    if int(count) > 1000:
        raise NotOursError("repeat so many times")
    return Value(f"repeat({arguments[0].sql}, {max(0, int(count))})", STRING).over(arguments[0])


def _replaced(arguments: Sequence[Value]) -> Value:
    given = [*arguments, Value("''", STRING, constant="")] if len(arguments) == 2 else arguments
    want(given, TEXT, TEXT, TEXT)
    if not literal(given[1], str):
        raise NotOursError("replace of an empty text")
    return Value(f"replace({', '.join(each.sql for each in given)})", STRING).over(*given)


def _located(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, TEXT)
    return _INSTR([arguments[1], arguments[0]])


def _split_part(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, TEXT, (INT,))
    if not literal(arguments[1], str) or int(literal(arguments[2], int)) < 1:
        raise NotOursError("split_part with such arguments")
    return Value(f"split_part({arguments[0].sql}, {arguments[1].sql}, {arguments[2].sql})", STRING).over(arguments[0])


def _hashed(arguments: Sequence[Value]) -> Value:
    want(arguments, TEXT, (INT,))
    if literal(arguments[1], int) not in (0, 256):
        raise NotOursError("sha2 of such a length")
    return Value(f"sha256({arguments[0].sql})", STRING).over(arguments[0])


_INSTR: Final = plain("CAST(instr({0}, {1}) AS INTEGER)", INT, TEXT, TEXT)
_LENGTH: Final = plain("CAST(length({0}) AS INTEGER)", INT, TEXT)

TEXT_FUNCTIONS: Final[dict[str, Function]] = {
    "upper": _cased("upper", ODD_UPPER, ODD_LETTERS_UPPER),
    "ucase": _cased("upper", ODD_UPPER, ODD_LETTERS_UPPER),
    "lower": _cased("lower", ODD_LOWER, ODD_LETTERS_LOWER),
    "lcase": _cased("lower", ODD_LOWER, ODD_LETTERS_LOWER),
    "concat": _concat,
    "concat_ws": _concat_ws,
    "length": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": plain("CAST(strlen({0}) AS INTEGER)", INT, TEXT),
    "substring": _substring,
    "substr": _substring,
    "left": _left,
    "right": _right,
    "trim": _trimmed("trim"),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    "lpad": _padded("lpad"),
    "rpad": _padded("rpad"),
    "repeat": _repeated,
    "replace": _replaced,
    "instr": _INSTR,
    "locate": _located,
    "contains": plain("contains({0}, {1})", BOOLEAN, TEXT, TEXT),
    "startswith": plain("starts_with({0}, {1})", BOOLEAN, TEXT, TEXT),
    "endswith": plain("ends_with({0}, {1})", BOOLEAN, TEXT, TEXT),
    "split_part": _split_part,
    "ascii": plain("CAST(ascii({0}) AS INTEGER)", INT, TEXT),
    "md5": plain("md5({0})", STRING, TEXT),
    "sha": plain("sha1({0})", STRING, TEXT),
    "sha1": plain("sha1({0})", STRING, TEXT),
    "sha2": _hashed,
    "hex": plain("hex({0})", STRING, TEXT),
}
