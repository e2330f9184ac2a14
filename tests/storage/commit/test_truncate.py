"""A table that is emptied by one commit: what it holds then, who else commits meanwhile, what Apache Paimon reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import DifferentInputError, InvalidRequestError
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.hand_made import assert_everything_named_is_there, live_names, make_table, message, new_file
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.sim_env import SimDisk

KINDS = {
    "keyed": ({"bucket": "2"}, ["id"]),
    "dynamic": ({"bucket": "-1", "dynamic-bucket.target-row-num": "20"}, ["id"]),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, ["id"]),
    "lookup": ({"bucket": "2", "changelog-producer": "lookup"}, ["id"]),
    "append": ({"bucket": "-1"}, []),
    "append with buckets": ({"bucket": "2", "bucket-key": "id"}, []),
}


def commit_of(store: TableStore, *, user: str = "u") -> Committer:
    return Committer(store, user, "q")


def test_everything_goes_and_the_commit_of_the_same_number_follows() -> None:
    store = make_table(SimDisk().boot())
    for number, name in enumerate(("a", "b")):
        commit_of(store).commit(number, [message(store, new=[new_file(store, name, rows=3)])])
    (emptied,) = commit_of(store).truncate(2).snapshots
    assert emptied.commit_kind is CommitKind.OVERWRITE
    assert (emptied.delta_record_count, emptied.total_record_count) == (-6, 0)
    assert live_names(store) == []
    assert not commit_of(store).has_committed(2).is_committed
    assert commit_of(store).truncate(2).snapshots == (), "nothing is left to take away"
    commit_of(store).commit(2, [message(store, new=[new_file(store, "c")])])
    assert live_names(store) == ["c@0"]
    assert_everything_named_is_there(store)


def test_a_program_that_comes_late_takes_nothing_away() -> None:
    store = make_table(SimDisk().boot())
    late = commit_of(store)
    late.has_committed(0)
    commit_of(store).commit(0, [message(store, new=[new_file(store, "a")])])
    assert late.truncate(0).already_committed
    commit_of(store).commit(1, [], digest=CommitDigest("x", "x"))
    with pytest.raises(DifferentInputError):
        late.truncate(1, digest=CommitDigest("y", "y"))
    with pytest.raises(InvalidRequestError, match="another commit user"):
        Committer(store, "u", "another query").truncate(5)
    assert live_names(store) == ["a@0"]


def test_what_others_commit_before_the_claim_goes_too() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    commit_of(store).commit(0, [message(store, new=[new_file(store, "a")])])
    claim, claims = store.claims.claim_snapshot, []

    def lost_once(snapshot: object) -> object:
        if not claims:
            claims.append(snapshot)
            other = open_table_store(disk.boot(), store.location)
            commit_of(other, user="other").commit(0, [message(other, new=[new_file(other, "b", sequence=10)])])
        return claim(snapshot)  # type: ignore[arg-type]

    object.__setattr__(store.claims, "claim_snapshot", lost_once)
    commit_of(store).truncate(1)
    assert claims
    assert live_names(store) == []


def rows_of(table: Table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in table.scan().to_arrow().to_pylist())


def write(table: Table, user: str, number: int, rows: range) -> None:
    with table.writer(user) as writer:
        writer.write(pa.table({"id": pa.array(rows, pa.int32()), "n": pa.array([number] * len(rows), pa.int32())}))
        writer.commit()


@pytest.mark.few(3)
@pytest.mark.judge
@pytest.mark.parametrize("kind", KINDS)
def test_paimon_reads_an_emptied_table_and_continues_it(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    options, keys = KINDS[kind]
    catalog = Catalog(tmp_path)
    table = catalog.create_table("db.t", schema={"id": "INT", "n": "INT"}, primary_keys=keys, options=options)
    write(table, "w", 1, range(50))
    write(table, "w", 2, range(25, 60))
    table.compact()
    table.engine.committer("emptier").truncate(0)
    assert rows_of(catalog.table("db.t")) == []
    judge = paimon.table(tmp_path / "db.db" / "t")
    assert judge.read_rows() == []
    write(catalog.table("db.t"), "w", 3, range(30))
    assert rows_of(catalog.table("db.t")) == [(number, 3) for number in range(30)]
    assert sorted(judge.read_rows()) == [(number, 3) for number in range(30)]
    if "bucket" in options and options["bucket"] != "-1":
        judge.write([(7, 4), (100, 4)])
        expected = {**dict.fromkeys(range(30), 3), 7: 4, 100: 4}
        found = rows_of(catalog.table("db.t"))
        assert dict(found) == expected if keys else len(found) == 32
