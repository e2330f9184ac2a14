"""A lost commit that a third program has built upon is in the table already: a repair adds none of its rows again."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit.lost_commits import LostCommit
from freshet.storage.exceptions import LostCommitError
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.table import Table
from tests.kit.bucket_store import CHOSEN, WAREHOUSE, bucket_store, commit_foreign, copy_over

SUMS = {"bucket": 1, "merge-engine": "aggregation", "fields.s.aggregate-function": "sum", "write-only": True}


@pytest.fixture(autouse=True)
def bucket() -> Iterator[MemoryFileIO]:
    with bucket_store() as files:
        yield files


def opened(**options: str) -> Table:
    return Catalog(WAREHOUSE, options={**CHOSEN, **options}).table("shop.sums")


def sums() -> list[int]:
    return opened().scan().to_arrow()["s"].to_pylist()


def built_upon(**options: object) -> LostCommit:
    """Of three commits that add 1 the last is lost, after a program has made snapshot 4 upon it."""
    table = Catalog(WAREHOUSE, options=CHOSEN).create_table(
        "shop.sums", schema={"id": "INT", "s": "BIGINT"}, primary_keys=["id"], options={**SUMS, **options}
    )
    with table.writer("loader") as writer:
        for number in (1, 2, 3):
            writer.write([{"id": 1, "s": 1}])
            writer.commit(number)
    commit_foreign(table.store, "builder")
    copy_over(opened().store, 3)
    assert sums() == [3], "snapshot 4 has the rows"
    [lost] = opened().lost_commits()
    assert lost.record.identifier == 3
    return lost


@pytest.mark.parametrize("is_compacted", [False, True])
def test_rows_that_another_program_has_built_upon_are_not_added_again(
    is_compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lost = built_upon()
    if is_compacted:
        opened(**{"commit.coordination": "single-writer"}).compact()
    with pytest.raises(LostCommitError, match="The rows are in the table since snapshot 4, which was built") as caught:
        opened().writer("other")
    assert "no snapshot names" not in str(caught.value)
    [damage] = opened().check().damage
    assert "The rows are in the table since snapshot 4" in damage.what
    with caplog.at_level(logging.WARNING):
        made = opened().repair_lost_commit().snapshots[-1]
    assert (made.commit_user, made.commit_identifier, made.delta_record_count) == ("loader", 3, 0)
    assert "since snapshot 4 " in caplog.text
    assert "built upon it" in caplog.text
    assert sums() == [3]
    assert opened().lost_commits() == []
    assert opened().repair_lost_commit(lost.manifest_list).already_committed

    with opened(**{"commit.adopt": "true"}).writer("loader") as again:
        again.write([{"id": 1, "s": 1}])
        assert again.commit(3).already_committed, "a replay of the number adds nothing"
        again.write([{"id": 1, "s": 1}])
        again.commit(4)
    assert sums() == [4]
    assert not opened().check().damage


def test_the_changelog_of_such_a_commit_comes_back() -> None:
    built_upon(**{"changelog-producer": "input"})
    [made] = opened().repair_lost_commit().snapshots
    assert (made.delta_record_count, made.changelog_record_count) == (0, 1)
    assert sums() == [3]
    assert opened().changelog(from_snapshot=made.id).to_arrow()["s"].to_pylist() == [1]
