"""Whose number is it: commits of a session whose end was not seen, or whose number another program has taken."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.catalogs.claims import WON, ClaimAnswer, ClaimOutcome
from freshet.storage.exceptions import ConflictError, InvalidRequestError, StorageError, UnknownOutcomeError
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.schema.change import DropColumn
from freshet.storage.table import Table

OPTIONS = {"bucket": "-1", "commit.max-retries": "0"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(tmp_path)


def create(tmp_path: Path, **options: str) -> Table:
    return Catalog(str(tmp_path)).create_table("shop.log", schema={"id": "BIGINT"}, options={**OPTIONS, **options})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def held(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


class InterruptedClaim:
    """The first claim takes effect or not, and ends in an exception; the later ones are as always."""

    def __init__(self, table: Table, error: BaseException, *, takes_effect: bool) -> None:
        self._claim = table.store.claims.claim_snapshot
        self._error: BaseException | None = error
        self._takes_effect = takes_effect

    def __call__(self, snapshot: Snapshot) -> ClaimAnswer:
        error, self._error = self._error, None
        if error is None:
            return self._claim(snapshot)
        if self._takes_effect:
            assert self._claim(snapshot) == WON
        raise error


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
@pytest.mark.parametrize("number", [None, 4])
def test_rows_of_an_interrupted_commit_are_there_once(
    table: Table, error: BaseException, takes_effect: bool, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer("loader") as writer:
        writer.write(rows(*range(100)))
        with monkeypatch.context() as patch:
            patch.setattr(
                table.store.claims, "claim_snapshot", InterruptedClaim(table, error, takes_effect=takes_effect)
            )
            with pytest.raises(type(error)):
                writer.commit(number)
        result = writer.commit()
        assert result.already_committed is takes_effect
        assert held(table) == list(range(100))
        writer.write(rows(100))
        writer.commit()
    assert held(table) == list(range(101))
    first = number or 0
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [first, first + 1]


def test_pending_commit_keeps_its_number(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.writer("loader") as writer:
        writer.write(rows(1))
        claim = InterruptedClaim(table, KeyboardInterrupt(), takes_effect=True)
        monkeypatch.setattr(table.store.claims, "claim_snapshot", claim)
        with pytest.raises(KeyboardInterrupt):
            writer.commit(3)
        with pytest.raises(InvalidRequestError, match=r"number 3 .* cannot be committed as 4"):
            writer.commit(4)
        assert writer.commit(3).already_committed
    assert held(table) == [1]


def test_rows_under_a_number_that_was_passed_over_are_refused(table: Table) -> None:
    """The night of the 26th failed, that of the 27th is there: rows of the 26th are no repetition of anything."""
    for night in (25, 27):
        with table.writer("nightly") as writer:
            writer.write(rows(night))
            writer.commit(night)
    with table.writer("nightly") as writer:
        writer.write(rows(26))
        with pytest.raises(InvalidRequestError, match=r"has committed 27 and never 26: .* under a number above 27"):
            writer.commit(26)
        assert held(table) == [25, 27]
        writer.commit(28)
    assert held(table) == [25, 26, 27]


def test_numbers_that_may_have_been_committed_are_replays(tmp_path: Path) -> None:
    """Of a number below the oldest snapshot nothing is known; an empty one may have been committed without one."""
    table = create(tmp_path, **{"snapshot.ignore-empty-commit": "true"})
    with table.writer("nightly") as writer:
        for night in (25, 27):
            writer.write(rows(night))
            writer.commit(night)
        for night in (25, 26, 24):
            writer.write(rows(night))
            assert writer.commit(night).already_committed
    table = table.with_options({"snapshot.ignore-empty-commit": "false"})
    with table.writer("nightly") as writer:
        writer.write(rows(24))
        assert writer.commit(24).already_committed, "the snapshots do not reach back to a smaller number"
        assert writer.commit(26).already_committed, "no rows are lost"
    assert held(table) == [25, 27]


class DiskThatStopsAnswering:
    """Creates the snapshot, and from then on nothing can be read until it is set to answer again."""

    def __init__(self, table: Table, patch: pytest.MonkeyPatch) -> None:
        self._claim = table.store.claims.claim_snapshot
        self._is_gone = False
        self._read = table.store.env.file_io.read_bytes
        patch.setattr(table.store.claims, "claim_snapshot", self.claim)
        patch.setattr(table.store.env.file_io, "read_bytes", self.read, raising=False)

    def claim(self, snapshot: Snapshot) -> ClaimAnswer:
        self._claim(snapshot)
        self._is_gone = True
        return ClaimAnswer(ClaimOutcome.UNKNOWN, UnknownOutcomeError("no answer"))

    def read(self, path: str) -> bytes:
        if self._is_gone:
            raise StorageError("the disk does not answer")
        return self._read(path)


def test_commit_of_unknown_outcome_is_committed_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.writer("loader") as writer:
        writer.write(rows(*range(100)))
        with monkeypatch.context() as patch:
            DiskThatStopsAnswering(table, patch)
            with pytest.raises(UnknownOutcomeError, match="without an answer"):
                writer.commit()
        assert writer.commit().already_committed
    assert held(table) == list(range(100))


def test_interrupted_commit_is_found_although_another_program_has_gone_on(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Catalog(str(Path(table.location).parents[1])).table("shop.log")
    with table.writer("loader") as writer, other.writer("loader") as rival:
        writer.write(rows(1))
        claim = InterruptedClaim(table, KeyboardInterrupt(), takes_effect=True)
        monkeypatch.setattr(table.store.claims, "claim_snapshot", claim)
        with pytest.raises(KeyboardInterrupt):
            writer.commit()
        rival.write(rows(2))
        rival.commit()
        assert writer.commit().already_committed
    assert held(table) == [1, 2]


def test_same_files_under_another_number_are_refused(table: Table) -> None:
    with table.writer("loader") as writer:
        writer.write(rows(1))
        messages = writer._writer.prepare_commit(0)
        committer = writer._committer
        committer.commit(0, messages, base_id=0)
        with pytest.raises(ConflictError, match=r"in the table already, since snapshot 1 \(0 of 'loader'\)"):
            committer.commit(1, messages, base_id=0)
        writer.abort()
    assert held(table) == [1]


def test_programs_that_share_a_user_lose_no_commit(tmp_path: Path) -> None:
    create(tmp_path, **{"commit.max-retries": "200"})
    commits = 12

    def load(first: int) -> Iterator[int]:
        session = Catalog(str(tmp_path)).table("shop.log").writer("loader")
        with session as writer:
            for number in range(first, first + commits):
                writer.write(rows(number))
                result = writer.commit()
                assert not result.already_committed
                yield result.snapshots[0].commit_identifier

    with ThreadPoolExecutor(2) as pool:
        numbers = [number for made in pool.map(list, [load(0), load(1000)]) for number in made]
    table = Catalog(str(tmp_path)).table("shop.log")
    assert held(table) == [*range(commits), *range(1000, 1000 + commits)]
    assert sorted(numbers) == list(range(2 * commits)), "each number belongs to one commit"


def test_session_whose_base_has_expired_goes_on_from_the_latest(tmp_path: Path) -> None:
    options = {"bucket": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    catalog = Catalog(str(tmp_path))
    made = catalog.create_table("shop.keyed", schema={"id": "BIGINT"}, primary_keys=["id"], options=options)
    with made.writer("a") as first:
        first.write(rows(1))
        first.commit()
        other = Catalog(str(tmp_path)).table("shop.keyed")
        with other.writer("b") as rival:
            for number in range(3):
                rival.write(rows(number + 10))
                rival.commit()
        made.store.manifests.forget(path.name for path in (Path(made.location) / "manifest").iterdir())
        first.write(rows(*range(2, 8)))
        first.commit()
    assert held(made) == [*range(1, 8), 10, 11, 12]


def test_the_first_commit_after_others_have_altered_the_table_tells_its_changes(tmp_path: Path) -> None:
    """It left level 0 to the commit after it: others had compacted files in the new schema meanwhile."""
    options = {"bucket": "1", "changelog-producer": "lookup"}
    table = Catalog(tmp_path).create_table(
        "db.t", schema={"id": "BIGINT", "v": "STRING", "a": "INT"}, primary_keys=["id"], options=options
    )
    with table.writer("loader") as session:
        session.write([{"id": 1, "a": 1}])
        session.commit()
        altered = table.alter(DropColumn("v"))
        altered.upsert([{"id": 1, "a": 2}])
        session.write([{"id": 1, "a": 3}])
        session.commit()
    kinds = [str(snapshot.commit_kind) for snapshot in altered.snapshots()]
    assert kinds == ["APPEND", "COMPACT"] * 3
    assert altered.changelog().to_arrow()["a"].to_pylist() == [1, 1, 2, 2, 3]
