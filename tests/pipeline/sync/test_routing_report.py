"""What `freshet check` says of the tables of a file with `sync`, from what it has seen of their records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.logstore.kafka.record_sizes import SampledRecord
from freshet.pipeline.checks import kafka_reach
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.sync import routing_report
from freshet.pipeline.sync.routing_report import refusals, routed_tables
from tests.pipeline.records import Record, change, flat_with_schema, octets, with_schema
from tests.pipeline.sync.kit import sync_config

ID = {"type": "int64", "optional": False, "field": "id"}
KEY = flat_with_schema({"id": 1}, [ID])


def record(name: str, *, typed: bool = True) -> Record:
    value = change("c", None, {"id": 1}, table=name)
    return Record(with_schema(value, [ID]) if typed else value, KEY)


def report(
    config: SyncPipelineConfig,
    folder: Path,
    records: Sequence[Record],
    topics: Sequence[str],
    patch: pytest.MonkeyPatch,
) -> tuple[dict[str, tuple[str | None, str]], list[str]]:
    """What is said by source table, and the refusals; brokers are not asked."""
    table = config.table.model_copy(update={"warehouse": str(folder)})
    config = config.model_copy(update={"warehouse": str(folder), "table": table})
    patch.setattr(routing_report, "brokers_of", lambda source: object())
    patch.setattr(routing_report, "ask_once", lambda brokers: object())
    sample = [SampledRecord(octets(each.key), octets(each.value), each.topic) for each in records]
    patch.setattr(routing_report, "sample_records", lambda source, count: sample)
    patch.setattr(routing_report, "topics_of", lambda source, known: set(topics))
    routed = routed_tables(config)
    assert routed is not None
    return {each.source: (each.target, each.text) for each in routed}, list(refusals(config, routed))


def test_tables_that_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[dict[str, Any]] = [
        {"exclude": "shop.public.tmp_.*"}, {"from": "shop.public.(.*)", "to": "lake.$1", "options": {"bucket": 1}},
    ]  # fmt: skip
    config = sync_config(rules, computed_columns={"dt": "year(created)"}, metadata_columns={"_op": "op"})
    Catalog(tmp_path).create_table("lake.there", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"})
    records = [
        record("orders"), record("orders"), record("tmp_1"), record("plain", typed=False), record("there"),
        Record(change("c", None, {"id": 1}, db="x"), KEY), Record(b"{"), Record(None),
    ]  # fmt: skip
    said, refused = report(config, tmp_path, records, ["shop.public.orders", "shop.public.late"], monkeypatch)
    assert said == {
        "shop.public.orders": ("lake.orders", "is created: 2 columns, key id, without dt, whose field it lacks"),
        "shop.public.tmp_1": (None, "excluded by a rule"),
        "shop.public.plain": (
            "lake.plain", "cannot be created: its records bring no schema; set schema: infer under sync",
        ),
        "shop.public.there": ("lake.there", "exists, 1 changes of its columns"),
        "x.public.orders": (None, "no rule takes its table"),
        "topic shop.public.late": ("lake.late", "no records yet"),
    }  # fmt: skip
    assert refused == ["shop.public.plain into table lake.plain: " + said["shop.public.plain"][1]]


def test_tables_of_the_pipeline_itself_and_tables_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: list[dict[str, Any]] = [
        {"from": "shop.public.bad", "to": "lake.bad", "options": {"bucket": 1, "bucket-key": "odd"}},
        {"from": "shop.public.(.*)", "to": "lake.$1", "options": {"bucket": 1}},
    ]
    config = sync_config(rules)
    own = config.dead_letter_table.rpartition(".")[2]
    config = config.model_copy(update={"dead_letters": f"lake.{own}"})
    said, refused = report(config, tmp_path, [record("bad"), record(own)], [], monkeypatch)
    assert len(refused) == 2
    assert "odd" in said["shop.public.bad"][1]
    assert "is the table of the dead letters of this pipeline" in said[f"shop.public.{own}"][1]


def test_rules_that_say_otherwise_than_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[dict[str, Any]] = [
        {"from": "shop.public.keyed", "to": "lake.keyed", "primary_key": ["id", "n"]},
        {"from": "shop.public.(.*)", "to": "lake.$1", "options": {"file.format": "orc"}},
    ]
    for name in ("keyed", "plain"):
        Catalog(tmp_path).create_table(f"lake.{name}", schema={"id": "INT"}, primary_keys=["id"])
    said, refused = report(sync_config(rules), tmp_path, [record("keyed"), record("plain")], [], monkeypatch)
    assert len(refused) == 1 and "its primary key is (id), not (id, n)" in refused[0]
    assert "; lake.plain exists, and its own options count: file.format is not set" in said["shop.public.plain"][1]


def test_topics_of_plain_records_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sync_config([{"from": "plain_(.*)", "to": "lake.$1", "options": {"bucket": 1}}])
    sync = config.sync.model_copy(
        update={"of_schema": "infer", "source": config.sync.source.model_copy(update={"format": "json"})}
    )
    config = config.model_copy(update={"sync": sync})
    records = [Record({"id": 1, "n": 2}, {"id": 1}, topic="plain_t")]
    said, refused = report(config, tmp_path, records, ["plain_t"], monkeypatch)
    assert said == {"plain_t": ("lake.t", "is created: 2 columns, key id, types guessed")}
    assert not refused


def test_rows_that_debezium_has_unwrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that were added to them, else by their topic; a tombstone has none."""
    config = sync_config(
        [{"exclude": "tmp"}, {"from": "shop.public.(.*)", "to": "lake.{table}"}], of="debezium-unwrapped"
    )
    names = {"__db": "shop", "__schema": "public", "__table": "named"}
    records = [
        Record(flat_with_schema({"id": 1}, [ID]), KEY, "shop.public.orders"), Record(None, KEY, "shop.public.orders"),
        Record({**flat_with_schema({"id": 1, **names}, [ID])}, KEY, "pg.all"), Record(None, KEY, "pg.all"),
        Record(None, KEY, "tmp"), Record({"ts_ms": 1}, {"serverName": "x"}, "shop.public.beat"),
    ]  # fmt: skip
    topics = ["shop.public.orders", "pg.all", "tmp", "shop.public.late"]
    said, refused = report(config, tmp_path, records, topics, monkeypatch)
    assert said.pop("tombstones of pg.all")[1].startswith("they do not say which table they are of: dead letters")
    assert said == {
        "shop.public.orders": ("lake.orders", "is created: 1 columns, key id"),
        "shop.public.named": ("lake.named", "is created: 1 columns, key id"),
        "tombstones of tmp": (None, "excluded by a rule"),
        "topic shop.public.late": ("lake.late", "no records yet"),
    }
    assert not refused


