"""Branches of either side, read and continued by the other; the table itself does not notice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, NotFoundError, Table
from tests.contract.test_commits_and_expiry import FOREVER, load, make, ours, rows, theirs
from tests.kit import paimon_changes
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable

pytestmark = pytest.mark.judge

KEPT = {"snapshot.num-retained.min": "1000"}
"""Nothing expires after commits."""


def on_branch(tmp_path: Path, name: str) -> Table:
    return Catalog(str(tmp_path)).table(f"db.t$branch_{name}")


def their_branch(paimon: PaimonJudge, table: Table, name: str) -> PaimonTable:
    return paimon.table(table.store.paths.location, branch=name)


def remove_tag(table: Table, name: str) -> None:
    """As a file: to delete a tag whose snapshot has expired, Paimon removes files without a look at branches."""
    table.store.env.file_io.delete(table.store.paths.tag(name))


@pytest.mark.few(1)
@pytest.mark.parametrize("maker", ["freshet", "paimon"])
@pytest.mark.parametrize("from_tag", [True, False])
def test_a_branch_of_either_is_continued_by_both(
    tmp_path: Path, paimon: PaimonJudge, maker: str, from_tag: bool
) -> None:
    table, judge = make(tmp_path, paimon, **{"changelog-producer": "lookup"})
    load(table, range(3))
    judge.create_tag("t")
    load(table, range(3, 5))
    expected = ours(table)
    if maker == "freshet":
        table.branches.create("b", from_tag="t" if from_tag else None)
    else:
        judge.create_branch("b", tag="t" if from_tag else None)
    branch, theirs_on_it = on_branch(tmp_path, "b"), their_branch(paimon, table, "b")
    assert theirs(theirs_on_it) == ours(branch) == (ours(table, tag="t") if from_tag else [])
    assert table.branches.list() == ["b"]
    for number in range(10, 14):
        load(branch, range(number, number + 1), user="on the branch")
        theirs_on_it.write([(0, 100 + number, "by paimon")], compact="full" if number % 2 else None)
        branch = on_branch(tmp_path, "b")
        assert theirs(theirs_on_it) == ours(branch)
    branch.compact()
    assert theirs(theirs_on_it) == ours(branch)
    assert {(0, 100 + number, "by paimon") for number in range(10, 14)} <= set(ours(branch))
    assert theirs(judge) == ours(table) == expected
    load(table, range(5, 6))
    assert theirs(judge) == ours(table)
    assert theirs(theirs_on_it) == ours(branch)
    for each in (branch, table):
        assert not each.check(all_snapshots=True).damage


def without_time(data: bytes) -> dict[str, object]:
    """A branch of ours has schemas made when it was, so that another one of its name is told from it."""
    content = json.loads(data)
    assert content.pop("timeMillis") is not None
    return content


def test_files_of_a_branch_are_those_that_paimon_makes(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(2))
    judge.create_tag("t")
    for tag in ("t", None):
        table.branches.create(f"ours-{tag}", from_tag=tag)
        judge.create_branch(f"theirs-{tag}", tag=tag)
        found = [
            {
                str(path.relative_to(folder)): without_time(path.read_bytes())
                for path in folder.rglob("*")
                if path.is_file() and not path.name.endswith(".crc")
            }
            for folder in (Path(table.location) / "branch" / f"branch-{who}-{tag}" for who in ("ours", "theirs"))
        ]
        assert found[0] == found[1]
        assert len(found[0]) == (3 if tag else 1)


@pytest.mark.parametrize("renamer", ["freshet", "paimon"])
def test_a_branch_that_either_renames_is_continued_by_both(tmp_path: Path, paimon: PaimonJudge, renamer: str) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(3))
    judge.create_tag("t")
    load(table, range(3, 5))
    expected = ours(table)
    table.branches.create("b", from_tag="t")
    load(on_branch(tmp_path, "b"), range(10, 12))
    their_branch(paimon, table, "b").alter(paimon_changes.set_option("snapshot.num-retained.min", "1000"))
    (table.branches.rename if renamer == "freshet" else judge.rename_branch)("b", "c")
    assert table.branches.list() == ["c"]
    theirs_on_it = their_branch(paimon, table, "c")
    assert theirs(theirs_on_it) == ours(on_branch(tmp_path, "c"))
    load(on_branch(tmp_path, "c"), range(12, 13))
    theirs_on_it.write([(0, 100, "by paimon")])
    assert theirs(theirs_on_it) == ours(on_branch(tmp_path, "c"))
    assert (0, 100, "by paimon") in ours(on_branch(tmp_path, "c"))
    assert theirs(judge) == ours(table) == expected
    with pytest.raises(NotFoundError, match="no branch"):
        on_branch(tmp_path, "b")


def test_the_snapshot_of_a_tag_has_expired(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(2))
    judge.create_tag("t")
    tagged = ours(table)
    load(table, range(2, 5))
    table.expire_snapshots(retain_max=1)
    table.branches.create("b", from_tag="t")
    remove_tag(table, "t")
    table.expire_snapshots(retain_max=1)
    table.remove_orphan_files(older_than_ms=-60_000)
    assert theirs(their_branch(paimon, table, "b")) == ours(on_branch(tmp_path, "b")) == tagged


def test_schemas_of_a_branch_go_their_own_way(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon)
    load(table, range(2))
    judge.create_tag("t")
    expected = ours(table)
    table.branches.create("b", from_tag="t")
    wider = on_branch(tmp_path, "b").alter(AddColumn("more", "INT"))
    with wider.writer("w") as writer:
        writer.write([{"p": 0, "id": 100, "v": "x", "more": 1}])
        writer.commit()
    theirs_on_it = their_branch(paimon, table, "b")
    assert theirs(theirs_on_it) == ours(wider)
    theirs_on_it.alter(paimon_changes.add_column("theirs", "STRING"))
    theirs_on_it.write([(0, 101, "y", 2, "z")])
    branch = on_branch(tmp_path, "b")
    assert branch.schema.id == 2
    assert theirs(theirs_on_it) == ours(branch)
    assert theirs(judge) == ours(Catalog(str(tmp_path)).table("db.t")) == expected


def test_dropped_by_either(tmp_path: Path, paimon: PaimonJudge) -> None:
    table, judge = make(tmp_path, paimon, **FOREVER)
    load(table, range(2))
    judge.create_tag("t")
    for name, drop in (("x", judge.delete_branch), ("y", table.branches.drop)):
        table.branches.create(name, from_tag="t")
        load(on_branch(tmp_path, name), range(10, 12), user="u")
        assert theirs(their_branch(paimon, table, name)) == ours(on_branch(tmp_path, name))
        drop(name)
        assert table.branches.list() == []
        assert not (Path(table.location) / "branch" / f"branch-{name}").exists()
        found = table.remove_orphan_files(older_than_ms=-60_000).files
        assert {"data", "manifest"} <= {Path(file.path).name.split("-")[0] for file in found}
        assert theirs(judge) == ours(table)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_turns_on_table_and_branches_then_expiry_of_all(tmp_path: Path, paimon: PaimonJudge, seed: int) -> None:
    """Expiry is ours alone: that of Paimon does not look at other lines, and may take what they need."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    producer = chance.choice(["none", "input", "lookup"])
    more = {"changelog.num-retained.min": "30"} if chance.random() < 0.3 else {}
    table, judge = make(tmp_path, paimon, **KEPT, **{"changelog-producer": producer}, **more)
    load(table, range(1))
    lines: dict[str, Callable[[], Table]] = {"main": lambda: Catalog(str(tmp_path)).table("db.t")}
    numbers = iter(range(1, 1_000))

    def judge_of(name: str) -> PaimonTable:
        return judge if name == "main" else their_branch(paimon, table, name)

    for step in range(24):
        name = chance.choice(list(lines))
        line = lines[name]()
        match chance.choice(["ours", "theirs", "ours", "theirs", "compact", "expire", "branch"]):
            case "ours":
                number = next(numbers)
                with line.writer(f"u{number}") as writer:
                    writer.write(rows(number))
                    writer.commit()
            case "theirs":
                judge_of(name).write(rows(next(numbers)), user="judge", compact=chance.choice([None, "full"]))
            case "compact":
                line.compact()
            case "expire":
                line.expire_snapshots(retain_max=chance.randint(1, 3))
            case "branch" if len(lines) < 4:
                made, tag = f"b{step}", f"t{step}"
                judge.create_tag(tag)
                if chance.random() < 0.5:
                    lines["main"]().branches.create(made, from_tag=tag)
                else:
                    judge.create_branch(made, tag=tag)
                lines[made] = lambda made=made: on_branch(tmp_path, made)  # type: ignore[misc]
                judge.delete_tag(tag)
        for name, line_of in lines.items():
            assert theirs(judge_of(name)) == ours(line_of()), f"step {step}: {name}"
    expected = {name: ours(line_of()) for name, line_of in lines.items()}
    for name, line_of in lines.items():
        if name != "main":
            for tag in line_of().store.snapshots.tags.names():
                remove_tag(line_of(), tag)
        line_of().expire_snapshots(retain_max=1)
    for remove_orphans in (False, True):
        if remove_orphans:
            lines[chance.choice(list(lines))]().remove_orphan_files(older_than_ms=-60_000)
        for name, line_of in lines.items():
            assert theirs(judge_of(name)) == ours(line_of()) == expected[name], name
            assert not line_of().check(all_snapshots=True).damage
