"""Tags of one side, listed, read, deleted and continued by the other."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, NotFoundError, Table
from freshet.storage.tags.automatic import create_batch_tag, create_due_tags
from freshet.storage.tags.table_tags import expire_tags
from tests.kit.paimon_judge import PaimonError, PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.pypaimon_judge import PypaimonJudge
from tests.storage.tags.vectors import BY_TIME, TIMES, VECTORS, ms

pytestmark = pytest.mark.judge

FOREVER = {"write-only": "true"}
DAY = timedelta(days=1)


def make(folder: Path, *, commits: int, **options: str) -> Table:
    """Keys are rows of their commits; each commit but the first replaces half of the one before, and is compacted."""
    table = Catalog(str(folder)).create_table(
        "db.t", schema={"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": 1, **FOREVER, **options}
    )
    for number in range(commits):
        with table.writer("loader") as writer:
            writer.write(pa.table({"id": pa.array([number, number + 1], pa.int64()), "v": [f"{number}"] * 2}))
            writer.commit(number)
        table.with_options({"write-only": "false", "snapshot.num-retained.min": "1000"}).compact(full=True)
    return table


def ours(table: Table, tag: str | None = None) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(tag=tag).to_arrow().to_pylist())


def listed_by_us(table: Table) -> list[tuple[object, ...]]:
    return sorted(
        (
            tag.name,
            tag.snapshot_id,
            tag.snapshot.schema_id,
            tag.commit_time.replace(tzinfo=None),
            tag.row_count,
            None if tag.created is None else tag.created.replace(microsecond=tag.created.microsecond // 1000 * 1000),
            None if tag.retained is None else tag.retained,
        )
        for tag in table.tags.list()
    )


def listed_by_paimon(judge: PaimonTable) -> list[tuple[object, ...]]:
    spelled = {"PT24H": DAY, "PT1H30M": timedelta(minutes=90), "PT1.5S": timedelta(milliseconds=1500), None: None}
    rows = judge.system("tags").to_pylist()
    return sorted((*list(row.values())[:6], spelled[row["time_retained"]]) for row in rows)


def test_each_side_lists_and_reads_the_tags_of_the_other(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = make(tmp_path, commits=4)
    judge = paimon.table(table.location)
    table.tags.create("ours", 2)
    table.tags.create("ours, for a day", 4, retained=DAY)
    table.tags.create("ours, short", 5, retained=timedelta(milliseconds=1500))
    table.tags.create("ö%2F .#?", 6)
    judge.create_tag("theirs", 3)
    judge.create_tag("theirs, for a while", 5, retained_ms=90 * 60 * 1000)
    judge.create_tag("theirs, latest")
    assert listed_by_us(table) == listed_by_paimon(judge)
    assert [row[0] for row in listed_by_us(table)] == sorted(tag.name for tag in table.tags.list())
    assert len(listed_by_us(table)) == 7
    rows = {tag.name: ours(table, tag.name) for tag in table.tags.list()}
    for name, expected in rows.items():
        assert judge.read_rows(tag=name) == expected, name
    assert rows["ours"] != rows["theirs, latest"]
    with pytest.raises(PaimonError, match="already exists"):
        judge.create_tag("ours", 1)

    table.expire_snapshots(retain_max=1)
    for name, expected in rows.items():
        assert judge.read_rows(tag=name) == ours(table, name) == expected, name
    judge.delete_tag("ours")
    judge.rename_tag("ours, for a day", "renamed")
    judge.replace_tag("ours, short", 8)
    table.tags.delete("theirs")
    table.tags.rename("theirs, for a while", "renamed too")
    table.tags.replace("theirs, latest", 4)
    assert listed_by_us(table) == listed_by_paimon(judge)
    moved = {"renamed": "ours, for a day", "renamed too": "theirs, for a while", "ours, short": "theirs, latest"}
    for name in ("renamed", "renamed too", "ours, short", "ö%2F .#?"):
        assert judge.read_rows(tag=name) == ours(table, name) == rows[moved.get(name, name)], name
    assert judge.read_rows(tag="theirs, latest") == ours(table, "theirs, latest") == rows["ours, for a day"]
    for tag in table.tags.list():
        table.tags.delete(tag.name)
    assert listed_by_paimon(judge) == []
    assert judge.read_rows() == ours(table)


@pytest.mark.few(1)
@pytest.mark.parametrize("deletes", ["paimon", "freshet", "both"])
def test_whoever_deletes_all_tags_leaves_the_files_of_the_newest_snapshot(
    tmp_path: Path, paimon: PaimonJudge, deletes: str
) -> None:
    table = make(tmp_path, commits=5)
    judge = paimon.table(table.location)
    for snapshot_id in range(1, 11):
        (table.tags.create if snapshot_id % 2 else judge.create_tag)(f"t{snapshot_id}", snapshot_id)
    expected = ours(table)
    (judge.expire(retain_max=1) if deletes == "freshet" else table.expire_snapshots(retain_max=1))
    for number, tag in enumerate(table.tags.list()):
        by_paimon = deletes == "paimon" or (deletes == "both" and number % 2)
        (judge.delete_tag if by_paimon else table.tags.delete)(tag.name)
        for left in table.tags.list():
            assert judge.read_rows(tag=left.name) == ours(table, left.name)
    assert ours(table) == judge.read_rows() == expected
    left = table.remove_orphan_files(older_than_ms=-60_000, dry_run=True).files
    assert [file.path for file in left] == []


def test_a_tag_whose_changelog_paimon_has_removed(tmp_path: Path, paimon: PaimonJudge) -> None:
    """With the snapshot it removes the list of its changelog, also where a tag holds the rest."""
    table = make(tmp_path, commits=4, **{"changelog-producer": "input"})
    judge = paimon.table(table.location)
    tagged = next(snapshot for snapshot in table.snapshots()[2:] if snapshot.changelog_manifest_list is not None)
    table.tags.create("kept", tagged.id)
    expected = ours(table, "kept")
    judge.expire(retain_max=2, retain_min=2)
    assert not Path(table.store.paths.manifest(tagged.changelog_manifest_list or "")).exists()
    table = Table.open(table.location)
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0).snapshot_ids
    table.remove_orphan_files(older_than_ms=-60_000)
    assert judge.read_rows(tag="kept") == ours(table, "kept") == expected
    table.tags.delete("kept")
    assert judge.read_rows() == ours(table)


def test_success_files_of_paimon_are_no_tags(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = make(tmp_path, commits=1)
    judge = paimon.table(table.location, options={"tag.create-success-file": "true"})
    judge.create_tag("theirs", 1)
    assert (Path(table.location) / "tag" / "tag-success-file" / "theirs_SUCCESS").exists()
    assert [tag.name for tag in table.tags.list()] == ["theirs"]
    with pytest.raises(NotFoundError):
        table.scan(tag="success-file").to_arrow()
    table.expire_snapshots(retain_max=1)
    assert ours(table, "theirs") == [(0, "0"), (1, "0")]


def retimed(table: Table, times: tuple[int, ...]) -> Table:
    """The table as if its snapshots had been committed at these times."""
    for snapshot_id, time_ms in enumerate(times, 1):
        path = Path(table.store.paths.snapshot(snapshot_id))
        path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": time_ms}))
    return Table.open(table.location)


def commits_only(folder: Path, count: int, **options: str) -> Table:
    table = Catalog(str(folder)).create_table(
        "db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1, **FOREVER, **options}
    )
    with table.writer("loader") as writer:
        for number in range(count):
            writer.write(pa.table({"id": pa.array([number], pa.int64())}))
            writer.commit(number)
    assert len(table.snapshots()) == count
    return table


def names(table: Table) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in table.tags.list()}


def make_ours(table: Table) -> None:
    latest = table.latest_snapshot()
    assert latest is not None
    create_due_tags(Table.open(table.location).store, latest)


MORE = {
    "two hours": {"tag.creation-period": "two-hours"},
    "half hours": {"tag.creation-period-duration": "30 min", "tag.creation-delay": "7 min"},
    "without dashes": {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"},
    "digits": {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
    "days in digits": {"tag.period-formatter": "without_dashes"},
    "elsewhere": {"sink.process-time-zone": "America/Los_Angeles"},
    "an offset": {"sink.process-time-zone": "GMT-08:00", "tag.creation-period": "hourly"},
    "few": {"tag.creation-period": "hourly", "tag.num-retained-max": "2"},
    "days of words": {"tag.creation-period": "daily", "tag.automatic-completion": "true", "tag.creation-delay": "23 h"},
}


@pytest.mark.few(5)
@pytest.mark.parametrize("case", [*VECTORS, *MORE])
def test_automatic_tags_are_those_of_paimon_and_each_goes_on_for_the_other(
    tmp_path: Path, paimon: PaimonJudge, case: str
) -> None:
    options, expected = VECTORS.get(case, (MORE.get(case, {}), {}))
    table = retimed(commits_only(tmp_path / "w", len(TIMES), **{**BY_TIME, **options}), TIMES)
    found = {}
    for way in ("paimon", "freshet", "paimon then freshet", "freshet then paimon"):
        copy = Path(shutil.copytree(table.location, tmp_path / way))
        first, _, second = way.partition(" then ")
        if second:
            late = {each: (copy / "snapshot" / f"snapshot-{each}").read_bytes() for each in (4, 5)}
            for snapshot_id in late:
                (copy / "snapshot" / f"snapshot-{snapshot_id}").unlink()
            (copy / "snapshot" / "LATEST").write_text("3")
        for who in (first, second):
            if who == "paimon":
                paimon.table(copy).make_auto_tags()
            elif who == "freshet":
                make_ours(Table.open(copy))
            if second and who == first:
                assert names(Table.open(copy)), "the first has made some"
                for snapshot_id, data in late.items():
                    (copy / "snapshot" / f"snapshot-{snapshot_id}").write_bytes(data)
                (copy / "snapshot" / "LATEST").write_text("5")
        found[way] = names(Table.open(copy))
        assert listed_by_us(Table.open(copy)) == listed_by_paimon(paimon.table(copy))
    assert found["freshet"] == found["paimon"]
    assert found["paimon then freshet"] == found["freshet then paimon"] == found["paimon"]
    assert found["paimon"] == expected or case in MORE
    assert found["paimon"]


def test_commits_of_either_make_the_tags_that_are_due(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = retimed(commits_only(tmp_path, len(TIMES), **BY_TIME), TIMES)
    live = {"write-only": "false", "snapshot.num-retained.min": "100"}
    writing = table.with_options(live)
    with writing.writer("u") as writer:
        writer.write(pa.table({"id": pa.array([100], pa.int64())}))
        writer.commit(0)
    [(today, snapshot_id)] = names(table).items() - VECTORS["daily"][1].items()
    assert snapshot_id == 6
    assert (
        datetime.fromisoformat(today).date() < datetime.fromtimestamp(table.snapshots()[-1].time_ms / 1000).date() + DAY
    )
    assert names(table) == {**VECTORS["daily"][1], today: 6}
    paimon.table(table.location, options=live).write([(101,)])
    assert names(table) == {**VECTORS["daily"][1], today: 6}


def test_by_watermarks(tmp_path: Path, paimon: PaimonJudge) -> None:
    options = {"tag.automatic-creation": "watermark", "sink.watermark-time-zone": "Europe/Berlin"}
    table = commits_only(tmp_path / "w", 6, **options)
    for snapshot_id, watermark in enumerate([None, -(2**63), ms(1, 10), ms(1, 22, 59), ms(1, 23), ms(4, 23)], 1):
        path = Path(table.store.paths.snapshot(snapshot_id))
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, **({} if watermark is None else {"watermark": watermark})}))
    copy = Path(shutil.copytree(table.location, tmp_path / "paimon"))
    paimon.table(copy).make_auto_tags()
    make_ours(Table.open(table.location))
    assert names(table) == names(Table.open(copy)) == {"2025-12-31": 3, "2026-01-01": 5, "2026-01-04": 6}


def test_either_removes_the_tags_of_the_other_when_their_time_is_over(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = make(tmp_path, commits=2)
    judge = paimon.table(table.location)
    table.tags.create("kept", 1)
    table.tags.create("for a day", 1, retained=DAY)
    for by_us, by_them in ((True, False), (False, True)):
        if by_us:
            judge.create_tag("short", 2, retained_ms=1)
            time.sleep(0.1)
            assert [each.tag.name for each in expire_tags(table.store)] == ["short"]
        if by_them:
            table.tags.create("short", 2, retained=timedelta(milliseconds=1))
            time.sleep(0.1)
            judge.make_auto_tags()
        assert names(table) == {"kept": 1, "for a day": 1}


@pytest.mark.parametrize("expirer", ["freshet", "paimon"])
def test_either_removes_the_tags_that_were_made_before_a_moment(
    tmp_path: Path, paimon: PaimonJudge, expirer: str
) -> None:
    table = make(tmp_path, commits=4)
    judge = paimon.table(table.location)
    table.tags.create("ours", 1)
    judge.create_tag("theirs", 3)
    table.tags.create("ours for a day", 2, retained=DAY)
    judge.create_tag("theirs for a day", 4, retained_ms=86_400_000)
    table.expire_snapshots(retain_max=1)
    time.sleep(1.1)
    moment_ms = int(time.time() * 1000)
    time.sleep(1.1)
    table.tags.create("late", 8)
    expected = {"ours", "theirs", "ours for a day", "theirs for a day"}
    if expirer == "freshet":
        assert {each.tag.name for each in table.tags.expire(older_than=moment_ms, dry_run=True)} == expected
        assert {each.tag.name for each in table.tags.expire(older_than=moment_ms)} == expected
    else:
        assert set(judge.expire_tags(older_than_ms=moment_ms)) == expected
    assert names(table) == {"late": 8}
    assert table.remove_orphan_files(older_than_ms=-60_000).files == ()
    assert judge.read_rows(tag="late") == judge.read_rows()


def test_a_tag_of_a_batch_is_read_by_paimon(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = make(tmp_path, commits=2, **{"tag.automatic-creation": "batch", "sink.process-time-zone": "UTC"})
    [tag] = table.tags.list()
    last = table.snapshots()[-1]
    assert tag.name == f"batch-write-{tag.commit_time:%Y-%m-%d}"
    assert tag.snapshot_id < last.id, "compactions leave none"
    assert create_batch_tag(table.store) == tag.name
    assert names(table) == {tag.name: last.id}
    assert paimon.table(table.location).read_rows(tag=tag.name) == ours(table)


def test_pypaimon_reads_a_tag(tmp_path: Path, pypaimon: PypaimonJudge) -> None:
    table = make(tmp_path, commits=3)
    table.tags.create("monday", 2, retained=DAY)
    table.tags.create("plain", 4)
    expected = {name: ours(table, name) for name in ("monday", "plain")}
    table.expire_snapshots(retain_max=1)
    for name, rows in expected.items():
        found = pypaimon.read_arrow(table.location, options={"scan.tag-name": name})
        assert sorted(tuple(row.values()) for row in found.to_pylist()) == rows
