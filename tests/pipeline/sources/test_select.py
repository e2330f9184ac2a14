"""`select`: what expressions see, what is a dead letter, what stops the run."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.decode.outcomes import old_key_in
from freshet.pipeline.decode.row_rules import FOLDER_TOO_LONG, SEQUENCE_NULL
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.sources.outcome_frame import expression_failures
from freshet.pipeline.sources.record_frame import no_records
from freshet.storage.codec.bucket_function import bucket_ids
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import TOAST, Record, change, pipeline_of, shown
from tests.pipeline.spark_records import outcome_rows, outcomes

pytestmark = pytest.mark.spark


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
    (found,) = outcomes(spark, config, [Record(change("c", None, {"id": 1, "total": "AeJA"}), partition=3)])
    assert found == (
        "+I(101, 24.6912, c, 23480, SHOP, 1700000000999, shop.public.orders, 3, 0, None, postgresql, None)"
    )


def test_the_whole_source_is_its_json_text(spark: SparkSession) -> None:
    config = pipeline_of({"id": "BIGINT", "src": "STRING"}, select={"id": "id", "src": "_source"})
    (found,) = outcomes(spark, config, [change("c", None, {"id": 1})])
    assert found.startswith('+I(1, {"version":"3.5.0.Final","connector":"postgresql"')
    both = pipeline_of({"id": "BIGINT", "s": "STRING"}, select={"id": "_source.lsn", "s": "_source"})
    with pytest.raises(ConfigurationError, match="_source is used as a whole and as _source.lsn"):
        outcomes(spark, both, [])


def test_a_value_that_no_folder_can_be_named_after_is_a_dead_letter(spark: SparkSession) -> None:
    columns, select = {"id": "BIGINT", "p": "STRING"}, {"id": "id", "p": "regexp_replace(p, '^(.)', '$1')"}
    config = json_pipeline(columns, select, primary_key=("id", "p"), partition_by=["p"])
    records = [{"id": 1, "p": "x" * 253}, {"id": 2, "p": "x" * 254}, {"id": 3, "p": "/" * 85}, {"id": 4, "p": None}]
    found = outcomes(spark, config, records)
    long = f"dead p: {FOLDER_TOO_LONG}"
    assert found == [f"+I(1, {'x' * 253})", long, long, "dead p: NULL in a key column"]


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
    found = outcomes(spark, json_pipeline(columns, select), records)
    assert found[0] == "+I(1, 5, 2024-02-29, 5)"
    assert found[1].startswith("dead a: a cast in \"CASE WHEN kind = 'number'")
    assert found[2] == "+I(3, -1, 2000-01-01, None)"
    assert found[3].startswith("dead b: a cast in ")
    assert found[4] == "dead id: the value of field id does not fit BIGINT", "typed before select, like the column"
    assert found[5] == "dead id: NULL in a key column"


def test_casts_of_numbers_without_bounds_are_dead_letters(spark: SparkSession) -> None:
    """And none of them takes long; what rounds to zero, rounds to zero, as Spark's casts do."""
    columns = {"id": "BIGINT", "a": "INT", "b": "DECIMAL(38,18)"}
    select = {"id": "id", "a": "CASE WHEN id = 0 THEN CAST(text AS INT) END", "b": "CAST(text AS DECIMAL(38,18))"}
    texts = ["1", "9" * 5000, "1e99999999", "1e2147483647", "0e99999999", "1e-99999999", "0." + "1" * 5000]
    records = [{"id": number, "text": text} for text in texts for number in (0, 1)]
    config = json_pipeline(columns, select)
    outcomes(spark, config, records[:1])  # the first job of a session takes its time
    started = time.monotonic()
    found = outcomes(spark, config, records)
    assert time.monotonic() - started < 60
    assert [text[:7] for text in found[2::2]] == ["dead a:"] * 6
    values = ["1.000000000000000000", *["dead b"] * 3, "0E-18", "0E-18", "0.111111111111111111"]
    assert [text.partition(":")[0] for text in found[1::2]] == [
        value if value == "dead b" else f"+I(1, None, {value})" for value in values
    ]


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
    found = outcomes(spark, json_pipeline(columns, select), records)
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
    found = outcomes(spark, config, [{"n": 1}, {"n": 2}, {"n": None}])
    assert found[0] == "+I(1, 100, 0.33, ab, 2024-01-01 00:00:01.500000, 1, 1000, 1, [1], b'\\xc3\\xa9')"
    assert found[1] == "dead small: the value of 'n * 100' does not fit TINYINT"
    assert found[2] == "dead id: NULL in a key column"


