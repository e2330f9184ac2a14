"""`select`, the plain formats, input order: what expressions see, what is a dead letter, what stops the run."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from freshet.pipeline.exceptions import ConfigurationError, stop_message
from freshet.pipeline.spark.sources import kafka_records
from freshet.pipeline.transforms import envelope
from tests.pipeline.spark_records import Record, change, kafka_frame, outcomes, pipeline_of, shown

pytestmark = pytest.mark.spark

WIDE = {"id": "BIGINT", "a": "STRING", "b": "STRING", "c": "STRING"}


def json_pipeline(columns: dict[str, str], select: dict[str, str], **more):
    return pipeline_of(columns, format="json", select=select, **more)


def test_expressions_see_typed_fields_and_the_metadata(spark: SparkSession) -> None:
    columns = {
        "id": "BIGINT", "double": "DECIMAL(14,4)", "op": "STRING", "lsn": "BIGINT", "db": "STRING", "ts": "BIGINT",
        "topic": "STRING", "part": "INT", "off": "BIGINT", "stamp": "TIMESTAMP_LTZ(3)", "header": "STRING",
        "unset": "INT",
    }  # fmt: skip
    select = {
        "id": "id + 100", "double": "total * 2", "op": "_op", "lsn": "_source.lsn", "db": "upper(_source['db'])",
        "ts": "_ts_ms", "topic": "_topic", "part": "_partition", "off": "_offset", "stamp": "_timestamp",
        "header": "CAST(_headers[0].value AS STRING)",
    }  # fmt: skip
    config = pipeline_of(columns, select=select, schema={"id": "BIGINT", "total": "DECIMAL(14,4)"})
    (rows,) = outcomes(spark, config, [Record(change("c", None, {"id": 1, "total": "AeJA"}), partition=3)])
    assert shown(rows) == (
        "+I(101, 24.6912, c, 23480, SHOP, 1700000000999, shop.public.orders, 3, 0, None, postgresql, None)"
    )


def test_the_whole_source_is_its_json_text(spark: SparkSession) -> None:
    config = pipeline_of({"id": "BIGINT", "src": "STRING"}, select={"id": "id", "src": "_source"})
    (rows,) = outcomes(spark, config, [change("c", None, {"id": 1})])
    assert rows[0].data.src.startswith('{"version":"3.5.0.Final","connector":"postgresql"')
    both = pipeline_of({"id": "BIGINT", "s": "STRING"}, select={"id": "_source.lsn", "s": "_source"})
    with pytest.raises(ConfigurationError, match="_source is used as a whole and as _source.lsn"):
        outcomes(spark, both, [])


def test_a_cast_that_loses_a_value_is_a_dead_letter_naming_the_column(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "a": "INT", "b": "DATE", "c": "INT"}
    select = {
        "id": "CAST(id AS BIGINT)",
        "a": "CASE WHEN kind = 'number' THEN CAST(text AS INT) ELSE -1 END",
        "b": "coalesce(day::date, DATE'2000-01-01')",
        "c": "try_cast(text AS INT)",
    }
    records = [
        {"id": "1", "kind": "number", "text": "5", "day": "2024-02-29"},
        {"id": "2", "kind": "number", "text": "x", "day": "2024-02-29"},
        {"id": "3", "kind": "text", "text": "x", "day": None},
        {"id": "4", "kind": "text", "text": "x", "day": "2024-02-30"},
        {"id": "y", "kind": "text", "text": "1", "day": None},
        {"id": None, "kind": "text", "text": "1", "day": None},
    ]
    found = [shown(rows) for rows in outcomes(spark, json_pipeline(columns, select), records)]
    assert found[0] == "+I(1, 5, 2024-02-29, 5)"
    assert found[1].startswith("dead a: a cast in \"CASE WHEN kind = 'number'")
    assert found[2] == "+I(3, -1, 2000-01-01, None)"
    assert found[3].startswith("dead b: a cast in ")
    assert found[4] == "dead id: the value of field id does not fit BIGINT", "typed before select, like the column"
    assert found[5] == "dead id: NULL in a key column"


def test_casts_by_function_in_conditions_and_short_circuits(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "a": "BOOLEAN", "b": "INT", "c": "INT"}
    select = {
        "id": "int(id)",
        "a": "kind = 'n' AND CAST(text AS INT) > 1",
        "b": "if(kind = 'n', int(text), 0)",
        "c": "CASE WHEN CAST(other AS INT) = 1 THEN 10 ELSE 20 END",
    }
    records = [
        {"id": "1", "kind": "n", "text": "5", "other": "1"},
        {"id": "2", "kind": "s", "text": "x", "other": "2"},
        {"id": "3", "kind": "n", "text": "x", "other": None},
        {"id": "4", "kind": "s", "text": None, "other": "z"},
    ]
    found = [shown(rows) for rows in outcomes(spark, json_pipeline(columns, select), records)]
    assert found[:2] == ["+I(1, True, 5, 10)", "+I(2, False, 0, 20)"]
    assert found[2].startswith("dead a: a cast in")
    assert found[3].startswith("dead c: a cast in")


def test_values_of_expressions_are_tried_into_the_type_of_the_column(spark: SparkSession) -> None:
    columns = {
        "id": "BIGINT", "small": "TINYINT", "money": "DECIMAL(6,2)", "name": "VARCHAR(3)", "at": "TIMESTAMP(3)",
        "nanos": "TIMESTAMP(9)", "time": "TIME(3)", "text": "STRING", "list": "STRING", "bytes": "BYTES",
    }  # fmt: skip
    select = {
        "id": "n", "small": "n * 100", "money": "n / 3", "name": "repeat('ab', CAST(n AS INT))",
        "at": "TIMESTAMP_NTZ'2024-01-01 00:00:00.5' + make_dt_interval(0, 0, 0, n)",
        "nanos": "n", "time": "n * 1000", "text": "n", "list": "array(n)", "bytes": "'é'",
    }  # fmt: skip
    config = json_pipeline(columns, select, schema={"n": "BIGINT"})
    found = [shown(rows) for rows in outcomes(spark, config, [{"n": 1}, {"n": 2}, {"n": None}])]
    assert found[0] == "+I(1, 100, 0.33, ab, 2024-01-01 00:00:01.500000, 1, 1000, 1, [1], b'\\xc3\\xa9')"
    assert found[1] == "dead small: the value of 'n * 100' does not fit TINYINT"
    assert found[2] == "dead id: NULL in a key column"


def test_an_expression_that_fails_otherwise_stops_the_run_whatever_the_session_says(spark: SparkSession) -> None:
    config = json_pipeline({"id": "BIGINT", "a": "DOUBLE"}, {"id": "id", "a": "10 / n"}, schema={"n": "INT"})
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(PySparkException) as caught:
            outcomes(spark, config, [{"id": 1, "n": 0}])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert "10 / n" in str(caught.value)
    assert stop_message(str(caught.value)) is None


def test_a_cast_in_a_lambda_stops_the_run(spark: SparkSession) -> None:
    config = json_pipeline(
        {"id": "BIGINT", "a": "ARRAY<INT>"}, {"id": "id", "a": "transform(l, x -> CAST(x AS INT))"},
        schema={"l": "ARRAY<STRING>"},
    )  # fmt: skip
    assert shown(outcomes(spark, config, [{"id": 1, "l": ["1", "2"]}])[0]) == "+I(1, [1, 2])"
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        outcomes(spark, config, [{"id": 1, "l": ["x"]}])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id +", "select.a: not a Spark SQL expression"),
        ("no_such(id)", "select.a: 'no_such\\(id\\)' cannot be analysed"),
        ("sum(CAST(id AS INT))", "must give one value per row"),
        ("explode(array(id))", "must give one value per row"),
        ("rand()", "not deterministic"),
        ("map(id, id)", "select.a: gives map<string,string>, the column is INT; write a CAST"),
        ("_sorce.lsn", "reads '_sorce', which is no metadata column \\(did you mean '_source'\\?\\)"),
    ],
)
def test_a_wrong_expression_is_refused_before_anything_starts(
    spark: SparkSession, expression: str, message: str
) -> None:
    config = json_pipeline({"id": "STRING", "a": "INT"}, {"id": "id", "a": expression})
    with pytest.raises(ConfigurationError, match=message) as caught:
        envelope(kafka_records(kafka_frame(spark, [])), config, config.sources[0])
    assert caught.value.exit_code == 2


def test_plain_json(spark: SparkSession) -> None:
    records = [
        {"id": 1, "a": "x", "b": {"k": 1}, "c": None, "zz": 1},
        Record(None, {"id": 1}),
        b"  ",
        b"nonsense",
        [1],
        {"id": "one"},
    ]
    found = outcomes(spark, pipeline_of(WIDE, format="json"), records)
    assert [shown(rows) for rows in found] == [
        '+I(1, x, {"k":1}, None)',
        "skip tombstone",
        "dead None: the value is not a JSON object",
        "dead None: the value is not a JSON object",
        "dead None: the value is not a JSON object",
        "dead id: the value of field id does not fit BIGINT",
    ]
    assert found[0][0].notes == ["unknown field zz"]


def test_a_field_carries_the_row_kind(spark: SparkSession) -> None:
    config = pipeline_of({"id": "BIGINT", "a": "STRING"}, format="row-kind", options={"rowkind.field": "kind"})
    kinds = ["+I", "-U", "+U", "-D", "insert", None]
    records = [{"id": 1, "a": "x", "kind": kind} for kind in kinds]
    found = outcomes(spark, config, records)
    assert [shown(rows) for rows in found[:4]] == [f"{kind}(1, x)" for kind in kinds[:4]]
    assert shown(found[4]) == "dead None: kind is no row kind (+I, -U, +U, -D): insert"
    assert shown(found[5]) == "dead None: kind is no row kind (+I, -U, +U, -D): NULL"
    assert all(row.notes is None for rows in found for row in rows)


def test_numbers_that_are_times_need_a_unit_in_plain_json(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "at": "TIMESTAMP(6)"}
    records = [{"id": 1, "at": 1700000000123}, {"id": 2, "at": "2023-11-14T22:13:20.123"}]
    plain = outcomes(spark, pipeline_of(columns, format="json"), records)
    assert shown(plain[0]) == (
        "dead at: the value of field at does not fit TIMESTAMP(6) (numbers need time_precision_mode)"
    )
    assert shown(plain[1]) == "+I(2, 2023-11-14 22:13:20.123000)"
    connect = outcomes(spark, pipeline_of(columns, format="json", time_precision_mode="connect"), records)
    assert shown(connect[0]) == "+I(1, 2023-11-14 22:13:20.123000)"


def test_the_session_settings_are_put_back(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        config = pipeline_of({"id": "BIGINT", "at": "TIMESTAMP(6)"})
        (rows,) = outcomes(spark, config, [change("c", None, {"id": 1, "at": 1710054000123456})])
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert shown(rows) == "+I(1, 2024-03-10 07:00:00.123456)"


def test_order_carries_source_and_place(spark: SparkSession) -> None:
    config = pipeline_of()
    frame = envelope(kafka_records(kafka_frame(spark, [Record(change("c", None, {"id": 1}), partition=4)])), config,
                     config.sources[0], source_index=2)  # fmt: skip
    (row,) = frame.collect()
    order = row["order"]
    assert (order.source_index, order.rank, order.topic, order.kafka_partition, order.offset, order.sub) == (
        2, 0, "shop.public.orders", 4, 0, 0
    )  # fmt: skip


def test_names_of_any_kind_and_fields_of_rows(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "odd name": "STRING", "a.b": "STRING", "Id2": "STRING", "it's": "STRING", "key": "INT"}
    record = {"id": 1, "odd name": "o", "a.b": "dot", "Id2": "I", "id2": "lower", "it's": "q", "key": 3}
    (rows,) = outcomes(spark, pipeline_of(columns, format="json"), [record])
    assert shown(rows) == "+I(1, o, dot, I, q, 3)"
    assert rows[0].notes == ["unknown field id2"], "JSON names are case-sensitive"
    config = pipeline_of(
        {"id": "BIGINT", "x": "STRING", "k": "INT"},
        select={"id": "`order id`", "x": "upper(`odd näme`)", "k": "addr.zip"},
        schema={"addr": "ROW<zip INT, city STRING>"},
    )
    good = {"order id": 5, "odd näme": "z", "addr": {"zip": 10, "city": "B"}}
    found = outcomes(spark, config, [change("c", None, good), change("c", None, {**good, "addr": {"zip": "x"}})])
    assert [shown(rows) for rows in found] == [
        "+I(5, Z, 10)",
        "dead k: the value of field addr does not fit ROW<zip INT, city STRING>",
    ]


def test_a_change_in_one_part_of_a_composite_key_is_a_key_change(spark: SparkSession) -> None:
    config = pipeline_of({"id": "BIGINT", "day": "DATE", "v": "DOUBLE"}, primary_key=("id", "day"))
    record = change("u", {"id": 1, "day": 19782, "v": 1.5}, {"id": 1, "day": 19783, "v": 2})
    (rows,) = outcomes(spark, config, [record])
    assert shown(rows) == "-D(1, 2024-02-29, None); +I(1, 2024-03-01, 2.0)"
