"""What writers of one table write, and which rows the table must have then: a dict per merge engine.

    story = STORIES["sum"]
    story.batch(seed=1, writer=0, number=7)      the rows of the seventh commit of the first writer, always the same
    rows = CurrentRows(story)
    rows.apply(story.batch(1, 0, 7))
    rows.visible()                               {key: values}, as `scan` must give them

Nothing is recorded but who committed in which order: batches are drawn again from the seed. The rows of a batch lie in
a window of keys, narrow or wide, so that batches touch one bucket or all of them and key ranges overlap or do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.kit.engine_merges import KIND_COLUMN, KINDS, Engine, Record, Values
from tests.kit.oracle import RETRACTS

KEYS = 50
ROWS_MAX = 6
WINDOWS = (3, 10, KEYS)
"""Widths of the window of keys that a batch writes to."""

Row = tuple[Any, ...]
Draw = Callable[[random.Random, int, int], Values]
"""Values of one row without its key, from chance, the number of the writer and the number of its batch."""


@dataclass(frozen=True)
class Story:
    """A table of one merge engine, and how its rows are drawn."""

    name: str
    columns: Mapping[str, str]
    options: Mapping[str, str]
    draw: Draw
    drift: int = 0
    """By how many keys the window moves with each batch, for engines that only take new keys."""

    @property
    def schema(self) -> dict[str, str]:
        return {"k": "BIGINT", **self.columns}

    def batch(self, seed: int, writer: int, number: int, rows: int | None = None) -> list[Values]:
        """`rows` rows, a few if not given; many rows have as many keys."""
        chance = random.Random(f"{seed}/{writer}/{number}")
        width = chance.choice(WINDOWS) if rows is None else max(KEYS, rows)
        drift = self.drift * chance.choice((number, chance.randrange(number + 1)))
        first = drift + chance.randrange(max(KEYS - width, 0) + 1)
        count = chance.randint(1, ROWS_MAX) if rows is None else rows
        return [
            {"k": first + chance.randrange(width), **self.draw(chance, writer, number)} for _ in range(count)
        ]  # a key may come twice: the later row is the newer one

    def arrow(self, rows: Iterable[Values]) -> pa.Table:
        """Rows as the writer takes them; columns that a row lacks are NULL."""
        given = list(rows)
        types = {name: pa.string() if kind == "STRING" else pa.int64() for name, kind in self.schema.items()}
        columns = {name: pa.array([row.get(name) for row in given], kind) for name, kind in types.items()}
        return pa.table({**columns, KIND_COLUMN: pa.array([row.get(KIND_COLUMN, "+I") for row in given])})


@dataclass
class CurrentRows:
    """The row of each key after the batches applied so far, in their order."""

    story: Story
    rows: dict[int, Record] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        return Engine(self.story.schema, ["k"], self.story.options)

    def apply(self, batch: Iterable[Values]) -> None:
        """Merges each row of a batch into the current row of its key."""
        engine = self.engine
        for given in batch:
            key = given["k"]
            values = {name: given.get(name) for name in self.story.schema}
            new = Record(values, KINDS.index(given.get(KIND_COLUMN, "+I")), 0)
            merged = engine.merge([self.rows[key], new] if key in self.rows else [new])
            assert merged is not None
            if merged.kind in RETRACTS:
                self.rows.pop(key, None)
            else:
                self.rows[key] = merged

    def visible(self) -> dict[int, Row]:
        """Values of each key, without the key, in the order of the columns."""
        return {key: tuple(record.values[name] for name in self.story.columns) for key, record in self.rows.items()}


def _plain(chance: random.Random, writer: int, number: int) -> Values:
    kind = "-D" if chance.random() < 0.1 else "+I"
    return {"writer": writer, "n": number, "v": f"{writer}-{number}-{chance.randrange(1000)}", KIND_COLUMN: kind}


def _count(chance: random.Random, writer: int, number: int) -> Values:
    return {"total": chance.randrange(1, 1000), "times": 1, "newest": number * 10 + writer}


def _sum_only(chance: random.Random, writer: int, number: int) -> Values:
    """The same whatever the order of commits: what is wrong here was lost or counted twice."""
    return {"total": chance.randrange(1, 1000), "times": 1}


def _groups(chance: random.Random, writer: int, number: int) -> Values:
    """Orderings lie close together: late rows, and ties, which the later commit wins."""
    row: Values = {}
    if chance.random() < 0.7:
        row |= {"g": number // 4 + chance.randrange(4), "a": f"{writer}-{number}"}
    if chance.random() < 0.7:
        row |= {"h": chance.randrange(3), "b": chance.choice([f"{writer}-{number}", None])}
    return row


def _own_columns(chance: random.Random, writer: int, number: int) -> Values:
    """Each writer has a column of its own, and both write the third now and then."""
    row: Values = {f"own_{writer}": number}
    if chance.random() < 0.5:
        row["shared"] = f"{writer}-{number}"
    return row


def _first(chance: random.Random, writer: int, number: int) -> Values:
    return {"writer": writer, "n": number, "v": str(chance.randrange(1000))}


STORIES: Mapping[str, Story] = {
    story.name: story
    for story in (
        Story("deduplicate", {"writer": "BIGINT", "n": "BIGINT", "v": "STRING"}, {}, _plain),
        Story(
            "sum",
            {"total": "BIGINT", "times": "BIGINT", "newest": "BIGINT"},
            {
                "merge-engine": "aggregation",
                "fields.total.aggregate-function": "sum",
                "fields.times.aggregate-function": "sum",
                "fields.newest.aggregate-function": "last_value",
            },
            _count,
        ),
        Story(
            "sequence-group",
            {"g": "BIGINT", "a": "STRING", "h": "BIGINT", "b": "STRING"},
            {"merge-engine": "partial-update", "fields.g.sequence-group": "a", "fields.h.sequence-group": "b"},
            _groups,
        ),
        Story(
            "partial-update",
            {"own_0": "BIGINT", "own_1": "BIGINT", "shared": "STRING"},
            {"merge-engine": "partial-update"},
            _own_columns,
        ),
        Story(
            "first-row",
            {"writer": "BIGINT", "n": "BIGINT", "v": "STRING"},
            {"merge-engine": "first-row"},
            _first,
            drift=1,
        ),
        Story(
            "sum-only",
            {"total": "BIGINT", "times": "BIGINT"},
            {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
            _sum_only,
        ),
    )
}

ENGINES = ("deduplicate", "sum", "sequence-group", "partial-update", "first-row")
"""Those of each run; `sum-only` distinguishes losses from a wrong order."""

PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "force-lookup": {"force-lookup": "true"},
}


def is_refused(story: str, producer: str) -> bool:
    """Combinations that no table can have."""
    return story == "first-row" and producer in ("full-compaction", "vectors")
