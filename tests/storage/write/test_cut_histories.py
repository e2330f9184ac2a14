"""A result does not depend on how changes are cut into commits, nor on compaction: every engine, function and producer.

Apache Paimon reads the same in `contract/test_cut_histories.py`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from tests.kit.cut_histories import CUT_TABLES, cases, play
from tests.kit.quick import some_now
from tests.soak.counts import CUT_HISTORIES, seeds_of


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "producer", "trigger"), some_now(cases()[::3], stride=4))
def test_any_cut_and_any_compaction_give_the_same(name: str, producer: str, trigger: str, tmp_path: Path) -> None:
    played = play(name, producer, trigger, Random(f"{name}/{producer}"), tmp_path)
    played.check(played.table.read(), "read by us")
    played.table.compact()
    played.check(played.table.read(), "compacted in full")
    played.table.close()


@pytest.mark.soak
@pytest.mark.parametrize("name", CUT_TABLES)
def test_many_histories(name: str, tmp_path: Path) -> None:
    own = [case for case in cases() if case[0] == name]
    seeds = seeds_of(CUT_HISTORIES, "cut histories", name)
    for seed in seeds[: -(-len(seeds) // len(CUT_TABLES))]:
        source = Random(seed)
        played = play(*source.choice(own), source, tmp_path / str(seed))
        played.check(played.table.read(), f"read by us, seed {seed}")
        played.table.compact()
        played.check(played.table.read(), f"compacted in full, seed {seed}")
        played.table.close()
        rmtree(tmp_path / str(seed))
