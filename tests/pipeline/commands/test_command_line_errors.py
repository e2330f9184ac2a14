"""Wrong calls and broken tables through the command: exit code 2 or 65, one message that names what, no traceback.

The command runs in this process, since starting one takes longer than what it does.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from tests.kit.folders import unchanged
from tests.pipeline.commands.kit import Called, Freshet


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Catalog(tmp_path / "w").create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1, "write-only": True}
    )
    with made.writer("loader") as writer:
        for number in range(3):
            writer.write(pa.table({"id": [number]}))
            writer.commit(number)
    return made


def code_and_error(called: Called) -> tuple[int, str]:
    return called.code, called.err


LOOKING = ["describe", "snapshots", "files", "compact", "expire", "orphans", "read", "dead-letters"]


@pytest.mark.parametrize("command", [*LOOKING, "check-table"])
def test_tables_that_are_not_there(freshet: Freshet, table: Table, tmp_path: Path, command: str) -> None:
    warehouse = tmp_path / "w"
    with unchanged(tmp_path):
        for name, part in (
            ("shop.order", "there is no table shop.order"),
            ("shops.orders", "no database 'shops'"),
            ("orders", "database.table"),
            ("shop.or/ders", "'or/ders'"),
        ):
            code, error = code_and_error(freshet(command, warehouse, name))
            assert code == 2, error
            assert part in error
        for wrong, part in (("s3://bucket/w", "s3://bucket/w"), ("", "give a path")):
            code, error = code_and_error(freshet(command, wrong, "shop.orders"))
            assert code == 2, error
            assert part in error
        code, error = code_and_error(freshet(command, tmp_path / "elsewhere", "shop.orders"))
        assert (code, "no database" in error) == (2, True), error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["files", "--snapshot", "9"], "snapshot 9"),
        (["files", "--snapshot", "one"], "--snapshot"),
        (["expire", "--retain-max", "0"], "1 or more"),
        (["expire", "--retain-max", "two"], "--retain-max"),
        (["expire", "--retain-max", "1", "--retain-min", "2"], "at most (1)"),
        (["expire", "--older-than-hours", "-1"], "--older-than-hours"),
        (["expire", "--older-than-hours", "nan"], "--older-than-hours"),
        (["expire", "--older-than-hours", "inf"], "--older-than-hours"),
        (["orphans", "--older-than-hours", "-1"], "--older-than-hours"),
        (["orphans", "--older-than-hours", "nan"], "--older-than-hours"),
        (["describe", "--nonsense"], "--nonsense"),
        (["describe", "more"], "more"),
    ],
)
def test_wrong_options(freshet: Freshet, table: Table, tmp_path: Path, arguments: list[str], part: str) -> None:
    command, *options = arguments
    with unchanged(tmp_path):
        code, error = code_and_error(freshet(command, tmp_path / "w", "shop.orders", *options))
    assert code == 2, error
    assert part in error


@pytest.mark.parametrize("command", LOOKING[:-1])
def test_broken_tables(freshet: Freshet, table: Table, tmp_path: Path, command: str) -> None:
    path = Path(table.location) / "snapshot" / "snapshot-3"
    path.write_bytes(path.read_bytes()[:50])
    now = ["--older-than-hours", "0"] if command == "orphans" else []  # else there is nothing to look at
    with unchanged(tmp_path):
        code, error = code_and_error(freshet(command, tmp_path / "w", "shop.orders", *now))
    assert code == 65, error
    assert error.startswith("freshet: CorruptDataError: "), error
    assert str(path) in error


@pytest.mark.parametrize("command", ["describe", "files", "compact"])
def test_a_missing_manifest(freshet: Freshet, table: Table, tmp_path: Path, command: str) -> None:
    latest = table.store.snapshots.latest()
    assert latest is not None
    path = Path(table.location) / "manifest" / latest.delta_manifest_list
    path.unlink()
    with unchanged(tmp_path):
        code, error = code_and_error(freshet(command, tmp_path / "w", "shop.orders"))
    assert code == 65, error
    assert str(path) in error
    assert "the file was lost" in error


def test_tables_that_are_not_supported(freshet: Freshet, table: Table, tmp_path: Path) -> None:
    schema = Path(table.location) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"write-only"', '"data-evolution.enabled"'))
    with unchanged(tmp_path):
        for command in LOOKING:
            code, error = code_and_error(freshet(command, tmp_path / "w", "shop.orders"))
            assert code == 2, error
            assert "data-evolution.enabled=true" in error


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "mapping"),
        ("a: [", "line"),
        ("name: x", "sources"),
        ("- a\n- b", "mapping"),
        ("\0", "line"),
    ],
)
def test_check_of_files_that_are_none(freshet: Freshet, tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    with unchanged(tmp_path):
        code, error = code_and_error(freshet("check", path))
    assert code == 2, error
    assert "pipeline.yaml" in error
    assert part in error or "line" in error or "pipeline.yaml:" in error


def test_check_of_what_is_no_text_file(freshet: Freshet, tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "folder.yaml").mkdir()
    with unchanged(tmp_path):
        for name in ("bytes.yaml", "folder.yaml", "missing.yaml"):
            code, error = code_and_error(freshet("check", tmp_path / name))
            assert code == 2, error
            assert name in error
