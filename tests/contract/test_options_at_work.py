"""Options that change what lies on disk, one side after the other: Apache Paimon goes on with it, and agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import AddColumn, Catalog
from freshet.storage.model.data_file import EMPTY_STATS
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.table import Table
from tests.contract.test_commits_and_expiry import SMALL_MANIFESTS, load, make, ours, rows, theirs
from tests.kit.paimon_changes import add_column
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_options import CORE, FAMILIES

pytestmark = pytest.mark.judge


def deleted(table: Table) -> list[ManifestEntry]:
    """The entries of deleted files that the newest snapshot brought."""
    store = Table.open(table.location).store
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    manifests = store.manifests.read_manifest_list(snapshot.delta_manifest_list)
    entries = [entry for manifest in manifests for entry in store.manifests.read_manifest(manifest)]
    return [entry for entry in entries if entry.kind is EntryKind.DELETE]


def test_the_list_of_options_is_that_of_paimon(paimon: PaimonJudge) -> None:
    """What the page of all options is made of; those of one column are declared as parts of keys."""
    declared = paimon.core_options()
    keys = {*declared, *(former for names in declared.values() for former in names)}
    assert len(keys) > 340
    assert sorted(keys - {*CORE}) == ["fields.default-aggregate-function"]
    assert {"fields.default-aggregate-function"} <= {*FAMILIES}
    assert sorted({*CORE} - keys) == []


def test_manifests_without_statistics_of_deleted_files(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **{"manifest.delete-file-drop-stats": "true"}, **SMALL_MANIFESTS)
    load(table, range(6))
    table.compact(full=True)
    entries = deleted(table)
    assert entries
    assert {entry.file.value_stats for entry in entries} == {EMPTY_STATS}
    assert {entry.file.value_stats_cols for entry in entries} == {()}
    assert all(entry.file.key_stats != EMPTY_STATS for entry in entries)
    judge.write(rows(7), user="judge", identifier=0)
    judge.compact()
    load(table, range(8, 12))
    assert ours(table) == theirs(judge)
    judge.compact_manifests()
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert ours(table) == theirs(judge)
    assert ours(table, filter="p = 1 AND id < 10") == [row for row in theirs(judge) if row[0] == 1 and row[1] < 10]


def test_the_position_of_a_new_column(tmp_path: Path, paimon: PaimonJudge) -> None:
    schema = {"id": "BIGINT", "dt": "STRING", "hh": "INT", "v": "STRING"}
    options = {"add-column-before-partition": "true"}
    table = Catalog(tmp_path).create_table("db.t", schema=schema, partition_keys=["hh", "dt"], options=options)
    judge = paimon.table(table.location)
    ours = table.alter(AddColumn("n", "INT")).schema.column_names
    judge.alter(add_column("m", "INT"))
    theirs = Catalog(tmp_path).table("db.t").schema.column_names
    assert ours == ("id", "n", "dt", "hh", "v")
    assert theirs == ("id", "n", "m", "dt", "hh", "v")
