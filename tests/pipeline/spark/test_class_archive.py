"""The archive of Java's classes: for which Java and jars it is, that sessions use it, that a broken one is ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.pipeline.commands.preparing import prepare_machine
from freshet.pipeline.spark.jars import cache_folder
from freshet.pipeline.spark.java_process import archive_file, archive_option

PROGRAM = """
import sys
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
options = SHORT_LIVED["spark.driver.defaultJavaOptions"] + " -Xlog:class+load:file=" + sys.argv[1]
spark = create_session("archive", settings={"spark.driver.defaultJavaOptions": options}, master="local[1]")
print(spark.range(7).count())
spark.stop()
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with the jars of this machine and no archive."""
    jars = cache_folder()
    (tmp_path / "cache" / "freshet").mkdir(parents=True)
    (tmp_path / "cache" / "freshet" / "jars").symlink_to(jars)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "a.jar").write_bytes(b"a")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return tmp_path / "spark"


def test_an_archive_belongs_to_its_jars(own_cache: Path, spark_home: Path) -> None:
    first = archive_file()
    assert first.is_relative_to(own_cache)
    assert archive_file() == first
    os.utime(spark_home / "jars" / "a.jar", (1, 1))
    second = archive_file()
    (spark_home / "jars" / "b.jar").write_bytes(b"b")
    assert len({first, second, archive_file()}) == 3


def test_without_an_archive_there_is_no_option(own_cache: Path, spark_home: Path) -> None:
    assert archive_option() == ""
    archive_file().parent.mkdir(parents=True)
    archive_file().touch()
    assert archive_option().endswith(f" -XX:SharedArchiveFile={archive_file()}")


def _session(log: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(log)], capture_output=True, text=True, timeout=600)


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_reads_its_classes_from_the_archive(own_cache: Path, tmp_path: Path) -> None:
    said: list[str] = []
    prepare_machine(said.append)
    prepare_machine(said.append)
    assert len(said) == 1, "made once, found then"
    assert [path.name for path in archive_file().parent.iterdir() if path.name != ".lock"] == [archive_file().name]
    done = _session(tmp_path / "loaded")
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert (tmp_path / "loaded").read_text().count("shared objects file (top)") > 3000


@pytest.mark.slow
@pytest.mark.spark
def test_a_broken_archive_does_no_harm(own_cache: Path, tmp_path: Path) -> None:
    archive_file().parent.mkdir(parents=True)
    archive_file().write_bytes(b"no archive" * 1000)
    done = _session(tmp_path / "loaded")
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert "cds" not in done.stderr.lower()
    assert "shared objects file (top)" not in (tmp_path / "loaded").read_text()
