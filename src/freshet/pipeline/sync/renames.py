"""The renamed columns of a target: which names fields had when, and what its columns are called now. Pure.

A rename is known by its statement in the schema change topic (`decode.schema_changes`). The table follows at once, so
that its columns have the newest names; the records of a batch, and later ones of other Kafka partitions, may still have
any older schema. Each statement makes a new version of the names:

    version 0 ── {a: b} ── version 1 ── {b: c, x: y} ── version 2 = the columns of the table

Which version a schema is of is found by its fields: those before and behind each statement are known (`Step.columns`),
and the nearest of them decides, the newest of equal ones. So a swap is known by the order of the fields. A statement
that brings a name back which an earlier one gave away is a version too, though it renames nothing.

A column is known by the id of its field, which a rename keeps: whether the table has followed is seen by the name that
the id has now, whatever died in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Final

import orjson

from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.decode.described_table import DescribedTable, is_column_name
from freshet.pipeline.decode.schema_changes import FoundRenames
from freshet.pipeline.sync.routes import Route
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import RenameColumn

STEPS_MAX: Final = 50
"""Of one table; of older statements it is not known any more what they renamed."""


@dataclass(frozen=True, slots=True)
class RenamedField:
    """A field, and the id of the column that has its values; None where the table had none."""

    old: str
    new: str
    column_id: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """What one statement renames at once, and the columns of the source behind it, in their order."""

    fields: tuple[RenamedField, ...]
    columns: tuple[str, ...]
    origin: str = ""
    """That of the statement, `FoundRenames.origin`."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(old, new)."""
        return tuple((each.old, each.new) for each in self.fields)

    @property
    def before(self) -> tuple[str, ...]:
        """The columns of the source before it."""
        olds = {new: old for old, new in self.pairs}
        return tuple(olds.get(name, name) for name in self.columns)


