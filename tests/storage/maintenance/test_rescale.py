"""Rescaling: the same rows in another number of buckets, without a change for anybody who reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import Catalog, ConflictError, InvalidRequestError, Table
from freshet.storage.codec.bucket_function import BucketRule, bucket_ids
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.maintenance import bucket_rescale, rescale
from freshet.storage.maintenance.rescale import RescaleProgress
from freshet.storage.schema.change import AddColumn, ResetOption, SetOption

SCHEMA = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "g": "INT", "v": "BIGINT", "w": "STRING"}


def a_table(folder: Path, options: Mapping[str, str], keys: Sequence[str] = ("p", "k"), **more: Any) -> Table:
    return Catalog(str(folder), **more).create_table(
        "db.t", schema=SCHEMA, primary_keys=list(keys), partition_keys=["p"], options=options
    )


def rows(chance: random.Random, count: int, kinds: Sequence[str] = ("+I",), partitions: str = "ab") -> pa.Table:
    names = ["p", "k", "g", "v", "w", "_ROW_KIND"]
    found = [
        (
            chance.choice(partitions),
            chance.randrange(200),
            chance.randrange(5),
            chance.choice([None, chance.randrange(99)]),
            chance.choice([None, f"w{chance.randrange(99)}"]),
            chance.choice(kinds),
        )
        for _ in range(count)
    ]
    schema = pa.schema(
        [("p", pa.string()), ("k", pa.int32()), ("g", pa.int32()), ("v", pa.int64()), ("w", pa.string())]
    )
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in found], schema.append(pa.field("_ROW_KIND", pa.string()))
    )


def filled(
    table: Table, commits: int = 6, kinds: Sequence[str] = ("+I",), seed: int = 7, partitions: str = "ab"
) -> None:
    chance = random.Random(seed)
    with table.writer("w") as writer:
        for _ in range(commits):
            writer.write(rows(chance, 150, kinds, partitions))
            writer.commit()


def held(table: Table) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().to_pylist()))


def changes(table: Table, from_snapshot: int = 1) -> list[tuple[Any, ...]]:
    upserts = table.schema.has_primary_key and table.options.changelog_producer == "none"
    stream = table.stream(
        scan_mode="from-snapshot", from_snapshot=from_snapshot, max_wait_s=0, upserts=upserts, with_snapshot_id=True
    )
    return [tuple(row.values()) for batch in stream for row in batch.to_pylist()]  # kind and snapshot come last


def counts(table: Table) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for entry in table.files():
        found.setdefault(table.engine.partition_path(entry.partition), set()).add(entry.total_buckets)
    return found


def assert_in_their_buckets(table: Table) -> None:
    rule = BucketRule.of(table.schema, table.options)
    for split in table.scan().plan():
        read = pa.Table.from_batches(list(table.scan().read_split(split)))
        columns = [read.column(name).combine_chunks() for name in rule.columns]
        total = {entry.total_buckets for entry in table.files() if entry.partition == split.partition}
        assert set(bucket_ids(columns, rule.types, total.pop(), rule.function).tolist()) <= {split.bucket}


TABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "deduplicate": ({}, ("+I", "+I", "-D")),
    "sequence": ({"sequence.field": "v"}, ("+I", "-D")),
    "input": ({"changelog-producer": "input"}, ("+I", "-D")),
    "lookup": ({"changelog-producer": "lookup"}, ("+I", "-D")),
    "lookup later": ({"changelog-producer": "lookup", "lookup-wait": "false"}, ("+I", "-D")),
    "full-compaction": ({"changelog-producer": "full-compaction"}, ("+I", "-D")),
    "partial-update": (
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v", "changelog-producer": "lookup"},
        ("+I",),
    ),
    "aggregation": ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, ("+I", "+I", "-D")),
    "first-row": ({"merge-engine": "first-row", "changelog-producer": "lookup"}, ("+I",)),
    "vectors": ({"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}, ("+I", "-D")),
    "write-only": ({"write-only": "true"}, ("+I", "-D")),
    "hive": ({"bucket-function.type": "hive"}, ("+I",)),
    "mod": ({"bucket-function.type": "mod", "bucket-key": "k"}, ("+I",)),
    "avro": ({"file.format": "avro"}, ("+I", "-D")),
    "thin": ({"data-file.thin-mode": "true"}, ("+I", "-D")),
    "snapshot ordering": (
        {"sequence.snapshot-ordering": "true", "write-only": "true", "merge-engine": "partial-update"},
        ("+I",),
    ),
    "overwrites are read": ({"changelog-producer": "input", "streaming-read-overwrite": "true"}, ("+I", "-D")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [*((name, 4, 6) for name in TABLES), ("deduplicate", 2, 8), ("deduplicate", 3, 1), ("deduplicate", 1, 12)],
)
def test_rows_and_changes_stay_as_they_are(tmp_path: Path, name: str, before: int, after: int) -> None:
    options, kinds = TABLES[name]
    table = a_table(tmp_path, {"bucket": str(before), **options})
    filled(table, commits=3, kinds=kinds)
    if name == "write-only" or not table.options.needs_lookup:
        wanted, emitted = held(table), changes(table)
    else:
        copy = a_table(tmp_path / "copy", {"bucket": str(before), **options})  # what it holds once all is compacted
        filled(copy, commits=3, kinds=kinds)
        copy.compact()
        wanted, emitted = held(copy), changes(copy)
    if table.options.changelog_producer == "full-compaction":
        emitted = []
    result = table.rescale(after)
    assert result.partitions_done == 2
    rescaled = Table.open(table.location)
    assert rescaled.options.bucket == after
    assert counts(rescaled) == {"p=a": {after}, "p=b": {after}}
    assert_in_their_buckets(rescaled)
    assert held(rescaled) == wanted
    overwrites = [snapshot.id for snapshot in result.snapshots if snapshot.commit_kind == "OVERWRITE"]
    assert len(overwrites) == 2 and not {row[-1] for row in changes(rescaled)} & {*overwrites}
    if emitted:
        assert sorted(str(row[:-1]) for row in changes(rescaled)) == sorted(str(row[:-1]) for row in emitted)
    elif table.options.changelog_producer == "full-compaction":
        folded = {row[:2]: row for row in changes(rescaled) if row[-2] in ("+I", "+U")}
        assert len(folded) >= len(wanted) > 0
    filled(rescaled, commits=1, kinds=kinds, seed=8)
    other = a_table(tmp_path / "other", {"bucket": str(before), **options})
    filled(other, commits=3, kinds=kinds)
    other.compact()
    filled(other, commits=1, kinds=kinds, seed=8)
    other.compact()
    rescaled.compact()
    assert held(rescaled) == held(other)
    assert not rescaled.check().damage
    assert rescaled.rescale(after).snapshots == ()


def test_rows_keep_their_numbers(tmp_path: Path) -> None:
    for ordering in ("true", "false"):
        options = {"bucket": "2", "write-only": "true", "sequence.snapshot-ordering": ordering}
        table = a_table(tmp_path / ordering, options)
        filled(table, commits=3)
        before = max(entry.file.max_sequence_number for entry in table.files())
        table.rescale(4)
        numbers = [(entry.file.min_sequence_number, entry.file.max_sequence_number) for entry in table.files()]
        assert all(first < last <= before for first, last in numbers), numbers


def test_append_tables_keep_the_order_of_a_key(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "6", "bucket-key": "k"}, keys=())
    filled(table)
    wanted = held(table)

    def by_key(each: Table) -> dict[tuple[str, int], list[Any]]:
        found: dict[tuple[str, int], list[Any]] = {}
        for row in each.scan().to_arrow().to_pylist():
            found.setdefault((row["p"], row["k"]), []).append((row["v"], row["w"]))
        return found

    order = by_key(table)
    before = len(changes(table))
    table.rescale(4)
    table = Table.open(table.location)
    assert held(table) == wanted and by_key(table) == order and len(changes(table)) == before
    assert_in_their_buckets(table)
    filled(table, commits=1, seed=8)
    table.compact()
    assert len(held(table)) == len(wanted) + 150 and not table.check().damage


def test_one_partition_first_and_a_new_one_meanwhile(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table)
    wanted = held(table)
    seen: list[RescaleProgress] = []
    assert table.rescale(8, partition={"p": "a"}, progress=seen.append).partitions_done == 1
    assert (seen[0].partitions_done, seen[0].partitions_planned, seen[0].bytes_done) == (0, 1, 0)
    assert (seen[-1].partitions_done, seen[-1].bytes_done) == (1, seen[-1].bytes_planned)
    table = Table.open(table.location)
    assert counts(table) == {"p=a": {8}, "p=b": {2}} and held(table) == wanted
    filled(table, commits=1, partitions="abc")
    assert counts(table) == {"p=a": {8}, "p=b": {2}, "p=c": {8}}
    table.compact()
    assert table.rescale(8).partitions_done == 1
    assert counts(table) == {"p=a": {8}, "p=b": {8}, "p=c": {8}}
    with pytest.raises(InvalidRequestError, match="no partition key 'x'"):
        table.rescale(4, partition={"x": "a"})
    assert Table.open(table.location).options.bucket == 8


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.COMPACT_BEFORE_OUTPUT,
        CrashPoint.COMPACT_OUTPUT_WRITTEN,
        CrashPoint.COMMIT_MANIFESTS_WRITTEN,
        CrashPoint.COMMIT_SNAPSHOT_CREATED,
    ],
)
@pytest.mark.parametrize("visit", [1, 2, 4])
def test_what_is_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: CrashPoint, visit: int
) -> None:
    class Died(BaseException):
        pass

    table = a_table(tmp_path, {"bucket": "2", "changelog-producer": "input"})
    filled(table, partitions="abcd")
    wanted, emitted = held(table), changes(table)
    visits = 0

    def reach(_env: Env, reached: CrashPoint) -> None:
        nonlocal visits
        visits += reached is point
        if visits >= visit and reached is point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Env, "reach", reach)
        with pytest.raises(Died):
            table.rescale(8)
    table = Table.open(table.location)
    assert table.options.bucket == 8 and held(table) == wanted
    assert all(len(each) == 1 for each in counts(table).values()) and not table.check().damage
    filled(table, commits=1, seed=9, partitions="abcd")
    wanted = held(table)
    table.rescale(8)
    assert set().union(*counts(table).values()) == {8}
    assert held(table) == wanted and not table.check().damage
    assert len(changes(table)) == len(emitted) + 150


@pytest.mark.dear("commits between all steps of a rescale")
def test_others_commit_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of the old number, a compaction: the partition is done again, nothing is lost."""
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table)
    others = iter(
        [
            lambda: filled(table, commits=1, seed=1, partitions="a"),
            lambda: Table.open(table.location).compact(partition={"p": "b"}),
            lambda: filled(Table.open(table.location), commits=1, seed=2, partitions="b"),
        ]
    )
    write = rescale.rescale_buckets

    def meanwhile(*arguments: Any) -> Any:
        next(others, lambda: None)()
        return write(*arguments)

    monkeypatch.setattr(rescale, "rescale_buckets", meanwhile)
    monkeypatch.setattr(rescale, "PARALLELISM", 1)
    result = table.rescale(8)
    twin = a_table(tmp_path / "twin", {"bucket": "8"})
    filled(twin)
    filled(twin, commits=1, seed=1, partitions="a")
    filled(twin, commits=1, seed=2, partitions="b")
    table = Table.open(table.location)
    assert held(table) == held(twin)
    assert counts(table) == {"p=a": {8}, "p=b": {8}}
    assert result.repeats >= 2 and result.partitions_done == 2 and not table.check().damage
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert table.remove_orphan_files(older_than_ms=0).files == () and held(table) == held(twin)


