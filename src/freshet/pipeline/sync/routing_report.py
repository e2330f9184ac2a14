"""Where the records of a source go, for `freshet check`: by a sample of them, and by the names of other topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from freshet._frozen import Frozen, field
from freshet.pipeline.checks.kafka_reach import ask_once, brokers_of, sample_records, topics_of
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.config.table_arguments import alter_statement, sql_command, type_in_sql
from freshet.pipeline.config.toast_columns import null_when_unchanged, toast_warning
from freshet.pipeline.decode.change import Dead, RawRecord, Reading, Skipped
from freshet.pipeline.decode.described_table import DescribedTable, describe_record, takes
from freshet.pipeline.decode.flat import is_tombstone
from freshet.pipeline.decode.json_value import text_of
from freshet.pipeline.decode.planning import registry_settings
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.source_table import PARTS, SourceTable, table_of, table_of_record, table_of_topic
from freshet.pipeline.decode.sql_types import STRING
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sync.routes import EXCLUDED, Route, refuse_target, route_of
from freshet.pipeline.sync.rule_differences import refuse_other_rule, unheeded_by
from freshet.pipeline.sync.table_changes import changes_of, new_table, possible_columns
from freshet.storage.exceptions import StorageError
from freshet.storage.model.data_type import DataType, TypeRoot, with_nullable
from freshet.storage.model.display import sql_name
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type

SAMPLE: Final = 2000
_NO: Final = "cannot be"
_CATALOGUE: Final = "none yet, so says the catalogue"
_FINEST: Final = "TIMESTAMP(9) WITH LOCAL TIME ZONE"
_NARROW_TIMES: Final = ((TypeRoot.TIME, STRING), (TypeRoot.TIMESTAMP_LTZ, _FINEST))
"""Columns of these types, where records say that."""


class RoutedTable(Frozen):
    """A source table, the table that it goes to (None: nowhere), what there is to say, and its name in parts."""

    source: str
    target: str | None
    text: str
    table: SourceTable
    columns: Mapping[str, DataType] = field(default_factory=dict)
    """Of the target, where they are known."""


def routed_tables(config: SyncPipelineConfig) -> list[RoutedTable] | None:
    """Every source table that is seen; None where the brokers cannot be asked."""
    source = config.sync.source
    if source.postgres is not None:
        from freshet.pipeline.checks.postgres_reach import tables_read

        return [
            _routed(config, each.source_table, DescribedTable(each.columns, each.key, True, _CATALOGUE, knows_key=True))
            for each in tables_read(source.postgres)
        ]
    brokers, records = brokers_of(source), sample_records(source, SAMPLE)
    if brokers is None or records is None:
        return None
    found: dict[SourceTable, DescribedTable | None] = {}
    gone: dict[SourceTable, None] = {}
    named: set[str] = set()
    prefixes: set[str] = set()
    format_name, registry = source.format or "json", registry_settings(source)
    for each in records:
        record = RawRecord(each.key, each.value, topic=each.topic)
        reading = read_record(format_name, record, registry=registry)
        prefixes.update(_prefix(reading))
        if isinstance(reading, Skipped):
            continue
        table = table_of_record(format_name, reading.source, each.topic)
        if table is None:
            continue
        named.add(each.topic)
        if format_name == "debezium-unwrapped" and table_of(reading.source) is None:
            # What is no row is of that table where the pipeline knows it.
            if is_tombstone(each.value):
                gone[table] = None
                continue
            if isinstance(reading, Dead):
                continue
        described = None if isinstance(reading, Dead) else describe_record(format_name, record, "a sample", registry)
        known = found.get(table)
        found[table] = described if known is None else known if described is None else known.joined(described)
    routed = [_routed(config, table, described) for table, described in sorted(found.items())]
    routed += [_of_tombstones(config, table) for table in sorted(gone.keys() - found.keys())]
    topics = sorted(topics_of(source, ask_once(brokers)) - named - {str(table) for table in found})
    return [*routed, *(_of_topic(config, topic, prefixes) for topic in topics)]


def warnings_of_toast(config: SyncPipelineConfig, routed: list[RoutedTable]) -> Iterator[str]:
    """Columns whose unchanged values come as NULL."""
    for each in routed:
        names = null_when_unchanged(each.columns, config.sync.source)
        if names:
            yield toast_warning(names, f" of {each.target}")


def refusals(config: SyncPipelineConfig, routed: list[RoutedTable]) -> Iterator[str]:
    """Source tables that go to one table without `merge`, and tables that cannot be."""
    by_target: dict[str, list[RoutedTable]] = {}
    for each in routed:
        if each.target is not None:
            by_target.setdefault(each.target, []).append(each)
    for target, found in by_target.items():
        routes = [route_of(config.sync, each.table) for each in found]
        if len(found) > 1 and not all(isinstance(route, Route) and route.is_merged for route in routes):
            sources = ", ".join(each.source for each in found)
            yield f"{sources} all go to table {target}; set merge: true in their rules if they are one table"
        yield from (f"{each.source} into table {target}: {each.text}" for each in found if each.text.startswith(_NO))


def _routed(config: SyncPipelineConfig, table: SourceTable, described: DescribedTable | None) -> RoutedTable:
    route = route_of(config.sync, table)
    if not isinstance(route, Route):
        return RoutedTable(str(table), None, route, table)
    try:
        refuse_target(config, table, route)
        catalog = target_catalog(config)
        if catalog.has_table(route.target):
            schema = catalog.table(route.target).schema
            refuse_other_rule(config, route, schema)
            changes, _ = changes_of(schema, route, described) if described is not None else ((), ())
            more = f", {len(changes)} changes of its columns" if changes else ""
            narrow = _narrow_text(config, schema, route, described) if described is not None else ""
            unheeded = "".join(f"; {text}" for text in unheeded_by(config, route, schema))
            columns = {column.name: column.type for column in schema.fields}
            return RoutedTable(str(table), route.target, f"exists{more}{narrow}{unheeded}", table, columns)
        if described is None or described.is_empty:
            return RoutedTable(str(table), route.target, "is created once there is a row", table)
        if not described.is_typed and config.sync.of_schema != "infer":
            text = f"{_NO} created: its records bring no schema; set schema: infer under sync"
            return RoutedTable(str(table), route.target, text, table)
        new = new_table(route, described)
        catalog.check_new_table(new.schema(route.target))
        lacking = sorted(route.computed_columns.keys() - new.columns.keys())
        without = f", without {', '.join(lacking)}, whose field it lacks" if lacking else ""
        no_names = possible_columns(route, described)[1]
        without += f", without {', '.join(map(repr, no_names))}, which cannot be a column" if no_names else ""
        guessed = "" if described.is_typed else ", types guessed"
        keys = f"key {', '.join(new.primary_keys)}" if new.primary_keys else "no key"
        text = f"is created: {len(new.columns)} columns, {keys}{guessed}{without}"
        columns = {name: parse_sql_type(kind) for name, kind in new.columns.items()}
        return RoutedTable(str(table), route.target, text, table, columns)
    except (InvalidRequestError, StorageError, OSError) as error:
        text = f"{_NO}: {error}"
    return RoutedTable(str(table), route.target, text, table)


def _narrow_text(config: SyncPipelineConfig, schema: TableSchema, route: Route, described: DescribedTable) -> str:
    """Which columns of times do not take all that their source has, and how they come to."""
    found = {
        name: text
        for name, text in described.columns.items()
        if described.is_typed
        and name in schema.by_name
        and name not in route.types
        and (schema.by_name[name].type.root, text) in _NARROW_TIMES
        and not takes(str(with_nullable(schema.by_name[name].type, True)), text)
    }
    if not found:
        return ""
    types = {sql_name(name): type_in_sql(parse_sql_type(text)) for name, text in found.items()}
    changes = [alter_statement(route.target, f"ALTER COLUMN {name} TYPE {text}") for name, text in types.items()]
    command = sql_command(config.warehouse, changes)
    lossy = " --allow-lossy" if set(found.values()) != {STRING} else ""
    held = ", ".join(f"{name} {with_nullable(schema.by_name[name].type, True)}" for name in found)
    return (
        f"; {held}: finer or longer times of the source are dead letters; run {command}{lossy}, or name the types "
        "under types of the rule"
    )


def _prefix(reading: Reading) -> Iterator[str]:
    """The name of the connector that has written a record, which is that of its schema change topic."""
    source = None if isinstance(reading, Skipped) else reading.source
    name = text_of(source.get("name")) if isinstance(source, dict) else None
    if name:
        yield name


def _of_tombstones(config: SyncPipelineConfig, table: SourceTable) -> RoutedTable:
    """Tombstones of unwrapped rows, whose topic stands for a table that no record was seen of."""
    route = route_of(config.sync, table)
    text = (
        "they do not say which table they are of: dead letters, unless the pipeline knows a table of this name; have "
        "the connector write delete.tombstone.handling.mode=rewrite"
    )
    return RoutedTable(f"tombstones of {table}", None, route if route == EXCLUDED else text, table)


def _named_by(topic: str) -> SourceTable:
    """The table of a topic as Debezium calls it."""
    parts = topic.split(".")
    return SourceTable(parts[0], parts[1], parts[2]) if len(parts) == len(PARTS) else SourceTable("", "", topic)


def _of_topic(config: SyncPipelineConfig, topic: str, prefixes: Collection[str]) -> RoutedTable:
    """A topic of whose records none was seen: by its name, as Debezium calls topics."""
    if topic in prefixes:
        return RoutedTable(f"topic {topic}", None, "schema changes, which are skipped", SourceTable("", "", topic))
    table = table_of_topic(config.sync.source.format or "json", topic) or _named_by(topic)
    route = route_of(config.sync, table)
    where = route.target if isinstance(route, Route) else None
    return RoutedTable(f"topic {topic}", where, "no records yet" if where else str(route), table)
