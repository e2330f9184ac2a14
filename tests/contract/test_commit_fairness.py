"""Judge (c): Freshet and Apache Paimon take turns at random; after each step both read what the oracle holds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from tests.contract.cases import Case, Expected, Row, arrow_rows, canonical
from tests.kit.hypothesis_profile import examples
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.judge

CASE = Case(
    "turns",
    {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"},
    ("p", "k"),
    ("p",),
    {"bucket": "2", "num-sorted-run.compaction-trigger": "3"},
)

KINDS = st.sampled_from(["+I", "+U", "-D", "-D"])
ROWS = st.lists(
    st.builds(
        lambda p, k, v, kind: {"p": p, "k": k, "v": v, ROW_KIND_COLUMN: kind},
        st.sampled_from(["", "a", "b/c"]),
        st.integers(-3, 3),
        st.none() | st.text(max_size=4),
        KINDS,
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["freshet", "paimon", "freshet compacts", "paimon compacts"]),
        ROWS,
    ),
    min_size=2,
    max_size=7,
)


@settings(max_examples=examples(25))
@given(steps=STEPS)
def test_two_writers_take_turns(paimon: PaimonJudge, steps: list[tuple[str, list[Row]]]) -> None:
    warehouse = Path(tempfile.mkdtemp(prefix="turns-"))
    try:
        _assert_same_tables(paimon, warehouse, steps)
    finally:
        shutil.rmtree(warehouse)


def _assert_same_tables(paimon: PaimonJudge, warehouse: Path, steps: list[tuple[str, list[Row]]]) -> None:
    table = Catalog(str(warehouse)).create_table(
        "db.t",
        schema=CASE.columns,
        primary_keys=CASE.primary_keys,
        partition_keys=CASE.partition_keys,
        options=CASE.options,
    )
    judge, expected = paimon.table(table.location), Expected(CASE)
    with table.writer("freshet") as writer:
        for identifier, (who, rows) in enumerate(steps, 1):
            match who:
                case "freshet":
                    writer.write(arrow_rows(rows, CASE.columns))
                    writer.commit(identifier)
                    expected.apply(rows)
                case "paimon":
                    judge.write(arrow_rows(rows, CASE.columns))
                    expected.apply(rows)
                case "freshet compacts":
                    table.compact(full=True)
                case "paimon compacts":
                    judge.compact(full=True)
            want = expected.canonical()
            assert canonical(table.scan().to_arrow()) == want
            assert canonical(judge.read_arrow()) == want
    ids = [snapshot.id for snapshot in table.snapshots()]
    assert ids == list(range(ids[0], ids[0] + len(ids))) if ids else True
