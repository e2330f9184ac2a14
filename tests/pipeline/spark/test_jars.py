"""The resolver of the pinned jars, with a `java` that is a script: what it refuses and what it leaves behind."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

import pytest

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark import jars
from tests.kit.at_once import at_once

CONTENT = b"a jar"
# Writes CONTENT for every dependency of the ivy file, slowly, and counts its calls.
FAKE_JAVA = """#!/usr/bin/env python3
import pathlib, re, sys, time
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open({calls!r}, "a") as calls:
    calls.write("x")
time.sleep(0.2)
out = pathlib.Path(arguments["-retrieve"]).parent
out.mkdir()
for name, version in re.findall(r'name="([^"]+)" rev="([^"]+)"', pathlib.Path(arguments["-ivy"]).read_text()):
    (out / f"{{name}}-{{version}}.jar").write_bytes({content!r})
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, a list of two jars and the fake java."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(calls=str(tmp_path / "calls"), content=CONTENT))
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _pin(tmp_path, monkeypatch, hashlib.sha256(CONTENT).hexdigest())
    return tmp_path


def _pin(folder: Path, monkeypatch: pytest.MonkeyPatch, sha256: str) -> None:
    listed = folder / "jars.toml"
    listed.write_text(f'[two]\n"g:first:1" = "{sha256}"\n"g:second:2.0" = "{sha256}"\n')
    monkeypatch.setattr(jars, "JAR_LIST", listed)


def test_fetches_once_and_in_the_order_of_the_list(machine: Path) -> None:
    paths = jars.ensure_jars("two")
    assert [path.name for path in paths] == ["first-1.jar", "second-2.0.jar"]
    assert all(path.read_bytes() == CONTENT for path in paths)
    assert jars.ensure_jars("two") == paths
    assert (machine / "calls").read_text() == "x"


def test_two_at_once_fetch_once(machine: Path) -> None:
    at_once([partial(jars.ensure_jars, "two")] * 4)
    assert (machine / "calls").read_text() == "x"


def test_a_wrong_checksum_leaves_nothing_in_the_cache(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pin(machine, monkeypatch, "0" * 64)
    with pytest.raises(jars.JarError, match="g:first:1 is not the pinned file"):
        jars.ensure_jars("two")
    assert os.listdir(jars.cache_folder()) == [".lock"]


def test_a_failing_fetch_says_what_was_said(machine: Path) -> None:
    (machine / "home" / "bin" / "java").write_text("#!/bin/sh\necho no route to host\nexit 1\n")
    with pytest.raises(jars.JarError, match="no route to host"):
        jars.ensure_jars("two")


def test_no_java_and_no_group(machine: Path) -> None:
    with pytest.raises(InvalidRequestError, match="choose from two"):
        jars.ensure_jars("three")
    (machine / "home" / "bin" / "java").unlink()
    with pytest.raises(jars.JarError, match="no java in JAVA_HOME"):
        jars.ensure_jars("two")


def test_every_pinned_entry_is_well_formed() -> None:
    pinned = [
        jar
        for group in ("spark-kafka", "s3a", "kafka-broker", "debezium", "paimon", "delta")
        for jar in jars.pinned_jars(group)
    ]
    assert len(pinned) == 4 + 3 + 46 + 69 + 1 + 7
    assert all(len(jar.sha256) == 64 and jar.organisation and jar.version for jar in pinned)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"spark.jars": "/a/other.jar,file:/a/spark-sql-kafka-0-10_2.13-4.2.0.jar"}, True),
        ({"spark.jars.packages": "a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.1"}, True),
        ({"spark.driver.extraClassPath": "FOLDER/*"}, True),
        ({"spark.driver.extraClassPath": "/nothing/*:/else.jar"}, False),
    ],
)
def test_a_session_that_brings_the_kafka_source_needs_no_pinned_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: bool
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar").write_bytes(b"")
    given = {key: value.replace("FOLDER", str(tmp_path)) for key, value in settings.items()}
    assert jars.names_kafka_source(given) is expected


def test_jars_that_are_not_fetched_by_the_way(machine: Path) -> None:
    assert jars.fetched_jars("two") is None
    fetched = jars.ensure_jars("two")
    assert jars.fetched_jars("two") == fetched
    fetched[0].unlink()
    assert jars.fetched_jars("two") is None
    assert (machine / "calls").read_text() == "x"


def test_s3a_by_packages_or_files() -> None:
    packages = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}
    for settings in (packages, {"spark.jars": "/a/hadoop-aws-3.5.0.jar"}):
        assert jars.names_artifact(settings, jars.S3A_ARTIFACT)
    assert not jars.names_artifact({"spark.jars": "/a/hadoop-azure-3.5.0.jar"}, jars.S3A_ARTIFACT)


def test_the_jars_of_spark_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql-kafka-0-10_2.13-4.2.0.jar").write_bytes(b"")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert jars.names_kafka_source({})
