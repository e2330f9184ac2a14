"""Judge: rows with their kinds, and rows of the highest level, of random histories of every merge engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from freshet import Table
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.quick import some_now
from tests.storage.system_tables.shapes import Batch, Shape, by_freshet, by_paimon
from tests.storage.system_tables.test_system_tables_judge import compare

pytestmark = pytest.mark.judge

COLUMNS = {"k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"}
INSERTS, UPSERTS, ALL = ("+I",), ("+I", "+U"), ("+I", "+U", "-D")
ENGINES: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("deduplicate", {}, (*ALL, "-U")),
    ("deduplicate by sequence", {"sequence.field": "n"}, ALL),
    ("ignore deletes", {"ignore-delete": "true"}, ALL),
    ("vectors", {"deletion-vectors.enabled": "true"}, ALL),
    ("lookup", {"changelog-producer": "lookup"}, ALL),
    ("partial update", {"merge-engine": "partial-update"}, UPSERTS),
    (
        "partial update, deletes remove",
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        ALL,
    ),
    (
        "sequence groups",
        {"merge-engine": "partial-update", "fields.n.sequence-group": "v"},
        ALL,
    ),
    (
        "aggregation",
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.v.aggregate-function": "last_value",
        },
        (*UPSERTS, "-D"),
    ),
    (
        "aggregation, deletes remove",
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "max",
            "aggregation.remove-record-on-delete": "true",
        },
        ALL,
    ),
    ("first row", {"merge-engine": "first-row"}, INSERTS),
]


def history(chance: random.Random, kinds: tuple[str, ...], commits: int) -> list[Batch]:
    def row() -> tuple[Any, ...]:
        n = chance.choice([None, *range(5)])
        return chance.choice(kinds), chance.randrange(12), n, chance.choice([None, "a", "b", "c"])

    return [[row() for _ in range(chance.randrange(1, 8))] for _ in range(commits)]


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("name", "options", "kinds"), some_now(ENGINES, stride=3), ids=lambda value: value if isinstance(value, str) else ""
)
def test_rows_with_their_kinds(
    tmp_path: Path, paimon: PaimonJudge, name: str, options: dict[str, str], kinds: tuple[str, ...], seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    commits = history(chance, kinds, 6)
    more = {"write-only": "true"} if seed == 0 and "deletion-vectors.enabled" not in options else {}
    bucket = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "num-levels": "4"}
    full = [2] if seed == 1 else []
    shape = Shape(name, COLUMNS, commits, ("k",), options=options | bucket | more, full=full)
    nouns = ("audit_log", "ro", "files", "partitions")
    ours = by_freshet(shape, tmp_path / "ours")
    compare(ours, paimon, nouns)
    assert ours.system("audit_log").scan().count() >= ours.scan().count()
    compare(Table.open(by_paimon(shape, tmp_path / "its", paimon).location), paimon, nouns)
