"""Rollbacks: the rows of an earlier snapshot in a new one, for us and for Paimon, with all that lives on afterwards."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError, StorageError
from freshet.storage.model.snapshot import ROLLED_BACK_PROPERTY, CommitKind
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MOVING, days, make, rows_of, write

ALL = {**KINDS, "moving": MOVING}


def history(table: Table) -> dict[int, list[tuple[int, str, int | None]]]:
    """Commits, compactions and deletes; the rows of each snapshot."""
    write(table, days(range(30), 1))
    write(table, days(range(20, 40), 2))
    table.compact()
    with table.writer("w") as writer:
        if table.schema.has_primary_key:
            rows = pa.table({"id": [1, 25], "dt": ["d1", "d1"], "n": [0, 0], "_ROW_KIND": ["-D", "-D"]})
            writer.write(
                rows.cast(pa.schema([("id", pa.int32()), ("dt", "string"), ("n", pa.int32()), ("_ROW_KIND", "string")]))
            )
        else:
            writer.write(pa.table({"id": pa.array([1], pa.int32()), "dt": ["d3"], "n": pa.array([5], pa.int32())}))
        writer.commit()
    write(table, days(range(2), 3, "d1"))
    table.compact()
    return {each.id: rows_of(table, snapshot_id=each.id) for each in table.snapshots()}


@pytest.mark.dear("every snapshot of a history")
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ALL)
def test_the_rows_of_each_snapshot_come_back(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    rows = history(table)
    for snapshot_id in [*rows, *reversed(rows)]:
        result = table.rollback(snapshot_id)
        assert rows_of(table) == rows[snapshot_id]
        for made in result.snapshots:
            assert made.commit_kind is CommitKind.OVERWRITE
            assert (made.properties or {})[ROLLED_BACK_PROPERTY] == str(snapshot_id)
        assert table.check(all_snapshots=True).damage == []
    table.rollback(0)
    assert rows_of(table) == []
    newest = table.latest_snapshot()
    assert newest is not None
    table.rollback(newest.id - 1)
    write(table, [(77, "d1", 9), (5, "d1", 9)])
    assert {(77, "d1", 9), (5, "d1", 9)} <= set(rows_of(table))
    table.compact()
    assert {(77, "d1", 9), (5, "d1", 9)} <= set(rows_of(table))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_left_but_what_snapshots_name(tmp_path: Path, kind: str) -> None:
    """Copies have names of their own: neither expiry nor orphan cleaning takes what the rollback brought back."""
    table = make(tmp_path, ALL[kind])
    rows = history(table)
    table.rollback(2)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert [each.id for each in table.snapshots()] == [max(rows) + 1]
    assert rows_of(table) == rows[2]
    assert table.remove_orphan_files(older_than_ms=0).files == ()
    assert rows_of(table) == rows[2]


def test_targets(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1))
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    write(table, days(range(3), 2), user="other")
    write(table, days(range(3), 3), user="other")
    table.rollback(between)
    assert rows_of(table) == days(range(3), 1)
    table.rollback(3)
    assert rows_of(table) == days(range(3), 3)
    table.rollback(undo=("other", 1))
    assert rows_of(table) == days(range(3), 2)
    table.rollback(undo=("w", 0))
    assert rows_of(table) == []
    for wrong, error, words in (
        ({"to": 99}, NotFoundError, "99"),
        ({"to": "eom"}, NotFoundError, "no tag 'eom'"),
        ({"to": datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)}, NotFoundError, "at or before 2001"),
        ({"to": datetime.datetime(2001, 1, 1)}, InvalidRequestError, "time zone"),
        ({"to": -1}, InvalidRequestError, "snapshot id"),
        ({"to": True}, InvalidRequestError, "snapshot id"),
        ({}, InvalidRequestError, "to= or undo="),
        ({"to": 1, "undo": ("w", 0)}, InvalidRequestError, "to= or undo="),
        ({"undo": ("nobody", 0)}, NotFoundError, "'other', 'w'"),
        ({"to": 0, "delete_newer": True}, InvalidRequestError, "truncate"),
    ):
        with pytest.raises(error, match=words):
            table.rollback(**wrong)  # type: ignore[arg-type]


def test_commits_that_are_rolled_back_count_as_never_made(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, days(range(3), 1, "d1"))
    with table.writer("loader") as writer:
        for number in range(4):
            writer.write([{"id": number, "dt": "d1", "n": 10 + number}])
            writer.commit(number)
    table.rollback(undo=("loader", 2))
    with table.writer("loader") as writer:
        writer.write([{"id": 1, "dt": "d1", "n": 99}])
        assert writer.commit(1).already_committed, "what the table holds is known"
        writer.write([{"id": 2, "dt": "d1", "n": 12}])
        assert not writer.commit(2).already_committed, "what was undone is committed when it is sent again"
    assert rows_of(table) == [(0, "d1", 10), (1, "d1", 11), (2, "d1", 12)]


def test_a_commit_under_way_does_not_hide_that_those_before_it_were_rolled_back(tmp_path: Path) -> None:
    """It was committed upon the rollback: the table seemed to hold all commits up to it, and the rows were missing."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, days(range(3), 1, "d1"), user="p")
    write(table, days(range(3), 2, "d1"), user="p")
    committer = table.engine.committer("p")
    begun_on = committer.has_committed(2)
    table.rollback(undo=("p", 1))
    with pytest.raises(RetryableError, match="rolled back to before commit 1 of user 'p'"):
        committer.commit(2, (), begun_on=begun_on)
    assert rows_of(table) == days(range(3), 1, "d1")
    assert not committer.commit(1, (), begun_on=committer.has_committed(1)).already_committed


