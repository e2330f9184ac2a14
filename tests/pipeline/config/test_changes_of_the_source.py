"""Keys that let a table follow its source, where that cannot be."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.pipeline_file import parse_pipeline

TEXT = """\
name: n
sources:
  - {{kafka: {{kafka.bootstrap.servers: h:1, subscribe: t}}, format: debezium-json, {key}}}{more}
table: {{warehouse: /w, name: a.b, columns: {{id: INT, p: INT}}, primary_key: [id], {table}}}
checkpoint: /c
"""
FIXED = "options: {bucket: 1}"
SECOND = "\n  - {kafka: {kafka.bootstrap.servers: h:1, subscribe: u}, format: json}"


@pytest.mark.parametrize(
    ("key", "more", "table", "wanted"),
    [
        ("on_truncate: apply", "", FIXED, None),
        ("on_truncate: apply, only: {table: orders}", "", FIXED, None),
        ("on_unknown_field: add", "", FIXED, None),
        ("on_truncate: apply", SECOND, FIXED, "it would take away the rows of the other sources too"),
        ("on_truncate: apply, only: any", "", FIXED, "only takes several tables"),
        ("on_truncate: apply, only: {table: 'orders_[0-9]+'}", "", FIXED, "only takes several tables"),
        (
            "on_truncate: apply", "", "partition_by: [p], options: {bucket: -1}",
            "rows that move between partitions",
        ),
        ("on_unknown_field: add, select: {id: id}", "", FIXED, "add does not go with select"),
    ],
)  # fmt: skip
def test_what_cannot_be(key: str, more: str, table: str, wanted: str | None) -> None:
    config, problems = parse_pipeline(TEXT.format(key=key, more=more, table=table), "p.yaml", {})
    if wanted is None:
        assert config is not None and not problems
    else:
        (problem,) = problems
        assert config is None and "p.yaml:3" in str(problem) and wanted in str(problem)


def test_lines_of_files_are_not_truncated() -> None:
    text = TEXT.format(key="on_truncate: apply", more="", table=FIXED)
    text = text.replace("kafka: {kafka.bootstrap.servers: h:1, subscribe: t}", "files: {path: /x}")
    _, (problem,) = parse_pipeline(text, "p.yaml", {})
    assert "sources.0.on_truncate: cannot be apply: lines of files have no order" in str(problem)
