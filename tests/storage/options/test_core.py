"""Options: values, defaults, and the ways to get one wrong besides those of `test_bad_input`."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions, check_access
from freshet.storage.options.declaration import IMMUTABLE_KEYS, nearest_key, option_status
from freshet.storage.options.option import Access, Status
from freshet.storage.options.values import (
    option_texts,
    parse_bool,
    parse_duration_ms,
    parse_int,
    parse_map,
    parse_names,
    parse_size_bytes,
    split_names,
)
from freshet.storage.schema.validation import validate_changed_schema, validate_new_table

MB = 1024 * 1024


def keyed(options: dict[str, str] | None = None, strict: bool = True) -> CoreOptions:
    return CoreOptions.parse(options or {}, has_primary_key=True, strict=strict)


def append(options: dict[str, str] | None = None) -> CoreOptions:
    return CoreOptions.parse(options or {}, has_primary_key=False)


# The sizes and durations were read alike by Apache Paimon 2.0.0.
@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64 mb", 64 * MB),
        ("128k", 131072),
        ("1 gibibytes", 1024 * MB),
        ("1024", 1024),
        ("7b", 7),
        ("2 TB", 2 * 1024 * 1024 * MB),
        (" 5 kb ", 5120),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("1 h", 3_600_000),
        ("10 min", 600_000),
        ("3 m", 180_000),
        ("250", 250),
        ("100 ms", 100),
        ("5 seconds", 5000),
        ("2d", 172_800_000),
        ("1 Day", 86_400_000),
        ("1500 micros", 1),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "mb", "1.5 mb", "-1 mb", "1 mbit", "1 h"])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size_bytes(text)


@pytest.mark.parametrize("text", ["", "h", "1.5 h", "-1 s", "1 hr", "1 mb"])
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration_ms(text)


def test_other_kinds_of_values() -> None:
    assert [parse_bool("true"), parse_bool("FALSE")] == [True, False]
    assert parse_int("-12") == -12
    assert parse_names(" a , b") == ("a", "b")
    assert parse_names("") == ()
    assert parse_map("0:avro, 5:parquet") == {"0": "avro", "5": "parquet"}
    for parse, text in ((parse_bool, "yes"), (parse_int, "1_000"), (parse_int, "2147483648"), (parse_map, "0=avro")):
        with pytest.raises(ValueError, match="expected"):
            parse(text)


def test_defaults_of_the_format() -> None:
    options = keyed()
    assert options.bucket == -1
    assert options.file_format == "parquet"
    assert (options.file_compression, options.file_compression_zstd_level) == ("zstd", 1)
    assert options.target_file_size_bytes == 128 * MB
    assert append().target_file_size_bytes == 256 * MB
    assert options.compaction_file_size_bytes == int(128 * MB * 0.7)
    assert options.write_buffer_size_bytes == 256 * MB
    assert options.manifest_target_file_size_bytes == 8 * MB
    assert options.manifest_full_compaction_threshold_bytes == 16 * MB
    assert options.manifest_merge_min_count == 30
    assert options.metadata_stats_mode == "truncate(16)"
    assert options.stats_dense_store is True
    assert options.merge_engine is MergeEngine.DEDUPLICATE
    assert options.changelog_producer is ChangelogProducer.NONE
    assert (options.compaction_trigger, options.stop_trigger, options.num_levels) == (5, 8, 6)
    assert options.compaction_max_size_amplification_percent == 200
    assert options.compaction_size_ratio == 1
    assert (options.snapshot_num_retained_min, options.snapshot_num_retained_max) == (10, 2147483647)
    assert (options.snapshot_time_retained_ms, options.snapshot_expire_limit) == (3_600_000, 50)
    assert (options.commit_max_retries, options.commit_min_retry_wait_ms, options.commit_max_retry_wait_ms) == (
        10,
        10,
        10_000,
    )
    assert (options.split_target_size_bytes, options.split_open_file_cost_bytes) == (128 * MB, 4 * MB)
    assert (options.lookup_compact, options.lookup_compact_max_interval, options.lookup_wait) == ("radical", 10, True)
    assert options.partial_update_remove_record_on_delete is False
    assert options.partial_update_remove_record_on_sequence_group is None
    assert options.aggregation_remove_record_on_delete is False
    assert options.partition_default_name == "__DEFAULT_PARTITION__"
    assert options.partition_legacy_name is True


def test_values_that_are_given() -> None:
    options = keyed(
        {
            "bucket": "4",
            "bucket-key": "a,b",
            "write-buffer-size": "64 mb",
            "target-file-size": "1 mb",
            "sequence.field": "ts, seq",
            "sequence.field.sort-order": "DESCENDING",
            "num-sorted-run.compaction-trigger": "3",
            "merge-engine": "Deduplicate",
            "snapshot.time-retained": "10 min",
            "data-file.thin-mode": "TRUE",
            "file.format.per.level": "0:parquet",
            "file.compression.per.level": "0:lz4,5:zstd",
            "fields.v.stats-mode": "none",
        }
    )
    assert options.bucket_key == ("a", "b")
    assert options.write_buffer_size_bytes == 64 * MB
    assert options.target_file_size_bytes == MB
    assert options.sequence_field == ("ts", "seq")
    assert options.sequence_descending is True
    assert (options.compaction_trigger, options.stop_trigger, options.num_levels) == (3, 6, 4)
    assert options.merge_engine is MergeEngine.DEDUPLICATE
    assert options.snapshot_time_retained_ms == 600_000
    assert options.thin_mode is True
    assert [options.compression_at_level(level) for level in (0, 1, 5)] == ["lz4", "zstd", "zstd"]
    assert options.format_at_level(0) == "parquet"
    assert options.field_option("v", "stats-mode") == "none"
    assert (options.field_option("w", "stats-mode"), options.stats_mode_at_level(0)) == (None, "truncate(16)")
    assert keyed({"num-sorted-run.stop-trigger": "1"}).stop_trigger == 5


def test_old_names_of_options_count_unless_the_new_one_is_there() -> None:
    assert keyed({"deduplicate.ignore-delete": "true"}).ignore_delete is True
    assert keyed({"write.compaction-skip": "true"}).write_only is True
    assert keyed({"write.compaction-skip": "true", "write-only": "false"}).write_only is False


@pytest.mark.parametrize(
    ("options", "interval"),
    [
        ({}, 10),
        ({"num-sorted-run.compaction-trigger": "3"}, 6),
        ({"lookup-compact.max-interval": "7"}, 7),
        ({"lookup-compact.max-interval": "0"}, 5),
    ],
)
def test_the_interval_of_gentle_compaction_is_never_below_the_trigger(options: dict[str, str], interval: int) -> None:
    assert keyed(options).lookup_compact_max_interval == interval


@pytest.mark.parametrize(
    ("options", "needs_lookup"),
    [
        ({}, False),
        ({"merge-engine": "first-row"}, True),
        ({"merge-engine": "aggregation"}, False),
        ({"changelog-producer": "lookup"}, True),
        ({"changelog-producer": "full-compaction"}, False),
        ({"deletion-vectors.enabled": "true"}, True),
        ({"force-lookup": "true", "lookup-compact": "Gentle"}, True),
    ],
)
def test_which_tables_need_lookup(options: dict[str, str], needs_lookup: bool) -> None:
    assert keyed(options).needs_lookup is needs_lookup
    assert append(options).needs_lookup is False


@pytest.mark.parametrize(
    ("text", "names"),
    [("a,b", ("a", "b")), ("a,b,,", ("a", "b")), (" a, b", (" a", " b")), (",a", ("", "a")), ("", ("",)), (",", ())],
)
def test_names_that_are_not_trimmed(text: str, names: tuple[str, ...]) -> None:
    assert split_names(text) == names
    assert (
        keyed({"partial-update.remove-record-on-sequence-group": text}).partial_update_remove_record_on_sequence_group
        == names
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"zzzzzz": "4"}, "unknown option 'zzzzzz'.*as in Apache Paimon"),
        ({"bucket": "1.0"}, "option bucket = '1.0'.*whole number"),
        ({"changelog-producer": "outputs"}, "option changelog-producer.*lookup"),
        ({"commit.max-retries": "-1"}, "option commit.max-retries = '-1'.*greater than or equal to 0"),
        ({"write.compaction-skip": "yes"}, "option write-only = 'yes'.*true or false"),
        ({"write-only": "yes", "bucket": "x"}, "option bucket = 'x'"),
        ({"snapshot.num-retained.min": "0"}, "option snapshot.num-retained.min = '0'"),
        ({"compaction.small-file-ratio": "much"}, "option compaction.small-file-ratio = 'much'"),
        ({"metadata.stats-mode.per.level": "low:none"}, "option metadata.stats-mode.per.level.*level:value"),
    ],
)
def test_options_that_are_wrong_name_themselves(option: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        keyed(option)


def test_a_table_made_elsewhere_may_have_unknown_keys() -> None:
    assert keyed({"my-tool.note": "x"}, strict=False).given["my-tool.note"] == "x"
    with pytest.raises(InvalidRequestError, match="unknown option"):
        keyed({"my-tool.note": "x"})


@pytest.mark.parametrize(
    "key",
    [
        "sink.parallelism",
        "scan.infer-parallelism",
        "fields.a.sequence-group",
        "file-index.bloom-filter.columns",
        "owner",
    ],
)
def test_keys_of_engines_and_families_are_known(key: str) -> None:
    assert option_status(key) is Status.TOLERATED


def test_what_options_cannot_be_changed_later_and_which_is_meant() -> None:
    assert {"merge-engine", "bucket-key", "partition", "type", "dynamic-bucket.initial-buckets"} <= IMMUTABLE_KEYS
    assert len(IMMUTABLE_KEYS) == 23
    assert nearest_key("merge-engin") == "merge-engine"
    assert nearest_key("zzzzzz") is None


def test_options_are_values() -> None:
    options = keyed({"bucket": "4", "kafka.sasl.password": "hush"})
    assert options == keyed({"bucket": "4", "kafka.sasl.password": "hush"}) != keyed({"bucket": "4"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert repr(options) == "CoreOptions(bucket=4, has_primary_key=True)"
    with pytest.raises(AttributeError, match="not changed"):
        options.bucket = 8  # type: ignore[misc]


def test_changelogs_that_outlive_their_snapshots_are_noticed() -> None:
    assert not keyed().changelog_is_decoupled
    assert not keyed({"changelog.num-retained.max": "5", "snapshot.num-retained.max": "5"}).changelog_is_decoupled
    assert keyed({"changelog.time-retained": "2 h"}).changelog_is_decoupled
    assert keyed({"changelog.num-retained.min": "11"}).changelog_is_decoupled


# (options, has a primary key, the most that may be done with the table)
GATE: list[tuple[dict[str, str], bool, Access | None]] = [
    ({"bucket": "1"}, True, Access.CREATE),
    ({"bucket": "-1"}, False, Access.CREATE),
    ({"bucket": "-1"}, True, Access.CREATE),
    ({"bucket": "-2"}, True, Access.CREATE),
    ({"bucket": "1", "deletion-vectors.enabled": "true"}, True, Access.CREATE),
    ({"deletion-vectors.enabled": "true"}, False, Access.CREATE),
    ({"bucket": "1", "deletion-vectors.enabled": "false"}, True, Access.CREATE),
    ({"bucket": "1", "deletion-vectors.modifiable": "true"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "deduplicate"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "partial-update"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "aggregation"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "first-row"}, True, Access.CREATE),
    ({"merge-engine": "first-row"}, False, Access.CREATE),
    ({"bucket": "1", "force-lookup": "true"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "first-row", "changelog-producer": "lookup"}, True, Access.CREATE),
    ({"bucket": "1", "merge-engine": "aggregation", "deletion-vectors.enabled": "true"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-producer": "none"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-producer": "input"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-producer": "lookup"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-producer": "full-compaction"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-file.format": "avro"}, True, Access.CREATE),
    ({"bucket": "1", "changelog-file.format": "csv"}, True, Access.READ),
    ({"bucket": "1", "changelog-file.compression": "brotli"}, True, Access.READ),
    ({"bucket": "1", "file.format": "orc"}, True, Access.CREATE),
    ({"bucket": "1", "file.format": "csv"}, True, None),
    ({"bucket": "1", "file.format.per.level": "0:csv"}, True, None),
    ({"bucket": "1", "file.format.per.level": "0:parquet"}, True, Access.CREATE),
    ({"bucket": "1", "manifest.format": "orc"}, True, None),
    ({"bucket": "1", "row-tracking.enabled": "true"}, True, Access.READ),
    ({"bucket": "1", "data-evolution.enabled": "true"}, True, None),
    ({"bucket": "1", "sequence.snapshot-ordering": "true"}, True, Access.CREATE),
    ({"bucket": "1", "write.sequence-number-init-mode": "snapshot"}, True, Access.READ),
    ({"bucket": "1", "pk-clustering-override": "true"}, True, None),
    ({"bucket": "1", "branch": "b1"}, True, None),
    ({"bucket": "1", "branch": "main"}, True, Access.CREATE),
    ({"bucket": "1", "scan.fallback-branch": "b1"}, True, None),
    ({"bucket": "1", "chain-table.enabled": "true"}, True, None),
    ({"bucket": "1", "type": "format-table"}, True, None),
    ({"bucket": "1", "data-file.external-paths": "file:/x"}, True, Access.READ),
    ({"bucket": "1", "metadata.iceberg.storage": "table-location"}, True, Access.WRITE),
    ({"bucket": "1", "commit.callbacks": "a.B"}, True, Access.READ),
    ({"bucket": "1", "file.compression": "snappy"}, True, Access.CREATE),
    ({"bucket": "1", "file.compression": "brotli"}, True, Access.READ),
    ({"bucket": "1", "file.compression.per.level": "0:lzo"}, True, Access.READ),
    ({"bucket": "1", "manifest.compression": "lz4"}, True, Access.READ),
    ({"bucket": "1", "tag.automatic-creation": "process-time"}, True, Access.CREATE),
    ({"bucket": "1", "partition.expiration-time": "7 d"}, True, Access.CREATE),
    ({"bucket": "1", "partition.expiration-strategy": "update-time"}, True, Access.CREATE),
    ({"bucket": "1", "partition.expiration-strategy": "custom"}, True, Access.WRITE),
    ({"bucket": "1", "changelog.time-retained": "7 d"}, True, Access.CREATE),
    ({"bucket": "1", "fields.m.map.storage-layout": "shared-shredding"}, True, None),
    ({"bucket": "1", "blob-field": "b"}, True, None),
    ({"bucket": "1", "sink.parallelism": "4", "file-index.bloom-filter.columns": "a"}, True, Access.CREATE),
]


@pytest.mark.parametrize(("options", "has_key", "most"), GATE, ids=lambda value: str(value))
def test_what_may_be_done_with_a_table(options: dict[str, str], has_key: bool, most: Access | None) -> None:
    parsed = CoreOptions.parse(options, has_primary_key=has_key)
    for access in Access:
        if most is not None and access <= most:
            check_access(parsed, access, "shop.orders")
            continue
        key = next(key for key in reversed(options))
        with pytest.raises(UnsupportedFeatureError, match=r"table shop.orders cannot be") as caught:
            check_access(parsed, access, "shop.orders")
        assert f"{key}={options[key]}" in str(caught.value)


COLUMNS = {
    "k": "BIGINT NOT NULL",
    "p": "STRING NOT NULL",
    "v": "STRING",
    "seq": "INT",
    "kind": "STRING",
    "ltz": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "raw": "BYTES",
}


def table(
    options: dict[str, str],
    primary_keys: tuple[str, ...] = ("k",),
    partition_keys: tuple[str, ...] = (),
    columns: dict[str, str] | None = None,
) -> TableSchema:
    names = columns if columns is not None else COLUMNS
    fields = tuple(DataField(i, name, parse_data_type(text)) for i, (name, text) in enumerate(names.items()))
    arrays = DataField(90, "arr", parse_data_type({"type": "ARRAY NOT NULL", "element": "INT"}))
    fields = (*fields, arrays) if columns is None else fields
    return TableSchema(0, fields, 90, partition_keys, primary_keys, options)


VALID = [
    table({"bucket": "4"}),
    table({"bucket": "4", "bucket-key": "k"}),
    table({"bucket": "4"}, ("p", "k"), ("p",)),
    table({"bucket": "4", "sequence.field": "seq,v", "rowkind.field": "kind", "ignore-delete": "true"}),
    table({"bucket": "4", "bucket-function.type": "mod"}),
    table({}),
    table({}, ()),
    table({"bucket": "-1"}, (), ("p",)),
    table({"bucket": "2", "bucket-key": "k,v"}, ()),
    table({"bucket": "1", "fields.v.stats-mode": "full", "metadata.stats-mode": "none"}),
    table({"bucket": "-1"}, (), ("ltz",)),
]


@pytest.mark.parametrize("schema", VALID, ids=lambda schema: f"{schema.primary_keys}{dict(schema.options)}")
def test_tables_that_may_be_created(schema: TableSchema) -> None:
    assert validate_new_table(schema).has_primary_key == schema.has_primary_key


INVALID = [
    (table({"bucket": "1"}, columns={"k": "INT NOT NULL", "_SEQUENCE_NUMBER": "INT"}), "_SEQUENCE_NUMBER is kept"),
    (table({"bucket": "1"}, ("v",)), "primary key column v must be NOT NULL"),
    (table({"bucket": "-1"}, (), ("raw",)), "cannot be partitioned by column raw"),
    (table({"bucket": "-1"}, (), ("arr",)), "arr.*cannot be part of the partition"),
    (table({"bucket": "0"}), "bucket=0"),
    (table({"bucket": "-3"}), "bucket=-3.*-1 or -2"),
    (table({"bucket": "2"}, ()), "needs the option bucket-key"),
    (table({"bucket-key": "k"}, ()), "no meaning with bucket=-1"),
    (table({"bucket": "2", "bucket-key": "x"}, ()), "bucket-key names column 'x'"),
    (table({"bucket": "2", "bucket-key": "k, v"}, ()), "names column ' v'"),
    (table({"bucket": "2", "bucket-key": "v"}), "v must be part of the primary key"),
    (table({"bucket": "2", "bucket-key": "p"}, ("k", "p"), ("p",)), "must not contain the partition column p"),
    (table({"bucket": "2", "bucket-key": "arr"}, ()), "arr.*cannot be part of the bucket-key"),
    (table({"bucket": "2", "bucket-function.type": "mod"}, ("p",)), "exactly one INT or BIGINT"),
    (table({"bucket": "2", "bucket-function.type": "crc"}), "bucket-function.type = 'crc'"),
    (table({"bucket": "1", "rowkind.field": "x"}), "rowkind.field names column 'x'"),
    (table({"bucket": "1", "fields.v.stats-mode": "some"}), "statistics mode 'some'"),
    (table({"bucket": "1", "metadata.stats-mode.per.level": "0:some"}), "statistics mode 'some'"),
    (table({"streaming-read-overwrite": "true"}, ()), "needs a primary key"),
    (table({"full-compaction.delta-commits": "3"}, ()), "no meaning for an append table"),
    (table({"partition.legacy-name": "false"}, (), ("ltz",)), "time zone"),
    (table({"changelog-producer": "lookup"}, ()), "changelog-producer needs a primary key"),
    (table({"bucket": "1", "changelog-file.format": "csv"}), "changelog-file.format=csv is not supported"),
    (table({"bucket": "1", "changelog-file.stats-mode": "some"}), "statistics mode 'some'"),
]


@pytest.mark.parametrize(("schema", "message"), INVALID, ids=lambda value: value if isinstance(value, str) else "")
def test_tables_that_may_not_be_created(schema: TableSchema, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        validate_new_table(schema)


def changed(schema: TableSchema, **options: str) -> TableSchema:
    return dataclasses.replace(schema, id=1, options={**schema.options, **options})


def test_a_table_made_elsewhere_may_be_changed_without_giving_up_its_options() -> None:
    before = table({"bucket": "4", "my-tool.note": "x", "partition.expiration-time": "7 d"})
    assert validate_changed_schema(before, changed(before, **{"write-only": "true"})).write_only is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wriet-only": "true"}, "unknown option 'wriet-only'.*write-only"),
        ({"write-only": "maybe"}, "option write-only = 'maybe'"),
        ({"partition.expiration-strategy": "custom"}, "partition.expiration-strategy=custom is not supported"),
        ({"partition.expiration-time": "1 d"}, "partition.expiration-time is for tables with partition keys"),
        ({"partition.timestamp-formatter": "EEE"}, "partition.timestamp-formatter cannot be used"),
        ({"sequence.field": "nothing"}, "sequence.field names column 'nothing'"),
        ({"bucket": "-3"}, "bucket=-3"),
        ({"merge-engine": "first-row", "changelog-producer": "input"}, "changelog-producer=input cannot be used"),
    ],
)
def test_changed_options_are_checked(options: dict[str, str], message: str) -> None:
    before = table({"bucket": "4", "my-tool.note": "x"})
    with pytest.raises(InvalidRequestError, match=message):
        validate_changed_schema(before, changed(before, **options))


def test_a_nullable_primary_key_of_an_old_table_stays() -> None:
    before = table({"bucket": "1"}, ("v",))
    assert validate_changed_schema(before, changed(before, **{"write-only": "true"})).write_only is True


def test_options_of_a_wrong_shape_are_refused_without_their_values() -> None:
    for given in ("hunter2", {1: "hunter2", "s3.secret-key": "hunter2"}):
        with pytest.raises(InvalidRequestError, match=r"not (a value of type str|keys of type int)") as refused:
            option_texts(given)  # type: ignore[arg-type]
        assert "hunter2" not in str(refused.value)