def test_undo_passes_over_what_a_rollback_has_undone(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1)], user="a")

    def send(number: int, n: int) -> None:
        with table.writer("u") as writer:
            writer.write([{"id": 2, "dt": "d1", "n": n}])
            writer.commit(number)

    send(5, 1)
    table.rollback(1)
    write(table, [(3, "d1", 1)], user="v")
    send(5, 2)
    table.rollback(undo=("u", 5))
    assert rows_of(table) == [(1, "d1", 1), (3, "d1", 1)]


def test_an_undo_that_is_called_twice_says_that_it_is_done(tmp_path: Path) -> None:
    """It said that there was no such commit, and named the user among those who had committed."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1)], user="a")
    with table.writer("u") as writer:
        for number in (5, 6):
            writer.write([{"id": number, "dt": "d1", "n": 1}])
            writer.commit(number)
    table.rollback(undo=("u", 6))
    table.rollback(undo=("u", 5))
    for number in (5, 6):
        with pytest.raises(NotFoundError, match=f"commit {number} of 'u' is undone already") as error:
            table.rollback(undo=("u", number))
        assert "was undone by snapshot 5. Nothing was changed; to=4 brings back" in str(error.value)
    assert rows_of(table) == [(1, "d1", 1)]
    with pytest.raises(NotFoundError, match="no snapshot is of commit 7 of 'u'"):
        table.rollback(undo=("u", 7))


def test_an_edit_is_undone_once(tmp_path: Path) -> None:
    """Rollbacks are edits with numbers of their own: the second undo said that the commit had expired, and one after
    another edit would have gone back to before that one."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    for number in range(3):
        table.upsert([{"id": number, "dt": "d1", "n": number}])
    table.rollback(undo=("freshet-edit", 2))
    with pytest.raises(NotFoundError, match="commit 2 of 'freshet-edit' is undone already: snapshot 3, of commit 2"):
        table.rollback(undo=("freshet-edit", 2))
    table.upsert([{"id": 9, "dt": "d1", "n": 9}])
    with pytest.raises(NotFoundError, match="is undone already.*was undone by snapshot 4.*to=3 brings back"):
        table.rollback(undo=("freshet-edit", 2))
    assert [row[0] for row in rows_of(table)] == [0, 1, 9]
    table.rollback(undo=("freshet-edit", 3))
    assert [row[0] for row in rows_of(table)] == [0, 1, 2]
    table.rollback(undo=("freshet-edit", 2))
    assert [row[0] for row in rows_of(table)] == [0, 1]


