"""Conflict checks on hand-made entries: `name@level[min,max]`, one letter keys."""

from __future__ import annotations

import re

import pytest

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.conflict import Conflict, LooksUp, find_conflicts
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from freshet.storage.model.manifest import EntryKind, FileIdentity, ManifestEntry
from freshet.storage.model.snapshot import CommitKind


def entry(text: str, *, bucket: int = 0, total: int = 1, partition: bytes = EMPTY_ROW) -> ManifestEntry:
    """`+a@1[1,5]#7`: ADD of file a at level 1 with keys 1 to 5 and rows of the number 7 (0); `-` is DELETE."""
    match = re.fullmatch(r"([+-])(\w+)@(\d)(?:\[(\d),(\d)\])?(?:#(\d))?", text)
    assert match is not None, text
    sign, name, level, low, high, sequence = match.groups()
    keys, number = ((low or "0").encode(), (high or "0").encode()), int(sequence or 0)
    file = DataFileMeta(name, 10, 1, *keys, EMPTY_STATS, EMPTY_STATS, number, number, 0, int(level))
    return ManifestEntry(EntryKind.ADD if sign == "+" else EntryKind.DELETE, partition, bucket, total, file)


def entries(text: str) -> list[ManifestEntry]:
    return [entry(part) for part in text.split()]


def conflicts(live: str, delta: str, kind: CommitKind = CommitKind.COMPACT, *, keyed: bool = True) -> list[Conflict]:
    change = SnapshotChange(kind, tuple(entries(delta)))
    return find_conflicts(change, by_bucket(entries(live)), bucket_counts={}, sort_key=bytes if keyed else None)


def by_bucket(live: list[ManifestEntry]) -> dict[tuple[bytes, int], dict[FileIdentity, ManifestEntry]]:
    return {(EMPTY_ROW, 0): {item.identity: item for item in live}}


def test_compaction_that_fits() -> None:
    assert conflicts("+a@0 +b@0", "-a@0 -b@0 +c@5[1,9]") == []


def test_upgrade_keeps_the_name_and_fits() -> None:
    assert conflicts("+a@0[1,5]", "-a@0[1,5] +a@5[1,5]") == []


def test_vanished_input_conflicts() -> None:
    [conflict] = conflicts("+b@0", "-a@0 +c@5[1,9]")
    assert "file a at level 0 is not live any more" in conflict.reason


def test_same_file_at_another_level_is_another_identity() -> None:
    [conflict] = conflicts("+a@5[1,9]", "-a@0[1,9] +c@5[1,9]")
    assert "file a at level 0 is not live any more" in conflict.reason


def test_adding_what_is_live_conflicts() -> None:
    [conflict] = conflicts("+a@0 +c@5[1,2]", "-a@0 +c@5[1,2]")
    assert "file c at level 5 is live already" in conflict.reason


def test_one_identity_twice_in_the_change_conflicts_even_in_an_append() -> None:
    [conflict] = conflicts("", "+a@0 +a@0", CommitKind.APPEND)
    assert "added twice" in conflict.reason


def test_delete_and_add_of_one_identity_would_lose_the_file() -> None:
    [conflict] = conflicts("+a@5[1,2]", "-a@5[1,2] +a@5[1,2]")
    assert "deleted and added at one level" in conflict.reason


def test_overlap_above_level_zero_conflicts_touching_ends_included() -> None:
    for live in ("+x@5[4,6]", "+x@5[3,3]", "+x@5[1,9]"):
        [conflict] = conflicts(f"+a@0 {live}", "-a@0 +c@5[3,4]")
        assert "overlap at level 5" in conflict.reason


def test_disjoint_ranges_and_other_levels_fit() -> None:
    assert conflicts("+a@0 +x@5[5,9] +y@4[1,9] +z@0[1,9]", "-a@0 +c@5[1,4]") == []


def test_append_only_tables_have_no_ranges() -> None:
    assert conflicts("+a@0 +b@0", "-a@0 -b@0 +c@1 +d@1", keyed=False) == []


def test_plain_append_never_looks_at_live_files() -> None:
    assert conflicts("+a@0[1,9]", "+b@0[1,9]", CommitKind.APPEND) == []


def test_files_of_a_partition_have_one_bucket_count() -> None:
    change = (entry("+b@0", bucket=5, total=8),)
    counts = {EMPTY_ROW: 4}
    [conflict] = find_conflicts(SnapshotChange(CommitKind.APPEND, change), {}, bucket_counts=counts, sort_key=None)
    assert "the partition has 4 buckets, the change was written for 8" in conflict.reason
    overwrite = SnapshotChange(CommitKind.OVERWRITE, change)
    assert find_conflicts(overwrite, {}, bucket_counts={}, sort_key=None) == []
    assert find_conflicts(overwrite, {}, bucket_counts=counts, sort_key=None) == [conflict], "it leaves files of 4"
    unaware = (entry("+b@0", total=-1),)
    assert find_conflicts(SnapshotChange(CommitKind.APPEND, unaware), {}, bucket_counts={}, sort_key=None) == []


def test_partitions_do_not_see_each_other() -> None:
    change = SnapshotChange(
        CommitKind.APPEND, (entry("+b@0", total=8, partition=b"p"), entry("+c@0", total=4, partition=b"q"))
    )
    assert find_conflicts(change, {}, bucket_counts={b"q": 4}, sort_key=None) == []