@pytest.mark.dear("a writer in a thread beside the rescale")
def test_a_writer_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table)
    write = rescale.rescale_buckets

    def meanwhile(*arguments: Any) -> Any:
        filled(table, commits=1, seed=1)
        return write(*arguments)

    monkeypatch.setattr(rescale, "rescale_buckets", meanwhile)
    with pytest.raises(ConflictError, match="others committed to it each of the 10 times.*Stop its writers"):
        table.rescale(3)
    assert set().union(*counts(table).values()) == {2}


@pytest.mark.few(1)
@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_a_writer_whose_rows_were_meant_for_the_old_buckets(tmp_path: Path, producer: str) -> None:
    table = a_table(tmp_path, {"bucket": "2", "changelog-producer": producer})
    filled(table)
    wanted = held(table)
    with table.writer("slow") as writer:
        writer.write(rows(random.Random(4), 100))
        table.rescale(8)
        with pytest.raises(ConflictError, match="buckets"):
            writer.commit()
        assert held(table) == wanted
        writer.abort()
        writer.write(rows(random.Random(4), 100))
        writer.commit()
    twin = a_table(tmp_path / "twin", {"bucket": "2", "changelog-producer": producer})
    filled(twin)
    with twin.writer("slow") as writer:
        writer.write(rows(random.Random(4), 100))
        writer.commit()
    assert held(table) == held(twin) and counts(table) == {"p=a": {8}, "p=b": {8}}