def test_an_expression_that_fails_otherwise_is_a_dead_letter_whatever_the_session_says(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "a": "DOUBLE", "again": "DOUBLE", "b": "INT", "c": "STRING", "d": "DATE", "e": "INT"}
    select = {
        "id": "id", "a": "10 / n", "again": "1 + 10 / n", "b": "n + 2147483647", "c": "split(text, ',')[1]",
        "d": "to_date(text, 'yyyy-MM-dd')", "e": "try_divide(1, n) * 0",
    }  # fmt: skip
    good = {"id": 1, "n": -1, "text": "2024-01-02"}
    cases = {
        "a": ("c", {"c": "text"}, {**good, "n": 0}, "'10 / n' cannot be computed: a division by zero"),
        "b": ("c", {"c": "text"}, {**good, "n": 1}, "'n + 2147483647' cannot be computed: a number out of range"),
        "c": ("d", {"d": "NULL"}, good, "\"split(text, ',')[1]\" cannot be computed: an index that is not there"),
    }
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for column, (_, changed, record, reason) in cases.items():
            config = json_pipeline(columns, {**select, **changed}, schema={"id": "BIGINT", "n": "INT"})
            assert outcomes(spark, config, [record]) == [f"dead {column}: {reason}"]
        config = json_pipeline(columns, {**select, "c": "text"}, schema={"id": "BIGINT", "n": "INT"})
        found = outcomes(spark, config, [good, {**good, "text": "nonsense"}, {**good, "n": None}])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert found[0] == "+I(1, -10.0, -9.0, 2147483646, 2024-01-02, 2024-01-02, 0)"
    assert found[1].startswith("dead d: \"to_date(text, 'yyyy-MM-dd')\" cannot be computed: ")
    assert found[2] == "+I(1, None, None, None, 2024-01-02, 2024-01-02, None)"


def test_a_cast_in_a_lambda_is_a_dead_letter(spark: SparkSession) -> None:
    config = json_pipeline(
        {"id": "BIGINT", "a": "ARRAY<INT>"}, {"id": "id", "a": "transform(l, x -> CAST(x AS INT))"},
        schema={"l": "ARRAY<STRING>"},
    )  # fmt: skip
    found = outcomes(spark, config, [{"id": 1, "l": ["1", "2"]}, {"id": 1, "l": ["x"]}])
    assert found[0] == "+I(1, [1, 2])"
    assert found[1].startswith("dead a: 'transform(l, x -> CAST(x AS INT))' cannot be computed: ")


@pytest.mark.parametrize(
    ("expression", "failures"),
    [
        ("upper(name) || lower(coalesce(name, '-'))", ()),
        ("CASE WHEN total > 3 THEN 'much' ELSE 'little' END", ()),
        ("CAST(total * 2 AS DECIMAL(30, 4))", ()),
        ("string(n)", ()),
        ("try_add(n, 1)", ()),
        ("nvl(n, 0) + 1", ("a number out of range",)),
        ("total / n", ("a division by zero",)),
        ("1 / 0", ("a division by zero",)),
        ("element_at(array(n), 2)", ("an index that is not there",)),
        ("date_add(name, 1)", ("a value that is no DATE",)),
    ],
)
def test_what_may_fail_is_known_before_the_start(
    spark: SparkSession, expression: str, failures: tuple[str, ...]
) -> None:
    config = json_pipeline(
        {"id": "STRING", "a": "STRING"}, {"id": "id", "a": expression}, schema={"n": "INT", "total": "DECIMAL(14,4)"}
    )
    assert expression_failures(no_records(spark), config, 0) == ({"a": failures} if failures else {})


