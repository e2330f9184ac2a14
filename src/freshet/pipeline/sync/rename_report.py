"""What `freshet check` says of renamed columns (`schema_evolution: evolve`): where a rename becomes a new column all
the same, because nothing tells that it is one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from freshet.logstore.kafka.sampled_record import SampledRecord
from freshet.pipeline.config.formats import ENVELOPE_FORMATS
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.change import RawRecord, Skipped
from freshet.pipeline.decode.described_table import describe_record
from freshet.pipeline.decode.json_value import text_of
from freshet.pipeline.decode.planning import registry_settings
from freshet.pipeline.decode.reading import read_record

_BECOME: Final = "renamed columns become new columns"
_WITHOUT_STATEMENTS: Final = {"sqlserver": "SQL Server", "db2": "Db2"}


@dataclass(frozen=True, slots=True)
class _Connector:
    """The kind of a connector, and the name of its schema change topic (`topic.prefix`)."""

    kind: str
    topic: str


def rename_warnings(
    config: SyncPipelineConfig, records: Iterable[SampledRecord], topics: Collection[str]
) -> Iterator[str]:
    """What is to be known of the connectors that have written these records; `topics` are those that are read."""
    if config.sync.schema_evolution != "evolve":
        return
    source = config.sync.source
    format_name, registry = source.format or "json", registry_settings(source)
    if format_name not in ENVELOPE_FORMATS:
        yield f"schema_evolution: evolve: records of {format_name} do not tell of renames; {_BECOME}"
        return
    connectors: dict[_Connector, bool] = {}
    for each in records:
        record = RawRecord(each.key, each.value)
        reading = read_record(format_name, record, registry=registry)
        origin = None if isinstance(reading, Skipped) else reading.source
        if isinstance(origin, dict) and text_of(origin.get("name")):
            connector = _Connector(text_of(origin.get("connector")) or "", text_of(origin["name"]) or "")
            is_typed = describe_record(format_name, record, "a sample", registry).is_typed
            connectors[connector] = connectors.get(connector, True) and is_typed
    for connector, is_typed in sorted(connectors.items(), key=lambda each: (each[0].topic, each[0].kind)):
        text = _warning(connector, is_typed, topics)
        if text is not None:
            yield f"schema_evolution: evolve: {text}"


def _warning(connector: _Connector, is_typed: bool, topics: Collection[str]) -> str | None:
    if connector.kind == "postgresql":
        return f"PostgreSQL ({connector.topic}) has no schema change topic; {_BECOME}"
    if connector.kind in _WITHOUT_STATEMENTS:
        name = _WITHOUT_STATEMENTS[connector.kind]
        return f"schema changes of {name} ({connector.topic}) do not have the statement; {_BECOME}"
    if connector.topic not in topics:
        return (
            f"the schema change topic {connector.topic} is not among the topics that are read; {_BECOME} until it is "
            "(subscribe to it, and set include.schema.changes=true at the connector)"
        )
    if not is_typed:
        return (
            f"records of {connector.topic} bring no schema (value.converter.schemas.enable=true), so it is not known "
            f"which names they have; {_BECOME}"
        )
    return None