@pytest.mark.dear("two tables of twelve commits")
def test_a_writer_that_was_opened_before_goes_on_with_the_new_buckets(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table)
    with table.writer("w") as early:
        early.write(rows(random.Random(1), 20))
        early.commit()
        table.rescale(16)
        for number in range(3):
            early.write(rows(random.Random(number), 20))
            early.commit()
    twin = a_table(tmp_path / "twin", {"bucket": "2"})
    filled(twin)
    with twin.writer("w") as writer:
        for number in (1, 0, 1, 2):
            writer.write(rows(random.Random(number), 20))
            writer.commit()
    assert held(table) == held(twin) and counts(table) == {"p=a": {16}, "p=b": {16}}


def test_two_rescales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table, partitions="abc")
    wanted = held(table)
    write, calls = rescale.rescale_buckets, iter([4, 4, 8])

    def meanwhile(*arguments: Any) -> Any:
        other = next(calls, None)
        if other is not None:
            monkeypatch.setattr(rescale, "rescale_buckets", write)
            Table.open(table.location).rescale(other)
            monkeypatch.setattr(rescale, "rescale_buckets", meanwhile)
        return write(*arguments)

    monkeypatch.setattr(rescale, "PARALLELISM", 1)
    monkeypatch.setattr(rescale, "rescale_buckets", meanwhile)
    assert table.rescale(4).partitions_done == 3
    assert set().union(*counts(table).values()) == {4} and held(table) == wanted
    calls = iter([8])
    with pytest.raises(ConflictError, match="to have 8 buckets since another program"):
        table.rescale(6)
    assert Table.open(table.location).options.bucket == 8
    assert set().union(*counts(table).values()) == {8} and held(table) == wanted


