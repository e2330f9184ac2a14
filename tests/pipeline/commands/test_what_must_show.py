"""What goes wrong in the field, each made by a run or by public calls, and named on the first screen of `status` or
`doctor`: 24 lines. A topic near its retention is in `test_doctor_of_pipelines`, which has a broker."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet.pipeline.commands import local_running
from freshet.pipeline.local.workers import WorkerPool
from freshet.storage.catalog import Catalog
from tests.kit.sick_tables import MADE, Maker, healthy
from tests.kit.small_disk import small_disk
from tests.pipeline.commands.kit import Freshet
from tests.pipeline.commands.test_doctor_of_pipelines import Pipeline, bad_records, fields_left_out, gone

SCREEN = 24
IN_A_WAREHOUSE = {
    "a stuck consumer": ("expiry held back", "held by         consumer reader at snapshot 1"),
    "no compactor": ("no compactor", "to compact      "),
    "a slow disk": ("commits slow", "commit p50 3 s"),
    "a skewed bucket": ("buckets skewed", None),
    "two writers in conflict": ("writers in conflict", "7 conflicts"),
}
"""What doctor calls it, and what status shows of it."""
OF_A_PIPELINE: dict[str, tuple[Callable[[Pipeline], int], str, str]] = {
    "bad records": (bad_records, "bad records", "dead letters    1 ×"),
    "schema drift": (
        fields_left_out,
        "fields left out",
        "left out        fields that the table does not have: more (2)",
    ),
    "a killed driver": (gone, "run gone", "a: BEHIND: gone, said 2 min ago"),
}


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    catalog = Catalog(str(tmp_path / "lake"))
    return Maker(catalog, catalog._env, monkeypatch)


def screen(text: str) -> str:
    return "\n".join(text.splitlines()[:SCREEN])


@pytest.mark.slow
@pytest.mark.parametrize("what", IN_A_WAREHOUSE)
def test_tables(freshet: Freshet, make: Maker, what: str) -> None:
    """Among a hundred others."""
    name, shown = IN_A_WAREHOUSE[what]
    for number in range(100):
        healthy(make, f"t{number}")
    table = MADE[name](make, "orders")
    assert f" {table.name}: {name} (" in screen(freshet("doctor", make.catalog.warehouse).out)
    if shown is not None:
        assert shown in screen(freshet("status", make.catalog.warehouse, table.name).out)


@pytest.mark.parametrize("what", OF_A_PIPELINE)
def test_pipelines(freshet: Freshet, tmp_path: Path, what: str) -> None:
    pipeline = Pipeline(tmp_path, freshet)
    pipeline.put({"id": 1, "n": 1})
    make, name, shown = OF_A_PIPELINE[what]
    make(pipeline)
    assert f" a: {name} (" in screen(freshet("doctor", pipeline.file).out)
    assert shown in screen(freshet("status", pipeline.file).out)


@pytest.mark.dear("each command opens the tables of a file system of its own")
def test_a_warehouse_that_nobody_may_write(freshet: Freshet, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        pipeline = Pipeline(disk, freshet)
        pipeline.put({"id": 1, "n": 1})
        assert pipeline.run() == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(OSError, match="[Rr]ead-only"):
            pipeline.put({"id": 2, "n": 1})
        for command in ("status", "doctor"):
            for place in ([pipeline.file], [disk / "w"], [disk / "w", "s.a"]):
                freshet.good(command, *place)
