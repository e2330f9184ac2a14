"""`exclusive-put`: commits of other programs are noticed, and a lost commit is named and made again, once."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit.foreign_writers import ADOPTED_PROPERTY, RECENT_MAX
from freshet.storage.exceptions import (
    ConflictError,
    InvalidRequestError,
    LostCommitError,
    MissingFileError,
    NotFoundError,
)
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.maintenance.repairs import repair_lost_commit
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from freshet.storage.table_session import TableSession
from tests.kit.bucket_store import CHOSEN, WAREHOUSE, bucket_store, commit_foreign, copy_over

COLUMNS = {"id": "BIGINT", "v": "STRING"}
ADOPTS = {**CHOSEN, "commit.adopt": "true"}


@pytest.fixture(autouse=True)
def bucket() -> Iterator[MemoryFileIO]:
    with bucket_store() as files:
        yield files


def make_table(**options: object) -> Table:
    return Catalog(WAREHOUSE, options=CHOSEN).create_table(
        "shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1, "write-only": True, **options}
    )


def opened(**options: str) -> Table:
    return Catalog(WAREHOUSE, options=options or CHOSEN).table("shop.orders")


def put(writer: TableSession, *ids: int, number: int | None = None) -> int:
    writer.write([{"id": each, "v": f"v{each}"} for each in ids])
    result = writer.commit(number)
    return result.snapshots[-1].id


def held(table: Table | None = None) -> list[int]:
    return sorted((table or opened()).scan().to_arrow()["id"].to_pylist())


def test_a_snapshot_that_was_copied_over_is_found_named_and_repaired() -> None:
    table = make_table()
    writer = table.writer("loader")
    put(writer, 1)
    lost = put(writer, 2, 3)
    copy_over(opened().store, lost)
    assert held() == [1], "this is the loss"

    writer.write([{"id": 4, "v": "v4"}])
    with pytest.raises(LostCommitError) as caught:
        writer.commit()
    error, text = caught.value, str(caught.value)
    assert (error.snapshot_id, error.commit_user, error.identifier) == (lost, "loader", 1)
    for part in ("snapshot 2, commit 1 of user 'loader', was made and is lost", "'jvm'", *error.files):
        assert part in text
    assert all(opened().store.env.file_io.exists(path) for path in error.files)
    command = f"freshet repair lost-commit {WAREHOUSE} shop.orders --manifest-list {error.manifest_list}"
    assert text.endswith(command)
    with pytest.raises(LostCommitError):
        writer.commit()

    repaired = opened().repair_lost_commit(error.manifest_list)
    [made] = repaired.snapshots
    assert (made.id, made.commit_user, made.commit_identifier) == (3, "loader", 1)
    assert held() == [1, 2, 3]
    assert opened().repair_lost_commit(error.manifest_list).already_committed, "a second repair adds nothing"
    with pytest.raises(InvalidRequestError, match="is of another program"):
        writer.commit()
    writer.abort()
    writer.close()
    with opened(**ADOPTS).writer("loader") as again:
        again.write([{"id": 9, "v": "twice"}])
        assert again.commit(1).already_committed, "a replay of the number adds nothing"
        put(again, 4, number=2)
    assert held() == [1, 2, 3, 4]
    assert opened().lost_commits() == []


def lose_the_last(table: Table, number: int, error: Exception | None = None) -> None:
    with table.writer("loader") as writer:
        copy_over(opened().store, put(writer, number))
        if error is not None:
            raise error


def test_the_last_commit_of_a_session_is_looked_at_when_it_ends() -> None:
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 1)
    with pytest.raises(LostCommitError, match="snapshot 2, commit 1"):
        lose_the_last(table, 2)
    opened().repair_lost_commit()
    with pytest.raises(ZeroDivisionError):
        lose_the_last(opened(**ADOPTS), 3, ZeroDivisionError())
    assert opened().lost_commits(), "the error of the block is the one that is raised; what starts next finds the loss"


def test_a_process_that_starts_after_the_loss_finds_it_even_if_it_adopts() -> None:
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 1)
        lost = put(writer, 2)
    copy_over(table.store, lost)
    for options in (CHOSEN, ADOPTS):
        with pytest.raises(LostCommitError, match="commit 1 of user 'loader', which was snapshot 2") as caught:
            opened(**options).writer("other")
        assert caught.value.files
    [found] = opened().lost_commits()
    assert (found.record.user, found.record.identifier, found.row_count) == ("loader", 1, 1)
    assert found.files == list(caught.value.files)
    assert opened().repair_lost_commit().snapshots[-1].id == 3
    assert held() == [1, 2]
    with pytest.raises(InvalidRequestError, match=r"snapshot 2 is of another program.*commit\.adopt=true"):
        opened().writer("other")
    with opened(**ADOPTS).writer("other") as writer:
        put(writer, 5)
    with opened().writer("third") as writer:
        put(writer, 6)
    assert held() == [1, 2, 5, 6]


def test_commits_of_others_are_refused_until_they_are_adopted_once() -> None:
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 1)
    commit_foreign(table.store)
    for refused in (
        lambda: opened().writer("loader"),
        lambda: opened().engine.committer("loader"),
        lambda: opened().compact(),
    ):
        with pytest.raises(InvalidRequestError, match=r"snapshot 2 is of another program.*Stop that program") as caught:
            refused()
        assert caught.value.option == "commit.coordination"
    with opened().writer("loader", adopt=True) as writer:
        first, second = put(writer, 2), put(writer, 3)
    snapshots = {each.id: each.properties or {} for each in opened().store.snapshots.all()}
    assert snapshots[first][ADOPTED_PROPERTY] == "2"
    assert ADOPTED_PROPERTY not in snapshots[second]
    with opened().writer("loader") as writer:
        put(writer, 4)
    commit_foreign(opened().store)
    with pytest.raises(InvalidRequestError, match="snapshot 6 is of another program"):
        opened().writer("loader")


def test_a_commit_of_another_program_while_a_session_is_open_is_refused() -> None:
    table = make_table()
    writer = table.writer("loader")
    put(writer, 1)
    commit_foreign(opened().store)
    writer.write([{"id": 2, "v": "b"}])
    with pytest.raises(InvalidRequestError, match="snapshot 2 is of another program"):
        writer.commit()
    assert held() == [1]
    writer.abort()
    writer.close()


def test_only_the_newest_snapshots_are_looked_at() -> None:
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 0)
    commit_foreign(table.store)
    with table.writer("loader", coordination="single-writer") as writer:
        for number in range(1, RECENT_MAX):
            put(writer, number)
    with pytest.raises(InvalidRequestError, match="snapshot 2 is of another program"):
        opened().writer("loader")
    with table.writer("loader", coordination="single-writer") as writer:
        put(writer, RECENT_MAX)
    with opened().writer("loader") as writer:
        put(writer, RECENT_MAX + 1)
    assert held() == list(range(RECENT_MAX + 2))


def test_a_single_writer_reads_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    """The operator vouches; what another program does then is not noticed."""
    make_table()
    table = opened(**{"commit.coordination": "single-writer"})
    with table.writer("loader") as writer:
        put(writer, 1)
        copy_over(opened().store, put(writer, 2))
        assert put(writer, 3) == 3
    assert held() == [1, 3]
    assert opened().lost_commits() == [], "nor can it be repaired: its files have no record"


def test_a_compaction_that_was_copied_over_loses_no_row(caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(**{"write-only": False, "num-sorted-run.compaction-trigger": 2})
    writer = opened(**ADOPTS).writer("loader")
    put(writer, 1)
    last = 0
    for number in range(2, 5):
        last = put(writer, number)
    snapshot = table.store.snapshots.find(last)
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"
    copy_over(opened().store, last)
    with caplog.at_level(logging.WARNING):
        put(writer, 9)
    assert f"snapshot {last} was replaced by another program's" in caplog.text
    assert "no row of ours is missing" in caplog.text
    writer.close()
    assert held() == [1, 2, 3, 4, 9]
    assert not opened().check().damage


def test_another_writer_of_ours_is_no_stranger() -> None:
    table = make_table()
    with table.writer("a") as first, opened().writer("b") as second:
        for number in range(6):
            put((first, second)[number % 2], number)
    assert held() == list(range(6))


def test_rows_that_others_have_numbered_as_high_are_numbered_anew_by_a_repair() -> None:
    table = make_table()
    writer = table.writer("loader")
    put(writer, 1)
    lost = put(writer, 1, 2)
    copy_over(opened().store, lost)
    with opened(**{"commit.coordination": "single-writer"}).writer("other") as other:
        other.write([{"id": 1, "v": "of other"}])
        other.commit()
    with pytest.raises(LostCommitError):
        writer.commit(2)
    writer.abort()
    [made] = opened().repair_lost_commit().snapshots
    assert made.id == 4
    assert held() == [1, 2]
    rows = {row["id"]: row["v"] for row in opened().scan().to_arrow().to_pylist()}
    assert rows == {1: "v1", 2: "v2"}, "the commit that was made last wins, as any other"
    assert not opened().check().damage


class KilledEnv(Env):
    """Ends at a point."""

    point: CrashPoint | None = None

    def reach(self, point: CrashPoint) -> None:
        if point is self.point:
            raise KeyboardInterrupt(point)


def test_a_commit_whose_writer_was_killed_before_its_claim_can_be_made_too() -> None:
    table = make_table()
    env = KilledEnv(table.store.env.file_io, settings=table.store.env.settings)
    killed = Table(replace(table.store, env=env))
    writer = killed.writer("loader")
    put(writer, 1, number=1)
    env.point = CrashPoint.COMMIT_MANIFESTS_WRITTEN
    writer.write([{"id": 2, "v": "v2"}])
    with pytest.raises(KeyboardInterrupt):
        writer.commit(2)
    [found] = opened().lost_commits()
    assert found.text == "commit 2 of user 'loader', which was snapshot 2 or was to be"
    assert not opened().check().damage, "it was never made"
    assert held() == [1]
    opened().repair_lost_commit()
    assert held() == [1, 2]
    with opened().writer("loader") as again:
        again.write([{"id": 2, "v": "again"}])
        assert again.commit(2).already_committed
    with pytest.raises(NotFoundError, match="no commit is lost"):
        opened().repair_lost_commit()


def test_tries_of_one_commit_count_once_and_those_that_came_through_not_at_all() -> None:
    table = make_table()
    with table.writer("a") as first, opened().writer("b") as second:
        put(first, 1)
        put(second, 2)
    stale = opened()
    other = opened()

    class Slow(type(stale.store.claims)):  # type: ignore[misc]
        count = 0

        def claim_snapshot(self, snapshot: object) -> object:
            Slow.count += 1
            if Slow.count == 1:
                with other.writer("b") as writer:
                    put(writer, 3)
            return super().claim_snapshot(snapshot)

    claims = Slow(stale.store.env.file_io, stale.store.paths, stale.store.claims.rules)
    with Table(replace(stale.store, claims=claims)).writer("a") as writer:
        put(writer, 4)
    assert Slow.count == 2
    assert opened().lost_commits() == []
    names = opened().store.manifests.list_names()
    named = {name for each in opened().store.snapshots.all() for name, _ in each.manifest_lists}
    assert set(names) - named, "lists of a lost claim stay on a store"
    assert not opened().check().damage
    assert held() == [1, 2, 3, 4]


def test_files_that_are_gone_are_named_and_nothing_is_committed() -> None:
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 1)
        lost = put(writer, 2)
    copy_over(table.store, lost)
    [found] = opened().lost_commits()
    opened().remove_orphan_files()
    assert all(table.store.env.file_io.exists(path) for path in found.files), "young orphans stay"
    table.store.env.file_io.delete(found.files[0])
    with pytest.raises(MissingFileError, match=re.escape(found.files[0])):
        opened().repair_lost_commit()
    latest = opened().latest_snapshot()
    assert latest is not None
    assert latest.id == lost
    with pytest.raises(NotFoundError, match="lists what there is"):
        opened().repair_lost_commit("manifest-list-none")


def test_several_lost_commits_are_repaired_one_by_one() -> None:
    table = make_table()
    with table.writer("a") as writer:
        put(writer, 1)
    first, second = table.writer("a"), opened().writer("b")
    copied = put(first, 2)
    copy_over(opened().store, copied)
    with opened(**{"commit.coordination": "single-writer"}).writer("b") as writer:
        put(writer, 3)  # upon the copy
    del second
    killed = opened(**ADOPTS)
    [found] = killed.lost_commits()
    lists = killed.store.manifests
    other = replace(found.record, user="c", snapshot_id=3)
    metas = lists.read_manifest_list(found.manifest_list)
    lists.write_manifest_list(metas, None, {"freshet.commit": other.text})
    assert [each.record.user for each in opened().lost_commits()] == ["a", "c"]
    with pytest.raises(InvalidRequestError, match=r"several commits are lost.*\n.*user 'a'.*\n.*user 'c'"):
        opened().repair_lost_commit()
    opened().repair_lost_commit(found.manifest_list)
    assert held() == [1, 2, 3]


def test_a_lost_commit_of_an_earlier_schema_fits() -> None:
    table = make_table()
    with table.writer("a") as writer:
        put(writer, 1)
        lost = put(writer, 2)
    copy_over(table.store, lost)
    opened().alter(AddColumn("w", "STRING"))
    opened().repair_lost_commit()
    assert held() == [1, 2]


@pytest.mark.parametrize("given", ["exclusive-put", "single-writer"])
def test_a_session_chooses_for_itself(given: str) -> None:
    make_table()
    table = Catalog(WAREHOUSE).table("shop.orders")
    with pytest.raises(InvalidRequestError):
        table.writer("loader")
    with table.writer("loader", coordination=given) as writer:
        put(writer, 1)
    assert held() == [1]
    with pytest.raises(InvalidRequestError, match="no such way"):
        table.writer("loader", coordination="hope")


def test_changelogs_and_partitions_come_back(bucket: MemoryFileIO) -> None:
    catalog = Catalog(WAREHOUSE, options=CHOSEN)
    table = catalog.create_table(
        "shop.orders",
        schema={**COLUMNS, "p": "INT"},
        primary_keys=["p", "id"],
        partition_keys=["p"],
        options={"bucket": 2, "changelog-producer": "input", "write-only": True},
    )
    with table.writer("loader") as writer:
        writer.write([{"id": 0, "v": "v", "p": 0}])
        writer.commit()
        writer.write([{"id": number, "v": "v", "p": number % 3} for number in range(1, 20)])
        [lost] = writer.commit().snapshots
    copy_over(table.store, lost.id)
    [made] = opened().repair_lost_commit().snapshots
    assert made.changelog_record_count == lost.changelog_record_count == 19
    assert made.total_record_count == 20
    assert held() == list(range(20))
    assert opened().changelog(from_snapshot=made.id).to_arrow().num_rows == 19
    assert not opened().check().damage


def test_append_tables_come_back() -> None:
    table = Catalog(WAREHOUSE, options=CHOSEN).create_table("shop.orders", schema=COLUMNS)
    with table.writer("loader") as writer:
        put(writer, 1)
        lost = put(writer, 2, 2)
    copy_over(table.store, lost)
    with pytest.raises(LostCommitError):
        opened().writer("x")
    opened().repair_lost_commit()
    assert held() == [1, 2, 2]
    opened().repair_lost_commit(opened().store.snapshots.find(1).delta_manifest_list)  # type: ignore[union-attr]
    assert held() == [1, 2, 2], "one that was not lost"


def test_a_lost_commit_that_does_not_fit_any_more_is_refused() -> None:
    """Its buckets were rescaled meanwhile."""
    table = make_table()
    with table.writer("loader") as writer:
        put(writer, 1)
        lost = put(writer, 2)
    copy_over(table.store, lost)
    [found] = opened().lost_commits()
    found.__dict__["entries"] = [replace(entry, total_buckets=4) for entry in found.entries]
    with pytest.raises(ConflictError, match="bucket"):
        repair_lost_commit(found)
    assert held() == [1]
