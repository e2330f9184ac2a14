"""Files with `sync`: what is read, and that every mistake is named once, with its key and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from freshet.pipeline.config.changelog_rules import changelog_warnings
from freshet.pipeline.config.pipeline_file import load_pipeline, load_pipelines, parse_pipeline, warnings
from freshet.pipeline.config.sync import LEDGER_COLUMNS, SyncPipelineConfig, default_ledger
from freshet.pipeline.exceptions import ConfigurationError

GOOD = """\
name: shop
sync:
  source:
    kafka: {kafka.bootstrap.servers: "h:1", subscribePattern: "shop[.]public[.].*"}
    format: debezium-json
  tables:
    - {exclude: "shop.public.tmp_.*"}
    - {from: "shop.public.(orders|items)", to: "lake.{table}", primary_key: [id], options: {bucket: 4}}
    - {from: 'shop.public.(.*)_(\\d+)', to: "lake.$1", merge: true}
    - {from: "shop.public.(.*)", to: "lake.shop_{table}"}
  schema_evolution: lenient
  metadata_columns: {_op_ts: op_ts, _source_table: table}
  computed_columns: {dt: "date_format(created, 'yyyy-MM-dd')"}
warehouse: /w
checkpoint: /c
dead_letters: lake.dead_letters
trigger: {processing_time: 1 second}
"""
EXCLUDE = 'exclude: "shop.public.tmp_.*"'
KAFKA_LINE = '    kafka: {kafka.bootstrap.servers: "h:1", subscribePattern: "shop[.]public[.].*"}\n'
FORMAT = "    format: debezium-json"


def read(text: str = GOOD) -> SyncPipelineConfig:
    config, problems = parse_pipeline(text, "p.yaml", {})
    assert isinstance(config, SyncPipelineConfig), [str(problem) for problem in problems]
    return config


def problems(text: str) -> list[str]:
    config, found = parse_pipeline(text, "p.yaml", {})
    assert (config is None) == bool(found)
    return [str(problem) for problem in found]


def test_a_file() -> None:
    config = read()
    excluded, listed, shards, others = config.sync.tables
    assert (excluded.exclude, excluded.taken, excluded.to) == ("shop.public.tmp_.*", None, None)
    assert (listed.taken, listed.to) == ("shop.public.(orders|items)", "lake.{table}")
    assert (listed.primary_key, listed.options, listed.merge) == (("id",), {"bucket": "4"}, False)
    assert shards.merge and not others.merge and others.without_key is None
    assert (config.sync.schema_evolution, config.sync.without_key, config.sync.of_schema) == ("lenient", "fail", None)
    assert config.sync.metadata_columns == {"_op_ts": "op_ts", "_source_table": "table"}
    assert config.sources == (config.sync.source,)
    assert config.warehouse == config.table.warehouse == "/w"
    assert not list(warnings(config))


def test_the_table_of_such_a_file_is_its_ledger() -> None:
    config = read()
    assert config.ledger_name == config.table.name == "lake._freshet_ledger_shop"
    assert list(config.table.columns) == list(LEDGER_COLUMNS) and config.table.primary_key == ("table_name",)
    named = read(GOOD.replace("  schema_evolution", "  ledger: other.ledger\n  schema_evolution"))
    assert named.ledger_name == "other.ledger"
    assert default_ledger("a.b.c", "my shop-1.x") == "a.b._freshet_ledger_my_shop_1_x"


def test_folders_are_taken_against_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("/w", "w").replace("/c", "./c"))
    config = load_pipeline(path, {})
    assert isinstance(config, SyncPipelineConfig)
    assert config.warehouse == config.table.warehouse == f"{tmp_path}/w"
    assert config.checkpoint == f"{tmp_path}/c"


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("lake.{table}", "lake.orders_1"),
        ("{db}_{schema}.{table}", "shop_public.orders_1"),
        ("lake.$1", "lake.orders"),
        ("lake.$1_of_$2", "lake.orders_of_1"),
        ("lake.$0", "lake.shop.public.orders_1"),
        ("lake.$12", None),
        ("lake.a{table}b$2", "lake.aorders_1b1"),
    ],
)
def test_targets(to: str, target: str | None) -> None:
    text = GOOD.replace(EXCLUDE, f"from: 'shop.public.(.*)_([0-9]+)', to: '{to}'")
    if target is None:
        assert problems(text) == ["p.yaml:7: sync.tables.0: to has $12, and from has 2 groups"]
        return
    rule = read(text).sync.tables[0]
    match = re.fullmatch(rule.taken or "", "shop.public.orders_1")
    assert match is not None
    assert rule.target(("shop", "public", "orders_1"), match) == target


def test_a_group_that_is_empty_and_a_source_without_schemas() -> None:
    rule = read(GOOD.replace(EXCLUDE, "from: 'shop.(a)?(.*)', to: 'lake.{schema}_$1_$2'")).sync.tables[0]
    match = re.fullmatch(rule.taken or "", "shop.x")
    assert match is not None
    assert rule.target(("shop", "", "x"), match) == "lake.__x"


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        # --- the top ---
        ("dead_letters: lake.dead_letters\n", "", ["1: dead_letters: is missing"]),
        (
            "dead_letters: lake.dead_letters",
            "dead_letters: dead",
            ["16: dead_letters: a table is named as database.table; got 'dead'"],
        ),
        ("warehouse: /w\n", "", ["1: warehouse: is missing"]),
        ("warehouse: /w", "warehouse: ''", ["14: warehouse: must not be empty"]),
        ("warehouse: /w", "warehouse: [a]", ["14: warehouse: wants text"]),
        ("name: shop\n", "", ["1: name: is missing"]),
        ("name: shop\n", "name: shop\nsources: []\n", ["2: sources: has no place beside sync: the source and"]),
        ("name: shop\n", "name: shop\ntable: {}\n", ["2: table: has no place beside sync: the source and"]),
        ("checkpoint: /c", "checkpoint: ''", ["15: checkpoint: must not be empty"]),
        # --- the source ---
        (KAFKA_LINE, "", ["3: sync.source.kafka: is missing: sync reads the tables of Kafka topics"]),
        (
            "subscribePattern",
            "subscribePatern",
            [
                "4: sync.source.kafka: wants exactly one of assign, subscribe, subscribePattern; given: none",
                "4: sync.source.kafka.subscribePatern: unknown option of the Kafka source (did you mean",
            ],
        ),
        ('kafka.bootstrap.servers: "h:1", ', "", ["4: sync.source.kafka: kafka.bootstrap.servers is missing"]),
        (f"{FORMAT}\n", "", ["3: sync.source.format: is missing"]),
        ("debezium-json", "debezium-xml", ["5: sync.source.format: Input should be 'debezium-json', "]),
        ("debezium-json", "avro", ["3: sync.source.schema_registry: is missing: the schemas of avro are there"]),
        (
            "debezium-json",
            "row-kind",
            [f"{line}: sync.tables.{line - 7}: format row-kind needs the option rowkind.field" for line in (8, 9, 10)],
        ),
        (
            "schema_evolution: lenient",
            "options: {rowkind.field: kind}",
            ["11: sync.options.rowkind.field: is for sources of format row-kind; the other formats know"],
        ),
        (
            "bucket: 4",
            "bucket: 4, rowkind.field: kind",
            ["8: sync.tables.1.options.rowkind.field: is for sources of format row-kind"],
        ),
        (
            FORMAT,
            f"{FORMAT}\n    on_unknown_field: ignore",
            ["6: sync.source.on_unknown_field: has no place under sync: schema_evolution decides"],
        ),
        (
            FORMAT,
            f"{FORMAT}\n    only: {{table: a}}",
            ["6: sync.source.only: has no place under sync: the rules under tables decide"],
        ),
        (
            FORMAT,
            f"{FORMAT}\n    select: {{a: b}}",
            ["6: sync.source.select: has no place under sync: columns are the fields of the records"],
        ),
        (
            FORMAT,
            f"{FORMAT}\n    schema: {{a: INT}}",
            ["6: sync.source.schema: has no place under sync: types come with the records"],
        ),
        (FORMAT, f"{FORMAT}\n    files: {{path: /x}}", ["6: sync.source.files: has no place under sync: sync reads"]),
        (
            FORMAT,
            f"{FORMAT}\n    table: {{warehouse: /x, name: a.b}}",
            ["6: sync.source.table: has no place under sync: sync reads Kafka"],
        ),
        (FORMAT, f"{FORMAT}\n    frmat: x", ["6: sync.source.frmat: unknown key (did you mean 'format'?)"]),
        (
            FORMAT,
            "    format: json\n    on_truncate: skip",
            ["6: sync.source.on_truncate: belongs to the Debezium formats and canal-json, not to json"],
        ),
        (
            FORMAT,
            f"{FORMAT}\n    on_truncate: apply",
            ["6: sync.source.on_truncate: cannot be apply beside merge: true (sync.tables.2)"],
        ),
        # --- the section ---
        (
            "schema_evolution: lenient",
            "schema_evolution: strict",
            ["11: sync.schema_evolution: Input should be 'lenient', 'freeze' or 'ignore'"],
        ),
        (
            "schema_evolution: lenient",
            "schema_evolution: evolve",
            [
                "11: sync.schema_evolution: evolve is gone: columns that are renamed at the source are new columns, "
                "and an event says how to join the two. Columns that were renamed so far keep their names. Write "
                "lenient"
            ],
        ),
        (
            "schema_evolution: lenient",
            "schema_evoltion: freeze",
            ["11: sync.schema_evoltion: unknown key (did you mean 'schema_evolution'?)"],
        ),
        ("schema_evolution: lenient", "schema: {a: INT}", ["11: sync.schema: Input should be 'infer'"]),
        ("schema_evolution: lenient", "without_key: no", ["11: sync.without_key: Input should be 'fail' or 'append'"]),
        (
            "schema_evolution: lenient",
            "ledger: nodb",
            ["11: sync.ledger: a table is named as database.table; got 'nodb'"],
        ),
        (
            "schema_evolution: lenient",
            "ledger: lake.dead_letters",
            ["16: dead_letters: the dead letters need a table of their own"],
        ),
        (
            "schema_evolution: lenient",
            "options: {buckt: 3}",
            ["11: sync.options.buckt: unknown option 'buckt'; did you mean bucket?"],
        ),
        (
            "date_format(created, 'yyyy-MM-dd')",
            "date_format(created, 'yy')",
            ["13: sync.computed_columns.dt: date_format takes yyyy MM dd HH mm ss, not yy"],
        ),
        ("_op_ts: op_ts", "_op_ts: opts", ["12: sync.metadata_columns._op_ts: Input should be 'db', 'schema', "]),
        # --- a rule ---
        (
            EXCLUDE,
            'exclude: "shop.public.tmp_(.*"',
            ["7: sync.tables.0.exclude: wants a regular expression such as shop.public.(.*) (missing ), "],
        ),
        (EXCLUDE, "from: '*', to: a.b", ["7: sync.tables.0.from: wants a regular expression such as"]),
        (EXCLUDE, "exclude: ''", ["7: sync.tables.0.exclude: must not be empty"]),
        (EXCLUDE, "exclude: a, to: b.c", ["7: sync.tables.0: an exclude has no other keys"]),
        (EXCLUDE, "exclude: a, from: b, to: c.d", ["7: sync.tables.0: wants exactly one of exclude and from"]),
        (EXCLUDE, "to: a.b", ["7: sync.tables.0: wants exactly one of exclude and from"]),
        (EXCLUDE, "from: a", ["7: sync.tables.0: wants to: the table that rows go to, such as lake.{table}"]),
        (EXCLUDE, "from: a, to: b", ["7: sync.tables.0.to: wants database.name, such as lake.{table}, not 'b'"]),
        (EXCLUDE, "from: (a), to: lake.$2", ["7: sync.tables.0: to has $2, and from has 1 groups"]),
        (EXCLUDE, "from: a, to: 'lake.{tabel}'", ["7: sync.tables.0: to has {tabel}; known are {db}, {schema}, "]),
        (EXCLUDE, "from: a, to: lake.dead_letters", ["7: sync.tables.0.to: lake.dead_letters is the table of the"]),
        (EXCLUDE, "from: a, to: lake._freshet_ledger_shop", ["7: sync.tables.0.to: lake._freshet_ledger_shop is"]),
        (EXCLUDE, "from: a, to: b.c, mergee: true", ["7: sync.tables.0.mergee: unknown key (did you mean 'merge'?)"]),
        (EXCLUDE, "from: a, to: b.c, merge: 'yes'", ["7: sync.tables.0.merge: wants true or false"]),
        (EXCLUDE, "from: a, to: b.c, primary_key: id", ["7: sync.tables.0.primary_key: wants a list"]),
        (
            EXCLUDE,
            "from: a, to: b.c, options: {bucket: x}",
            ["7: sync.tables.0.options.bucket: option bucket = 'x' cannot be used: expected a whole number"],
        ),
        (
            EXCLUDE,
            "from: a, to: b.c, computed_columns: {y: 'rand()', z: 'cast(x, INT)'}",
            [
                "7: sync.tables.0.computed_columns.y: there is no function rand; known are year, ",
                "7: sync.tables.0.computed_columns.z: cast wants a constant of type INT, not 'x'",
            ],
        ),
        (EXCLUDE, "from: a, to: b.c, metadata_columns: {y: x}", ["7: sync.tables.0.metadata_columns.y: Input should"]),
    ],
)
def test_mistakes(old: str, new: str, messages: list[str]) -> None:
    assert GOOD.count(old) == 1, old
    found = problems(GOOD.replace(old, new))
    assert len(found) == len(messages), found
    for text, message in zip(found, messages, strict=True):
        assert text.startswith(f"p.yaml:{message}"), text


def test_row_kinds_are_said_once_for_all_tables_or_by_rule() -> None:
    text = GOOD.replace("debezium-json", "row-kind").replace("bucket: 4", "bucket: 4, rowkind.field: op")
    wanting = "schema_evolution: lenient\n  options: {rowkind.field: KIND}"
    assert read(text.replace("schema_evolution: lenient", wanting)).sync.options == {"rowkind.field": "KIND"}
    (problem,) = problems(text.replace("schema_evolution: lenient", wanting.replace("KIND", "a b")))
    assert problem.endswith("sync.options.rowkind.field: the row kind must be a field of letters and digits, not 'a b'")


@pytest.mark.parametrize("format_name", ["debezium-json", "debezium-unwrapped", "json"])
def test_changelogs_of_records_without_the_row_before(format_name: str) -> None:
    given = read(
        GOOD.replace("debezium-json", format_name).replace("bucket: 4", "bucket: 4, changelog-producer: input")
    )
    found = [text for text in changelog_warnings(given) if "changelog-producer=input" in text]
    assert [f"those of the format {format_name} do not" in text for text in found] == (
        [] if format_name == "debezium-json" else [True]
    )


def test_no_rules_and_no_section() -> None:
    head, rest = GOOD.split("  tables:\n")
    rules = rest[: rest.index("  schema_evolution")]
    assert problems(f"{head}  tables: []\n{rest.removeprefix(rules)}") == ["p.yaml:6: sync.tables: must not be empty"]
    assert problems(f"{head}{rest.removeprefix(rules)}") == ["p.yaml:2: sync.tables: is missing"]
    start, end = GOOD.index("sync:"), GOOD.index("warehouse:")
    for value in ("", " 3", " []"):
        assert problems(f"{GOOD[:start]}sync:{value}\n{GOOD[end:]}") == ["p.yaml:2: sync: wants keys and values"]


def test_problems_of_source_and_rules_are_named_together() -> None:
    found = problems(GOOD.replace("subscribePattern", "subscribePatern").replace("lake.$1", "lake"))
    assert len(found) == 3 and any("sync.tables.2.to" in text for text in found)


def test_two_files_do_not_share_name_checkpoint_or_ledger(tmp_path: Path) -> None:
    paths = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for path in paths:
        path.write_text(GOOD)
    with pytest.raises(ConfigurationError) as caught:
        load_pipelines(paths, {})
    assert {problem.key_path for problem in caught.value.problems} == {("name",), ("checkpoint",)}


def test_secrets_of_the_source_are_not_shown() -> None:
    config = read(GOOD.replace('"h:1"', '"h:1", kafka.sasl.jaas.config: "x password=hunter2"'))
    assert "hunter2" not in f"{config} {config!r} {config.model_dump()}"
