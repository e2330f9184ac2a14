"""Doctor: each situation is made in a table of its own of one warehouse, and found there and nowhere else."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from freshet import Catalog, Table, sql
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.status import examination
from freshet.storage.status.examination import Examination, examined
from freshet.storage.status.finding import Severity
from freshet.storage.status.findings import RULES, findings
from tests.kit.sick_tables import (
    ENGINES,
    MADE,
    Maker,
    all_made,
    healthy,
    no_compactor,
    readers_that_do_not_merge,
    written,
)

RESCALE = "freshet rescale WAREHOUSE shop.one_large_customer --bucket 16"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    env = Env(MemoryFileIO(), str(tmp_path))
    return Maker(Catalog("/w", env=env), env, monkeypatch)


@pytest.mark.dear("a warehouse with a table of each situation")
def test_each_situation_is_found_in_its_table_alone(make: Maker) -> None:
    wanted = all_made(make)
    found: dict[str, set[str]] = {table: set() for table in wanted}
    for each in make.catalog.doctor():
        if each.name != ENGINES or each.table == "shop.readers_that_do_not_merge":
            found[each.table].add(each.name)
        assert each.evidence > 0
    assert found == wanted


def test_one_number_of_buckets_is_advised(make: Maker) -> None:
    options = {"bucket": "8", "bucket-key": "part", "target-file-size": "32 kb"}
    table = make.table("few but uneven", options, keys=("id", "part"))
    with table.writer("writer") as writer:
        random = Random(7)
        writer.write([{"id": key, "part": 0, "v": random.randbytes(100).hex()} for key in range(400)])
        writer.commit()
    assert [each.name for each in table.doctor() if "buckets" in each.name] == ["buckets skewed"]


@pytest.mark.parametrize(("buckets", "command"), [(4, RESCALE), (16, None)])
def test_a_bucket_of_one_value_is_not_to_be_spread(make: Maker, buckets: int, command: str | None) -> None:
    """Four fifths of the rows are of one value: they stay in one bucket, whatever the number of buckets is."""
    options = {"bucket": str(buckets), "bucket-key": "part", "target-file-size": "32 kb"}
    table = make.table("one large customer", options, keys=("id", "part"))
    with table.writer("writer") as writer:
        random = Random(7)
        rows = [{"id": key, "part": max(0, key - 1600), "v": random.randbytes(100).hex()} for key in range(2000)]
        writer.write(rows)
        writer.commit()
    (found,) = (each for each in table.doctor() if "buckets" in each.name)
    assert found.name == "buckets skewed"
    assert found.command == command


def test_a_file_that_lies_elsewhere_or_went_with_its_snapshot_is_not_lost(make: Maker) -> None:
    table = written(make.table("t"), 2)
    entries = list(table.files())
    place, files = (entries[0].partition, entries[0].bucket), [each.file for each in entries]
    live = [(place, files)]
    assert examination._lost(table.store, live, set()) == (), "not listed, and there"
    table.compact(full=True)
    for file in files:
        make.env.file_io.delete(table.store.data_file(*place, file.file_name))
    assert examination._lost(table.store, live, set()) == (), "not there, and not live any more"


@pytest.mark.parametrize("name", ["s.a-b", "my-db.select", "s.it's", "s.ti`ck"])
def test_commands_quote_names(make: Maker, name: str) -> None:
    table = make.catalog.create_table(
        name, schema={"id": "INT", "part": "INT", "v": "STRING"}, options={"metadata.stats-mode": "none"}
    )
    written(table, 1)
    (found,) = table.doctor()
    sql(shlex.split(found.command or "")[3], catalog=make.catalog)
    (found,) = make.catalog.table(name).doctor()
    assert (found.severity, found.cause.startswith("a program wrote them")) == (Severity.NOTE, True)


def test_the_engines_that_return_old_rows_are_told_of_as_a_note(make: Maker) -> None:
    table = readers_that_do_not_merge(make, ENGINES)
    (note,) = table.doctor(warehouse="/my lake")
    assert (note.evidence, note.severity, note.asks_to_act) == (40, Severity.NOTE, False)
    assert note.command == "freshet compact '/my lake' shop.readers_that_do_not_merge --full"
    assert (rows_as_they_are(table), table.scan().count()) == (40, 20)
    table.compact()
    assert table.doctor() == []
    assert rows_as_they_are(table) == table.scan().count() == 20


@pytest.mark.parametrize(
    ("facts", "evidence"),
    [
        ({"has_coordination": False}, 0),
        ({"has_coordination": False, "foreign_commits": 3}, 3),
        ({"foreign_commits": 1}, 1),
    ],
)
def test_stores_without_conditional_puts(make: Maker, facts: dict[str, object], evidence: int) -> None:
    """A store that needs more than exclusive creates cannot be had here, so its facts are put in place of a disk's."""
    well = examined(healthy(make, "t").store)
    assert findings(well) == []
    (found,) = findings(but(well, **facts))
    assert (found.name, found.evidence) == ("writers not coordinated", evidence)


def test_compactors_of_other_programs_count(make: Maker) -> None:
    facts = examined(no_compactor(make, "t").store)
    assert [each.name for each in findings(facts)] == ["no compactor", ENGINES]
    assert [each.name for each in findings(but(facts, has_compactor=True))] == [ENGINES]


def test_rows_that_are_marked_as_deleted_are_not_read_as_they_are(make: Maker) -> None:
    table = written(make.table("t", {"deletion-vectors.enabled": "true"}), 1, rows=200)
    table.compact()
    written(table, 1, rows=5)
    assert {entry.file.level for entry in table.files()} & {0} == set(), "marks, and no rows to merge"
    rows = sum(entry.file.row_count for entry in table.files())
    assert [(each.name, each.evidence) for each in table.doctor()] == [(ENGINES, rows)]


def rows_as_they_are(table: Table) -> int:
    """What an engine returns that reads the files of the newest snapshot one by one."""
    read = table.store.env.file_io.read_bytes
    paths = [table.store.data_file(*entry.bucket_id, entry.file.file_name) for entry in table.files()]
    return sum(pq.read_metadata(io.BytesIO(read(path))).num_rows for path in paths)


def but(facts: Examination, **others: object) -> Examination:
    """The same facts, but for some."""
    return Examination(**{**{name: getattr(facts, name) for name in Examination.__struct_fields__}, **others})


def test_every_rule_is_tried() -> None:
    assert {rule.name for rule in RULES} == MADE.keys() | {"writers not coordinated"}
