"""Random histories of every merge engine with a changelog: what is emitted is what changed, after each step.

The oracle knows the table before and after a step and which keys the step touched, nothing else:

| row before | row after | emitted |
|---|---|---|
| no | yes | +I |
| yes | no | -D with the old values |
| yes | yes | -U, +U; with row-deduplicate only if a value differs |

Folded from the first commit on, the changelog is the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.changelog_files import Change, changelog, folded, plain_rows
from tests.kit.engine_columns import LISTS, MAPS, Column
from tests.kit.engine_histories import Shape, history
from tests.kit.engine_merges import KIND_COLUMN, Values
from tests.kit.engine_shapes import SHAPES
from tests.kit.engine_tables import FreshetTable, arrow_rows, plain
from tests.kit.quick import some_now
from tests.storage.write.test_engine_histories import SCHEDULE_FREE

INTS = Column("INT", (0, 1, 2), nulls=0.2)
PLAIN = (
    Shape("deduplicate", {"a": INTS, "b": Column("DOUBLE", (0.0, -0.0, float("nan"), 1.5))}, {}),
    Shape("deduplicate, sequence.field", {"s": INTS, "b": INTS}, {"sequence.field": "s"}),
    Shape("deduplicate, ignore-delete", {"a": INTS}, {"ignore-delete": "true"}),
    Shape("deduplicate, partitioned", {"a": INTS}, {"bucket": "2"}, partitioned=True),
    Shape(
        "deduplicate, nested",
        {"a": Column("ARRAY<INT>", LISTS["ints"].pool), "m": Column("MAP<STRING, BIGINT>", MAPS["m0"].pool)},
        {},
    ),
)
NAMES = (
    "aggregation, product",
    "aggregation, sequence.field ascending",
    "aggregation, lookup",
    "aggregation, remove-record-on-delete",
    "aggregation, partitioned",
    "partial-update, remove-record-on-delete",
    "partial-update, groups",
    "partial-update, groups, remove-record",
    "partial-update, functions in a group",
    "partial-update, every type in a group",
    "first-row",
    "first-row, ignore-delete",
)
EMITTING = (*PLAIN, *(shape for shape in SHAPES if shape.name in NAMES))
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1000"}
AT_ONCE = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"}
ONCE = {"changelog-producer.row-deduplicate": "true"}

PRODUCERS_STEPWISE = ("lookup", "full-compaction")

Rows = dict[Any, Values]


def test_all_names_are_those_of_shapes() -> None:
    assert len(EMITTING) == len(PLAIN) + len(NAMES)


def _with(shape: Shape, options: Mapping[str, str]) -> Shape:
    engine = {key: value for key, value in shape.options.items() if key != "force-lookup"}
    return replace(shape, options={**engine, **options})


def _id(value: Shape | str) -> str:
    return value if isinstance(value, str) else value.name


def _can_be(shape: Shape, producer: str, _changes: str = "") -> bool:
    return producer == "lookup" or not shape.name.startswith("first-row")


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("shape", "producer", "changes"),
    some_now(
        (case for case in product(EMITTING, PRODUCERS_STEPWISE, ["all", "row-deduplicate"]) if _can_be(*case)),
        stride=5,
    ),
    ids=_id,
)
def test_what_changed_is_emitted(shape: Shape, producer: str, changes: str, tmp_path: Path) -> None:
    options = {**(LOOKUP if producer == "lookup" else FULL), **(ONCE if changes == "row-deduplicate" else {})}
    play(_with(shape, options), Random(5), tmp_path, keys=6, steps=7, rows=14)


VECTORS = {"deletion-vectors.enabled": "true"}
WITH_VECTORS = tuple(shape for shape in EMITTING if not shape.name.startswith("first-row"))


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", some_now(WITH_VECTORS, 3), ids=_id)
def test_what_changed_is_emitted_with_deletion_vectors(shape: Shape, tmp_path: Path) -> None:
    play(_with(shape, {**LOOKUP, **VECTORS, **ONCE}), Random(7), tmp_path, keys=6, steps=7, rows=14)


def play(shape: Shape, source: Random, folder: Path, **size: int) -> None:
    """A history; lookup emits after every step, full-compaction after those that compact."""
    table = FreshetTable.create(
        folder, shape.types, shape.primary_keys, shape.table_options, partition_keys=shape.partition_keys
    )
    last_id = 0
    emitted: list[Change] = []
    before: Rows = {}
    touched: set[Any] = set()
    try:
        for step in history(shape, source, **size):
            if step.rows is None:
                table.compact()
            else:
                table.commit(step.rows)
                touched |= {_key(shape, row) for row in step.rows if not _is_passed_over(shape, row)}
            news = [change for changes in changelog(table.table, after=last_id).values() for change in changes]
            last_id = table.table.snapshots()[-1].id
            if shape.options["changelog-producer"] == "full-compaction" and step.rows is not None:
                assert not news
                continue
            emitted += news
            rows = plain_rows(arrow_rows(step.expected, shape.types).drop_columns([KIND_COLUMN]))
            expected = {_key(shape, row): row for row in rows}
            assert _texts(news) == _expected_changes(shape, before, expected, touched), shape.name
            read = [_plain(row) for row in plain_rows(table.read())]
            assert sorted(_plain(row) for row in folded([emitted], shape.primary_keys).values()) == sorted(read)
            before, touched = expected, set()
    finally:
        table.close()


AUTOMATIC = {
    "num-sorted-run.compaction-trigger": "2",
    "num-levels": "4",
    "target-file-size": "1 kb",
    "write-buffer-size": "1 kb",
    "write-buffer-spillable": "false",
    "compaction.max-size-amplification-percent": "10000",
}
"""Compactions into every level, small files that only move, several flushes and rounds in one commit."""


PRODUCERS = {"lookup": LOOKUP, "full-compaction": FULL, "at every commit": AT_ONCE}
FOLDED = (*PLAIN[:4], *SCHEDULE_FREE)
FOLDED_WITH_VECTORS = tuple(shape for shape in FOLDED if not shape.name.startswith("first-row"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("shape", "producer"), some_now((case for case in product(FOLDED, PRODUCERS) if _can_be(*case)), 4), ids=_id
)
def test_folded_the_changelog_is_the_table(shape: Shape, producer: str, tmp_path: Path) -> None:
    for seed in range(2 if producer == "lookup" else 1):
        source = Random(seed)
        options = {**PRODUCERS[producer], **AUTOMATIC, **(ONCE if seed else {})}
        fold(_with(shape, options), source, tmp_path / str(seed), keys=40, steps=7, rows=60)


@pytest.mark.parametrize(("shape", "bits"), some_now(product(FOLDED_WITH_VECTORS, ["32", "64"]), stride=5), ids=_id)
def test_folded_the_changelog_is_the_table_with_deletion_vectors(shape: Shape, bits: str, tmp_path: Path) -> None:
    """Rows of several levels are marked in place of being merged by readers."""
    options = {**LOOKUP, **VECTORS, **AUTOMATIC, "deletion-vectors.bitmap64": str(bits == "64").lower()}
    fold(_with(shape, options), Random(bits), tmp_path, keys=40, steps=7, rows=60)


def fold(shape: Shape, source: Random, folder: Path, **size: int) -> None:
    """After every step what was emitted adds up to the table, or to the table of the last full compaction."""
    table = FreshetTable.create(
        folder, shape.types, shape.primary_keys, shape.table_options, partition_keys=shape.partition_keys
    )
    emitted: list[Change] = []
    last_id = 0
    try:
        for step in history(shape, source, **size):
            if step.rows is None:
                table.compact()
            else:
                for start in range(0, len(step.rows), 20):
                    table.write(step.rows[start : start + 20])
                table.commit()
            emitted += [change for changes in changelog(table.table, after=last_id).values() for change in changes]
            last_id = table.table.snapshots()[-1].id
            rows = folded([emitted], shape.primary_keys, is_strict=True)
            if step.rows is None or shape.options.get("full-compaction.delta-commits") != "1000":
                read = [_plain(row) for row in plain_rows(table.read())]
                assert sorted(map(_plain, rows.values())) == sorted(read), shape.name
    finally:
        table.close()


@pytest.mark.slow
@pytest.mark.parametrize("shape", WITH_VECTORS[1::2], ids=lambda shape: shape.name)
def test_what_changed_is_emitted_with_deletion_vectors_at_length(shape: Shape) -> None:
    @settings(max_examples=8)
    @given(source=st.randoms(use_true_random=False), merges=st.booleans(), rows=st.integers(1, 8))
    def run(source: Random, merges: bool, rows: int) -> None:
        options = {**LOOKUP, **VECTORS, "deletion-vectors.merge-on-read": str(merges).lower()}
        with tempfile.TemporaryDirectory() as folder:
            play(_with(shape, options), source, Path(folder), keys=3, steps=5, rows=rows)

    run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "producer"),
    [case for case in product(EMITTING[::2], PRODUCERS_STEPWISE) if _can_be(*case)],
    ids=_id,
)
def test_what_changed_is_emitted_at_length(shape: Shape, producer: str) -> None:
    @settings(max_examples=8)
    @given(source=st.randoms(use_true_random=False), once=st.booleans(), rows=st.integers(1, 8))
    def run(source: Random, once: bool, rows: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shown = _with(shape, {**PRODUCERS[producer], **(ONCE if once else {})})
            play(shown, source, Path(folder), keys=3, steps=5, rows=rows)

    run()


def _key(shape: Shape, row: Mapping[str, Any]) -> Any:
    return tuple(row[name] for name in shape.primary_keys)


def _is_passed_over(shape: Shape, row: Values) -> bool:
    options = shape.options
    ignores = options.get("ignore-delete") == "true" or options.get("first-row.ignore-delete") == "true"
    return ignores and row.get(KIND_COLUMN) in ("-U", "-D")


def _expected_changes(shape: Shape, before: Rows, after: Rows, touched: set[Any]) -> list[str]:
    lines = []
    is_deduplicated = shape.options.get("changelog-producer.row-deduplicate") == "true"
    for key in touched:
        old, new = before.get(key), after.get(key)
        if old is not None and shape.options.get("merge-engine") == "first-row":
            continue
        if is_deduplicated and old is not None and new is not None and _is_same(old, new):
            continue
        if old is not None:
            lines.append(f"{'-D' if new is None else '-U'} {_plain(old)}")
        if new is not None:
            lines.append(f"{'+I' if old is None else '+U'} {_plain(new)}")
    return sorted(lines)


def _is_same(old: Values, new: Values) -> bool:
    return _plain(old) == _plain(new) and not any(_has_null_part(value) for value in new.values())


def _has_null_part(value: Any) -> bool:
    match value:
        case list():
            items = [item[1] if isinstance(item, tuple) else item for item in value]
            return any(item is None or _has_null_part(item) for item in items)
        case dict():
            return any(_has_null_part(item) for item in value.values())
        case _:
            return False


def _texts(changes: Sequence[Change]) -> list[str]:
    return sorted(f"{change.kind} {_plain(change.values)}" for change in changes)


def _plain(row: Mapping[str, Any]) -> str:
    return repr({name: plain(value) for name, value in sorted(row.items()) if name != KIND_COLUMN})
