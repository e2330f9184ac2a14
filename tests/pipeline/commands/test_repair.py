"""freshet repair lost-commit, and --adopt: a table that another program has written without conditional puts."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.pipeline.config.catalogs import adopting, target_catalog
from freshet.pipeline.config.model import revealed
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.errors.error_kind import exit_code, kind_of_class
from freshet.storage.exceptions import LostCommitError
from tests.kit.bucket_store import CHOSEN, commit_foreign, copy_over
from tests.pipeline.commands.kit import Freshet

OPTION = "--catalog-option=commit.coordination=exclusive-put"

PIPELINE = """
name: orders
sources: [{{table: {{warehouse: "{folder}/other", name: shop.orders}}}}]
table: {{warehouse: "{folder}/lake", name: shop.orders, columns: {{id: BIGINT}}}}
catalog: {{commit.coordination: exclusive-put}}
checkpoint: "{folder}/checkpoint"
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """With one commit in the place of which another program has put its own."""
    made = Catalog(tmp_path, options=CHOSEN).create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1}
    )
    with made.writer("loader") as writer:
        for number in range(3):
            writer.write([{"id": number}])
            writer.commit(number)
    copy_over(made.store, 3)
    return made


def test_a_lost_commit_is_named_listed_and_repaired(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    place = (tmp_path, "shop.orders", OPTION)
    refused = freshet("compact", *place)
    assert refused.code == 65
    assert refused.err.startswith("freshet: CorruptDataError: table shop.orders: commit 2 of user 'loader'")
    [lost] = table.lost_commits()
    assert f"freshet repair lost-commit {tmp_path} shop.orders --manifest-list {lost.manifest_list}" in refused.err

    damaged = freshet("check-table", *place)
    assert damaged.code == 65
    remedy = f"freshet repair lost-commit {tmp_path} shop.orders"
    assert remedy in damaged.out
    assert f"{lost.manifest_list}: commit 2 of user 'loader'" in damaged.out
    [found] = freshet("check-table", *place, "--json").facts["damage"]
    assert (found["invariant"], remedy in found["remedy"]) == ("commits_are_kept", True)

    listed = freshet.good("repair", "lost-commit", *place)
    assert listed.out == (
        f"commit 2 of user 'loader' was snapshot 3 or was to be; 1 row in 1 file; "
        f"--manifest-list {lost.manifest_list}\n"
        "nothing was committed; --all commits them again, --manifest-list one of them\n"
    )
    [fact] = freshet.good("repair", "lost-commit", *place, "--json").facts["commits"]
    assert (fact["user"], fact["identifier"], fact["rows"], fact["files"]) == ("loader", 2, 1, lost.files)
    assert freshet.good("repair", "lost-commit", *place, "--all").out == (
        "commit 2 of user 'loader': committed again as snapshot 4, 1 row in 1 file\n"
    )
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert freshet.good("check-table", *place).out.endswith("; no damage found\n")
    again = freshet.good("repair", "lost-commit", *place, "--manifest-list", lost.manifest_list)
    assert "nothing was committed" in again.out
    assert freshet.good("repair", "lost-commit", *place).out == "shop.orders: no commit is lost\n"

    refused = freshet("compact", *place)
    assert (refused.code, "snapshot 3 is of another program" in refused.err) == (2, True)
    freshet.good("compact", *place, "--adopt")
    freshet.good("compact", *place)


def test_a_commit_that_another_program_has_built_upon_is_listed_with_its_rows_in_the_table(
    freshet: Freshet, tmp_path: Path
) -> None:
    made = Catalog(tmp_path, options=CHOSEN).create_table("shop.orders", schema={"id": "BIGINT"})
    with made.writer("loader") as writer:
        for number in range(2):
            writer.write([{"id": number}])
            writer.commit(number)
    commit_foreign(made.store, "builder")
    copy_over(made.store, 2)
    place = (tmp_path, "shop.orders", OPTION)
    listed = freshet.good("repair", "lost-commit", *place)
    since = "1 row in 1 file that the table has since snapshot 3, which was built upon the commit"
    assert f"was snapshot 2 or was to be; {since}; --manifest-list" in listed.out
    [fact] = freshet.good("repair", "lost-commit", *place, "--json").facts["commits"]
    assert fact["in_table_since"] == 3
    assert freshet.good("repair", "lost-commit", *place, "--all").out == (
        f"commit 1 of user 'loader': its number was committed again as snapshot 4, without the {since}\n"
    )
    assert sorted(Catalog(tmp_path).table("shop.orders").scan().to_arrow()["id"].to_pylist()) == [0, 1]
    [fact] = freshet.good("repair", "lost-commit", *place, "--manifest-list", fact["manifest_list"], "--json").facts[
        "commits"
    ]
    assert (fact["already_committed"], fact["in_table_since"]) == (True, None)


def test_a_wrong_call_changes_nothing(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    place = (tmp_path, "shop.orders", OPTION)
    assert freshet("repair", "levels", *place).code == 2
    assert freshet("repair", "lost-commit", *place, "--all", "--manifest-list", "x").code == 2
    unknown = freshet("repair", "lost-commit", *place, "--manifest-list", "manifest-list-x")
    assert unknown.code == 2
    assert "lists what there is" in unknown.err
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]


def test_a_stream_that_meets_a_lost_commit_ends_with_65() -> None:
    assert {exit_code(kind_of_class(LostCommitError), while_running=running) for running in (True, False)} == {65}


def test_a_pipeline_adopts(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(folder=tmp_path), encoding="utf-8")
    [config] = load_pipelines([file])
    assert revealed(adopting(config).catalog) == {"commit.coordination": "exclusive-put", "commit.adopt": "true"}
    assert target_catalog(adopting(config)).warehouse == f"{tmp_path}/lake"