@dataclass(frozen=True, slots=True)
class Renames:
    """Those of one target, oldest first; `read` is up to which offset (by topic and partition) statements are known."""

    steps: tuple[Step, ...] = ()
    read: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None) -> Renames:
        """The inverse of `to_text`."""
        if not text:
            return cls()
        document: dict[str, Any] = orjson.loads(text)
        origins = document.get("origins", [""] * len(document["steps"]))
        steps = (
            Step(tuple(RenamedField(*each) for each in fields), tuple(columns), origin)
            for (fields, columns), origin in zip(document["steps"], origins, strict=True)
        )
        return cls(tuple(steps), document["read"])

    def to_text(self) -> str:
        """As the ledger has them."""
        steps = [
            [[[each.old, each.new, each.column_id] for each in step.fields], list(step.columns)] for step in self.steps
        ]
        origins = [step.origin for step in self.steps]
        return orjson.dumps({"steps": steps, "read": dict(self.read), "origins": origins}).decode()

    def knows(self, found: FoundRenames) -> bool:
        """Whether the statement has been taken, from its place or from an earlier one.

        A swap in three statements that was taken twice would give the columns their old names again.
        """
        is_sent_again = bool(found.origin) and any(step.origin == found.origin for step in self.steps)
        return is_sent_again or found.offset <= self.read.get(_place(found), -1)

    def is_news(self, found: FoundRenames, before: Sequence[FoundRenames]) -> bool:
        """Whether a statement is to be taken, besides those found before it."""
        if self.knows(found):
            return False
        pairs = [pair for step in self.steps for pair in step.pairs] + [pair for each in before for pair in each.pairs]
        olds = {old for old, _ in pairs}
        return bool(found.pairs or olds & set(found.columns))

    # --- names of fields ----------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The version of the table."""
        return len(self.steps)

    def version_of(self, names: Sequence[str]) -> int:
        """The version of a schema with these fields."""
        best: tuple[tuple[int, int, int, int], int] | None = None
        for version in range(self.newest, -1, -1):
            known = []
            if version < self.newest:
                known.append(self.steps[version].before)
            if version:
                known.append(self.steps[version - 1].columns)
            for columns in known:
                distance = _distance(names, columns)
                if best is None or distance < best[0]:
                    best = (distance, version)
        return self.newest if best is None else best[1]

    def columns_of(self, version: int) -> dict[str, str]:
        """The columns of the fields of a version, by their names; without those that have kept theirs."""
        if version >= self.newest:
            return {}
        now = {name: name for name in self.steps[version].before}
        for step in self.steps[version:]:
            news = dict(step.pairs)
            now = {first: news.get(name, name) for first, name in now.items()}
        return {first: name for first, name in now.items() if first != name}

    def ranks(self, keys: Collection[str]) -> tuple[int, ...]:
        """By version: how many statements before it have renamed one of these columns, those of the key.

        With the name of a key column the message key changes, and with that the Kafka partition of a row: which of two
        records is the later one is then seen by this number, and not by their offsets. Zero throughout where a name of
        the key came back: such names do not tell what is older.
        """
        names, later_names = set(keys), set[str]()
        moves = []
        for step in reversed(self.steps):
            pairs = [(old, new) for old, new in step.pairs if new in names]
            moves.append(bool(pairs))
            news, olds = {new for _, new in pairs}, {old for old, _ in pairs}
            later_names |= news
            if olds & later_names:
                return (0,) * (self.newest + 1)
            names = (names - news) | olds
        return (0, *accumulate(reversed(moves)))

    def described(self, described: DescribedTable) -> DescribedTable:
        """What a record says of its table, by the names of the columns."""
        columns = self.columns_of(self.version_of(tuple(described.columns))) if described.is_typed else {}
        return with_names(described, columns)

    def forgotten(self) -> Renames:
        """The same of a table that is created anew, with the newest names."""
        steps = (
            replace(step, fields=tuple(replace(each, column_id=None) for each in step.fields)) for step in self.steps
        )
        return replace(self, steps=tuple(steps))

    # --- names of columns ---------------------------------------------------------------------------------------------

    def changes(self, schema: TableSchema) -> tuple[RenameColumn, ...]:
        """What is to be renamed in a table for it to have the newest names; nothing where it has followed, or where
        somebody has named a column otherwise."""
        history: dict[int, list[str]] = {}
        for each in (each for step in self.steps for each in step.fields if each.column_id is not None):
            history.setdefault(each.column_id, [each.old]).append(each.new)  # type: ignore[arg-type]
        moves = {
            column.name: history[column.id][-1]
            for column in schema.fields
            if column.id in history and column.name in history[column.id] and column.name != history[column.id][-1]
        }
        if not moves.keys() & set(moves.values()):
            return tuple(RenameColumn(old, new) for old, new in moves.items())
        aside = {old: f"{new} (renamed from {old})" for old, new in moves.items()}
        return (
            *(RenameColumn(old, name) for old, name in aside.items()),
            *(RenameColumn(aside[old], new) for old, new in moves.items()),
        )

    def without(self, column_ids: Collection[int]) -> Renames:
        """The same where columns keep their names: what the table cannot follow."""
        steps = (
            replace(step, fields=tuple(each for each in step.fields if each.column_id not in column_ids))
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))


NO_RENAMES: Final = Renames()


def with_names(described: DescribedTable, columns: Mapping[str, str]) -> DescribedTable:
    """What a record says of its table, with other names."""
    if not columns:
        return described
    named = {columns.get(name, name): text for name, text in described.columns.items()}
    return replace(described, columns=named, keys=tuple(columns.get(name, name) for name in described.keys))


def own_names(route: Route) -> frozenset[str]:
    """Columns that the rule of a table means by their names: those are not renamed."""
    functions = [ComputedColumn.parse(text) for text in route.computed_columns.values()]
    inputs = {each.column for each in functions if each.column is not None}
    return frozenset({*route.metadata_columns, *route.computed_columns, *inputs, *route.partition_by})


def with_newest_names(route: Route, renames: Renames, described: DescribedTable) -> Route:
    """The route to a new table: its rule may name the columns of the key as they were called first."""
    names = renames.columns_of(0)
    keys = tuple(name if name in described.columns else names.get(name, name) for name in route.primary_key)
    return replace(route, primary_key=keys)


