"""Tables of every merge engine for golden archives, what is written to them, and a dict that says what they hold.

    for shape in SHAPES:
        commits = drawn(shape, Random(7))          who commits what under which number
        rows = rows_after(shape, commits)          by key; append tables: every row

The rows of a key within one commit are one change, so that no result depends on where a program flushes or compacts.
Values are JSON: archives keep them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

Row = dict[str, Any]

COLUMNS: Final = {"k": "BIGINT", "p": "STRING", "a": "BIGINT", "b": "STRING", "s": "INT"}
LATER_COLUMN: Final = "c"
"""A STRING that `alter` adds."""
KEYS: Final = 12
ROWS: Final = 7
USERS: Final = ("loader-1", "loader-2")
LONG: Final = {"snapshot.time-retained": "36500 d", "snapshot.num-retained.max": "1000"}
"""An archive is continued years later."""
LONG_AGO: Final = 5
"""A time in the column `a`, in seconds; the other one is `LATER_ON`."""
LATER_ON: Final = 4_000_000_000

ENGINES: Final[Mapping[str, Mapping[str, str]]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "s"},
    "sums": {
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "last_non_null_value",
        "fields.a.aggregate-function": "sum",
    },
    "partial": {"merge-engine": "partial-update"},
    "groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "a"},
    "first-row": {"merge-engine": "first-row"},
}
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors-lookup": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "force-lookup": {"force-lookup": "true"},
}
APPENDS: Final[Mapping[str, Mapping[str, str]]] = {
    "append": {},
    "append-buckets": {"bucket": "2", "bucket-key": "k"},
    "append-unordered": {"bucket": "2", "bucket-key": "k", "bucket-append-ordered": "false"},
}


@dataclass(frozen=True)
class Shape:
    """A table; `engine` is a key of `ENGINES`, or `append`."""

    name: str
    engine: str
    options: Mapping[str, str]
    partitioned: bool = False
    moves: bool = False
    """Whether a key may be in any partition."""
    is_rescaled: bool = False
    """Whether one partition has got another number of buckets, and the others have not."""

    @property
    def primary_keys(self) -> list[str]:
        if self.engine == "append":
            return []
        return ["p", "k"] if self.partitioned and not self.moves else ["k"]

    @property
    def partition_keys(self) -> list[str]:
        return ["p"] if self.partitioned else []

    @property
    def table_options(self) -> dict[str, str]:
        return {**LONG, **self.options}

    @property
    def waits(self) -> bool:
        """True where rows are seen when they are compacted."""
        return self.options.get("bucket") == "-2"

    @property
    def expires(self) -> bool:
        """True where compactions leave out rows by their column `a`."""
        return "record-level.expire-time" in self.options

    def lasting(self, rows: Iterable[Row]) -> list[Row]:
        """Those that no compaction leaves out."""
        return [row for row in rows if not self.expires or row["a"] != LONG_AGO]

    @property
    def identity(self) -> tuple[str, ...]:
        """What changes of one row have in common: of rows that move the changes of two partitions are in any order."""
        return ("p", "k") if self.moves else ("k",)

    @property
    def has_changelog(self) -> bool:
        """True where the table has a changelog."""
        return self.engine == "append" or "changelog-producer" in self.options


@dataclass(frozen=True)
class Commit:
    """What one user commits under one number; `write_only` leaves its files in level 0."""

    user: str
    identifier: int
    rows: list[Row] = field(default_factory=list)
    write_only: bool = False


def _shapes() -> list[Shape]:
    found = []
    for engine, engine_options in ENGINES.items():
        for way, way_options in WAYS.items():
            if way == "input" and engine != "deduplicate":
                continue
            if engine == "first-row" and way in ("full-compaction", "vectors", "vectors-lookup"):
                continue
            number = len(found)
            options = {"bucket": "13"[number % 2], **engine_options, **way_options}
            found.append(Shape(f"{engine}_{way}".replace("-", "_"), engine, options, partitioned=number % 3 == 0))
    for number, (name, options) in enumerate(APPENDS.items()):
        found.append(Shape(name.replace("-", "_"), "append", options, partitioned=number % 2 == 1))
    return found


SHAPES: Final = tuple(_shapes())


# ---------------------------------------------------------------------------------------------- what is written


def drawn(shape: Shape, source: Random, users: Sequence[tuple[str, int]], *, later: int) -> list[Commit]:
    """A commit for each (user, identifier); from the one with the index `later` on rows have the column of later."""
    commits: list[Commit] = []
    for index, (user, identifier) in enumerate(users):
        current = {row["k"]: row for row in rows_after(shape, commits)}
        rows: list[Row] = []
        for key in sorted(source.sample(range(KEYS), ROWS)):
            rows += _change(shape, source, key, current.get(key), has_later=index >= later)
        commits.append(Commit(user, identifier, rows))
    return commits


def _change(shape: Shape, source: Random, key: int, before: Row | None, *, has_later: bool) -> list[Row]:
    """The rows of one change."""
    if before is not None and not has_later:
        before = {name: before[name] for name in COLUMNS}
    if shape.engine == "deduplicate" and before is not None and source.random() < 0.3:
        return [{**before, "_ROW_KIND": "-D"}]
    row: Row = {"k": key, "p": f"p{key % 2}", "a": source.randrange(100), "b": f"text {source.randrange(1000)}"}
    if shape.moves:
        row["p"] = f"p{source.randrange(3)}"
    if shape.expires:
        row["a"] = (None, LONG_AGO, LATER_ON)[key % 3]  # all of a key, as older rows do not outlast later ones
    row |= {"s": source.randrange(10), **({LATER_COLUMN: f"later {source.randrange(100)}"} if has_later else {})}
    if shape.engine in ("partial", "sums", "groups"):
        row |= {name: None for name in ("a", "b") if source.random() < 0.3}
    if "input" in shape.options.values() and before is not None:
        return [{**before, "_ROW_KIND": "-U"}, {**row, "_ROW_KIND": "+U"}]
    return [{**row, "_ROW_KIND": "+I"}]


# ---------------------------------------------------------------------------------------------- what it makes


def rows_after(shape: Shape, commits: Iterable[Commit]) -> list[Row]:
    """What the table holds after these commits; columns that were not written are None."""
    changes = [row for commit in commits for row in commit.rows]
    whole = dict.fromkeys([*COLUMNS, LATER_COLUMN])
    if shape.engine == "append":
        return in_order(whole | {name: row[name] for name in row if name != "_ROW_KIND"} for row in changes)
    held: dict[int, Row] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_ROW_KIND"}
        before = held.get(row["k"])
        if change["_ROW_KIND"] == "-D":
            held.pop(row["k"], None)
        elif change["_ROW_KIND"] != "-U":
            merged = whole | row if before is None else _merged(shape.engine, before, whole | row)
            if before is not None and shape.engine != "deduplicate":
                merged["p"] = before["p"]
            held[row["k"]] = merged
    return in_order(held.values())


def _merged(engine: str, before: Row, row: Row) -> Row:
    """The row of a key after another one was written."""
    if engine == "deduplicate":
        return row
    if engine == "first-row":
        return before
    if engine == "sequence":
        return row if row["s"] >= before["s"] else before
    given = {name: value for name, value in row.items() if value is not None}
    if engine == "sums" and "a" in given and before["a"] is not None:
        given["a"] += before["a"]
    if engine == "groups":
        is_behind = row["s"] < before["s"]
        given |= {name: (before if is_behind else row)[name] for name in ("a", "s")}
    return before | given


def folded(shape: Shape, rows: Iterable[Row], changes: Iterable[Row]) -> list[Row]:
    """Rows after changes, each of which must fit: no row twice, none removed that is not there."""
    whole = dict.fromkeys([*COLUMNS, LATER_COLUMN])
    if shape.engine == "append":
        return in_order([*rows, *({**whole, **_values(change)} for change in changes)])
    before = [{**whole, **row} for row in rows]
    return folded_changes((whole | change for change in changes), shape.name, before, shape.identity)


def folded_changes(
    changes: Iterable[Row], name: str, before: Iterable[Row] = (), identity: Sequence[str] = ("k",)
) -> list[Row]:
    """The rows after changes, each of which must fit: no row twice, none removed that is not there."""
    held = {tuple(row[each] for each in identity): row for row in before}
    for change in changes:
        row = _values(change)
        key = tuple(row[each] for each in identity)
        if change["_ROW_KIND"] in ("+I", "+U"):
            assert key not in held, f"{name}: {change}, and there is {held[key]}"
            held[key] = row
        else:
            current = held.pop(key, None)
            assert current == row, f"{name}: {change}, and there is {current}"
    return in_order(held.values())


def _values(change: Row) -> Row:
    return {name: value for name, value in change.items() if not name.startswith("_")}


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order in which they can be compared."""
    return sorted(rows, key=lambda row: [str(row[name]) for name in sorted(row)])
