"""CALL sys.procedure(…), with arguments by position or by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from freshet.storage.sql.arguments import Arguments
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.procedures import Procedure, procedure
from freshet.storage.sql.refusals import refused, wrong
from freshet.storage.sql.result import SqlResult
from freshet.storage.sql.session import Plan, SqlSession
from freshet.storage.sql.sql_text import Value, Words, text_of

_SYSTEM = "sys"


def plan_call(words: Words) -> Plan:
    """The plan of CALL; an argument that is NULL is as good as none."""
    words.expect("CALL")
    name = words.dotted()
    if (name.database or "").lower() != _SYSTEM:
        raise wrong(str(name), f"procedures are those of {_SYSTEM}: CALL {_SYSTEM}.{name.name}(…)")
    called = procedure(name.name)
    known = {each.lower(): each for each in called.types}
    order = list(called.types)
    given: dict[str, Value] = {}
    words.expect("(")
    is_named = False
    while not words.accept(")"):
        if given:
            words.expect(",")
        is_named = len(words.rest) > 1 and words.rest[1].text == "=>"
        if is_named:
            written = words.name()
            words.expect("=>")
            if written.lower() not in known:
                raise refused(f"{written} => …", f"arguments of sys.{name.name} are {', '.join(order)}")
            key = known[written.lower()]
        elif len(given) < len(order):
            key = order[len(given)]
        else:
            raise words.unexpected(f"sys.{name.name} takes {len(order)} arguments: {', '.join(order)}")
        if key in given:
            raise wrong(f"{key}", f"sys.{name.name} is given it twice")
        given[key] = words.value()
    words.end()
    arguments = {
        key: _typed(name.name, key, value, called.types[key]) for key, value in given.items() if value is not None
    }
    missing = [key for key in called.required if arguments.get(key) in (None, "")]
    if missing:
        raise wrong(f"CALL {name}", f"argument {missing[0]} is missing")
    return Plan(partial(_call, name, called, arguments))


def _call(name: SqlName, called: Procedure, arguments: Arguments, session: SqlSession) -> SqlResult:
    if name.catalog is not None:
        session = SqlSession(session.catalog_of(name), session.engine, session.database)
    return called.run(session, arguments)


def _typed(name: str, key: str, value: Value, kind: type) -> Any:
    """The value as the procedure takes it; numbers and truth values may be written as texts, and the reverse."""
    if kind is type(None):
        raise refused(f"{key} => {value!r}", f"an argument that sys.{name} does not have here")
    if kind is str:
        return text_of(value)
    text = text_of(value).strip()
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is int and text.lstrip("-").isdigit() and not isinstance(value, bool):
        return int(text)
    raise wrong(
        f"{key} => {value!r}", f"sys.{name} wants {'TRUE or FALSE' if kind is bool else 'a whole number'} there"
    )