def taken(
    known: Renames, found: Iterable[FoundRenames], schema: TableSchema | None, own_names: Collection[str]
) -> tuple[Renames, tuple[str, ...]]:
    """The renames with those found, and what is to be said of those that the table does not follow.

    `schema` is the table's, where there is one, `own_names` are columns that the rule of the file means.
    """
    ids = {} if schema is None else {column.name: column.id for column in schema.fields}
    for change in () if schema is None else known.changes(schema):
        ids[change.new_name] = ids.pop(change.name)
    partition_keys: Collection[str] = () if schema is None else schema.partition_keys
    texts: list[str] = []
    for each in sorted(found, key=lambda each: (each.topic, each.partition, each.offset)):
        if known.knows(each):
            continue
        where = f"{each.topic} partition {each.partition} offset {each.offset}"
        fields, refused = _fields(each, ids, own_names, partition_keys)
        texts += [f"{old} is not renamed to {new} ({where}): {cause}" for (old, new), cause in refused.items()]
        texts += [_reused_text(name, where) for name in _reused_names(known, fields)]
        step = Step(fields, each.columns, each.origin)
        is_moved = any(one.column_id is not None for one in fields)
        is_known = any(step.pairs == last.pairs and step.columns == last.columns for last in known.steps[-1:])
        if not fields and _brings_back(known, each):
            known = replace(known, steps=(*known.steps, step)[-STEPS_MAX:])
        elif fields and (is_moved or not is_known):  # a connector that starts again may tell it again
            moved = {one.new: one.column_id for one in fields if one.column_id is not None}
            for one in fields:
                ids.pop(one.old, None)
            ids |= {name: column_id for name, column_id in moved.items() if column_id is not None}
            known = replace(known, steps=(*known.steps, step)[-STEPS_MAX:])
        known = replace(known, read={**known.read, _place(each): each.offset})
    return known, tuple(texts)


def _reused_names(known: Renames, fields: Sequence[RenamedField]) -> list[str]:
    """The new names that another column of the table has had, as where two columns swap their names."""
    before = [one for step in known.steps for one in step.fields]
    return [
        one.new
        for one in fields
        if one.column_id is not None
        and any(each.old == one.new and each.column_id not in (None, one.column_id) for each in (*before, *fields))
    ]


def _reused_text(name: str, where: str) -> str:
    """What may have happened to rows: of a name that was there before, a record does not say which column it means."""
    return (
        f"{name} is another column than before ({where}). Records that had the new names and were read before this "
        "statement, as in a backlog, have filled the other one; if there may be such, compare the table with its "
        "source, or read it anew with freshet resync"
    )


def _brings_back(known: Renames, found: FoundRenames) -> bool:
    """Whether a name is there again that was renamed away."""
    olds = {old for step in known.steps for old, _ in step.pairs}
    return bool(known.steps) and bool((olds & set(found.columns)) - set(known.steps[-1].columns))


def _fields(
    found: FoundRenames, ids: Mapping[str, int], own_names: Collection[str], partition_keys: Collection[str]
) -> tuple[tuple[RenamedField, ...], dict[tuple[str, str], str]]:
    """What is renamed, and why something is not. A name that another one of the same statement gives away is free."""
    spelled = {name.casefold(): name for name in ids}
    left: dict[tuple[str, str], str] = {}
    for old, new in found.pairs:
        left[old if old in ids else spelled.get(old.casefold(), old), new] = ""
    refused: dict[tuple[str, str], str] = {}
    while True:
        free = {old for old, _ in left}
        for pair in list(left):
            cause = _refusal(*pair, ids, free, own_names, partition_keys)
            if cause is not None:
                refused[pair] = cause
                del left[pair]
                break
        else:
            return tuple(RenamedField(old, new, ids.get(old)) for old, new in left), refused


def _refusal(
    old: str,
    new: str,
    ids: Mapping[str, int],
    free: Collection[str],
    own_names: Collection[str],
    partition_keys: Collection[str],
) -> str | None:
    for name in (old, new):
        if name in own_names:
            return f"the rule of the table means column {name} by that name"
        if not is_column_name(name):
            return f"{name!r} cannot be the name of a column"
    if old in partition_keys:
        return "it is a partition key, and folders carry its name"
    if old in ids and new in ids and new not in free:
        return f"it came too late, the table has a column {new} already; both stay"
    return None


def _distance(names: Sequence[str], columns: Sequence[str]) -> tuple[int, int, int, int]:
    """How far a schema is from the columns of a source: names that one of both lacks, first without regard to upper and
    lower case, then neighbours in another order, then how soon the two differ: columns come at the end."""
    folded = len({name.casefold() for name in names} ^ {name.casefold() for name in columns})
    exact = len(set(names) ^ set(columns))
    places = {name: place for place, name in enumerate(columns)}
    order = [places[name] for name in names if name in places]
    differ = [place for place, pair in enumerate(zip(names, columns, strict=False)) if pair[0] != pair[1]]
    same = differ[0] if differ else min(len(names), len(columns))
    return folded, exact, sum(later < earlier for earlier, later in pairwise(order)), -same


def _place(found: FoundRenames) -> str:
    return f"{found.topic}/{found.partition}"