def test_an_undo_that_is_called_twice_leaves_later_commits_alone(tmp_path: Path) -> None:
    """The second one took the next commit of the pipeline for the one that was meant."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    for number in (1, 2):
        with table.writer("u") as writer:
            writer.write([{"id": number, "dt": "d1", "n": 1}])
            writer.commit(number)
    table.rollback(undo=("u", 2))
    with table.writer("u") as writer:
        writer.write([{"id": 3, "dt": "d1", "n": 1}])
        writer.commit(3)
    with pytest.raises(NotFoundError, match="undone already.*Commit 3 of this user came later and stays"):
        table.rollback(undo=("u", 2))
    assert [row[0] for row in rows_of(table)] == [1, 3]


def test_undo_of_a_commit_that_has_expired_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    with table.writer("u") as writer:
        for number in range(1, 4):
            writer.write([{"id": number, "dt": "d1", "n": number}])
            writer.commit(number)
    write(table, [(9, "d1", 1)], user="v")
    with table.writer("u") as writer:
        writer.write([{"id": 4, "dt": "d1", "n": 4}])
        writer.commit(4)
    table.expire_snapshots(retain_max=2, retain_min=2, older_than_ms=0)
    with pytest.raises(NotFoundError, match="cannot be undone"):
        table.rollback(undo=("u", 2))
    table.rollback(undo=("u", 4))
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 9]


def test_undo_of_a_user_whose_commits_have_all_expired_says_so(tmp_path: Path) -> None:
    """It said that no snapshot was of the commit, as for a user or a number that never was."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    with table.writer("u") as writer:
        for number in range(1, 4):
            writer.write([{"id": number, "dt": "d1", "n": number}])
            writer.commit(number)
    for number in range(3):
        write(table, [(9, "d1", number)], user="v")
    table.expire_snapshots(retain_max=2, retain_min=2, older_than_ms=0)
    for number in (2, 3):
        with pytest.raises(NotFoundError, match=rf"commit {number} of 'u' cannot be undone.*has expired.*\(to=\)"):
            table.rollback(undo=("u", number))
    with pytest.raises(NotFoundError, match="no snapshot is of commit 4 of 'u', or of a later one: its last one is 3"):
        table.rollback(undo=("u", 4))


def test_an_undo_of_an_expired_commit_is_not_done_by_that_of_a_later_one(tmp_path: Path) -> None:
    """It said that the commit was undone already, whose rows the table still had."""
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1)], user="u")
    write(table, [(2, "d1", 1)], user="v")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    write(table, [(3, "d1", 1)], user="u")
    table.rollback(undo=("u", 1))
    with pytest.raises(NotFoundError, match=r"commit 0 of 'u' cannot be undone.*has expired"):
        table.rollback(undo=("u", 0))
    with pytest.raises(NotFoundError, match="commit 1 of 'u' is undone already"):
        table.rollback(undo=("u", 1))
    assert rows_of(table) == [(1, "d1", 1), (2, "d1", 1)]


def test_copies_are_young(tmp_path: Path) -> None:
    """Orphan cleaning that runs between the copy and the commit leaves them alone."""
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1))
    table.truncate()
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    slow = Table.open(table.location)
    create = slow.store.env.file_io.create_exclusive

    def cleaned(path: str, data: bytes):  # type: ignore[no-untyped-def]
        table.remove_orphan_files()
        return create(path, data)

    slow.store.env.file_io.create_exclusive = cleaned  # type: ignore[method-assign]
    slow.rollback(1)
    assert rows_of(table) == days(range(3), 1)


