"""Pipeline files whose source is a table: what is found before they start, with the line of the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.pipeline.checks.preflight import problems_before_start
from freshet.pipeline.checks.table_sources import open_source
from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.storage.catalog import Catalog
from tests.logstore.logged_tables import fake_kafka, make_logged

TEXT = """\
name: copy
sources:
  - table: {warehouse: "FOLDER", name: db.t, isolation: committed, consumer-id: copy, kafka.sasl.password: hunter2}
table:
  warehouse: "FOLDER"
  name: db.copy
  columns: {k: BIGINT, v: STRING}
  primary_key: [k]
  options: {bucket: 1}
checkpoint: "FOLDER/c"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with fake_kafka():
        make_logged(tmp_path)
        yield tmp_path


def found(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config, problems = parse_pipeline(text.replace("FOLDER", str(folder)), "p.yaml", {})
    if config is not None:
        problems = problems_before_start(config)
    return [str(problem).replace(f"{folder}", "FOLDER") for problem in problems]


def test_a_good_file_is_read(folder: Path) -> None:
    assert found(folder) == []
    config, _ = parse_pipeline(TEXT.replace("FOLDER", str(folder)), "p.yaml", {})
    assert config is not None and config.follows_tables
    source = config.sources[0].table
    assert source is not None and source.given == {
        "scan.mode": "latest-full",
        "log.read.isolation": "committed",
        "consumer-id": "copy",
        "kafka.sasl.password": "hunter2",
    }
    assert open_source(config, source).options.given["kafka.sasl.password"] == "hunter2"
    assert "hunter2" not in repr(config) and "hunter2" not in config.without_secrets("a hunter2 b")


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ('{k: "k + 1", v: "upper(v)"}', None),
        ("{k: K, v: w}", "sources.0.select.v: the table read has no column w"),
        ('{k: k, v: "sha2(v, 224)"}', "sources.0.select.v: only Spark computes 'sha2(v, 224)'"),
        ("{k: v, v: v}", "sources.0.select.k: 'v' is string, and column k is BIGINT NOT NULL: cast it"),
    ],
)
def test_without_spark_each_entry_of_select_is_looked_at(folder: Path, select: str, message: str | None) -> None:
    changes = ("name: copy\n", "name: copy\nrun_on: local\n"), ("hunter2}", f"hunter2}}\n    select: {select}")
    problems = found(folder, *changes)
    assert len(problems) == (message is not None) and (message or "") in "".join(problems), problems


