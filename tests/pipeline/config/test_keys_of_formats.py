"""Keys of a source that mean nothing for the records of its format are refused by name."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.config.rules import warnings
from tests.pipeline.records import pipeline_of

TEXT = """\
name: n
sources:
  - {{kafka: {{kafka.bootstrap.servers: h:1, subscribe: t}}, format: {format}, {key}}}
table: {{warehouse: /w, name: a.b, columns: {{id: INT}}, primary_key: [id], options: {{bucket: 1}}}}
checkpoint: /c
"""
KEYS = {
    "on_truncate: skip": {"debezium-json", "debezium-unwrapped", "debezium-avro", "canal-json"},
    "only: any": {"debezium-json", "debezium-unwrapped", "debezium-avro", "canal-json", "maxwell-json"},
    "decimal_handling_mode: string": {"debezium-json", "debezium-unwrapped"},
    "unavailable_value_placeholder: x": {"debezium-json", "debezium-unwrapped", "debezium-avro"},
    "time_precision_mode: connect": {"debezium-json", "debezium-unwrapped", "debezium-avro", "json", "avro"},
    "binary_handling_mode: hex": {"debezium-json", "debezium-unwrapped", "debezium-avro", "json", "avro"},
}
AVRO = {"debezium-avro", "avro"}
REGISTRY = "schema_registry: {url: 'http://r:8081'}"


@pytest.mark.parametrize(
    "format_name", ["debezium-json", "debezium-unwrapped", "canal-json", "maxwell-json", "json", *sorted(AVRO)]
)
@pytest.mark.parametrize("key", KEYS)
def test_keys_of_other_formats(format_name: str, key: str) -> None:
    keys = f"{key}, {REGISTRY}" if format_name in AVRO else key
    config, problems = parse_pipeline(TEXT.format(format=format_name, key=keys), "p.yaml", {})
    if format_name in KEYS[key]:
        assert config is not None and not problems
    else:
        (problem,) = problems
        assert config is None and "p.yaml:3" in str(problem)
        assert "belongs to " in str(problem) and f"not to {format_name}" in str(problem)


@pytest.mark.parametrize(
    ("format_name", "given", "wanted"),
    [
        ("debezium-avro", "select: {}", "schema_registry: is missing"),
        ("avro", "schema_registry: {}", "url is missing"),
        ("avro", "schema_registry: {url: 'r:8081'}", "no address of a registry"),
        ("avro", "schema_registry: {url: 'http://r:8081', basic.auth.userinfo: 'a:b'}", "'basic.auth.user.info'"),
        ("avro", "schema_registry: {url: 'http://r:8081', timeout: soon}", "'soon' is no number"),
        ("json", REGISTRY, "belongs to debezium-avro and avro, not to json"),
        ("debezium-json", REGISTRY, "belongs to debezium-avro and avro, not to debezium-json"),
    ],
)
def test_the_registry(format_name: str, given: str, wanted: str) -> None:
    config, problems = parse_pipeline(TEXT.format(format=format_name, key=given), "p.yaml", {})
    assert config is None and len(problems) == 1 and wanted in str(problems[0])


def test_settings_of_the_registry_s_client() -> None:
    key = (
        "schema_registry: {url: 'https://a:1,https://b:2', basic.auth.user.info: 'u:geheim', ssl.ca.location: /ca.pem, "
        "bearer.auth.token: geheim2, timeout: 3}"
    )
    config, problems = parse_pipeline(TEXT.format(format="avro", key=key), "p.yaml", {})
    assert config is not None and not problems
    assert "geheim" not in repr(config) and "geheim" not in config.without_secrets("u:geheim and geheim2")


def test_avro_is_not_read_from_files() -> None:
    text = TEXT.format(format="avro", key=REGISTRY).replace(
        "kafka: {kafka.bootstrap.servers: h:1, subscribe: t}", "files: {path: /f}"
    )
    config, problems = parse_pipeline(text, "p.yaml", {})
    assert config is None and "is read from Kafka alone" in str(problems[0])


def test_a_format_that_there_is_not() -> None:
    config, problems = parse_pipeline(TEXT.format(format="canal", key="select: {}"), "p.yaml", {})
    assert config is None and "canal-json" in str(problems[0]) and "maxwell-json" in str(problems[0])


@pytest.mark.parametrize("format_name", ["canal-json", "maxwell-json"])
def test_warnings(format_name: str) -> None:
    append = pipeline_of({"id": "INT"}, primary_key=(), format=format_name)
    assert any("updates are appended as rows" in each for each in warnings(append))
    first = pipeline_of({"id": "INT"}, format=format_name, options={"merge-engine": "first-row"})
    assert any("a deletion will stop the run" in each for each in warnings(first))
    sequence = pipeline_of({"id": "INT", "v": "INT"}, format=format_name, options={"sequence.field": "v"})
    assert not list(warnings(sequence)), "deletions carry the whole row"
