"""Judge: `sequence.snapshot-ordering`. Freshet and Apache Paimon write and compact a table in turn and read the same.

Messages that were prepared before others were committed win where they are committed last, on both sides.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from freshet import Catalog
from tests.contract.cases import arrow_rows, canonical
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge

COLUMNS = {"k": "INT NOT NULL", "v": "INT"}
OPTIONS = {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"}


@pytest.mark.parametrize("extra", [{}, {"changelog-producer": "lookup"}, {"merge-engine": "partial-update"}], ids=str)
def test_in_turn(paimon: PaimonJudge, tmp_path: Path, extra: dict[str, str]) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], options={**OPTIONS, **extra}
    )
    judge = paimon.table(table.location)
    compacting = judge.copy({"write-only": "false"})
    source, state = Random(str(extra)), dict[int, int]()
    for step in range(18):
        who = ("freshet", "paimon", "freshet compacts", "paimon", "freshet", "paimon compacts")[step % 6]
        rows = [{"k": source.randrange(6), "v": source.randrange(100)} for _ in range(source.randint(1, 30))]
        match who:
            case "freshet":
                with table.writer("freshet") as writer:
                    writer.write(arrow_rows(rows, COLUMNS))
                    writer.commit()
            case "paimon":
                judge.write(arrow_rows(rows, COLUMNS))
            case "freshet compacts":
                table.compact(full=step % 4 == 0)
            case "paimon compacts":
                compacting.compact(full=step % 4 == 1)
        if not who.endswith("compacts"):
            state.update({row["k"]: row["v"] for row in rows})
        assert _state(table.scan().to_arrow()) == state
        assert canonical(judge.read_arrow()) == canonical(table.scan().to_arrow())


def test_what_was_prepared_first_and_committed_last_wins(paimon: PaimonJudge, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=OPTIONS)
    judge = paimon.table(table.location)
    prepared = judge.prepare([(1, 1)], user="early", identifier=1)
    with table.writer("late") as writer:
        writer.write(arrow_rows([{"k": 1, "v": v} for v in range(50)], COLUMNS))
        writer.commit()
    judge.commit(prepared, user="early", identifier=1)
    assert _state(table.scan().to_arrow()) == {1: 1}
    assert judge.read_rows() == [(1, 1)]
    entries = sorted((entry.file.min_sequence_number, entry.file.max_sequence_number) for entry in table.files())
    assert entries == [(1, 1), (2, 2)]
    table.compact(full=True)
    assert judge.read_rows() == [(1, 1)]


def _state(rows: Any) -> dict[int, int]:
    return {row["k"]: row["v"] for row in rows.to_pylist()}
