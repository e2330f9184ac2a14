"""Warnings about the changelog that a pipeline's table emits: which changes its readers do not get.

| `changelog-producer` | fed by | its readers get |
|---|---|---|
| input | json, avro, debezium-unwrapped | rows as they were written: no -U, an update looks like another insert or +U |
| input | debezium-json, debezium-avro, canal-json, maxwell-json, row-kind | what the records say |
| lookup, full-compaction | any, with write-only | nothing until another process compacts |
| lookup, full-compaction | any, with `on_truncate: apply` | no deletion of the rows that a truncate takes away |

`storage.options.risky` knows what a table's options lead to by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options import risky_options, unheeded_options

_WITHOUT_BEFORE = ("json", "avro", "debezium-unwrapped")
_WITHOUT_OVERWRITES = ("lookup", "full-compaction")


def changelog_warnings(config: PipelineConfig, *, is_compacted: bool = False) -> Iterator[str]:
    """Warnings for the start of a run; `is_compacted` where the table is known to be compacted by another process."""
    yield from _truncate_warnings(config)
    if isinstance(config, SyncPipelineConfig):
        producers = {options.get("changelog-producer", "").lower() for options in _table_options(config)}
        yield from _blind_warnings(config) if "input" in producers else ()
    table = config.table
    try:
        options = table.written_options
    except InvalidRequestError:
        return  # said elsewhere
    yield from unheeded_options(options)
    if not options.has_primary_key:
        return
    if table.moves_rows:
        yield (
            "rows of this table move between partitions, since its primary key has not all partition columns: let no "
            "other program write it while this pipeline runs, whatever the keys. Programs of Freshet refuse each "
            "other's commits, and batches are run again; Apache Paimon does not look, and a key may be in two "
            "partitions. Compaction jobs may run"
        )
    elif options.has_dynamic_buckets:
        yield (
            "bucket=-1: let no other program add keys to the table while this pipeline runs. Programs of Freshet "
            "refuse each other's commits, and batches are run again; Apache Paimon does not look, and a key may be in "
            "two buckets. Compaction jobs may run"
        )
    if options.has_postponed_buckets and not is_compacted:
        yield (
            "bucket=-2: rows of this pipeline wait, and scans and lookups do not show them, until a compaction puts "
            "them into buckets; run `freshet compact WAREHOUSE TABLE --continuous` beside it"
        )
    if not (options.compacts_elsewhere and is_compacted):
        yield from risky_options(options)
    if options.changelog_producer.emits.at_flush:
        yield from _blind_warnings(config)


def _blind_warnings(config: PipelineConfig) -> Iterator[str]:
    blind = sorted({source.format for source in config.sources if source.format in _WITHOUT_BEFORE})
    if blind:
        yield (
            f"changelog-producer=input repeats the records as they come, and those of the format {' and '.join(blind)} "
            "do not carry the row before a change: readers of the changelog get no -U, and count every update of a key "
            "as another row; use debezium-json, or changelog-producer=lookup, which finds the rows before"
        )


def _truncate_warnings(config: PipelineConfig) -> Iterator[str]:
    """Warnings of tables whose options refuse `streaming-read-overwrite`, with which readers see a truncate."""
    if all(source.on_truncate != "apply" for source in config.sources):
        return
    for producer in _WITHOUT_OVERWRITES:
        if any(options.get("changelog-producer", "").lower() == producer for options in _table_options(config)):
            yield (
                f"on_truncate: apply with changelog-producer={producer}: readers of the changelog keep the rows that a "
                "truncate takes away, since emptying the table emits no changes; let them read the table anew after a "
                "truncate, or use changelog-producer=input with streaming-read-overwrite=true"
            )


def _table_options(config: PipelineConfig) -> list[Mapping[str, str]]:
    """The options of the table that is written, or of each rule of `sync`."""
    if not isinstance(config, SyncPipelineConfig):
        return [config.table.options]
    return [{**config.sync.options, **rule.options} for rule in config.sync.tables]