def test_columns_added_since_it_was_opened(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    filled(table)
    more = table.alter(AddColumn("note", "STRING"))
    with more.writer("w2") as writer:
        writer.write([{"p": "a", "k": 1, "note": "kept"}])
        writer.commit()
    wanted = held(more)
    table.rescale(5)
    assert held(Table.open(table.location)) == wanted


@pytest.mark.dear("more runs than are merged at once")
def test_many_runs_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.compact.section_merge.OPEN_COLUMNS_MAX", 1)
    monkeypatch.setattr("freshet.storage.compact.section_merge.STRAIGHT_RUNS_MIN", 2)
    monkeypatch.setattr(bucket_rescale, "BATCH_ROWS", 10)
    table = a_table(tmp_path, {"bucket": "3", "write-only": "true", "target-file-size": "4 kb"})
    filled(table, commits=12, kinds=("+I", "-D"))
    wanted = held(table)
    table.rescale(20)
    table = Table.open(table.location)
    assert held(table) == wanted and counts(table) == {"p=a": {20}, "p=b": {20}}
    assert_in_their_buckets(table)


def test_rows_in_a_bucket_that_is_not_theirs(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "4"})
    with closing(table.engine.task_writer(base_snapshot_id=None)) as writer:
        given = rows(random.Random(1), 100).drop_columns(["_ROW_KIND"])
        writer.write_routed(given, np.zeros(100, np.int32), bucket_count=4)
        table.engine.committer("wrong").commit(0, writer.prepare_commit(0))
    before = table.latest_snapshot()
    with pytest.raises(CorruptDataError, match="bucket 0 of 4 holds rows whose key belongs to another bucket"):
        table.rescale(8)
    assert table.latest_snapshot() == before
    assert {file.bucket for file in table.files()} == {0}


@pytest.mark.parametrize(
    ("keys", "before", "after", "what"),
    [
        (("p", "k"), "-1", 4, "an index assigns its keys to buckets.*create another table"),
        ((), "-1", 4, "its rows are in no fixed buckets; create another table"),
        (("p", "k"), "4", -1, "no index knows the buckets of its keys; create another table"),
        (("p", "k"), "4", -2, "rows are in buckets already, and none waits for one; create another table"),
        (("p", "k"), "4", 0, "give the number of buckets, from 1 on"),
        (("p", "k"), "4", -3, "give the number of buckets, from 1 on"),
        (("p", "k"), "4", "8", "give the number of buckets, from 1 on"),
    ],
)
def test_tables_that_cannot_be_rescaled(
    tmp_path: Path, keys: Sequence[str], before: str, after: Any, what: str
) -> None:
    table = a_table(tmp_path, {"bucket": before}, keys=keys)
    with pytest.raises(InvalidRequestError, match=what):
        table.rescale(after)
    assert table.engine.latest_schema_id() == 0


def test_the_option_alone_is_refused_with_the_way(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"bucket": "2"})
    assert table.rescale(4).snapshots == ()
    assert Table.open(table.location).options.bucket == 4
    filled(table)
    with pytest.raises(InvalidRequestError, match="Table.rescale, or freshet rescale WAREHOUSE TABLE --bucket"):
        table.alter(SetOption("bucket", "8"))
    with pytest.raises(InvalidRequestError, match=r"Table\.rescale"):
        table.alter(ResetOption("bucket"))
