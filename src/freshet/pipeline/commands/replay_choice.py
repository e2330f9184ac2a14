"""Which source of a pipeline takes a dead letter again, where several read its topic.

A letter holds its topic, not its source. Sources that share a topic distinguish its tables by `only`: a record goes to
the first of them that takes the table it names, and to the first of them all where none does. So it goes to one alone,
and a letter that fails again is there once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.pipeline.config.formats import Format
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.config.rules import subscribed_topics
from freshet.pipeline.decode.change import RawRecord, Skipped
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.planning import registry_settings
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.source_table import SourceTable, part_names, table_of


@dataclass(frozen=True, slots=True)
class SharedTopic:
    """The sources that read one topic: their indexes, formats, tables and registries, in the order of the file."""

    indexes: tuple[int, ...]
    formats: tuple[Format | None, ...]
    only: tuple[OnlyTables | None, ...]
    registries: tuple[RegistrySettings | None, ...]
    topic: str

    def taken_by(self, index: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch (columns `key` and `value`) that the source of this index takes."""
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        mask = np.fromiter(
            (self._chosen(RawRecord(*pair, topic=self.topic)) == index for pair in pairs), bool, batch.num_rows
        )
        return batch.filter(pa.array(mask))

    def _chosen(self, record: RawRecord) -> int:
        sources = zip(self.indexes, self.formats, self.only, self.registries, strict=True)
        for index, format_name, only, registry in sources:
            table = None if only is None or only.is_any else _table(format_name, record, registry)
            if table is not None and only is not None and only.takes(*table):
                return index
        return self.indexes[0]


def shared_topics(config: PipelineConfig) -> dict[str, SharedTopic]:
    """The topics that several sources of a pipeline name, at least one of them with `only`."""
    readers: dict[str, list[tuple[int, SourceConfig]]] = {}
    for index, source in enumerate(config.sources):
        for topic in subscribed_topics(source):
            readers.setdefault(topic, []).append((index, source))
    return {
        topic: SharedTopic(
            tuple(index for index, _ in found),
            tuple(source.format for _, source in found),
            tuple(source.only for _, source in found),
            tuple(registry_settings(source) for _, source in found),
            topic,
        )
        for topic, found in readers.items()
        if len(found) > 1 and any(source.only is not None for _, source in found)
    }


def _table(format_name: Format | None, record: RawRecord, registry: RegistrySettings | None) -> SourceTable | None:
    assert format_name is not None, "only `only` asks, which goes with some formats alone"
    reading = read_record(format_name, record, registry=registry)
    return None if isinstance(reading, Skipped) else table_of(reading.source, part_names(format_name))
