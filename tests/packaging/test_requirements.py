"""Bounds of the requirements: every library has both, and both are what suites run against."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
WITH_EXTRAS = [
    *CORE,
    *(Requirement(text) for extra in ("spark", "kafka", "avro", "jdbc", "s3") for text in EXTRAS[extra]),
]


def locked(name: str) -> dict[str, Version]:
    """Versions of a lock file, by library."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(library): Version(version) for library, version in pairs}


def bounds(requirement: Requirement) -> dict[str, Version]:
    return {each.operator: Version(each.version) for each in requirement.specifier}


@pytest.mark.parametrize("requirement", WITH_EXTRAS, ids=lambda requirement: requirement.name)
def test_a_library_has_both_bounds_and_the_newest_tested_lies_within(requirement: Requirement) -> None:
    assert set(bounds(requirement)) == {">=", "<"}
    assert locked("requirements.lock")[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    lower = {canonicalize_name(requirement.name): bounds(requirement)[">="] for requirement in CORE}
    assert locked("requirements-lowest.lock") == lower


def test_spark_kafka_and_databases_are_extras() -> None:
    assert not {"pyspark", "confluent-kafka", "SQLAlchemy", "psycopg", "boto3"} & {
        requirement.name for requirement in CORE
    }
    assert EXTRAS["all"] == ["freshet-lake[spark,kafka,avro,jdbc,postgres,s3,rocksdb,metrics,sql]"]
    assert "freshet-lake[all]" in EXTRAS["dev"]


def test_the_image_has_the_extras() -> None:
    assert '".[all]"' in (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