def test_followers_of_overwrites_see_what_a_rollback_changed(tmp_path: Path) -> None:
    options, keys, partitions = KINDS["input"]
    table = make(tmp_path, ({**options, "streaming-read-overwrite": "true"}, keys, partitions))
    write(table, [(1, "d1", 1), (2, "d1", 1)])
    write(table, [(1, "d1", 2), (3, "d1", 1)])
    newest = table.latest_snapshot()
    assert newest is not None
    table.rollback(1)
    stream = Table.open(table.location).stream(scan_mode="from-snapshot", from_snapshot=newest.id + 1, max_wait_s=0)
    told = sorted((change["_ROW_KIND"], change["id"], change["n"]) for batch in stream for change in batch.to_pylist())
    assert told == [("+U", 1, 1), ("-D", 3, 1), ("-U", 1, 2)]


def test_followers_pass_a_rollback_across_a_rescale(tmp_path: Path) -> None:
    options, keys, _ = KINDS["input"]
    table = make(tmp_path, ({**options, "bucket": "2", "streaming-read-overwrite": "true"}, keys, []))
    write(table, [(number, "d1", 1) for number in range(6)])
    table.rescale(4)
    table = Table.open(table.location)
    write(table, [(1, "d1", 2)])
    newest = table.latest_snapshot()
    assert newest is not None
    table.rollback(1)
    stream = Table.open(table.location).stream(scan_mode="from-snapshot", from_snapshot=newest.id + 1, max_wait_s=0)
    told = [(change["_ROW_KIND"], change["id"], change["n"]) for batch in stream for change in batch.to_pylist()]
    rows = {number: 2 if number == 1 else 1 for number in range(6)}
    for kind, number, n in told:
        if kind in ("-D", "-U"):
            assert rows.pop(number) == n
        else:
            rows[number] = n
    assert rows == dict.fromkeys(range(6), 1)


def test_a_consumer_keeps_what_a_rollback_is_read_with(tmp_path: Path) -> None:
    options, keys, partitions = KINDS["input"]
    table = make(tmp_path, ({**options, "streaming-read-overwrite": "true"}, keys, partitions))
    write(table, [(1, "d1", 1)])
    write(table, [(2, "d1", 1)])
    table.reset_consumer("reader", 3)
    table.rollback(1)
    for n in range(4):
        write(table, [(3, "d1", n)])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    stream = table.stream(consumer_id="reader", max_wait_s=0)
    told = [(change["_ROW_KIND"], change["id"]) for batch in stream for change in batch.to_pylist()]
    assert told[0] == ("-D", 2)


def test_an_altered_table_keeps_its_columns(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(2), 1, "d1"))
    table = table.alter(AddColumn("more", "STRING"))
    with table.writer("w") as writer:
        writer.write([{"id": 0, "dt": "d1", "n": 2, "more": "x"}])
        writer.commit()
    table.rollback(1)
    assert table.scan().to_arrow().column("more").to_pylist() == [None, None]


def test_a_writer_that_is_open_goes_on(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    with table.writer("w") as writer:
        for n in range(3):
            writer.write([{"id": 1, "dt": "d1", "n": n}, {"id": 10 + n, "dt": "d1", "n": n}])
            writer.commit()
        table.rollback(1)
        writer.write([{"id": 1, "dt": "d1", "n": 7}])
        writer.commit()
    assert rows_of(table) == [(1, "d1", 7), (10, "d1", 0)]


def test_two_rollbacks_at_the_same_time(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["vectors"])
    rows = history(table)
    slow = Table.open(table.location)
    create, calls = slow.store.env.file_io.create_exclusive, []

    def lost_once(path: str, data: bytes):  # type: ignore[no-untyped-def]
        if not calls:
            calls.append(path)
            table.rollback(2)
        return create(path, data)

    slow.store.env.file_io.create_exclusive = lost_once  # type: ignore[method-assign]
    slow.rollback(4)
    assert calls
    assert rows_of(table) == rows[4]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert rows_of(table) == rows[4]


def test_a_stream_sees_one_history(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["input"])
    for n in range(3):
        write(table, [(n, "d1", n)])
    table.rollback(1)
    write(table, [(9, "d1", 9)])
    batches = list(table.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0, with_snapshot_id=True))
    seen = [
        row
        for batch in batches
        for row in zip(batch.column("_SNAPSHOT_ID").to_pylist(), batch.column("id").to_pylist(), strict=True)
    ]
    assert seen == [(1, 0), (2, 1), (3, 2), (5, 9)]


