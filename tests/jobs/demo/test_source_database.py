"""What the demo of a database asks PostgreSQL, and what it says where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from freshet.jobs.demo import postgres_server
from freshet.jobs.demo.debezium_demo import CONNECTOR
from freshet.jobs.demo.kafka_connect import properties_text
from freshet.jobs.demo.postgres_server import PROGRAMS, find_programs
from freshet.jobs.demo.source_database import TARGETS, exact_query, quoted
from freshet.jobs.demo.stage import PIPELINES
from freshet.pipeline.exceptions import InvalidRequestError


def test_a_query_names_each_column_as_it_is_sent() -> None:
    query = exact_query("Odd Näme", {"select": "text", 'a "b"': "money"}, {"money": "to_json({0}::numeric)"})
    assert query == 'SELECT "select" AS "select", to_json("a ""b"""::numeric) AS "a ""b""" FROM "Odd Näme"'
    assert quoted('"') == '""""'


def test_a_backslash_in_properties() -> None:
    assert properties_text({"a": "b[.]c\\d", "e": "f=g"}) == "a=b[.]c\\\\d\ne=f=g\n"


def test_every_table_is_compared() -> None:
    """A new table of the scripts has to be in `TARGETS`."""
    scripts = Path(postgres_server.__file__).with_name("database")
    text = "".join((scripts / name).read_text() for name in ("tables.sql", "new_table.sql"))
    made = [line.split("TABLE ")[1].split("(")[0].strip().strip('"') for line in text.splitlines() if "TABLE " in line
            and line.startswith("CREATE TABLE")]  # fmt: skip
    sources = [name for names in TARGETS.values() for name in names]
    assert sorted(name for name in made if not name.startswith("ops.")) == sorted(sources)
    assert len(TARGETS) == 12


def test_types_truncates_and_null_are_sent() -> None:
    assert CONNECTOR["value.converter.schemas.enable"] == "true"
    assert CONNECTOR["value.converter.replace.null.with.default"] == "false"
    assert CONNECTOR["skipped.operations"] == "none"
    rules = yaml.safe_load((PIPELINES / "demo-database.yaml").read_text())["sync"]["tables"]
    assert all(rule["to"].startswith("lake.") for rule in rules)


def _programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_programs_of_the_path_come_first_then_the_newest_of_debian_then_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "DEBIAN_PROGRAMS", tmp_path / "debian")
    monkeypatch.setattr(postgres_server, "WHEEL", "wheel_with_programs")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(_programs(tmp_path / "path", "initdb")))
    with pytest.raises(InvalidRequestError, match=r"postgres cannot be found; .*apt-get install postgresql"):
        find_programs()
    wheel = _programs(tmp_path / "wheel_with_programs" / "pginstall" / "bin", *PROGRAMS)
    (tmp_path / "wheel_with_programs" / "__init__.py").touch()
    on_path = tmp_path / "path" / "initdb"
    assert find_programs() == {"initdb": on_path, "postgres": wheel / "postgres"}
    for version in ("9.6", "15", "16"):
        _programs(tmp_path / "debian" / version / "bin", *PROGRAMS)
    assert find_programs() == {"initdb": on_path, "postgres": tmp_path / "debian" / "16" / "bin" / "postgres"}


def test_root_needs_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidRequestError, match="setpriv .* another user"):
        postgres_server._as_other_user()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert postgres_server._as_other_user() == []
