"""Each command with odd names: it is carried out or says what is wrong, and nothing that it prints is obeyed by a
terminal or looks like another line of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.commands.command_list import COMMANDS
from tests.pipeline.commands.kit import Freshet
from tests.soak.counts import ODD_COMMANDS, chance_of

FORGED = "x\n\x1b[2Jfreshet: all is well"
FIVE = ("../x", FORGED, "x\udcff", "e\u0301\u202e", "--x")
"""As arguments of processes can have them: bytes that are no text are halves of characters."""

W, T, X = "W", "d.t", "X"
CALLS: dict[str, list[str]] = {
    "run": ["--", X],
    "check": ["--no-spark", "--offline", "--", X],
    "resume": ["--", X, "d.t"],
    "resync": ["--", X, "d.t"],
    "tables": [W, "--", X],
    "describe": [W, "--", f"d.{X}"],
    "status": [W, "--", f"d.{X}"],
    "doctor": [W, "--", f"d.{X}"],
    "report": [W, "--", f"d.{X}"],
    "slots": ["--", X],
    "drop-slot": ["--", X],
    "exporter": ["--file", "metrics.prom", W, "--", f"d.{X}"],
    "read": [W, T, "--tag", X],
    "sql": [W, f"SELECT 1 AS `{X}`"],
    "changelog": [W, T, "--columns", X],
    "tail": [W, T, "--columns", X],
    "snapshots": [W, "--", X],
    "files": [W, "--", f"{X}.t"],
    "tags": [W, f"d.t$branch_{X}"],
    "dead-letters": [W, T, "--pipeline", X],
    "append": [W, T, "--", X],
    "upsert": [W, T, "--", X],
    "overwrite": [W, T, "--", X],
    "merge": [W, T, "--on", "k", "--", X],
    "rollback": [W, T, "--to-tag", X],
    "compact": [W, T, "--partition", f"p={X}"],
    "rescale": [W, f"d.{X}", "--bucket", "2"],
    "expire": [W, f"d.{X}"],
    "expire-partitions": [W, f"d.{X}"],
    "expire-tags": [W, f"d.{X}"],
    "orphans": [W, T],
    "purge": [W, f"d.{X}"],
    "check-table": [W, T],
    "repair": ["lost-commit", W, T, "--manifest-list", X],
    "tag": [W, T, "create", "--", X],
    "register": [W, "--", f"d.{X}"],
    "branches": [W, f"d.{X}"],
    "consumers": [W, T, "--reset", X, "--next", "1"],
}
QUICK = ("check", "tables", "describe", "read", "sql", "append", "orphans", "check-table", "tag")
WITHOUT_NAMES = {"jars", "prepare", "demo", "catalogs"}
"""Without names of their own, or Spark's."""


def lake_with(folder: Path, name: str) -> Path:
    """A warehouse with a table, beside folders and files that bear an odd name."""
    lake = folder / "lake"
    columns = {"k": "INT", "v": "STRING", "p": "STRING"}
    table = Catalog(lake).create_table("d.t", schema=columns, partition_keys=["p"])
    table.append([{"k": 1, "v": "a", "p": "p"}])
    odd = name.replace("/", "_")
    for where in (lake / f"{odd}.db", lake / "d.db" / odd / "schema", lake / "d.db" / "t" / odd):
        where.mkdir(parents=True)
    (lake / "d.db" / odd / "schema" / "schema-0").write_text("{}")
    old = lake / "d.db" / "t" / "manifest" / f"manifest-{odd}"
    old.write_text("x")
    os.utime(old, (0, 0))
    return lake


def command(name: str, lake: Path, odd: str) -> list[str]:
    """The arguments of a call."""
    return [name, *(str(lake) if each == W else each.replace(X, odd) for each in CALLS[name])]


def check_said(text: str) -> None:
    """Each line is one of ours."""
    assert "InternalError" not in text
    for line in text.splitlines():
        assert line.isprintable(), ascii(line)
        assert not line.startswith("freshet: all is well")


def test_each_command_is_called() -> None:
    assert set(CALLS) | WITHOUT_NAMES == set(COMMANDS)


@pytest.mark.parametrize(
    ("names", "odd"),
    [(QUICK, FORGED), *(pytest.param(tuple(CALLS), odd, marks=pytest.mark.slow) for odd in (FORGED, "x\udcff"))],
    ids=ascii,
)
def test_commands_in_this_process(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], odd: str
) -> None:
    lake = lake_with(tmp_path, odd)
    monkeypatch.chdir(tmp_path)
    for name in names:
        for how in ([], ["--json"] if name in ("tables", "orphans", "check-table", "describe") else []):
            called = freshet(*command(name, lake, odd)[:2], *how, *command(name, lake, odd)[2:])
            assert called.code in (0, 2, 65), (name, called)
            check_said(called.out if how == [] else "")
            check_said(called.err)
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]


def test_what_has_an_odd_name_is_left_out_with_a_line(freshet: Freshet, tmp_path: Path) -> None:
    lake = lake_with(tmp_path, FORGED)
    answer = freshet.good("tables", lake)
    assert [line.split()[0] for line in answer.out.splitlines()] == ["table", "d.t"]


def test_files_of_odd_names_are_shown_as_text(freshet: Freshet, tmp_path: Path) -> None:
    lake = lake_with(tmp_path, FORGED)
    answer = freshet.good("orphans", lake, "d.t")
    assert "manifest-x\\n\\x1b[2Jfreshet: all is well" in answer.out
    check_said(answer.out)


def test_damage_is_shown_as_text(freshet: Freshet, tmp_path: Path) -> None:
    lake = lake_with(tmp_path, "x")
    snapshot = lake / "d.db" / "t" / "snapshot" / "snapshot-1"
    content = json.loads(snapshot.read_text("utf-8"))
    for key in ("deltaManifestList", "baseManifestList", "commitUser"):
        content[key] = FORGED
    snapshot.write_text(json.dumps(content), encoding="utf-8")
    for name in ("check-table", "read", "files", "snapshots", "describe", "status", "orphans", "compact"):
        called = freshet(name, lake, "d.t")
        check_said(called.out + called.err)
        assert "\\x1b[2J" in called.out + called.err or called.code == 0, (name, called)


@pytest.mark.soak
def test_commands_as_processes(tmp_path: Path) -> None:
    """Each with one of the five names."""
    for numbered, name in enumerate(chance_of("commands").sample(list(CALLS), ODD_COMMANDS.now())):
        odd = FIVE[numbered % len(FIVE)]
        lake = lake_with(tmp_path / str(numbered), odd)
        done = subprocess.run(
            [sys.executable, "-m", "freshet", *command(name, lake, odd)],
            capture_output=True,
            cwd=tmp_path,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, 2, 65), done.stderr
        check_said(done.stdout.decode())
        check_said(done.stderr.decode())
        assert [each.name for each in (tmp_path / str(numbered)).iterdir()] == ["lake"]
    assert all(each.name.isdigit() for each in tmp_path.iterdir())
