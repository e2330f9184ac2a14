"""Tags by statements, as Apache Paimon's extension of Spark SQL has them.

    ALTER TABLE t CREATE TAG [IF NOT EXISTS] name [AS OF VERSION 7] [RETAIN 30 DAYS]
    ALTER TABLE t [CREATE OR] REPLACE TAG name [AS OF VERSION 7] [RETAIN 12 HOURS]
    ALTER TABLE t DELETE TAG [IF EXISTS] name
    ALTER TABLE t RENAME TAG name TO other
    SHOW TAGS t

Source: Apache Paimon 2.0.0, the grammar of its Spark module.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from freshet.storage.sql.names import SqlName
from freshet.storage.sql.result import SqlResult, given, said
from freshet.storage.sql.session import SqlSession
from freshet.storage.sql.words import Words

_UNITS: Final = {"DAYS": timedelta(days=1), "HOURS": timedelta(hours=1), "MINUTES": timedelta(minutes=1)}


@dataclass(frozen=True)
class ShowTags:
    """SHOW TAGS."""

    name: SqlName

    def run(self, session: SqlSession) -> SqlResult:
        """Their names."""
        return given({"tag": sorted(tag.name for tag in session.table(self.name).tags.list())})


@dataclass(frozen=True)
class MakeTag:
    """CREATE TAG; REPLACE TAG and CREATE OR REPLACE TAG, which are the same: both make one that is not there."""

    table: SqlName
    tag: str
    replaces: bool
    if_not_exists: bool
    snapshot_id: int | None
    retained: timedelta | None

    def run(self, session: SqlSession) -> SqlResult:
        """Makes it name a snapshot."""
        tags = session.table(self.table).tags
        is_there = self.tag in [tag.name for tag in tags.list()]
        if self.if_not_exists and is_there:
            return said(f"tag {self.tag} was there already")
        make = tags.replace if self.replaces and is_there else tags.create
        made = make(self.tag, self.snapshot_id, retained=self.retained)
        return said(f"tag {made.name} names snapshot {made.snapshot_id}")


@dataclass(frozen=True)
class DeleteTag:
    """DELETE TAG."""

    table: SqlName
    tag: str
    if_exists: bool

    def run(self, session: SqlSession) -> SqlResult:
        """Removes it, with the files that only it names."""
        tags = session.table(self.table).tags
        if self.if_exists and self.tag not in [tag.name for tag in tags.list()]:
            return said(f"there is no tag {self.tag}")
        tags.delete(self.tag)
        return said(f"tag {self.tag} is deleted")


@dataclass(frozen=True)
class RenameTag:
    """RENAME TAG … TO …."""

    table: SqlName
    tag: str
    new_name: str

    def run(self, session: SqlSession) -> SqlResult:
        """Gives it another name."""
        session.table(self.table).tags.rename(self.tag, self.new_name)
        return said(f"tag {self.tag} is {self.new_name} now")


TagPlan = MakeTag | DeleteTag | RenameTag


def plan_tag(words: Words) -> TagPlan | None:
    """The plan of an ALTER TABLE that is about a tag; None of another."""
    words.expect("ALTER", "TABLE")
    table = words.dotted()
    plan: TagPlan | None = None
    if words.accept("CREATE", "TAG"):
        plan = _made(words, table, replaces=False)
    elif words.accept("CREATE", "OR", "REPLACE", "TAG") or words.accept("REPLACE", "TAG"):
        plan = _made(words, table, replaces=True)
    elif words.accept("DELETE", "TAG"):
        if_exists = words.accept("IF", "EXISTS")
        plan = DeleteTag(table, _tag(words), if_exists)
    elif words.accept("RENAME", "TAG"):
        tag = _tag(words)
        words.expect("TO")
        plan = RenameTag(table, tag, _tag(words))
    if plan is not None:
        words.end()
    return plan


def _made(words: Words, table: SqlName, *, replaces: bool) -> MakeTag:
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
    return MakeTag(table, tag, replaces, if_not_exists, snapshot_id, retained)


def _tag(words: Words) -> str:
    """A word, or anything in backticks or quotes."""
    return words.text() if words.is_text() else words.name()


def _number(words: Words) -> int:
    number = words.value()
    if isinstance(number, bool) or not isinstance(number, int):
        raise words.unexpected("a whole number is expected before it")
    return number
