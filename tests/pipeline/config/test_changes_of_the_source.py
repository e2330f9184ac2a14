"""Keys that let a table follow its source, where that cannot be."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.changelog_rules import changelog_warnings
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


SYNC = """\
name: n
sync:
  source: {{kafka: {{kafka.bootstrap.servers: h:1, subscribe: t}}, format: debezium-json, {key}}}
  tables: [{{exclude: x}}, {{from: y, to: a.y}}, {{from: '(.*)', to: a.$1, {table}}}]
warehouse: /w
dead_letters: a.dead
checkpoint: /c
"""


@pytest.mark.parametrize("text", [TEXT, SYNC])
@pytest.mark.parametrize(
    ("key", "producer", "is_warned"),
    [
        ("on_truncate: apply", "lookup", True),
        ("on_truncate: apply", "full-compaction", True),
        ("on_truncate: skip", "lookup", False),
        ("on_truncate: apply", "input", False),
        ("on_truncate: apply", "none", False),
    ],
)
def test_readers_of_some_changelogs_see_no_truncate(text: str, key: str, producer: str, is_warned: bool) -> None:
    table = f"options: {{bucket: 1, changelog-producer: {producer}}}"
    config, problems = parse_pipeline(text.format(key=key, more="", table=table), "p.yaml", {})
    assert config is not None and not problems
    found = [each for each in changelog_warnings(config) if "keep the rows that a truncate takes away" in each]
    assert len(found) == is_warned
    assert all(f"changelog-producer={producer}:" in each for each in found)
