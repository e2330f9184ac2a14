"""Judge: what people do to tables, drawn at random and done by Freshet and Apache Paimon in turn: appends, upserts,
deletes, updates, merges, overwrites, rollbacks, tags, branches, changes of the schema, compaction, expiry.

After each verb both sides read what a dict holds, of the table, of each tag and of each branch; a stream and a writer
of ours go on beside. A failure names kind of table and seed, and prints what was done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.verbs.sequence import Sequence
from tests.contract.verbs.shapes import VERB_TABLES, VerbTable
from tests.kit.paimon_judge import PaimonJudge
from tests.soak.counts import VERB_SEQUENCES, seeds_of

pytestmark = pytest.mark.judge

VERBS = 30
BY_NAME = {shape.name: shape for shape in VERB_TABLES}


@pytest.mark.parametrize(("name", "seed"), [("plain", 1), ("lookup", 2), ("append", 3)])
def test_short_sequences(tmp_path: Path, paimon: PaimonJudge, name: str, seed: int) -> None:
    Sequence(tmp_path, paimon, BY_NAME[name], seed).run(12)


@pytest.mark.soak
@pytest.mark.parametrize("shape", VERB_TABLES, ids=lambda shape: shape.name)
def test_sequences(tmp_path: Path, paimon: PaimonJudge, shape: VerbTable) -> None:
    for seed in seeds_of(VERB_SEQUENCES, shape.name):
        Sequence(tmp_path / str(seed), paimon, shape, seed).run(VERBS)
