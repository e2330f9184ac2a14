"""Histories of changes, cut into commits and compacted in any way, and what they come to: one merge of all rows.

    played = play("partial-update, deletes remove", "input", "2", Random(7), folder)
    played.check(played.table.read(), "read by us")

Of every engine and function (but bitmaps and sketches, which are unions that the oracle cannot read), in columns that
take NULL and in such that do not. Left out are the pairs that `docs/explanation/merging.md` lists: what no layout of
files can carry. The first row of a key is an add, also after a delete that removes: what a retract of nothing leaves
behind depends on when it is compacted, in Apache Paimon's merge too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.kit.engine_columns import KEYED_COLUMNS, LISTS, MAPS, NESTED, Column, list_of, with_function
from tests.kit.engine_histories import ADDS, EVERY_KIND, Shape
from tests.kit.engine_layers import blanked
from tests.kit.engine_merges import KIND_COLUMN, KINDS, Record, Values
from tests.kit.engine_shapes import REMOVING, sequence_group
from tests.kit.engine_tables import FreshetTable, arrow_rows, texts
from tests.kit.oracle import DELETE, RETRACTS

KEYS: Final = 5
AGGREGATION: Final = {"merge-engine": "aggregation"}
PARTIAL: Final = {"merge-engine": "partial-update"}
AG_REMOVES: Final = {**AGGREGATION, "aggregation.remove-record-on-delete": "true"}
PU_REMOVES: Final = {**PARTIAL, "partial-update.remove-record-on-delete": "true"}

_INTS: Final = Column("INT", (1, 2, 3, 5, -4))
_ORDER: Final = replace(_INTS, nulls=0)
_TEXTS: Final = Column("STRING", ("a", "b", "c"))
_REMOVALS: Final = (*ADDS, "-D")
_COUNT_BLANK: Final = ("max", "min", "bool_and")


def _rows(source: Random) -> Any:
    return [{"k0": key, "k1": "x", "v": source.choice((1, 2, None)), "s": source.choice((1, 2))} for key in (0, 1, 2)]


def _times(source: Random) -> Any:
    return [(key, {"v": source.randrange(9), "ts": source.choice(("2", "50", "100"))}) for key in ("p", "q", "r")]


FOLDING: Final = {
    **with_function("sum", {"i": _INTS, "d": Column("DOUBLE", (0.5, 1.0, -2.0))}),
    **with_function("last_value", {"t": _TEXTS}),
    **with_function("collect", {"ignored": LISTS["ints"]}, ignore_retract="true"),
}
"""Functions that may meet retracts in any order."""
RETRACTING: Final = {
    **with_function("sum", {"i": _INTS}),
    **with_function("product", {"p": Column("BIGINT", (-1, 1, 2, 3))}),
    **with_function("last_value", {"t": _TEXTS}),
    "default": _INTS,
    **with_function("collect", {"all": Column("ARRAY<INT>", list_of(1, 2, 3))}),
    **with_function("merge_map", {"m": MAPS["m0"]}),
    **with_function(
        "nested_update", {"plain": Column(NESTED, _rows), "keyed": Column(NESTED, _rows, {"nested-key": "k0"})}
    ),
}
ADDING: Final = {
    **with_function("max", {"x": _INTS}),
    **with_function("min", {"d": Column("DATE", (date(1970, 1, 1), date(2024, 2, 29)))}),
    **with_function("bool_and", {"b": Column("BOOLEAN")}),
    **with_function("bool_or", {"b": Column("BOOLEAN")}),
    **with_function("listagg", {"l": _TEXTS}),
    **with_function("listagg", {"once": _TEXTS}, distinct="true"),
    **with_function("merge_map_with_keytime", {"m": Column("MAP<STRING, ROW<v INT, ts STRING>>", _times)}),
    **with_function("nested_partial_update", {"n": replace(KEYED_COLUMNS["keyed"], pool=_rows)}),
}
FIRST: Final = {**with_function("first_value", {"f": _TEXTS}), **with_function("first_non_null_value", {"f": _TEXTS})}
_SETS: Final = (
    "all_collect",
    "ignored_collect",
    "keyed_nested_update",
    "plain_nested_update",
    "n_nested_partial_update",
)
_GROUPS: Final = {"a": _INTS, "b": _TEXTS, "g": _INTS, "c": _INTS, "h": _INTS, "free": _INTS}
_GROUP_OPTIONS: Final = {**PARTIAL, **sequence_group("g", "a,b"), **sequence_group("h", "c")}


def _not_null(columns: Mapping[str, Column], *kept: str) -> dict[str, Column]:
    return {
        name: one if name in kept else replace(one, type_text=f"{one.type_text} NOT NULL", nulls=0)
        for name, one in columns.items()
    }


def _only(columns: Mapping[str, Column], *functions: str) -> dict[str, Column]:
    return {name: one for name, one in columns.items() if one.options.get("aggregate-function") in functions}


def _without(columns: Mapping[str, Column], *functions: str) -> dict[str, Column]:
    return {name: one for name, one in columns.items() if one.options.get("aggregate-function") not in functions}


@dataclass(frozen=True)
class CutTable:
    """A table. Columns named by `grows` are drawn in order: rows that come late are among the pairs left out."""

    shape: Shape
    grows: Sequence[str] = ()

    def draw(self, source: Random, *, rows: int = 24, keys: int = KEYS) -> Drawn:
        """Rows in order, and what they come to."""
        drawn, engine = Drawn(self), self.shape.oracle().engine
        removes = any("remove-record" in name for name in self.shape.options)
        for number in range(rows):
            row = self.shape.row(source, keys)
            row.update({name: number for name in self.grows if row[name] is not None})
            for group in engine.groups:  # values without an order stay in a lone row only
                if all(row[name] is None for name in group.ordering):
                    row.update(dict.fromkeys(group.protected))
            records = drawn.records.setdefault(row["k"], [])
            kind = KINDS.index(row[KIND_COLUMN])
            if kind in RETRACTS and (not records or (records[-1].kind == DELETE and removes)):
                row[KIND_COLUMN], kind = "+I", 0
            drawn.rows.append(row)
            values = {name: row.get(name) for name in self.shape.types}
            records.append(blanked(engine, Record(values, kind, number)))
            if kind == DELETE and removes and not engine.groups:
                records.clear()
        return drawn


@dataclass
class Drawn:
    """Rows of a table, in order."""

    table: CutTable
    rows: list[Values] = field(default_factory=list)
    records: dict[int, list[Record]] = field(default_factory=dict)
    """By key, from the last delete on."""

    @property
    def expected(self) -> list[Values]:
        """What a reader sees after all rows."""
        engine = self.table.shape.oracle().engine
        found = []
        for records in self.records.values():
            ordered = sorted(records, key=engine.rank)
            merged = None if not ordered else ordered[0] if len(ordered) == 1 else engine.merge(ordered)
            if merged is not None and merged.kind not in RETRACTS:
                found.append(merged.values)
        return found


def _tables() -> Iterator[CutTable]:
    plain = {"a": _INTS, "b": _TEXTS, "c": _INTS}
    yield CutTable(Shape("deduplicate", plain, {}))
    yield CutTable(Shape("deduplicate, sequence.field", {"s": _INTS, **plain}, {"sequence.field": "s"}, ADDS))
    yield CutTable(Shape("first-row", plain, {"merge-engine": "first-row"}, ADDS))
    yield CutTable(Shape("partial-update", plain, PARTIAL, ADDS))
    yield CutTable(Shape("partial-update, deletes remove", plain, PU_REMOVES, _REMOVALS))
    yield CutTable(Shape("partial-update, NOT NULL, deletes remove", _not_null(plain, "b"), PU_REMOVES, _REMOVALS))
    yield from _group_tables()
    yield from _aggregations()


def _group_tables() -> Iterator[CutTable]:
    ordered = {**_GROUPS, "g": _ORDER, "h": _ORDER}
    removes = {**_GROUP_OPTIONS, REMOVING: "h"}
    yield CutTable(Shape("groups", _GROUPS, _GROUP_OPTIONS))
    yield CutTable(Shape("groups, deletes remove", ordered, removes, _REMOVALS), ("g", "h"))
    yield CutTable(Shape("groups, either removes", ordered, {**removes, REMOVING: "g,h"}, _REMOVALS), ("g", "h"))
    yield CutTable(Shape("groups, NOT NULL, deletes remove", _not_null(ordered, "b"), removes, _REMOVALS), ("g", "h"))
    for name, columns, kinds in (("retracting", RETRACTING, EVERY_KIND), ("adding", {**ADDING, **FIRST}, ADDS)):
        options = {**PARTIAL, **sequence_group("g", ",".join(columns))}
        yield CutTable(Shape(f"groups, {name}", {**columns, "g": _INTS, "free": _INTS}, options, kinds, _SETS), ("g",))
    options = {**PARTIAL, **sequence_group("g", ",".join(RETRACTING)), REMOVING: "g"}
    columns = {**RETRACTING, "g": _ORDER, "free": _INTS}
    yield CutTable(Shape("groups, retracting, deletes remove", columns, options, EVERY_KIND, _SETS), ("g",))


def _aggregations() -> Iterator[CutTable]:
    adding = _not_null(ADDING)
    yield CutTable(Shape("folding", FOLDING, AGGREGATION, EVERY_KIND, _SETS))
    yield CutTable(Shape("retracting", RETRACTING, AGGREGATION, EVERY_KIND, _SETS))
    yield CutTable(Shape("adding", {**ADDING, **FIRST}, AGGREGATION, ADDS, _SETS))
    yield CutTable(Shape("adding, NOT NULL", {**adding, **_not_null(FIRST)}, AGGREGATION, ADDS, _SETS))
    yield CutTable(Shape("folding, deletes remove", _only(FOLDING, "sum", "last_value"), AG_REMOVES, _REMOVALS, _SETS))
    yield CutTable(Shape("retracting, deletes remove", RETRACTING, AG_REMOVES, EVERY_KIND, _SETS))
    yield CutTable(Shape("adding, deletes remove", ADDING, AG_REMOVES, _REMOVALS, _SETS))
    not_null = {**_not_null(_without(RETRACTING, "product")), **_without(adding, *_COUNT_BLANK)}
    yield CutTable(Shape("aggregation, NOT NULL, deletes remove", not_null, AG_REMOVES, _REMOVALS, _SETS))
    ordered = {**_only(ADDING, "max", "min", "bool_and", "bool_or"), **_only(FOLDING, "sum", "last_value")}
    options = {**AGGREGATION, "sequence.field": "s"}
    yield CutTable(Shape("aggregation, sequence.field", {"s": _INTS, **ordered}, options, ADDS))
    yield CutTable(Shape("aggregation in order", {"s": _ORDER, **RETRACTING}, options, EVERY_KIND, _SETS), ("s",))


CUT_TABLES: Final[Mapping[str, CutTable]] = {table.shape.name: table for table in _tables()}

PRODUCERS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "force-lookup": {"force-lookup": "true"},
    "vectors": {"deletion-vectors.enabled": "true"},
}
TRIGGERS: Final = ("2", "3", "5")


def cases() -> list[tuple[str, str, str]]:
    """Each table with each producer that it can have, and a trigger, so that all pairs of the two are among them."""
    found = []
    for at, name in enumerate(CUT_TABLES):
        for step, producer in enumerate(PRODUCERS):
            if name == "first-row" and producer not in ("none", "lookup", "force-lookup"):
                continue
            found.append((name, producer, TRIGGERS[(at + step) % len(TRIGGERS)]))
    return found


@dataclass
class Played:
    """A table of ours that holds a history."""

    drawn: Drawn
    table: FreshetTable

    def check(self, found: Any, by: str) -> None:
        """Fails unless these are the rows that the history comes to."""
        shape = self.drawn.table.shape
        wanted, seen = texts(arrow_rows(self.drawn.expected, shape.types), _sets(shape)), texts(found, _sets(shape))
        if seen == wanted:
            return
        only = [*(text for text in wanted if text not in seen), *(text for text in seen if text not in wanted)]
        keys = {int(key) for text in only for key in re.findall(r"'k': (\d+)", text)}
        history = [str(row) for row in self.drawn.rows if row["k"] in keys]
        levels = [(each.file.level, each.file.row_count) for each in self.table.table.files()]
        head = f"{shape.name}, {by}, files {levels}: expected and found differ"
        lines = [head, *only[:4], "history of the keys:", *history[:40]]
        raise AssertionError("\n".join(lines))


def play(name: str, producer: str, trigger: str, source: Random, folder: Path, *, small_buffers: bool = True) -> Played:
    """Draws a history, cuts it into commits and compacts by chance; Apache Paimon writes with no small buffer."""
    has_oldest_run = source.random() < 0.34
    options = {
        **PRODUCERS[producer],
        "num-sorted-run.compaction-trigger": trigger,
        "num-levels": source.choice(("3", "6")),
        **({"compaction.max-size-amplification-percent": "1000000"} if has_oldest_run else {}),
        **(
            {"write-buffer-size": "1 kb", "write-buffer-spillable": source.choice(("true", "false"))}
            if small_buffers and source.random() < 0.2
            else {}
        ),
    }
    table = CUT_TABLES[name]
    drawn = table.draw(source)
    shape = replace(table.shape, options={**table.shape.options, **options})
    written = FreshetTable.create(folder, shape.types, shape.primary_keys, shape.table_options, name="t")
    rows = list(drawn.rows)
    if has_oldest_run:
        _oldest_run(written, drawn, rows, source)
    while rows:
        count = min(len(rows), source.choice((1, 2, 5, 9)))
        half = source.randint(0, count)
        if half:
            written.write(rows[:half])
        written.commit(rows[half:count])
        del rows[:count]
        if source.random() < 0.15:
            written.table.compact(full=source.random() < 0.3 and not has_oldest_run)
    if name == "first-row":
        written.compact()
    return Played(drawn, written)


def _oldest_run(table: FreshetTable, drawn: Drawn, rows: list[Values], source: Random) -> None:
    """The first rows, with many others, in a run at the highest level that the rules of compaction leave alone."""
    first = rows[: source.randint(1, KEYS)]
    del rows[: len(first)]
    others = CutTable(replace(drawn.table.shape, kinds=ADDS), drawn.table.grows).draw(source, rows=400, keys=100_000)
    for row in others.rows:
        row["k"] += 1000
    others.records = {
        key + 1000: [replace(each, values={**each.values, "k": key + 1000}) for each in records]
        for key, records in others.records.items()
    }
    drawn.records |= others.records
    table.commit([*first, *others.rows])
    table.compact()


def _sets(shape: Shape) -> dict[str, None]:
    return dict.fromkeys(shape.sets)
