"""Tables that Freshet rescales: Apache Paimon and pypaimon read them at every step, and write them on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import CorruptDataError
from tests.contract.test_dynamic_buckets import check_every_snapshot
from tests.kit.paimon_judge import PaimonError, PaimonJudge
from tests.kit.pypaimon_judge import PypaimonJudge
from tests.kit.rescaled import COLUMNS, counts, expected, held, rescaled, rows

pytestmark = pytest.mark.judge

KEYED: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "orc": {"file.format": "orc"},
    "mod": {"bucket-function.type": "mod"},
}
EVERYTHING = pa.concat_tables([rows(partition, "old", *range(20)) for partition in "ab"])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KEYED)
def test_keyed_tables(paimon: PaimonJudge, tmp_path: Path, name: str) -> None:
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        COLUMNS,
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": 2, **KEYED[name]},
    )
    judge.write(EVERYTHING)
    table = Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        deletes = pa.concat_tables([rows(partition, "x", 3) for partition in "ab"])
        writer.write(deletes.append_column("_ROW_KIND", pa.array(["-D", "-D"])))
        writer.commit()
    want = [row for row in expected(a="old", b="old") if row[1] != 3]
    table.rescale(6, partition={"p": "a"})
    assert counts(judge.location) == {"a": {6}, "b": {2}}
    assert sorted(judge.read_rows()) == held(table) == want
    with pytest.raises(PaimonError, match="INSERT OVERWRITE|without overwrite"):  # where it meets files of a bucket
        paimon.table(judge.location).write(rows("b", "refused", *range(20)))
    emitted = judge.audit_log().num_rows if name in ("input", "lookup") else 0
    table.rescale(6)
    last = table.latest_snapshot()
    assert last is not None
    if name in ("input", "lookup"):
        assert judge.audit_log().num_rows >= emitted
        assert judge.audit_log(last.id).num_rows == 0, "an overwrite emits nothing"
    if name == "input":
        overwrite = judge.copy({"streaming-read-overwrite": "true"}).changelog(last.id)
        assert overwrite.num_rows == 2 * 19, "but where Apache Paimon is asked for it"
        ours = table.with_options({"streaming-read-overwrite": "true"})
        assert not list(ours.stream(scan_mode="from-snapshot", from_snapshot=last.id, max_wait_s=0))
    judge = paimon.table(judge.location)
    assert sorted(judge.read_rows()) == want
    judge.write(pa.concat_tables([rows(partition, "paimon", *range(0, 20, 2)) for partition in "abc"]))
    judge.compact()
    want = sorted(
        [(p, k, "paimon" if k % 2 == 0 else "old") for p in "ab" for k in range(20) if k != 3]
        + [("c", k, "paimon") for k in range(0, 20, 2)]
    )
    table = Table.open(table.location)
    assert sorted(judge.read_rows()) == held(table) == want
    assert counts(judge.location) == {"a": {6}, "b": {6}, "c": {6}}
    table.rescale(3)
    assert sorted(paimon.table(judge.location).read_rows()) == want
    assert not Table.open(table.location).check().damage
    check_every_snapshot(Table.open(table.location), paimon.table(judge.location))


def test_append_tables(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = paimon.create_table(
        tmp_path / "db.db" / "t", COLUMNS, partition_keys=["p"], options={"bucket": 2, "bucket-key": "k"}
    )
    judge.write(EVERYTHING)
    judge.write(EVERYTHING)
    table = Catalog(str(tmp_path)).table("db.t")
    table.rescale(5, partition={"p": "b"})
    assert counts(judge.location) == {"a": {2}, "b": {5}}
    assert sorted(judge.read_rows()) == sorted(2 * expected(a="old", b="old"))
    table.rescale(5)
    judge = paimon.table(judge.location)
    judge.write(EVERYTHING)
    assert sorted(judge.read_rows()) == held(Table.open(table.location)) == sorted(3 * expected(a="old", b="old"))


def test_what_paimon_began_is_finished(paimon: PaimonJudge, tmp_path: Path) -> None:
    """ALTER TABLE and INSERT OVERWRITE of one partition by Apache Paimon; the others by us."""
    judge = rescaled(paimon, tmp_path / "db.db" / "t", ["p", "k"])
    table = Catalog(str(tmp_path)).table("db.t")
    assert table.rescale(4).partitions_done == 1
    assert counts(judge.location) == {"a": {4}, "b": {4}}
    judge.write(rows("b", "paimon", *range(20)))
    assert sorted(judge.read_rows()) == held(table) == expected(a="old", b="paimon")


def test_a_writer_of_paimon_with_the_old_number(paimon: PaimonJudge, tmp_path: Path) -> None:
    """Apache Paimon does not look at the buckets of a plain append: what it leaves is found and named."""
    judge = paimon.create_table(
        tmp_path / "db.db" / "t", COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": 2}
    )
    judge.write(EVERYTHING)
    prepared = judge.prepare(rows("a", "late", *range(20)), user="slow", identifier=1)
    table = Catalog(str(tmp_path)).table("db.t")
    table.rescale(8)
    judge.commit(prepared, user="slow", identifier=1)
    assert counts(judge.location) == {"a": {2, 8}, "b": {8}}
    assert "bucket_count_is_one" in {damage.invariant for damage in table.check().damage}
    with pytest.raises(CorruptDataError, match="partition p=a .* has files of 2 and of 8 buckets"):
        table.rescale(4)
    assert table.rescale(4, partition={"p": "b"}).partitions_done == 1


def test_pypaimon(paimon: PaimonJudge, pypaimon: PypaimonJudge, tmp_path: Path) -> None:
    judge = paimon.create_table(
        tmp_path / "db.db" / "t", COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": 2}
    )
    judge.write(EVERYTHING)
    table = Catalog(str(tmp_path)).table("db.t")

    def read() -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in pypaimon.read_arrow(table.location).to_pylist())

    table.rescale(8, partition={"p": "a"})
    assert read() == expected(a="old", b="old")
    table.rescale(8)
    assert read() == expected(a="old", b="old")
    pypaimon.write(table.location, rows("a", "pypaimon", *range(20)))
    assert read() == held(table) == expected(a="pypaimon", b="old")
