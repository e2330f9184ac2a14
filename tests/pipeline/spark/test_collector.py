"""The garbage collector of the JVMs that we start: ours where nobody names one, since a JVM with two does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.spark.collector import collector_option

OURS = "-XX:+UseParallelGC"


@pytest.fixture(autouse=True)
def no_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("options", [[], [""], ["-XX:TieredStopAtLevel=1"], ["-Xlog:gc -XX:G1HeapRegionSize=8m"]])
def test_where_nobody_names_one(options: list[str]) -> None:
    assert collector_option(options) == OURS


@pytest.mark.parametrize("option", ["-XX:+UseG1GC", "-Xmx1g -XX:+UseZGC", "-XX:-UseParallelGC", "-XX:+UseShenandoahGC"])
def test_another_one_stays(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collector_option(["", option]) == ""
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", option)
        assert collector_option([]) == ""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {option}\n")
    assert collector_option([]) == ""
