"""Judge: Apache Paimon reads the same system tables of our tables and of its own: columns, types, rows.

Left out: the order of rows where neither side has one, and that of keys in JSON (`rows_of`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Table
from freshet.storage.system_tables.system_table import SYSTEM_TABLES
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.quick import some_now
from tests.storage.system_tables.shapes import SHAPES, Shape, by_freshet, by_paimon, rows_of

pytestmark = pytest.mark.judge

OWN = ("commits", "compactions")
"""Which Apache Paimon does not have."""


def compare(ours: Table, paimon: PaimonJudge, nouns: tuple[str, ...] = tuple(SYSTEM_TABLES)) -> None:
    theirs = paimon.table(ours.location)
    different = []
    for noun in (each for each in nouns if each not in OWN):
        expected, found = theirs.system(noun), ours.system(noun).scan().to_arrow()
        if found.schema != expected.schema:
            different.append((noun, str(found.schema), str(expected.schema)))
        if rows_of(noun, found) != rows_of(noun, expected):
            different.append((noun, "\n".join(rows_of(noun, found)), "\n".join(rows_of(noun, expected))))
    assert not different, "\n\n".join("\n--- ".join(parts) for parts in different)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_of_our_tables(shape: Shape, tmp_path: Path, paimon: PaimonJudge) -> None:
    compare(by_freshet(shape, tmp_path), paimon)


@pytest.mark.parametrize("shape", some_now(SHAPES), ids=lambda shape: shape.name)
def test_of_its_tables(shape: Shape, tmp_path: Path, paimon: PaimonJudge) -> None:
    table = by_paimon(shape, tmp_path, paimon)
    compare(Table.open(table.location), paimon)
