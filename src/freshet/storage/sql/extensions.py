"""Statements of Apache Paimon's extension of Spark SQL: tags, and procedures.

    ALTER TABLE t CREATE TAG [IF NOT EXISTS] name [AS OF VERSION 7] [RETAIN 30 DAYS]
    ALTER TABLE t [CREATE OR] REPLACE TAG name [AS OF VERSION 7] [RETAIN 12 HOURS]
    ALTER TABLE t DELETE TAG [IF EXISTS] name
    ALTER TABLE t RENAME TAG name TO other
    SHOW TAGS t
    CALL sys.procedure(…)                        arguments by position or by name

Source: Apache Paimon 2.0.0, the grammar of its Spark module.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

from freshet.storage.sql.arguments import Arguments
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.procedures import Procedure, procedure
from freshet.storage.sql.refusals import refused, wrong
from freshet.storage.sql.result import SqlResult, given, said
from freshet.storage.sql.session import Plan, SqlSession
from freshet.storage.sql.sql_text import Value, Words, text_of

_UNITS: Final = {"DAYS": timedelta(days=1), "HOURS": timedelta(hours=1), "MINUTES": timedelta(minutes=1)}


def plan_show_tags(table: SqlName) -> Plan:
    """The plan of SHOW TAGS."""
    return Plan(lambda session: given({"tag": sorted(tag.name for tag in session.table(table).tags.list())}))


def plan_tag(words: Words) -> Plan | None:
    """The plan of an ALTER TABLE that is about a tag; None of another."""
    words.expect("ALTER", "TABLE")
    table = words.dotted()
    plan: Plan | None = None
    if words.accept("CREATE", "TAG"):
        plan = _made(words, table, replaces=False)
    elif words.accept("CREATE", "OR", "REPLACE", "TAG") or words.accept("REPLACE", "TAG"):
        plan = _made(words, table, replaces=True)
    elif words.accept("DELETE", "TAG"):
        if_exists = words.accept("IF", "EXISTS")
        plan = Plan(partial(_delete, table, _tag(words), if_exists))
    elif words.accept("RENAME", "TAG"):
        tag = _tag(words)
        words.expect("TO")
        plan = Plan(partial(_rename, table, tag, _tag(words)))
    if plan is not None:
        words.end()
    return plan


def _made(words: Words, table: SqlName, *, replaces: bool) -> Plan:
    if_not_exists = not replaces and words.accept("IF", "NOT", "EXISTS")
    tag = _tag(words)
    snapshot_id = _number(words) if words.accept("AS", "OF", "VERSION") else None
    retained = None
    if words.accept("RETAIN"):
        number = _number(words)
        unit = next((length for name, length in _UNITS.items() if words.accept(name)), None)
        if unit is None:
            raise words.unexpected(f"{', '.join(_UNITS)} are expected there")
        retained = number * unit
    return Plan(partial(_make, table, tag, replaces, if_not_exists, snapshot_id, retained))


def _tag(words: Words) -> str:
    """A word, or anything in backticks or quotes."""
    return words.text() if words.is_text() else words.name()


def _number(words: Words) -> int:
    number = words.value()
    if isinstance(number, bool) or not isinstance(number, int):
        raise words.unexpected("a whole number is expected before it")
    return number


def _make(
    name: SqlName,
    tag: str,
    replaces: bool,
    if_not_exists: bool,
    snapshot_id: int | None,
    retained: timedelta | None,
    session: SqlSession,
) -> SqlResult:
    """REPLACE TAG and CREATE OR REPLACE TAG are the same: both make one that is not there."""
    tags = session.table(name).tags
    is_there = tag in [each.name for each in tags.list()]
    if if_not_exists and is_there:
        return said(f"tag {tag} was there already")
    make = tags.replace if replaces and is_there else tags.create
    made = make(tag, snapshot_id, retained=retained)
    return said(f"tag {made.name} names snapshot {made.snapshot_id}")


def _delete(name: SqlName, tag: str, if_exists: bool, session: SqlSession) -> SqlResult:
    tags = session.table(name).tags
    if if_exists and tag not in [each.name for each in tags.list()]:
        return said(f"there is no tag {tag}")
    tags.delete(tag)
    return said(f"tag {tag} is deleted")


def _rename(name: SqlName, tag: str, new_name: str, session: SqlSession) -> SqlResult:
    session.table(name).tags.rename(tag, new_name)
    return said(f"tag {tag} is {new_name} now")


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
