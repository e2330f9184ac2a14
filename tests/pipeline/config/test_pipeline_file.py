# ruff: noqa: E501 - one line per case
"""Pipeline files: what is read, and that every mistake is named with its line and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.config.model import MaxDeadLetters, revealed
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


def test_folders_are_taken_against_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", "/home/somebody")
    source = "  - files: {path: in/*.json, sourceArchiveDir: ../done}\n"
    start, end = GOOD.index("  - kafka:"), GOOD.index("    format: debezium-json")
    text = (GOOD[:start] + source + GOOD[end:]).replace("${WAREHOUSE:-file:///tmp/freshet}/_ch", "~/_ch")
    config = read(text, tmp_path, {**ENV, "WAREHOUSE": "./lake"})
    here = str(tmp_path / "elsewhere")
    assert config.table.warehouse == f"{here}/lake"
    assert config.checkpoint == "/home/somebody/_checkpoints/shop-orders"
    files = config.sources[0].files
    assert files is not None
    assert (files.path, files.options) == (f"{here}/in/*.json", {"sourceArchiveDir": f"{tmp_path}/done"})
    follows = "name: f\nsources: [{table: {warehouse: lake, name: a.b}}]\ntable: {warehouse: ./lake, name: a.b, columns: {id: BIGINT}}\ncheckpoint: c\n"
    assert any("it would follow itself" in problem for problem in problems(follows))


@pytest.mark.parametrize("name", ["shop.new orders", "my shop.orders", "shop.orders.2026", "shop.注文"])
def test_a_table_may_have_every_name_that_the_catalog_takes(tmp_path: Path, name: str) -> None:
    letters = f"dead_letters: {name} dead\n"
    config = read(GOOD.replace("name: shop.orders", f"name: {name}") + letters, tmp_path)
    assert (config.table.name, config.dead_letter_table) == (name, f"{name} dead")


@pytest.mark.parametrize(
    "name", ["orders", ".orders", "shop.", "shop. orders", "shop.a/b", "shop.$files", "../up.orders"]
)
def test_a_name_that_the_catalog_refuses_is_refused_with_its_line(name: str) -> None:
    wrong = problems(GOOD.replace("name: shop.orders", f"name: {name!r}"))
    assert len(wrong) == 1
    assert wrong[0].startswith("p.yaml:10: table.name: ")
    texts = ("a table is named as database.table", "cannot be used; avoid", "is the name of a system table")
    assert any(text in wrong[0] for text in texts)


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
    assert config.without_secrets("boom: user=x password=hunter2!") == "boom: ***!"


def test_secrets_of_the_table_are_masked_too(tmp_path: Path) -> None:
    text = GOOD.replace("ignore-delete: false}", "ignore-delete: false, kafka.sasl.password: pw1}")
    config = read(text.replace("  columns:", "  write_options: {kafka.ssl.key.pem: pw2}\n  columns:"), tmp_path)
    shown = f"{config} {config!r} {config.model_dump()} {config.model_dump_json()}"
    assert "pw1" not in shown and "pw2" not in shown
    assert config.table.options["kafka.sasl.password"] == "pw1"
    assert config.table.write_options == {"kafka.ssl.key.pem": "pw2"}
    assert config.without_secrets("boom: pw1 pw2") == "boom: *** ***"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    format: debezium-json", "    formatt: debezium-json", "p.yaml:5: sources.0.formatt: unknown key (did you mean 'format'?)"),
        ("  primary_key:", "  primary_keys:", "p.yaml:12: table.primary_keys: unknown key (did you mean 'primary_key'?)"),
        ("trigger: {processing_time", "triger: {processing_time", "p.yaml:14: triger: unknown key (did you mean 'trigger'?)"),
        ("debezium-json", "debezium", "p.yaml:5: sources.0.format: Input should be 'debezium-json', 'debezium-unwrapped', 'debezium-avro', "),
        ("maxOffsetsPerTrigger", "maxOffsetPerTrigger", "unknown option of the Kafka source (did you mean 'maxOffsetsPerTrigger'?)"),
        ("subscribe:", "kafka.subscribe:", "wants exactly one of assign, subscribe, subscribePattern; given: none"),
        ("1 second}", "1 second, available_now: true}", "p.yaml:14: trigger: wants exactly one of"),
        ("1 second}", "soon}", "p.yaml:14: trigger.processing_time: 'soon' is no interval; write a whole number and a unit"),
        ("1 second}", "9999999999 h}", "p.yaml:14: trigger.processing_time: '9999999999 h' is longer than a year"),
        ("{processing_time: 1 second}", "{available_now: yes}", "p.yaml:14: trigger.available_now: wants true or false"),
        ("maxOffsetsPerTrigger: 1000", "maxOffsetsPerTrigger: 10k", "p.yaml:4: sources.0.kafka.maxOffsetsPerTrigger: wants a whole number of 1 or more, written in digits, not '10k'"),
        ("maxOffsetsPerTrigger: 1000", "maxOffsetsPerTrigger: 0", "p.yaml:4: sources.0.kafka.maxOffsetsPerTrigger: wants a whole number of 1 or more"),
        ("maxOffsetsPerTrigger: 1000", "kafka.security.protocol: SASL_PLAIN", "p.yaml:4: sources.0.kafka.kafka.security.protocol: wants PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, not 'SASL_PLAIN'"),
        ("maxOffsetsPerTrigger: 1000", "minPartitions: -3", "p.yaml:4: sources.0.kafka.minPartitions: wants a whole number of 1 or more, written in digits (at most 2147483647), not '-3'"),
        ("maxOffsetsPerTrigger: 1000", "minOffsetsPerTrigger: 5, maxOffsetsPerTrigger: 4", "minOffsetsPerTrigger (5) is more than maxOffsetsPerTrigger (4)"),
        ("subscribe: shop.public.orders", "subscribePattern: '*orders'", "p.yaml:3: sources.0.kafka.subscribePattern: wants a regular expression of Java, such as shop[.].* (nothing to repeat), not '*orders'"),
        ("subscribe: shop.public.orders", "subscribepattern: 'shop.(a|b'", "sources.0.kafka.subscribepattern: wants a regular expression"),
        ("spark.sql.shuffle.partitions: 4", "spark.master: banana", "p.yaml:16: spark.spark.master: wants local[*], local[4], spark://host:7077, yarn or k8s://…, not 'banana'"),
        ("spark.sql.shuffle.partitions: 4", "master: local", "p.yaml:16: spark.master: is no setting of Spark"),
        ("spark.sql.shuffle.partitions: 4", "spark.driver.memory: lots", "p.yaml:16: spark.spark.driver.memory: wants a size such as 2g"),
        ("earliest", "first", "p.yaml:3: sources.0.kafka.startingOffsets: wants earliest, latest, or JSON such as"),
        ("earliest", "{t: {0: x}}", "sources.0.kafka.startingOffsets: wants earliest, latest, or JSON such as"),
        ("subscribe: shop.public.orders", "assign: shop.public.orders", "sources.0.kafka.assign: wants JSON such as"),
        ("${SERVERS}", "localhost", "p.yaml:3: sources.0.kafka.kafka.bootstrap.servers: wants host:port[,host:port]; 'localhost' is none"),
        ("${SERVERS}", "localhost:99999", "'localhost:99999' is none"),
        ("maxOffsetsPerTrigger: 1000", "failOnDataLoss: no", "sources.0.kafka.failOnDataLoss: wants true or false, not 'no'"),
        ("checkpoint:", "max_dead_letters: {share: 1.5}\ncheckpoint:", "p.yaml:15: max_dead_letters.share: Input should be less than or equal to 1"),
        ("checkpoint:", "max_dead_letters: {part: 1}\ncheckpoint:", "p.yaml:15: max_dead_letters.part: unknown key"),
        ("spark: {", "loop: &loop [*loop]\nspark: {", "nested more than 50 deep, or an alias contains itself"),
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
        ("subscribe:", "includeHeaders: true, subscribe:", "cannot be set here: headers are read where select reads _headers"),
        ("name: shop-orders\n", "name: shop-orders\nname: again\n", "p.yaml:2: the key 'name' is given twice"),
        ("name: shop-orders\n", "", "p.yaml:1: name: is missing"),
        ("name: shop-orders\n", "name: ' '\n", "p.yaml:1: name: must not be blank"),
        ("_checkpoints/shop-orders", "shop.db/orders/c", "p.yaml:15: checkpoint: lies in or around the folder of the table"),
        ("name: shop-orders\n", "name: [\n", "is not YAML"),
        ("checkpoint:", "dead_letters: shop.orders\ncheckpoint:", "p.yaml:15: dead_letters: the dead letters need a table"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("checkpoint", "is_apart"),
    [
        ("s3a://lake/w/shop.db/orders/c", False),
        ("s3a://lake/w", False),
        ("s3a://lake/checkpoints/orders", True),
        ("s3a://other/w/shop.db/orders/c", True),
        ("/w/shop.db/orders/c", True),
    ],
)
def test_a_checkpoint_in_the_bucket_of_the_table_lies_apart_from_it(checkpoint: str, is_apart: bool) -> None:
    text = GOOD.replace('"${WAREHOUSE:-file:///tmp/freshet}/_checkpoints/shop-orders"', checkpoint)
    found = problems(text, {**ENV, "WAREHOUSE": "s3://lake/w"})
    expected = "p.yaml:15: checkpoint: lies in or around the folder of the table (s3://lake/w/shop.db/orders); "
    assert found == ([] if is_apart else [f"{expected}choose another folder"])


@pytest.mark.parametrize("name", ["what?", "all*", "a[0]", "50 % ü#"])
def test_folders_of_a_checkpoint_and_a_warehouse_are_no_patterns(name: str) -> None:
    text = GOOD.replace("${WAREHOUSE:-file:///tmp/freshet}/_checkpoints/shop-orders", f"/lake/{name}/c")
    assert problems(text, {**ENV, "WAREHOUSE": f"/lake/{name}/w"}) == []


def test_a_checkpoint_in_s3_is_what_spark_calls_s3a(tmp_path: Path) -> None:
    config = read(GOOD, tmp_path, {**ENV, "WAREHOUSE": "s3://lake/w"})
    assert config.table.warehouse == "s3://lake/w"
    assert config.checkpoint == "s3a://lake/w/_checkpoints/shop-orders"


@pytest.mark.parametrize(
    "pattern",
    [
        "shop[.].*",
        r"\\p{L}+",
        "(?<n>a|b)c",
        "shop(?i)x",
        "a++b",
        r"\\Q[\\E.*",
        "a{2}{3}",
        "[a-z&&[^b]]x",
        r"shop\\.(a|b){1,}",
    ],
)
def test_patterns_of_java_are_taken(pattern: str) -> None:
    assert problems(GOOD.replace("subscribe: shop.public.orders", f'subscribePattern: "{pattern}"')) == []


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("5 s", "5 seconds"), ("500 ms", "500 milliseconds"), ("1 min", "1 minute"), ("10m", "10 minutes"),
        ("2 h", "2 hours"), ("1 Second", "1 second"), ("0", "0 seconds"), ("0 s", "0 seconds"), ("1 day", "1 day"),
        ("250 milliseconds", "250 milliseconds"),
    ],
)  # fmt: skip
def test_intervals_are_taken_as_people_write_them(written: str, wanted: str, tmp_path: Path) -> None:
    assert read(GOOD.replace("1 second}", written + "}"), tmp_path).trigger.processing_time == wanted


def test_words_that_yaml_1_1_takes_for_booleans_are_text(tmp_path: Path) -> None:
    words = ["no", "on", "yes", "off", "y", "n", "No", "ON"]
    columns = ", ".join(f"{word}: STRING" for word in words)
    text = GOOD.replace("status: STRING", columns).replace("[order_id]", "[order_id, no, on]")
    text = text.replace("order_id: id,", "order_id: id, no: off, on: y,").replace('file:///tmp/freshet}"\n', 'x:/w}"\n')
    text = text.replace("deduplicate,", "deduplicate, write-only: true,")
    config = read(text, tmp_path)
    assert [name for name in config.table.columns if name in words] == words
    assert config.table.primary_key == ("order_id", "no", "on")
    assert config.sources[0].select["no"] == "off"
    assert config.sources[0].select["on"] == "y"
    assert config.table.options["write-only"] == "true"


@pytest.mark.parametrize("written", ["010", "1_000", "1.10", "1:30", "2024-01-01", "0x10", "1e3", "+5", "12"])
def test_option_values_are_the_text_as_written(written: str, tmp_path: Path) -> None:
    text = GOOD.replace("spark.sql.shuffle.partitions: 4", f"spark.app.note: {written}")
    assert revealed(read(text, tmp_path).spark)["spark.app.note"] == written


def test_offsets_written_as_yaml_are_json_with_numbers(tmp_path: Path) -> None:
    config = read(GOOD.replace("earliest", '{t: {0: 5, "1": -2}}'), tmp_path)
    assert revealed(config.sources[0].kafka or {})["startingOffsets"] == '{"t": {"0": 5, "1": -2}}'


def test_one_file_named_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)
    (tmp_path / "link.yaml").symlink_to(path)
    for other in (path, tmp_path / "link.yaml", tmp_path / "x" / ".." / "p.yaml"):
        with pytest.raises(ConfigurationError, match="is named twice"):
            load_pipelines([path, other], ENV)


def test_several_topics_of_one_source_are_warned_of(tmp_path: Path) -> None:
    for topics in ("subscribe: 'a, b'", "subscribePattern: 'shop.*'", 'assign: {"a": [0], "b": [0]}'):
        found = warnings_of(GOOD.replace("subscribe: shop.public.orders", topics), tmp_path)
        assert any("one source reads" in text and "sequence.field" in text for text in found), (topics, found)
    ordered = GOOD.replace("subscribe: shop.public.orders", "subscribe: 'a, b'").replace(
        "deduplicate,", "deduplicate, sequence.field: total,"
    )
    assert not any("one source reads" in text for text in warnings_of(ordered, tmp_path))


@pytest.mark.parametrize(
    ("share", "count", "dead", "read", "expected"),
    [
        (0.5, None, 999, 999, False), (0.5, None, 500, 1000, False), (0.5, None, 501, 1000, True),
        (1.0, None, 5000, 5000, False), (1.0, 10, 11, 20, True), (1.0, 10, 10, 20, False), (0.0, None, 1, 1000, True),
        (1.0, 0, 1, 1, True),
    ],
)  # fmt: skip
def test_when_dead_letters_are_too_many(share: float, count: int | None, dead: int, read: int, expected: bool) -> None:
    assert MaxDeadLetters(share=share, count=count).is_exceeded(dead, read) is expected


def test_every_problem_is_reported_not_just_the_first() -> None:
    broken = GOOD.replace("  primary_key:", "  primary_keys:").replace("format: debezium-json", "fromat: json")
    found = problems(broken, {})
    assert len([line for line in found if "unknown key" in line]) == 2
    assert any(
        "p.yaml:3: sources.0.kafka.kafka.bootstrap.servers: the environment variable SERVERS" in x for x in found
    )


def test_a_source_is_kafka_or_files_and_not_both() -> None:
    both = GOOD.replace("    format: debezium-json", "    files: {path: /in}\n    format: debezium-json")
    assert any("exactly one of kafka, files, table and postgres" in problem for problem in problems(both))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("path: /tmp/freshet", "files.path: /tmp/freshet and the warehouse"),
        ("path: /tmp, recursiveFileLookup: true", "files.path: /tmp and the checkpoint"),
        (
            "path: file:///tmp/freshet/shop.db/orders/*.json",
            "and the table (/tmp/freshet/shop.db/orders) lie in one another",
        ),
        (
            "path: /in, sourceArchiveDir: /in/done, cleanSource: archive",
            "files.sourceArchiveDir: /in/done and path lie",
        ),
        ("path: /in, encoding: klingon", "files.encoding: wants the name of an encoding"),
        ('path: /in, pathGlobFilter: "[a"', "files.pathGlobFilter: wants a pattern such as *.json"),
        ('path: /in, lineSep: ""', "files.lineSep: must not be empty"),
    ],
)
def test_folders_that_must_lie_apart_and_values_of_files(files: str, expected: str) -> None:
    start, end = GOOD.index("  - kafka:"), GOOD.index("    format: debezium-json")
    text = f"{GOOD[:start]}  - files: {{{files}}}\n{GOOD[end:]}"
    found = problems(text)
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize("path", ["/tmp", "/tmp/freshet/in", "/tmp/*.json", "/tmp/freshet/in-*/x", "/tmp/freshet[1]"])
def test_folders_that_lie_next_to_each_other_are_taken(path: str) -> None:
    start, end = GOOD.index("  - kafka:"), GOOD.index("    format: debezium-json")
    assert problems(f'{GOOD[:start]}  - files: {{path: "{path}"}}\n{GOOD[end:]}') == []


def test_options_of_a_files_source_are_next_to_its_path() -> None:
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
    inner = tmp_path / "inner.yaml"
    inner.write_text(GOOD.replace("_checkpoints/shop-orders", "_checkpoints/shop-orders/mine"))
    with pytest.raises(ConfigurationError) as caught:
        load_pipelines([first, second, inner, tmp_path / "missing.yaml"], ENV)
    messages = [str(problem) for problem in caught.value.problems]
    assert any(f"{second}: name: the same as in {first}" in message for message in messages)
    assert any("checkpoint: the same as" in message for message in messages)
    assert any(f"{inner}:" in message and f"lies in that of {second}, " in message for message in messages)
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


def test_records_that_only_spark_can_read(tmp_path: Path) -> None:
    kafka = GOOD.replace("maxOffsetsPerTrigger: 1000", "kafka.interceptor.classes: x.Y")
    (text,) = warnings_of(kafka, tmp_path)
    assert text.startswith("the records of source 0 are read by Spark") and "kafka.interceptor.classes" in text
    assert warnings_of(kafka.replace("    format:", "    read: spark\n    format:"), tmp_path) == []
    (problem,) = problems(kafka.replace("    format:", "    read: python\n    format:"))
    assert (
        "sources.0.read: read: python cannot be: kafka.interceptor.classes is an option of the Java client" in problem
    )
    (problem,) = problems(
        GOOD.replace("table:\n", "  - files: {path: /in}\n    format: json\n    read: python\ntable:\n")
    )
    assert "sources.1.read: belongs to Kafka" in problem


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("{files: {path: /in}, format: json}", "sources.1 is files"),
        ("{kafka: *k, format: json, read: spark}", "sources.1 says read: spark"),
        ("{kafka: {<<: *k, kafka.interceptor.classes: x.Y}, format: json}", "kafka.interceptor.classes is an option"),
    ],
)
def test_all_sources_are_read_in_one_way(other: str, why: str) -> None:
    """One that the workers are to read, beside one that Spark reads."""
    own = GOOD.replace("kafka: {", "kafka: &k {").replace("    format:", "    read: python\n    format:")
    (problem,) = problems(own.replace("table:\n", f"  - {other}\ntable:\n"))
    assert "sources.0.read: read: python cannot be: " in problem and why in problem
    assert "all sources of a file are read in one way" in problem


def warnings_of(text: str, tmp_path: Path) -> list[str]:
    return list(warnings(read(text, tmp_path)))


def test_the_example_of_a_single_source_is_valid_without_an_environment() -> None:
    config = load_pipeline(Path(__file__).parents[3] / "conf" / "pipelines" / "orders.yaml", {})
    assert config.table.table_schema.primary_keys == ("order_id",)
    assert list(warnings(config)) == []
