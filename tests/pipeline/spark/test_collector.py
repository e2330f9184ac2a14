"""The garbage collector of the JVMs that we start: ours where nobody names one, since a JVM with two does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import SparkSession

from freshet.pipeline.spark.session import (
    DEFAULT_OPTIONS,
    JAVA_OPTIONS,
    LOGGING_OPTION,
    collector_option,
    settings_of_this_machine,
)

OURS = "-XX:+UseParallelGC"
VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")


@pytest.fixture(autouse=True)
def no_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("options", [[], [""], ["-XX:TieredStopAtLevel=1"], ["-Xlog:gc -XX:G1HeapRegionSize=8m"]])
def test_where_nobody_names_one(options: list[str]) -> None:
    assert collector_option(options) == OURS


@pytest.mark.parametrize("option", ["-XX:+UseG1GC", "-Xmx1g -XX:+UseZGC", "-XX:-UseParallelGC", "-XX:+UseShenandoahGC"])
def test_another_one_stays(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collector_option(["", option]) == ""
    for name in VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(name, f"--driver-java-options '{option}'" if name == "PYSPARK_SUBMIT_ARGS" else option)
            assert collector_option([]) == "", name
    for name, text in {
        "spark-defaults.conf": f"spark.driver.defaultJavaOptions {option}\n",
        "java-opts": f"-Dx=y\n{option}\n",
        "spark-env.sh": f"export SPARK_SUBMIT_OPTS='{option}'\n",
    }.items():
        assert collector_option([]) == OURS
        (tmp_path / name).write_text(text)
        assert collector_option([]) == "", name
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("JDK_JAVA_OPTIONS", "-Xmx1g @/etc/java/options"),
        ("JAVA_TOOL_OPTIONS", "-XX:VMOptionsFile=/etc/java/options"),
        ("SPARK_SUBMIT_OPTS", "-XX:Flags=/etc/java/flags"),
        ("PYSPARK_SUBMIT_ARGS", "--properties-file /etc/spark.conf pyspark-shell"),
    ],
)
def test_options_in_other_files_may_name_one(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    assert collector_option([]) == ""


def test_sessions_of_this_machine_have_it() -> None:
    assert OURS in settings_of_this_machine({})["spark.driver.extraJavaOptions"].split()
    others = {DEFAULT_OPTIONS: "-XX:+UseG1GC"}
    assert OURS not in settings_of_this_machine(others)["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(("given", "is_ours"), [("-Dmine=1", True), ("-XX:+UseZGC -Dmine=1", False)])
def test_options_of_the_user_come_after_ours(given: str, is_ours: bool) -> None:
    options = settings_of_this_machine({JAVA_OPTIONS: given})[JAVA_OPTIONS]
    assert options.endswith(f" {given}")
    assert LOGGING_OPTION in options
    assert (OURS in options) == is_ours


@pytest.mark.spark
def test_the_jvm_of_a_session_has_one(spark: SparkSession) -> None:
    """And PySpark does not hand it where each function was called from."""
    factory = spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    assert "PS MarkSweep" in [each.getName() for each in factory.getGarbageCollectorMXBeans()]
    assert not is_debugging_enabled()