@pytest.mark.parametrize("field", ["{}", "reverse(reverse({}))"], ids=["in the decoder", "by Spark"])
def test_both_rows_of_an_update_share_what_becomes_of_the_record(spark: SparkSession, field: str) -> None:
    """Where the table's producer is input, an update is the row before it and the row after it."""
    columns = {"id": "BIGINT", "n": "INT", "share": "DOUBLE"}
    amount, share = f"CAST({field.format('amount')} AS INT)", f"10 / CAST({field.format('d')} AS INT)"
    config = pipeline_of(
        columns,
        select={"id": "id", "n": amount, "share": share},
        options={"changelog-producer": "input"},
    )
    good, bad, zero = (
        {"id": 1, "amount": "5", "d": "2"},
        {"id": 1, "amount": "x", "d": "2"},
        {"id": 1, "amount": "6", "d": "0"},
    )
    records = [
        change("u", good, {**good, "amount": "7"}),
        change("u", good, bad),
        change("u", bad, good),
        change("u", zero, bad),
        change("u", good, zero),
        change("c", None, good),
    ]
    rows = outcome_rows(spark, config, records)
    cast = f"dead n: a cast in {amount!r} gave NULL for a value that was not NULL"
    causes = "a value that is no INT or a division by zero"
    if field != "{}":
        causes = "a division by zero or an error in reverse"
    division = f"dead share: {share!r} cannot be computed: {causes}"
    assert [shown(each) for each in rows] == [
        "-U(1, 5, 5.0); +U(1, 7, 5.0)",
        cast,
        cast,
        cast,
        division,
        "+I(1, 5, 5.0)",
    ]
    dead = [row for each in rows for row in each if row["_tag"] == 1]
    assert [(row["_offset"], row["_sub"], row["_bucket"]) for row in dead] == [
        (1, 0, None), (2, 0, None), (3, 0, None), (4, 0, None),
    ]  # fmt: skip
    assert all(row["_raw_value"] for row in dead)


def test_a_key_change_is_applied_as_a_whole_or_not_at_all(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "k": "STRING NOT NULL", "n": "INT NOT NULL"}
    config = pipeline_of(columns, select={"id": "id + 1", "k": "upper(k)", "n": "CAST(amount AS INT)"})
    old, new = {"id": 1, "k": "a", "amount": "1"}, {"id": 2, "k": "b", "amount": "2"}
    records = [
        change("u", old, new),
        change("u", old, {**new, "amount": "x"}),
        change("u", old, {**new, "k": None}),
        change("u", {**old, "amount": "x"}, new),
        change("u", {**old, "id": 2**63 - 1}, new),
    ]
    assert outcomes(spark, config, records) == [
        "-D(2, , 0); +I(3, B, 2)",
        "dead n: a cast in 'CAST(amount AS INT)' gave NULL for a value that was not NULL",
        "dead k: NULL in a NOT NULL column",
        "-D(2, , 0); +I(3, B, 2)",
        "dead id: 'id + 1' cannot be computed: a number out of range",
    ]


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
        outcomes(spark, config, [])
    assert caught.value.exit_code == 2