class TestDeleteNewer:
    def test_later_snapshots_are_gone_and_their_ids_are_used_again(self, tmp_path: Path) -> None:
        table = make(tmp_path, KINDS["keyed"])
        rows = history(table)
        table.rollback(2, delete_newer=True)
        assert rows_of(table) == rows[2]
        assert [each.id for each in table.snapshots()] == [1, 2]
        write(Table.open(table.location), [(500, "d1", 1)], user="next")
        assert rows_of(table) == sorted([*rows[2], (500, "d1", 1)])
        assert max(each.id for each in table.snapshots()) in (3, 4)
        assert rows_of(table) == sorted([*rows[2], (500, "d1", 1)]), "the object that was open reads the new history"

    def test_refused_while_a_stream_uses_the_table(self, tmp_path: Path) -> None:
        table = make(tmp_path, KINDS["input"])
        write(table, [(1, "d1", 1)])
        write(table, [(2, "d1", 1)])
        table.reset_consumer("reader", 2)
        with pytest.raises(InvalidRequestError, match="consumer 'reader' has read it within the last hour"):
            table.rollback(1, delete_newer=True)
        table.delete_consumer("reader")
        table.engine.committer("orders-cdc", "query").commit(0, [])
        with pytest.raises(InvalidRequestError, match="pipeline 'orders-cdc' has written it"):
            table.rollback(1, delete_newer=True)
        assert len(table.snapshots()) == 3
        table.reset_consumer("ahead", 4)
        table.rollback(1, delete_newer=True, force=True)
        assert rows_of(table) == [(1, "d1", 1)]
        assert table.consumers() == {"ahead": 2}, "it would pass over the snapshots that get these ids"


@pytest.mark.few(4)
@pytest.mark.judge
@pytest.mark.parametrize("kind", KINDS)
def test_paimon_reads_it_lets_it_expire_and_goes_on(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    """The expiry of Apache Paimon 2.0.0 removes the files that a delta deletes, also where a later one adds them."""
    table = make(tmp_path, KINDS[kind])
    rows = history(table)
    judge = paimon.table(tmp_path / "db.db" / "t")
    table.rollback(2)
    assert sorted(judge.read_rows()) == rows_of(table) == rows[2]
    write(table, [(900, "d1", 9)])
    judge.expire(retain_max=1, retain_min=1, time_retained_ms=0)
    expected = sorted([*rows[2], (900, "d1", 9)])
    assert rows_of(Catalog(tmp_path).table("db.t")) == expected
    assert sorted(judge.read_rows()) == expected
    if table.options.bucket > 0:
        judge.write([(901, "d1", 9)])
        assert rows_of(table) == sorted([*expected, (901, "d1", 9)])


def test_a_target_that_expires_meanwhile(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    history(table)
    slow = Table.open(table.location)
    copy_all = slow.store.env.file_io.copy_all

    def late(pairs):  # type: ignore[no-untyped-def]
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
        copy_all(pairs)

    slow.store.env.file_io.copy_all = late  # type: ignore[method-assign]
    before = rows_of(table)
    with pytest.raises(StorageError, match="expired before the table was rolled back"):
        slow.rollback(1)
    assert rows_of(table) == before
    assert table.remove_orphan_files(older_than_ms=0).files == (), "copies that were made are removed"
