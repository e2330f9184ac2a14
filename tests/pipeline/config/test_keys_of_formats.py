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
    "on_truncate: skip": {"debezium-json", "debezium-unwrapped", "canal-json"},
    "only: any": {"debezium-json", "debezium-unwrapped", "canal-json", "maxwell-json"},
    "decimal_handling_mode: string": {"debezium-json", "debezium-unwrapped"},
    "unavailable_value_placeholder: x": {"debezium-json", "debezium-unwrapped"},
    "time_precision_mode: connect": {"debezium-json", "debezium-unwrapped", "json"},
    "binary_handling_mode: hex": {"debezium-json", "debezium-unwrapped", "json"},
}


@pytest.mark.parametrize("format_name", ["debezium-json", "debezium-unwrapped", "canal-json", "maxwell-json", "json"])
@pytest.mark.parametrize("key", KEYS)
def test_keys_of_other_formats(format_name: str, key: str) -> None:
    config, problems = parse_pipeline(TEXT.format(format=format_name, key=key), "p.yaml", {})
    if format_name in KEYS[key]:
        assert config is not None and not problems
    else:
        (problem,) = problems
        assert config is None and "p.yaml:3" in str(problem)
        assert "belongs to the Debezium formats" in str(problem) and f"not to {format_name}" in str(problem)


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
