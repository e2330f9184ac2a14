# ruff: noqa: E501 - one line per case
"""Pipeline files: what is read, and that every mistake is named with its line and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.config.model import revealed
from freshet.pipeline.config.pipeline_file import load_pipeline, load_pipelines, parse_pipeline, warnings
from freshet.pipeline.exceptions import ConfigurationError
from freshet.storage.model.data_type import TypeRoot

GOOD = """\
name: shop-orders
sources:
  - kafka: {kafka.bootstrap.servers: "${SERVERS}", subscribe: shop.public.orders, startingOffsets: earliest,
            kafka.sasl.jaas.config: "user=x password=hunter2", maxOffsetsPerTrigger: 1000}
    format: debezium-json
    schema: {id: BIGINT, total: "DECIMAL(14,4)"}
    select: {order_id: id, total: "total * 2"}
table:
  warehouse: "${WAREHOUSE:-file:///tmp/freshet}"
  name: shop.orders
  columns: {order_id: BIGINT, status: STRING, total: "DECIMAL(14,4)", tags: "ARRAY<STRING>"}
  primary_key: [order_id]
  options: {bucket: 4, merge-engine: deduplicate, ignore-delete: false}
trigger: {processing_time: 1 second}
checkpoint: "${WAREHOUSE:-file:///tmp/freshet}/_checkpoints/shop-orders"
spark: {spark.sql.shuffle.partitions: 4, spark.hadoop.fs.s3a.secret.key: s3cr3t}
"""
ENV = {"SERVERS": "localhost:9092"}


def read(text: str, tmp_path: Path, env: dict[str, str] | None = None):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return load_pipeline(path, ENV if env is None else env)


def problems(text: str, env: dict[str, str] | None = None) -> list[str]:
    config, found = parse_pipeline(text, "p.yaml", ENV if env is None else env)
    assert (config is None) == bool(found)
    return [str(problem) for problem in found]


def test_a_good_file_is_read_with_references_expanded(tmp_path: Path) -> None:
    config = read(GOOD, tmp_path)
    assert config.table.warehouse == "file:///tmp/freshet"
    assert config.checkpoint == "file:///tmp/freshet/_checkpoints/shop-orders"
    kafka = revealed(config.sources[0].kafka or {})
    assert kafka["kafka.bootstrap.servers"] == "localhost:9092"
    assert kafka["maxOffsetsPerTrigger"] == "1000"
    assert config.table.options == {"bucket": "4", "merge-engine": "deduplicate", "ignore-delete": "false"}
    assert config.dead_letter_table == "shop.orders_dead_letters"
    assert config.sources[0].numeric_times == "adaptive"


def test_key_columns_are_not_null_and_field_ids_are_those_of_a_new_table(tmp_path: Path) -> None:
    schema = read(GOOD, tmp_path).table.table_schema
    assert [(f.id, f.name, str(f.type)) for f in schema.fields] == [
        (0, "order_id", "BIGINT NOT NULL"), (1, "status", "STRING"), (2, "total", "DECIMAL(14, 4)"),
        (3, "tags", "ARRAY<STRING>"),
    ]  # fmt: skip
    assert schema.fields[3].type.root is TypeRoot.ARRAY
    assert schema.primary_keys == ("order_id",)


def test_secrets_are_masked_in_every_output_but_reach_the_library(tmp_path: Path) -> None:
    config = read(GOOD, tmp_path)
    shown = f"{config} {config!r} {config.model_dump()} {config.model_dump_json()}"
    assert "hunter2" not in shown
    assert "s3cr3t" not in shown
    assert revealed(config.spark)["spark.hadoop.fs.s3a.secret.key"] == "s3cr3t"
    assert config.without_secrets("boom: user=x password=hunter2!") == "boom: **********!"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    format: debezium-json", "    formatt: debezium-json", "p.yaml:5: sources.0.formatt: unknown key (did you mean 'format'?)"),
        ("  primary_key:", "  primary_keys:", "p.yaml:12: table.primary_keys: unknown key (did you mean 'primary_key'?)"),
        ("trigger: {processing_time", "triger: {processing_time", "p.yaml:14: triger: unknown key (did you mean 'trigger'?)"),
        ("debezium-json", "debezium", "p.yaml:5: sources.0.format: Input should be 'debezium-json', 'debezium-unwrapped', 'json' or 'row-kind'"),
        ("maxOffsetsPerTrigger", "maxOffsetPerTrigger", "unknown option of the Kafka source (did you mean 'maxOffsetsPerTrigger'?)"),
        ("subscribe:", "kafka.subscribe:", "wants exactly one of assign, subscribe, subscribePattern; given: none"),
        ("1 second}", "1 second, available_now: true}", "p.yaml:14: trigger: wants exactly one of"),
        ("1 second}", "soon}", "p.yaml:14: trigger.processing_time: does not have the form wanted"),
        ("status: STRING", "status: STRNG", "p.yaml:11: table.columns.status: unknown column type 'STRNG'"),
        ("[order_id]", "[order]", "p.yaml:12: table.primary_key: primary_key names 'order', which is no column (did you mean 'order_id'?)"),
        ("order_id: id,", "ordr_id: id,", "p.yaml:7: sources.0.select.ordr_id: selects 'ordr_id', which is no column of the table (did you mean 'order_id'?)"),
        ("order_id: id,", "", "sources.0.select: lacks the key column order_id"),
        ("status: STRING", "_SEQUENCE_NUMBER: STRING", "reserved by the table format"),
        ("deduplicate,", "deduplicate, rowkind.field: status,", "is for sources of format row-kind"),
        ("debezium-json", "row-kind", "format row-kind needs the option rowkind.field"),
        ("deduplicate,", "deduplicate, sequence.field: nope,", "table.options.sequence.field: names 'nope', which is no column"),
        ("merge-engine:", "merge-enginee:", "p.yaml:13: table.options.merge-enginee: unknown option 'merge-enginee'; did you mean merge-engine?"),
        ("bucket: 4", "bucket: many", "p.yaml:13: table.options.bucket: option bucket = 'many' cannot be used"),
        ("subscribe:", "includeHeaders: true, subscribe:", "cannot be set here: headers are always read"),
        ("name: shop-orders\n", "name: shop-orders\nname: again\n", "p.yaml:2: the key 'name' stands twice"),
        ("name: shop-orders\n", "", "p.yaml:1: name: is missing"),
        ("name: shop-orders\n", "name: [\n", "is not YAML"),
        ("checkpoint:", "dead_letters: shop.orders\ncheckpoint:", "p.yaml:15: dead_letters: the dead letters need a table"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new))
    assert any(expected in problem for problem in found), found


def test_every_problem_is_reported_not_just_the_first() -> None:
    broken = GOOD.replace("  primary_key:", "  primary_keys:").replace("format: debezium-json", "fromat: json")
    found = problems(broken, {})
    assert len([line for line in found if "unknown key" in line]) == 2
    assert any(
        "p.yaml:3: sources.0.kafka.kafka.bootstrap.servers: the environment variable SERVERS" in x for x in found
    )


def test_a_source_is_kafka_or_files_and_not_both() -> None:
    both = GOOD.replace("    format: debezium-json", "    files: {path: /in}\n    format: debezium-json")
    assert any("exactly one of kafka and files" in problem for problem in problems(both))


def test_options_of_a_files_source_stand_beside_its_path() -> None:
    start, end = GOOD.index("  - kafka:"), GOOD.index("    format:")
    text = GOOD[:start] + "  - files: {path: /in, maxFilesPerTrigger: 2}\n" + GOOD[end:]
    config, found = parse_pipeline(text, "p.yaml", ENV)
    assert found == []
    assert config is not None
    files = config.sources[0].files
    assert files is not None
    assert files.options == {"maxFilesPerTrigger": "2"}
    wrong = problems(text.replace("maxFilesPerTrigger", "maxFilePerTrigger"))
    assert wrong == ["p.yaml:3: sources.0.files.maxFilePerTrigger: unknown key (did you mean 'maxFilesPerTrigger'?)"]


def test_files_that_share_a_session_must_not_share_names(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(GOOD)
    second.write_text(GOOD.replace("partitions: 4", "partitions: 8"))
    with pytest.raises(ConfigurationError) as caught:
        load_pipelines([first, second, tmp_path / "missing.yaml"], ENV)
    messages = [str(problem) for problem in caught.value.problems]
    assert any(f"{second}: name: the same as in {first}" in message for message in messages)
    assert any("checkpoint: the same as" in message for message in messages)
    assert any("spark.spark.sql.shuffle.partitions: differs" in message for message in messages)
    assert any("missing.yaml: cannot be read" in message for message in messages)
    assert caught.value.exit_code == 2


def test_warnings_name_what_makes_the_input_order_meaningless(tmp_path: Path) -> None:
    assert warnings_of(GOOD, tmp_path) == []
    payload = GOOD.replace("deduplicate,", "deduplicate, sequence.field: total,")
    assert any("sequence.field total comes from the payload" in text for text in warnings_of(payload, tmp_path))
    computed = GOOD.replace("order_id: id,", "order_id: id + 1,")
    assert any("the key column order_id is computed" in text for text in warnings_of(computed, tmp_path))
    two = GOOD.replace("table:\n", "  - files: {path: /in}\n    format: json\ntable:\n")
    assert any("several sources" in text for text in warnings_of(two, tmp_path))


def warnings_of(text: str, tmp_path: Path) -> list[str]:
    return list(warnings(read(text, tmp_path)))


def test_the_example_of_a_single_source_is_valid_without_an_environment() -> None:
    config = load_pipeline(Path(__file__).parents[2] / "conf" / "pipelines" / "orders.yaml", {})
    assert config.table.table_schema.primary_keys == ("order_id",)
    assert list(warnings(config)) == []