def test_the_session_settings_are_put_back(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        config = pipeline_of({"id": "BIGINT", "at": "TIMESTAMP(6)"})
        (found,) = outcomes(spark, config, [change("c", None, {"id": 1, "at": 1710054000123456})])
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == "+I(1, 2024-03-10 07:00:00.123456)"


def test_names_that_need_quotes_and_fields_of_rows(spark: SparkSession) -> None:
    config = pipeline_of(
        {"id": "BIGINT", "x": "STRING", "k": "INT"},
        select={"id": "`order id`", "x": "upper(`odd näme`)", "k": "addr.zip"},
        schema={"addr": "ROW<zip INT, city STRING>"},
    )
    good = {"order id": 5, "odd näme": "z", "addr": {"zip": 10, "city": "B"}}
    found = outcomes(spark, config, [change("c", None, good), change("c", None, {**good, "addr": {"zip": "x"}})])
    assert found == ["+I(5, Z, 10)", "dead k: the value of field addr does not fit ROW<zip INT, city STRING>"]


def test_rules_hold_for_computed_columns_and_only_dead_rows_carry_the_record(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "s": "STRING NOT NULL", "a": "INT", "lsn": "BIGINT", "doc": "STRING"}
    config = pipeline_of(
        columns,
        select={"id": "id * 2", "s": "upper(s)", "a": "CAST(a AS INT)", "lsn": "_source.lsn + 1", "doc": "doc"},
        options={"sequence.field": "lsn", "bucket": 4},
    )
    records = [
        change("c", None, {"id": 1, "s": "x", "a": "5"}),
        change("c", None, {"id": 1, "s": None, "a": "5"}),
        change("d", {"id": 3}),
        change("d", {"id": 3, "a": "no number"}),
        change("d", {"id": 3}, lsn=None),
        change("c", None, {"id": None, "s": "x"}),
        change("u", {"id": 1, "s": "x"}, {"id": 2, "s": "y"}),
        change("u", None, {"id": 2, "s": "y", "doc": TOAST}),
        b"{broken",
        None,
    ]
    rows = outcome_rows(spark, config, records)
    assert [shown(each) for each in rows] == [
        "+I(2, X, 5, 23481, None)",
        "dead s: NULL in a NOT NULL column",
        "-D(6, , None, 23481, None)",
        "-D(6, , None, 23481, None)",
        f"dead lsn: {SEQUENCE_NULL}",
        "dead id: NULL in a key column",
        "-D(2, , None, 23481, None); +I(4, Y, None, 23481, None)",
        "+U(4, Y, None, 23481, None) keep 4",
        "dead None: the value is not JSON of the form expected",
        "",
    ]
    flat = [row for each in rows for row in each]
    carried = [row["_offset"] for row in flat if row["_raw_value"] is not None]
    assert carried == [1, 4, 5, 7, 8]
    expected = bucket_ids([pa.array([2, 6, 6, 2, 4, 4])], config.table.table_schema.types_of(("id",)), 4).tolist()
    assert [row["_bucket"] for row in flat if row["_tag"] == 0] == expected


def test_unchanged_values_of_a_row_whose_key_has_changed(spark: SparkSession) -> None:
    """Spark's own source hands the key before over, from a header among others."""
    columns = {"id": "BIGINT", "doc": "STRING", "upper": "STRING", "day": "DATE"}
    config = pipeline_of(columns, select={"id": "id", "doc": "doc", "upper": "upper(doc)", "day": "to_date(day)"})
    row = {"id": 2, "doc": TOAST, "day": "2024-02-29"}
    (moved,), (plain,) = outcome_rows(
        spark, config, [Record(change("c", None, row), {"id": 2}, old_key={"id": 1}), change("c", None, row)]
    )
    assert shown([plain]) == "+I(2, None, None, 2024-02-29) keep 1,2"
    *kept, key = moved["_unavailable"].split(",")
    assert (kept, old_key_in([key])) == (["1", "2"], ({"id": 1}, False))


def test_what_expressions_make_of_sequence_groups(spark: SparkSession) -> None:
    columns = {"id": "BIGINT", "status": "STRING", "lsn": "BIGINT"}
    options = {"merge-engine": "partial-update", "fields.lsn.sequence-group": "status"}
    config = pipeline_of(columns, options=options, select={"id": "id", "status": "status", "lsn": "_source.lsn * 1"})
    records = [
        change("c", None, {"id": 1, "status": "new"}, lsn=5),
        change("c", None, {"id": 1, "status": "new"}, lsn=None),
        change("c", None, {"id": 1}, lsn=None),
        change("d", {"id": 1}, lsn=None),
    ]
    assert outcomes(spark, config, records) == [
        "+I(1, new, 5)",
        "dead lsn: NULL in the ordering of its sequence group (lsn): its values would never be taken",
        "+I(1, None, None)",
        "dead lsn: NULL in the ordering of the sequence group (lsn): the deletion would change nothing",
    ]


def test_expressions_over_messages_of_several_rows(spark: SparkSession) -> None:
    """What cannot fail is computed for each row; what might make one of them a dead letter is refused by name, where
    Spark computes it."""
    columns = {"id": "BIGINT", "name": "STRING", "n": "INT", "es": "STRING"}
    select = {"id": "id", "name": "upper(name)", "n": "try_cast(amount AS INT)", "es": "concat('at ', _source.es)"}
    given: dict[str, Any] = {"format": "canal-json", "schema": {"amount": "STRING"}}
    rows = [{"id": "1", "name": "a", "amount": "5"}, {"id": "2", "name": "b", "amount": "x"}]
    update = canal("UPDATE", rows, [{"id": "3"}, {"name": "c"}])
    at = "at 1700000000000"
    config = pipeline_of(columns, select=select, **given)
    assert outcomes(spark, config, [canal("INSERT", rows), update]) == [
        f"+I(1, A, 5, {at}); +I(2, B, None, {at})",
        f"-D(3, None, None, {at}); +I(1, A, 5, {at}); +U(2, B, None, {at})",
    ]
    for column, text in (("n", "CAST(reverse(amount) AS INT)"), ("n", "hash(amount) / 0"), ("id", "hash(id)")):
        doubtful = pipeline_of(columns, select={**select, column: text}, **given)
        with pytest.raises(ConfigurationError, match=f"select.{column}: .* may fail, or fills a column that needs"):
            expression_failures(no_records(spark), doubtful, 0)
        maxwell = pipeline_of(columns, select={**select, column: text}, format="maxwell-json")
        assert expression_failures(no_records(spark), maxwell, 0) is not None
