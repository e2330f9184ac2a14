"""The commands changelog and consumers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, str]:
    """An append table: rows 0 to 29, then 30 to 59."""
    table = Catalog(tmp_path / "w").create_table(
        "shop.events", schema={"id": "BIGINT", "note": "STRING"}, options={"bucket": -1}
    )
    with table.writer("loader") as writer:
        for number in range(2):
            ids = range(30 * number, 30 * number + 30)
            writer.write(pa.table({"id": list(ids), "note": [f"n{each}" for each in ids]}))
            writer.commit(number)
    return tmp_path / "w", "shop.events"


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_table_is_cut_and_says_so(freshet: Freshet, place: tuple[Path, str]) -> None:
    called = freshet.good("changelog", *place)
    header, first, *rest = called.out.splitlines()
    assert header.split() == ["id", "note", "_ROW_KIND", "_SNAPSHOT_ID"]
    assert first.split() == ["0", "n0", "+I", "1"]
    assert len(rest) == 49
    assert "the first 50 rows; --limit shows more" in called.err
    few = freshet.good("changelog", *place, "--limit", 1, "--columns", "note", "--from-snapshot", 2)
    assert [line.split() for line in few.out.splitlines()] == [
        ["note", "_ROW_KIND", "_SNAPSHOT_ID"],
        ["n30", "+I", "2"],
    ]


def test_ranges_and_filters(freshet: Freshet, place: tuple[Path, str]) -> None:
    asked = ["--format", "json", "--filter", "id % 1 = 0"]
    assert freshet("changelog", *place, *asked).code == 2, "no condition that is understood"
    found = freshet.good("changelog", *place, "--format", "json", "--filter", "id IN (3, 33)").out
    assert lines(found) == [
        {"id": 3, "note": "n3", "_ROW_KIND": "+I", "_SNAPSHOT_ID": 1},
        {"id": 33, "note": "n33", "_ROW_KIND": "+I", "_SNAPSHOT_ID": 2},
    ]
    assert len(lines(freshet.good("changelog", *place, "--format", "json", "--to-snapshot", 1).out)) == 30
    since = ("--from-timestamp", "2020-01-01T00:00:00Z")
    assert len(lines(freshet.good("changelog", *place, "--format", "json", *since).out)) == 60
    assert len(lines(freshet.good("changelog", *place, "--format", "json", "--from-timestamp", "0").out)) == 60
    late = ("--from-timestamp", "2999-01-01T00:00:00+01:00")
    assert freshet.good("changelog", *place, "--format", "json", *late).out == ""


@pytest.mark.slow
def test_csv_and_arrow_for_programs(freshet: Freshet, place: tuple[Path, str]) -> None:
    assert freshet.good("changelog", *place, "--format", "csv", "--limit", "1").out.splitlines() == [
        '"id","note","_ROW_KIND","_SNAPSHOT_ID"', '0,"n0","+I",1',
    ]  # fmt: skip
    command = [sys.executable, "-m", "freshet", "changelog", *map(str, place), "--format", "arrow"]
    rows = pa.ipc.open_stream(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout).read_all()
    assert rows["_SNAPSHOT_ID"].to_pylist() == [1] * 30 + [2] * 30


def test_following_as_a_consumer(freshet: Freshet, place: tuple[Path, str]) -> None:
    follow = ["--follow", "--max-wait", 0, "--format", "json", "--columns", "id"]
    assert len(lines(freshet.good("changelog", *place, *follow, "--consumer", "audit").out)) == 60
    assert freshet.good("changelog", *place, *follow, "--consumer", "audit").out == ""
    (audit,) = freshet.good("consumers", *place, "--json").facts
    assert (audit["consumer"], audit["next_snapshot"], audit["snapshots_behind"]) == ("audit", 3, 0)
    freshet.good("consumers", *place, "--reset", "audit", "--next", 2)
    again = lines(freshet.good("changelog", *place, *follow, "--consumer", "audit").out)
    assert [row["id"] for row in again] == list(range(30, 60))
    assert "audit" in freshet.good("consumers", *place).out
    assert freshet.good("consumers", *place, "--delete", "audit", "--json").facts == []
    wrong = freshet("consumers", *place, "--delete", "audit")
    assert wrong.code == 2
    assert "no consumer 'audit'" in wrong.err
    assert len(lines(freshet.good("changelog", *place, *follow, "--limit", 7).out)) == 7


def test_wrong_calls(freshet: Freshet, place: tuple[Path, str]) -> None:
    for arguments, part in (
        (["--columns", "nope"], "nope"),
        (["--from-snapshot", "9"], "snapshots 1 to 2 are there"),
        (["--from-timestamp", "yesterday"], "--from-timestamp yesterday"),
        (["--from-timestamp", "2026-03-01"], "time zone"),
        (["--follow"], "--format json"),
        (["--follow", "--format", "json", "--to-snapshot", "1"], "--to-snapshot"),
        (["--consumer", "a"], "--follow"),
        (["--format", "xml"], "--format"),
    ):
        called = freshet("changelog", *place, *arguments)
        assert called.code == 2, called.err
        assert part in called.err
    called = freshet("consumers", *place, "--reset", "a")
    assert called.code == 2
    assert "--next" in called.err


def test_a_table_without_a_changelog_says_what_to_do(freshet: Freshet, tmp_path: Path) -> None:
    Catalog(tmp_path).create_table("a.b", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": 1})
    called = freshet("changelog", tmp_path, "a.b")
    assert called.code == 2
    assert "changelog-producer" in called.err


def test_two_points_are_compared(freshet: Freshet, tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("shop.stock", schema={"id": "BIGINT", "n": "INT"}, primary_keys=["id"])
    table.append([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    table.tags.create("may")
    table.upsert([{"id": 1, "n": 5}, {"id": 3, "n": 5}])
    table.delete("id = 2")
    table.tags.create("june")
    asked = ["--format", "csv", "--columns", "id,n"]
    found = freshet.good("changelog", tmp_path, "shop.stock", "--between", "may", "june", *asked)
    changes = sorted(line.rsplit(",", 1)[0] for line in found.out.replace('"', "").splitlines()[1:])
    assert changes == ["1,1,-U", "1,5,+U", "2,1,-D", "3,5,+I"]
    delta = freshet.good("changelog", tmp_path, "shop.stock", "--between", "0", "1", "--mode", "delta", *asked)
    assert sorted(delta.out.replace('"', "").split()[1:]) == ["1,1,+I,1", "2,1,+I,1"]
    assert "tags there are: june, may" in freshet("changelog", tmp_path, "shop.stock", "--between", "may", "july").err
    for given in (["--between", "may", "june", "--follow"], ["--mode", "diff"], ["--between", "may", "2026-06-01"]):
        assert freshet("changelog", tmp_path, "shop.stock", *given, "--format", "csv").code == 2
