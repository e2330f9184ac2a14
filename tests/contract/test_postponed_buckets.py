"""Tables whose rows wait for their bucket (`bucket=-2`): Apache Paimon and Freshet read and continue each other's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table, col
from freshet.storage.commit.committer import Committer
from tests.contract.test_dynamic_buckets import check_every_snapshot
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.rescaled import COLUMNS, counts, held

pytestmark = pytest.mark.judge

PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
}


def postponed(paimon: PaimonJudge, folder: Path, **options: str) -> PaimonTable:
    given = {"bucket": "-2", "postpone.default-bucket-num": "3", **options}
    return paimon.create_table(
        folder / "db.db" / "t", COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options=given
    )


def opened(judge: PaimonTable) -> Table:
    return Catalog(str(Path(judge.location).parent.parent)).table("db.t")


def staged(judge: PaimonTable, partition: str, value: str, *keys: int, kind: str = "+I") -> None:
    judge.write([(kind, partition, key, value) for key in keys], writer=0)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_tables_of_paimon_are_read_as_it_shows_them(paimon: PaimonJudge, tmp_path: Path, producer: str) -> None:
    judge = postponed(paimon, tmp_path, **PRODUCERS[producer])
    staged(judge, "a", "old", *range(20))
    table = opened(judge)
    assert held(table) == judge.read_rows() == []
    judge.compact_postponed()
    staged(judge, "a", "new", *range(5))
    staged(judge, "a", "", 5, 6, kind="-D")
    staged(judge, "b", "old", *range(4))
    assert sorted(judge.read_rows()) == held(table) == [("a", key, "old") for key in range(20)]
    assert counts(judge.location) == {"a": {-2, 3}, "b": {-2}}
    assert table.scan(filter=col("k") == 3).to_arrow().num_rows == 1
    keys = pa.table({"p": ["a", "b"], "k": pa.array([3, 3], pa.int32())})
    assert table.lookup(keys).rows.to_pylist() == [{"p": "a", "k": 3, "v": "old"}]
    assert "p=a/bucket-postpone  2 runs, 7 rows" in table.describe()
    assert not table.check(all_snapshots=True).damage
    judge.compact_postponed(identifier=2)
    want = [("a", key, "new" if key < 5 else "old") for key in range(20) if key not in (5, 6)]
    assert sorted(judge.read_rows()) == held(table) == sorted(want + [("b", key, "old") for key in range(4)])
    check_every_snapshot(table, judge)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_streams_of_tables_of_paimon(paimon: PaimonJudge, tmp_path: Path, producer: str) -> None:
    judge = postponed(paimon, tmp_path, **PRODUCERS[producer])
    staged(judge, "a", "old", 1, 2, 3)
    judge.compact_postponed()
    staged(judge, "a", "", 2, kind="-D")
    staged(judge, "a", "new", 3, 9)
    table = opened(judge)

    def streamed(start: int) -> list[tuple[object, ...]]:
        found = table.stream(scan_mode="from-snapshot", from_snapshot=start, max_wait_s=0, upserts=producer == "none")
        return [tuple(row.values()) for batch in found for row in batch.to_pylist()]

    def shown(start: int) -> list[tuple[object, ...]]:
        return [tuple(row.values())[:4] for row in judge.changelog(start).to_pylist()]

    assert sorted(streamed(1)) == sorted(shown(1)), "the rows of each commit"
    judge.compact_postponed(identifier=2)
    assert sorted(streamed(1)) == sorted(shown(1))
    assert (len(streamed(5)) == 0) == (producer == "none"), "a producer emits what is compacted"


ENGINES: Mapping[str, Mapping[str, str]] = {
    **PRODUCERS,
    "full-compaction": {"changelog-producer": "full-compaction"},
    # Without functions of which Apache Paimon forgets a retract that is written with a row: Freshet keeps it.
    "sum": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.v.aggregate-function": "last_value",
        "changelog-producer": "lookup",
    },
    "vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row", "changelog-producer": "lookup"},
    "row-num": {"postpone.target-row-num-per-bucket": "7"},
    "parquet waits": {"file.format.per.level": "0:parquet"},
    "orc": {"file.format": "orc", "postpone.default-bucket-num": "4"},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("full", [True, False], ids=["full", "as needed"])
@pytest.mark.parametrize("name", ENGINES)
def test_what_waits_is_compacted_as_paimon_does_it(paimon: PaimonJudge, tmp_path: Path, name: str, full: bool) -> None:
    """The same commits to two tables; one is compacted by Apache Paimon, the other by Freshet."""
    chance = random.Random(name)
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"}
    judges = [
        paimon.create_table(
            tmp_path / of / "db.db" / "t",
            columns,
            primary_keys=["p", "k"],
            partition_keys=["p"],
            options={"bucket": "-2", "postpone.default-bucket-num": "3", **ENGINES[name]},
        )
        for of in ("paimon", "freshet")
    ]
    has_deletes = name not in ("first-row",)
    shown: list[list[tuple[object, ...]]] = [[], []]
    for turn in range(4):
        for commit in range(2):
            rows = [
                (
                    "-D" if has_deletes and chance.random() < 0.2 else "+I",
                    chance.choice("ab"),
                    chance.randrange(12),
                    chance.randrange(100),
                    f"{turn}.{commit}",
                )
                for _ in range(20)
            ]
            for judge in judges:
                judge.write(rows, user="writer", writer=0)
        judges[0].compact_postponed(identifier=turn + 1)
        result = opened(judges[1]).compact(full=full)
        assert result.snapshots[0].commit_kind == "COMPACT"
        assert not result.aborted_compactions
        tables = [opened(judge) for judge in judges]
        assert held(tables[0]) == held(tables[1]) == sorted(judges[1].read_rows())
        assert counts(judges[0].location) == counts(judges[1].location)
        assert not tables[1].check().damage
        if name in ("input", "lookup", "sum", "first-row"):
            for found, judge in zip(shown, judges, strict=True):
                found[:] = [tuple(row.values())[:5] for row in judge.changelog(1).to_pylist()]
            assert Counter(shown[0]) == Counter(shown[1])
    judges[1].write([("a", key, 1, "last") for key in range(30)])
    judges[1].compact_postponed(identifier=99)
    assert held(opened(judges[1])) == sorted(judges[1].read_rows())


def test_a_stream_begins_with_the_rows_that_wait(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = postponed(paimon, tmp_path)
    staged(judge, "a", "old", 1, 2, 3)
    judge.compact_postponed()
    staged(judge, "a", "", 2, kind="-D")
    staged(judge, "a", "new", 3)
    state: dict[int, str] = {}
    for batch in opened(judge).stream(max_wait_s=0, upserts=True):
        for row in batch.to_pylist():
            if row["_ROW_KIND"] == "-D":
                state.pop(row["k"])
            else:
                state[row["k"]] = row["v"]
    assert state == {1: "old", 3: "new"}


def description(table: Table) -> list[tuple[object, ...]]:
    """What entries of waiting files say, but for their names and times."""
    return sorted(
        (
            entry.partition,
            entry.bucket,
            entry.total_buckets,
            entry.file.row_count,
            entry.file.min_key,
            entry.file.max_key,
            entry.file.key_stats,
            entry.file.value_stats,
            entry.file.value_stats_cols,
            entry.file.min_sequence_number,
            entry.file.max_sequence_number,
            entry.file.delete_row_count,
            entry.file.file_source,
            entry.file.level,
            entry.file.file_name.rpartition(".")[2],
        )
        for entry in table.files()
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"file.format": "orc"}, {"file.format.per.level": "0:parquet"}, {"metadata.stats-mode": "full"}],
    ids=str,
)
def test_waiting_files_are_described_as_those_of_paimon(
    paimon: PaimonJudge, tmp_path: Path, options: dict[str, str]
) -> None:
    rows = [("+I", "a", 7, "x"), ("-D", "a", 3, "y"), ("+I", "b", 1, None), ("+I", "a", 7, "z"), ("-D", "b", 9, "w")]
    judge = postponed(paimon, tmp_path / "paimon", **options)
    judge.write(rows, user="writer", writer=0)
    ours = opened(postponed(paimon, tmp_path / "freshet", **options))
    with ours.with_options({"postpone.batch-write-fixed-bucket": "false"}).writer("writer") as writer:
        names = ("_ROW_KIND", "p", "k", "v")
        writer.write([dict(zip(names, row, strict=True)) for row in rows])
        writer.commit()
    assert description(opened(judge)) == description(ours)
    prefixes = {entry.file.file_name[:24] for table in (opened(judge), ours) for entry in table.files()}
    assert prefixes == {"data--u-writer-s-0-w-" + name[21:24] for name in prefixes}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ENGINES)
def test_turns(paimon: PaimonJudge, tmp_path: Path, name: str) -> None:
    """Both write rows that wait and rows that do not, and either compacts after each turn."""
    chance = random.Random(name)
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        {"p": "STRING NOT NULL", "k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "-2", "postpone.default-bucket-num": "3", **ENGINES[name]},
    )
    table = opened(judge)
    waiting = table.with_options({"postpone.batch-write-fixed-bucket": "false"})
    expected: dict[tuple[str, int], int] = {}
    for turn in range(12):
        rows = [(chance.choice("ab"), key, chance.randrange(100), f"{turn}") for key in chance.sample(range(40), 15)]
        kind = chance.randrange(3)
        if kind == 0:
            judge.write(rows, user="writer", writer=turn)
        else:
            with (waiting if kind == 1 else table).writer("freshet") as writer:
                writer.write([dict(zip("pknv", row, strict=True)) for row in rows])
                writer.commit()
        for p, k, n, _ in rows:
            old = expected.get((p, k))
            if name == "first-row":
                expected.setdefault((p, k), n)
            else:
                expected[p, k] = n if old is None or name != "sum" else old + n
        if chance.random() < 0.5:
            table.compact(full=chance.random() < 0.5)
        else:
            judge.compact_postponed(identifier=turn + 1)
        table = opened(judge)
        found = held(table)
        assert found == sorted(paimon.table(judge.location).read_rows())
        assert {(p, k): n for p, k, n, _ in found} == expected
        assert not table.check().damage
    check_every_snapshot(table, judge)
    if name != "row-num":
        assert set().union(*counts(judge.location).values()) <= {1, 3, 4}


def test_an_overwrite_takes_what_waits(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = postponed(paimon, tmp_path, **{"changelog-producer": "input"})
    table = opened(judge)
    waiting = table.with_options({"postpone.batch-write-fixed-bucket": "false"})
    for part in "ab":
        with waiting.writer("w") as writer:
            writer.write([{"p": part, "k": key, "v": "old"} for key in range(5)])
            writer.commit()
    table.compact()
    with waiting.writer("w") as writer:
        writer.write([{"p": part, "k": key, "v": "late"} for part in "ab" for key in range(5)])
        writer.commit()
    judge.write([("a", 1, "only")], overwrite={"p": "a"}, writer=3)
    assert held(table) == sorted(judge.read_rows()) == [("b", key, "old") for key in range(5)]
    table.compact()
    want = [("a", 1, "only"), *(("b", key, "late") for key in range(5))]
    assert held(table) == sorted(judge.read_rows()) == want
    assert not table.check(all_snapshots=True).damage


def test_a_compaction_of_paimon_meanwhile(paimon: PaimonJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = postponed(paimon, tmp_path)
    staged(judge, "a", "old", *range(9))
    table = opened(judge)
    made, others = Committer.commit, iter([lambda: judge.compact_postponed()])

    def meanwhile(self: Committer, *arguments: Any, **more: Any) -> Any:
        next(others, lambda: None)()
        return made(self, *arguments, **more)

    monkeypatch.setattr(Committer, "commit", meanwhile)
    assert table.compact().aborted_compactions
    assert held(table) == sorted(judge.read_rows()) == [("a", key, "old") for key in range(9)]
    assert counts(judge.location) == {"a": {3}}


def test_overwrites_of_rows_that_wait_are_streamed(paimon: PaimonJudge, tmp_path: Path) -> None:
    judge = postponed(paimon, tmp_path, **{"streaming-read-overwrite": "true"})
    staged(judge, "a", "old", 1, 2)
    judge.compact_postponed()
    staged(judge, "a", "late", 2, 3)
    staged(judge, "a", "", 1, kind="-D")
    judge.write([("a", 3, "only"), ("a", 9, "only")], overwrite={"p": "a"}, writer=3)
    shown: set[int] = set()
    changes = []
    for batch in opened(judge).stream(
        scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0, upserts=True, with_snapshot_id=True
    ):
        for row in batch.to_pylist():
            changes.append(tuple(row.values()))
            (shown.discard if row["_ROW_KIND"] == "-D" else shown.add)(row["k"])
    theirs = [tuple(row.values()) for row in judge.changelog(1).to_pylist()]
    extra = Counter(changes) - Counter(theirs)
    assert extra == {("a", 1, "", "-D", 5): 1}, "the key of a delete that waited leaves once more"
    assert not Counter(theirs) - Counter(changes)
    assert shown == {3, 9}, "what an overwrite takes away comes before what it brings"