def test_conflicts_name_their_bucket_so_that_the_rest_can_go_on() -> None:
    change = SnapshotChange(
        CommitKind.COMPACT,
        (entry("-a@0"), entry("+c@5"), entry("-d@0", bucket=1), entry("+e@5", bucket=1)),
    )
    found = find_conflicts(change, by_bucket([entry("+a@0")]), bucket_counts={}, sort_key=bytes)
    assert {(conflict.partition, conflict.bucket) for conflict in found} == {(EMPTY_ROW, 1)}
    rest = change.without(frozenset({(EMPTY_ROW, 1)}))
    assert [item.file.file_name for item in rest.entries] == ["a", "c"]


def test_a_compaction_that_emits_changes_knew_every_file_above() -> None:
    """Another compaction emitted changes of the same old rows when it put `x` there."""

    def found(live: str, delta: str, *lookups: str, looked: LooksUp = LooksUp.LEVELS_ABOVE) -> list[str]:
        bucket = (EMPTY_ROW, 0)
        change = SnapshotChange(CommitKind.COMPACT, tuple(entries(delta)), lookups={bucket: lookups})
        held = by_bucket(entries(live))
        conflicts = find_conflicts(change, held, bucket_counts={}, sort_key=bytes, looks_up=looked)
        return [conflict.reason for conflict in conflicts]

    compaction = "-a@0[2,4] -b@5[1,9] +c@5[1,9]"
    live = "+a@0[2,4] +b@5[1,9]"
    assert found(live, compaction) == []
    [reason] = found(f"{live} +x@4[4,6]#9", compaction)
    assert reason == "file x at level 4 came there after keys of it were looked up"
    assert found(f"{live} +x@4[4,6]#9", compaction, looked=LooksUp.NOTHING) == [], "its rows are newer"
    assert found(f"{live} +x@0[4,6]#9", compaction) == []
    assert found(f"{live} +x@4[5,6]", compaction) == []
    assert found("+a@0[2,4] +x@5[1,9]", "-a@0[2,4] +c@4[2,4]", "x") == []
    assert found("+b@3[1,2] +x@4[1,9]", "-b@3[1,2] +b@5[7,7]") == []
    moved, some = LooksUp.OF_REWRITTEN, "-a@0[2,4] +a@4[2,4]"
    assert found(f"{live} +x@5[1,9]#9", some, looked=moved) == [], "its rows are newer than those of x"
    assert len(found(f"{live} +x@4[5,6]#9 +y@3[1,3]#9", some, looked=moved)) == 1, "y would hide them from readers"
    assert len(found(f"{live} +x@5[1,9]#9", "-a@0[2,4] +c@4[2,4]", "b", looked=moved)) == 1, "x has what c lacks"


@pytest.mark.parametrize("looked", list(LooksUp))
def test_a_compaction_does_not_overtake_older_rows_that_it_did_not_know(looked: LooksUp) -> None:
    """Of a delete that it dropped, and an old value that it merged into a newer row, nothing says when they were."""

    def found(live: str, delta: str) -> list[str]:
        change = SnapshotChange(CommitKind.COMPACT, tuple(entries(delta)))
        conflicts = find_conflicts(change, by_bucket(entries(live)), bucket_counts={}, sort_key=bytes, looks_up=looked)
        return [conflict.reason for conflict in conflicts]

    compaction = "-a@0[2,4]#7 -b@5[1,9]#1 +c@5[1,9]#7"
    live = "+a@0[2,4]#7 +b@5[1,9]#1"
    assert found(f"{live} +x@0[4,6]#6", compaction) == ["file x at level 0 has older rows of its keys"]
    assert found(f"{live} +x@0[4,6]#8", compaction) == []
    assert found(f"{live} +x@0[5,6]#6", compaction) == []
    assert len(found(f"{live} +x@4[4,6]#6", compaction)) == 1
    assert len(found(f"{live} +x@0[4,6]#6", "-a@0[2,4]#7 -b@5[1,9]#1")) == 1, "nothing came out of it"
    assert found("+b@2[1,2]#7 +x@0[1,9]#6", "-b@2[1,2]#7 +b@5[1,2]#7") == [], "no compaction of level 0"


def test_a_conflict_in_one_bucket_says_nothing_of_another() -> None:
    """Buckets 0 to 3: an input is gone, ranges overlap, a file was not known, all is well."""
    deltas = ["-gone@0 +a@5[1,2]", "-b@0[3,3] +c@5[3,4]", "-d@0[3,4] +e@5[3,4]", "-f@0[1,2] +g@5[1,2]"]
    lives = ["+other@0[1,2]", "+b@0[3,3] +x@5[4,6]", "+d@0[3,4] +y@4[4,6]", "+f@0[1,2]"]
    change = SnapshotChange(
        CommitKind.COMPACT,
        tuple(entry(part, bucket=bucket, total=4) for bucket, delta in enumerate(deltas) for part in delta.split()),
    )
    held = {
        (EMPTY_ROW, bucket): {
            item.identity: item for item in (entry(part, bucket=bucket, total=4) for part in live.split())
        }
        for bucket, live in enumerate(lives)
    }
    found = find_conflicts(change, held, bucket_counts={}, sort_key=bytes, looks_up=LooksUp.LEVELS_ABOVE)
    assert [conflict.bucket for conflict in found] == [0, 1, 2]
    assert not any(conflict.is_damage for conflict in found)


def test_live_files_that_overlap_already_are_damage() -> None:
    [conflict] = conflicts("+a@0[1,2] +x@5[4,6] +y@5[5,7]", "-a@0[1,2] +c@5[1,2]")
    assert conflict.is_damage
