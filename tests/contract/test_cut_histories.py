"""Judge: what Freshet has cut into files and compacted, Apache Paimon reads as one merge of all rows, and so do we
after Apache Paimon has compacted all of it.

What it compacts in part by itself may bring deleted values back (docs/differences.md); that is not asked here.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.kit.cut_histories import cases, play
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.quick import some_now

pytestmark = pytest.mark.judge


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "producer", "trigger"), some_now(cases()[1::3], stride=8))
def test_paimon_reads_the_same_and_compacts_to_the_same(
    paimon: PaimonJudge, name: str, producer: str, trigger: str, tmp_path: Path
) -> None:
    played = play(name, producer, trigger, Random(f"{name}/{producer}"), tmp_path, small_buffers=False)
    played.table.close()
    theirs = paimon.table(played.table.table.location)
    played.check(theirs.read_arrow(), "read by Paimon")
    theirs.write((), user="paimon", identifier=1, compact="full")
    played.check(played.table.read(), "read by us, compacted by Paimon")
    played.check(theirs.read_arrow(), "read by Paimon, compacted by it")
