"""`freshet doctor`: exit codes, text, JSON; and the commands that it gives mend what it found."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from tests.kit.sick_tables import MADE, Maker, all_made, healthy, no_compactor, readers_that_do_not_merge
from tests.pipeline.commands.kit import Freshet

NOT_MENDED_BY_ONE = {
    "buckets skewed",
    "clocks differ",
    "commits slow",
    "data files lost",
    "Iceberg metadata behind",
    "lookup stores do not fit",
    "writers in conflict",
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    catalog = Catalog(str(tmp_path / "my lake"))
    return Maker(catalog, catalog._env, monkeypatch)


def test_exit_codes_and_text(freshet: Freshet, make: Maker) -> None:
    lake = make.catalog.warehouse
    healthy(make, "well")
    assert freshet.good("doctor", lake).out == "nothing is wrong\n"
    readers_that_do_not_merge(make, "noted")
    assert "NOTE shop.noted: readers that do not merge (40 rows" in freshet.good("doctor", lake).out
    no_compactor(make, "left")
    called = freshet("doctor", lake)
    assert called.code == 3
    assert "WARNING shop.left: no compactor (" in called.out
    assert f"  $ freshet compact '{lake}' shop.left\n" in called.out
    assert "leave compaction to others" not in called.out
    assert "  writers leave compaction to others" in freshet("doctor", lake, "shop.left").out
    assert max(map(len, called.out.splitlines())) <= 140
    assert freshet("doctor", lake, "shop.left", "--json").code == 3
    assert freshet.good("doctor", lake, "shop.well", "--json").facts == {"findings": []}
    assert freshet("doctor", lake, "shop.none").code == 2


def test_notes_that_are_not_shown_are_called_notes(freshet: Freshet, make: Maker) -> None:
    no_compactor(make, "left")
    readers_that_do_not_merge(make, "noted")
    assert "\nand 2 notes; --json has them all\n" in freshet("doctor", make.catalog.warehouse).out


@pytest.mark.slow
def test_its_commands_mend_what_it_finds(freshet: Freshet, make: Maker) -> None:
    lake = make.catalog.warehouse
    all_made(make)
    names: set[str] = set()
    for _ in range(3):
        for finding in freshet("doctor", lake, "--json").facts["findings"]:
            names.add(finding["name"])
            if finding["command"] is not None and finding["name"] not in NOT_MENDED_BY_ONE:
                freshet.good(*shlex.split(finding["command"])[1:])
    assert names == MADE.keys()
    left = {
        each["name"]
        for each in freshet("doctor", lake, "--json").facts["findings"]
        if each["severity"] != "note" or each["command"] is not None
    }
    assert left <= NOT_MENDED_BY_ONE