@pytest.mark.parametrize("of", ["json", "row-kind"])
def test_a_plain_topic_is_a_table_of_its_whole_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    options = {"rowkind.field": "k"} if of == "row-kind" else {}
    rules = [{"from": "a[.].*", "to": "lake.x"}, {"from": ".*", "to": "lake.x{table}"}]
    config = sync_config(rules, of=of, options=options, schema="infer")
    records = [Record(value, {"id": 1}, topic="a.b.c") for value in ({"id": 1, "k": "+I"}, b"{", {"n": 1})]
    said, _ = report(config, tmp_path, records, ["a.b.c", "d.e.f"], monkeypatch)
    assert said["topic d.e.f"] == ("lake.xd.e.f", "no records yet")
    assert said["a.b.c"] == ("lake.x", "is created: 3 columns, key id, types guessed"), "of all its records"


def test_two_tables_into_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that merge other tables do not allow it."""
    rules: list[dict[str, Any]] = [
        {"from": "shop.public.(.*)_\\d", "to": "lake.$1", "merge": True},
        {"from": "shop.public.(a|b)", "to": "lake.both"},
    ]
    names = ("a", "b", "c_1", "c_2")
    said, refused = report(sync_config(rules), tmp_path, [record(name) for name in names], [], monkeypatch)
    assert len(said) == 4
    (text,) = refused
    assert text.startswith("shop.public.a, shop.public.b all go to table lake.both; set merge: true")


def test_brokers_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kafka_reach.brokers_of is routing_report.brokers_of
    monkeypatch.setattr(routing_report, "brokers_of", lambda source: None)
    monkeypatch.setattr(routing_report, "sample_records", lambda source, count: None)
    assert routed_tables(sync_config()) is None
