"""Random histories of tables of every merge engine: a table as a `Shape`, and what is written to it.

A `Shape` is a table: columns with a pool of values each, options, and the row kinds that its functions can take. A
history is drawn step by step from a source of chance (seeded, or hypothesis's own), along with an oracle: what
cannot be merged (an overflow, a division by zero) is left out, key by key.

    for step in history(shape, random.Random(7), keys=20, steps=8):
        ...                     step.rows to commit, or None for a full compaction; step.expected to be read afterwards
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.kit.engine_columns import Column
from tests.kit.engine_merges import KIND_COLUMN, Values
from tests.kit.engine_oracles import EngineOracle
from tests.kit.engine_tables import Decode, arrow_rows, texts

EVERY_KIND: Final = ("+I", "+I", "+U", "-U", "-D")
ADDS: Final = ("+I", "+U")


@dataclass(frozen=True)
class Shape:
    """A table and what is written to it. `sets` are columns whose elements have no order.

    `without_order` names columns that are NULL in retracts: those of groups whose functions cannot retract.
    """

    name: str
    columns: Mapping[str, Column]
    options: Mapping[str, str]
    kinds: Sequence[str] = EVERY_KIND
    sets: Sequence[str] = ()
    without_order: Sequence[str] = ()
    partitioned: bool = False

    @property
    def types(self) -> dict[str, str]:
        """Types by column, the key in the middle: it has no place of its own in the format."""
        values = {name: column.type_text for name, column in self.columns.items()}
        names = list(values)
        half = len(names) // 2
        keys = {"k": "INT NOT NULL", **({"p": "STRING NOT NULL"} if self.partitioned else {})}
        return {**{n: values[n] for n in names[:half]}, **keys, **{n: values[n] for n in names[half:]}}

    @property
    def primary_keys(self) -> list[str]:
        return ["p", "k"] if self.partitioned else ["k"]

    @property
    def partition_keys(self) -> list[str]:
        return ["p"] if self.partitioned else []

    @property
    def table_options(self) -> dict[str, str]:
        named = {
            f"fields.{name}.{option}": value
            for name, column in self.columns.items()
            for option, value in column.options.items()
        }
        return {**named, **self.options}

    @property
    def decoders(self) -> dict[str, Decode | None]:
        return dict.fromkeys(self.sets)

    def oracle(self) -> EngineOracle:
        return EngineOracle(self.types, self.primary_keys, self.table_options)

    def row(self, source: Random, keys: int) -> Values:
        """One change."""
        row: Values = {"k": source.randrange(keys), KIND_COLUMN: source.choice(self.kinds)}
        if self.partitioned:
            row["p"] = source.choice(("", "a/b"))
        row.update({name: column.value(source) for name, column in self.columns.items()})
        if row[KIND_COLUMN] in ("-U", "-D"):
            row.update(dict.fromkeys(self.without_order))
        return row


def can_be_merged_raw(shape: Shape) -> bool:
    """Whether its runs mean the same before lookup has seen them."""
    return "force-lookup" not in shape.options and shape.options.get("merge-engine") != "first-row"


@dataclass(frozen=True)
class Step:
    """A commit of rows, or a full compaction (`rows` is None); afterwards a reader sees `expected` in a table of ours.

    `by_paimon` in one that Paimon writes, and `shared` in one where it wrote this step if `is_paimons`."""

    rows: list[Values] | None
    expected: list[Values]
    by_paimon: list[Values] = field(default_factory=list)
    shared: list[Values] = field(default_factory=list)
    is_paimons: bool = False


def history(shape: Shape, source: Random, *, keys: int = 4, steps: int = 6, rows: int = 8) -> Iterator[Step]:
    """Steps of a history: commits with at least one row, and after the first one sometimes a full compaction."""
    chance = Random(source.random())
    ours, theirs, shared = shape.oracle(), replace(shape.oracle(), by_paimon=True), shape.oracle()
    oracles = (ours, theirs, shared)
    for _ in range(steps):
        shared.by_paimon = chance.random() < 0.5
        taken: list[Values] | None = None
        if ours.accepted and source.random() < 0.25:
            for oracle in oracles:
                oracle.compact()
        else:
            taken = [shape.row(source, keys) for _ in range(source.randint(1, rows))]
            for oracle in oracles:
                taken = oracle.mergeable(taken)
            if not taken:
                continue
            for oracle in oracles:
                oracle.write(taken)
                oracle.commit()
        seen = [list(oracle.rows().values()) for oracle in oracles]
        yield Step(taken, *seen, shared.by_paimon)


@dataclass
class Story:
    """The steps of a history as they happen, reported by key when something is wrong."""

    shape: Shape
    seed: Any
    steps: list[Step] = field(default_factory=list)

    def check(
        self,
        found: Any,
        columns: Sequence[str] | None = None,
        *,
        by: str = "the table",
        expected: Sequence[Values] | None = None,
    ) -> None:
        """Fails unless the rows found are those expected after the last step, or these."""
        types = {name: self.shape.types[name] for name in columns or self.shape.types}
        sets = {name: decode for name, decode in self.shape.decoders.items() if name in types}
        wanted = texts(arrow_rows(self.steps[-1].expected if expected is None else expected, types), sets)
        seen = texts(found.select(list(types)), sets)
        if seen == wanted:
            return
        missing, surplus = _difference(wanted, seen), _difference(seen, wanted)
        raise AssertionError(
            f"{self.shape.name}, seed {self.seed}, after step {len(self.steps)}: {by} differs"
            f"\noptions  {self.shape.table_options}"
            + "".join(f"\nexpected {row}" for row in missing[:3])
            + "".join(f"\nfound    {row}" for row in surplus[:3])
            + self._history_of([*missing, *surplus][0] if columns is None else "")
        )

    def _history_of(self, text: str) -> str:
        key = re.search(r"'k': (-?\d+)", text)
        if key is None:
            return ""
        lines = []
        for number, step in enumerate(self.steps, 1):
            if step.rows is None:
                lines.append(f"{number} full compaction")
            else:
                lines += [f"{number} {row}" for row in step.rows if row["k"] == int(key[1])]
        return "\nhistory of the key:\n" + "\n".join(lines)


def _difference(left: Sequence[str], right: Sequence[str]) -> list[str]:
    rest = list(right)
    only = []
    for row in left:
        if row in rest:
            rest.remove(row)
        else:
            only.append(row)
    return only
