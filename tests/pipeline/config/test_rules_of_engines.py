# ruff: noqa: E501 - one line per case
"""Pipeline files of tables with a merge engine: what is refused before the start, and what is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.jobs.demo.stage import PIPELINES
from freshet.pipeline.config.pipeline_file import load_pipeline, load_pipelines, parse_pipeline, warnings
from freshet.pipeline.exceptions import ConfigurationError

JOIN = """\
name: join
sources:
  - files: {path: /in/orders}
    format: debezium-json
    select: {id: id, status: status, lsn: _source.lsn}
  - files: {path: /in/payments}
    format: debezium-unwrapped
    select: {id: id, paid: amount, paid_lsn: _source.lsn}
table:
  warehouse: /w
  name: shop.wide
  columns: {id: BIGINT, status: STRING, lsn: BIGINT, paid: INT, paid_lsn: BIGINT}
  primary_key: [id]
  options: {bucket: 1, merge-engine: partial-update, fields.lsn.sequence-group: status, fields.paid_lsn.sequence-group: paid}
  write_options: {write-only: true}
checkpoint: /c
"""
ONE = """\
name: one
sources:
  - files: {path: /in}
    format: FORMAT
table:
  warehouse: /w
  name: shop.one
  columns: {id: BIGINT, n: INT, s: BIGINT}
  primary_key: [id]
  options: {bucket: 1, OPTIONS}
checkpoint: /c
"""


def problems(text: str) -> list[str]:
    config, found = parse_pipeline(text, "p.yaml", {})
    assert (config is None) == bool(found)
    return [str(problem) for problem in found]


def warned(text: str) -> list[str]:
    config, found = parse_pipeline(text, "p.yaml", {})
    assert config is not None, [str(problem) for problem in found]
    return list(warnings(config))


def test_several_sources_of_one_wide_table_are_right_as_they_are() -> None:
    assert problems(JOIN) == []
    assert warned(JOIN) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (", lsn: _source.lsn}", "}", "p.yaml:5: sources.0.select: fills status of the sequence group of lsn, but not what orders it"),
        ("sequence-group: paid}", "sequence-group: payed}", "p.yaml:14: table.options.fields.paid_lsn.sequence-group: option fields.paid_lsn.sequence-group names column 'payed'"),
        ("sequence-group: paid}", "sequence-group: status}", "names column status in fields.lsn.sequence-group as well"),
        ("{write-only: true}", "{merge-engine: deduplicate}", "p.yaml:15: table.write_options.merge-engine: merge-engine says what the rows of the table mean"),
        ("{write-only: true}", "{fields.lsn.sequence-group: paid}", "says what the rows of the table mean"),
        ("{write-only: true}", "{write-olny: true}", "table.write_options"),
        ("{write-only: true}", "{write-only: perhaps}", "table.write_options"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_line_and_remedy(old: str, new: str, expected: str) -> None:
    assert old in JOIN
    found = problems(JOIN.replace(old, new, 1))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("format", "options", "expected"),
    [
        ("debezium-json", "merge-engine: partial-update", ["a deletion will stop the run: partial-update has no rule"]),
        ("debezium-json", "merge-engine: partial-update, ignore-delete: true", []),
        ("debezium-json", "merge-engine: partial-update, partial-update.remove-record-on-delete: true", []),
        ("json", "merge-engine: partial-update", []),
        ("debezium-json", "merge-engine: partial-update, fields.s.sequence-group: n",
         ["ordering column s comes from the payload"]),
        ("row-kind", "merge-engine: partial-update, rowkind.field: op, fields.s.sequence-group: n", []),
        ("debezium-json", "merge-engine: first-row", ["a deletion will stop the run: first-row takes none"]),
        ("debezium-json", "merge-engine: aggregation, fields.n.aggregate-function: max",
         ["the aggregate functions of n cannot take a value back; set fields.n.ignore-retract"]),
        ("json", "merge-engine: aggregation, fields.n.aggregate-function: max", []),
        ("debezium-unwrapped", "merge-engine: aggregation, fields.n.aggregate-function: sum",
         ["an update counts twice in n"]),
        ("debezium-json", "merge-engine: aggregation, fields.n.aggregate-function: sum", []),
    ],
)  # fmt: skip
def test_what_deletions_will_do_is_said_before_the_start(format: str, options: str, expected: list[str]) -> None:  # noqa: A002
    text = ONE.replace("FORMAT", format).replace("OPTIONS", options)
    if "rowkind" in options:
        text = text.replace("s: BIGINT}", "s: BIGINT, op: STRING}")
        expected = ["a deletion leaves op as they are"]
    found = warned(text)
    assert len(found) == len(expected), found
    for text, part in zip(found, expected, strict=True):
        assert part in text


def test_columns_that_several_sources_fill_without_an_order_are_warned_of() -> None:
    text = JOIN.replace("paid: INT,", "paid: INT, note: STRING,")
    text = text.replace("status: status,", "status: status, note: note,").replace(
        "paid: amount,", "paid: amount, note: note,"
    )
    found = warned(text)
    assert any("several sources fill note" in each for each in found), found
    assert any("a deletion leaves note as they are" in each for each in found), found


def test_files_that_write_one_table_must_describe_it_alike(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    other = JOIN.replace("name: join", "name: other").replace("checkpoint: /c", "checkpoint: /d")
    first.write_text(JOIN)
    second.write_text(other.replace("write-only: true", "write-only: false"))
    assert len(load_pipelines([first, second], {})) == 2
    second.write_text(other.replace(", fields.paid_lsn.sequence-group: paid", ""))
    with pytest.raises(ConfigurationError, match=f"shop.wide is described otherwise in {first}"):
        load_pipelines([first, second], {})


@pytest.mark.parametrize("file", sorted(path.name for path in PIPELINES.glob("join-*.yaml")))
def test_the_join_job_is_valid_without_an_environment(file: str) -> None:
    config = load_pipeline(PIPELINES / file, {})
    assert list(warnings(config)) == []
    assert len(config.sources) == (3 if file == "join-one-query.yaml" else 1)


def test_the_files_of_the_join_job_agree_and_one_query_says_the_same(tmp_path: Path) -> None:
    several = load_pipelines(sorted(PIPELINES.glob("join-several-*.yaml")), {})
    one = load_pipeline(PIPELINES / "join-one-query.yaml", {})
    assert sorted(str(s.select) for config in several for s in config.sources) == sorted(
        str(s.select) for s in one.sources
    )
    assert {str(config.table.options) for config in several} == {str(one.table.options)}
    assert {config.table.write_options["write-only"] for config in several} == {"true"}