@pytest.mark.parametrize("run_on", ["local", "spark"])
@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ("TIME(3)", "STRING", "'at' is TIME(3), which counts milliseconds of the day in expressions"),
        ("TIME(3)", "TIMESTAMP(9)", "and the column is TIMESTAMP(9); say how it is computed"),
        ("TIMESTAMP(9)", "STRING", "'at' is TIMESTAMP(9), which counts nanoseconds since 1970 in expressions"),
        ("TIMESTAMP(9)", "TIME(0)", "and the column is TIME(0)"),
        ("TIME(3)", "TIME(3)", None),
        ("TIMESTAMP(9)", "BIGINT", None),
    ],
)
def test_the_count_of_a_time_is_no_other_value(
    folder: Path, run_on: str, given: str, wanted: str, message: str | None
) -> None:
    Catalog(str(folder)).create_table(
        "db.times", schema={"k": "BIGINT", "at": given}, primary_keys=["k"],
        options={"bucket": 1, "changelog-producer": "input"},
    )  # fmt: skip
    problems = found(
        folder, ("name: copy\n", f"name: copy\nrun_on: {run_on}\n"), ("db.t,", "db.times,"),
        (" isolation: committed,", ""), (" kafka.sasl.password: hunter2}", " scan.mode: latest}"),
        ("latest}", "latest}\n    select: {k: k, v: at}"), ("v: STRING", f'v: "{wanted}"'),
    )  # fmt: skip
    assert len(problems) == (message is not None) and (message or "") in "".join(problems), problems


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: db.t,", "name: db.tt,", "there is no table db.tt in FOLDER (did you mean 'db.t'?)"),
        ("isolation: committed", "isolation: serializable", "is one of committed, speculative, none"),
        ("isolation: committed", "scan.mod: latest", "unknown key (did you mean 'scan.mode'?)"),
        ("isolation: committed", "scan.mode: sideways", "scan_mode is one of"),
        ("isolation: committed", "scan.mode: from-snapshot", "needs from_snapshot"),
        ("isolation: committed", "columns: nothing", "nothing"),
        ("isolation: committed", "filter: 'x ='", "filter"),
        ("isolation: committed", "maxOffsetsPerTrigger: 0", "must be greater than 0"),
        ("isolation: committed", "maxOffsetsPerTrigger: --5", "must be a whole number, not '--5'"),
        ("hunter2}", "hunter2}\n    select: {v: v}", "lacks the key column k"),
        ("hunter2}", "hunter2}\n    select: {k: k, w: v}", "selects 'w', which is no column of the table"),
        ("name: db.copy", "name: db.t", "it would follow itself"),
        ("{k: BIGINT, v: STRING}", "{k: BIGINT, v: INT}", "give select with v: CAST(v AS …)"),
        ("{k: BIGINT, v: STRING}", "{k: INT, v: STRING}", "column k is BIGINT NOT NULL in the table read"),
        ("{k: BIGINT, v: STRING}\n  primary_key: [k]", "{i: BIGINT, v: STRING}\n  primary_key: [i]",
         "the table read has no column i, which is a key column of the target"),
        ("  primary_key: [k]\n  options: {", "  options: {bucket-key: k, ", "give it a primary_key"),
        ("  - table:", "  - format: json\n    table:", "belongs to records"),
        ("  - table:", "  - {files: {path: /data}, format: json}\n  - table:", "cannot feed one pipeline"),
        ("  - table:", "  - files: {path: /data}\n    table:", "exactly one of kafka, files, table and postgres"),
    ],
)  # fmt: skip
def test_mistakes_are_named(folder: Path, old: str, new: str, message: str) -> None:
    problems = found(folder, (old, new))
    assert len(problems) >= 1
    assert any(message in problem and "p.yaml:" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("{bucket: 1}", None),
        ("{bucket: 1, sequence.field: v}", "may win over the current one"),
        ("{bucket: 1, ignore-delete: true}", "ignore-delete keeps them"),
        ("{bucket: 1, merge-engine: partial-update}", "merge-engine=partial-update does not undo them"),
        ("{bucket: 1, merge-engine: aggregation}", "merge-engine=aggregation does not undo them"),
    ],
)
def test_speculative_rows_go_only_where_they_can_be_retracted(folder: Path, options: str, reason: str | None) -> None:
    problems = found(folder, ("isolation: committed", "isolation: speculative"), ("{bucket: 1}", options))
    assert [reason is not None and reason in problem for problem in problems] == [True] * (reason is not None)


def test_a_target_that_is_there_counts_with_its_own_options(folder: Path) -> None:
    Catalog(str(folder)).create_table(
        "db.copy", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"],
        options={"bucket": "1", "ignore-delete": "true"},
    )  # fmt: skip
    assert found(folder) == []
    [problem] = found(folder, ("isolation: committed", "isolation: speculative"))
    assert "db.copy is there with options of its own: ignore-delete keeps them; read committed rows" in problem


def test_a_table_without_a_key_takes_none_that_may_be_retracted(folder: Path) -> None:
    Catalog(str(folder)).create_table("db.a", schema={"k": "BIGINT", "v": "STRING"}, options={"bucket": "-1"})
    plain = [
        ("name: db.t, isolation: committed", "name: db.a"),
        ("  primary_key: [k]\n", ""),
        ("bucket: 1", "bucket: -1"),
    ]
    assert found(folder, *plain) == []
    speculative = found(folder, *plain[1:], ("isolation: committed", "isolation: speculative"))
    assert "a table without a primary key cannot drop them" in speculative[0]


def test_narrower_integers_and_other_lengths_of_text_fit(folder: Path) -> None:
    Catalog(str(folder)).create_table(
        "db.small", schema={"k": "INT", "v": "VARCHAR(7)"}, primary_keys=["k"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )  # fmt: skip
    assert found(folder, ("name: db.t, isolation: committed", "name: db.small")) == []


def test_an_isolation_needs_a_log(folder: Path) -> None:
    Catalog(str(folder)).create_table(
        "db.plain", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )  # fmt: skip
    [problem] = found(folder, ("name: db.t", "name: db.plain"))
    assert "table db.plain has no log" in problem
