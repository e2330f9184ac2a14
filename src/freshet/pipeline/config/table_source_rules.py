"""Rules for sources that are tables: whose kinds the target must be able to apply.

| the target | takes from a table |
|---|---|
| keyed, `deduplicate` | every change; no speculative ones with `sequence.field` or `ignore-delete`: they would stay |
| keyed, other engines | what their rules allow (`rules` warns of deletions); nothing speculative |
| without a key | only the rows of a table without a key, which `table_sources` finds out |

What is read here is the file alone; `table_sources` looks at the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet.pipeline.config.catalogs import source_location, target_location
from freshet.pipeline.config.frame_options import ISOLATION_OPTION, stream_options
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, TableSourceConfig
from freshet.pipeline.exceptions import InvalidRequestError, KeyPath, Problem
from freshet.storage.exceptions import InvalidRequestError as InvalidStorageRequestError
from freshet.storage.options import CoreOptions, MergeEngine

_OF_RECORDS: Final = (
    "format", "payload_types", "on_unknown_field", "on_truncate", "decimal_handling_mode", "time_precision_mode",
    "binary_handling_mode", "unavailable_value_placeholder", "only", "read",
)  # fmt: skip
_WRITTEN: Final = {"payload_types": "schema"}


def table_source(
    config: PipelineConfig, source: SourceConfig, table: TableSourceConfig, key_path: KeyPath
) -> Iterator[Problem]:
    """What is wrong with a source that is a table."""
    for key in _OF_RECORDS:
        if key in source.model_fields_set:
            yield Problem(
                (*key_path, _WRITTEN.get(key, key)),
                "belongs to records; rows of a table have types and kinds already",
            )
    if config.table.expect:
        yield Problem(
            ("table", "expect"),
            "belongs to records: rows of a table have no record that could be a dead letter. Expect it where records "
            "become the rows of the table that is read",
        )
    if any(each.table is None for each in config.sources):
        yield Problem(key_path, "tables and records cannot feed one pipeline; write two pipeline files into one table")
    try:
        options = stream_options(table.given)
    except InvalidRequestError as error:
        yield Problem((*key_path, "table"), str(error))
        return
    if table.name == config.table.name and _is_in_one_place(config, table):
        yield Problem(
            (*key_path, "table", "name"), f"{table.name} is the table that is written: it would follow itself"
        )
    if options is not None and options.request.isolation == "speculative":
        try:
            reason = why_retractions_stay(config.table.written_options)
        except InvalidStorageRequestError:
            reason = None  # reported at the option
        if reason is not None:
            yield Problem(
                (*key_path, "table", "isolation"),
                f"speculative rows may be retracted, and {reason}; read committed rows ({ISOLATION_OPTION}=committed)",
            )


def _is_in_one_place(config: PipelineConfig, table: TableSourceConfig) -> bool:
    try:
        return source_location(config, table) == target_location(config)
    except InvalidStorageRequestError:
        return False  # reported at the place that is wrong


def why_retractions_stay(options: CoreOptions) -> str | None:
    """Why a table with these options would keep a row that its source retracts; None where it does not."""
    if not options.has_primary_key:
        return "a table without a primary key cannot drop them"
    if options.merge_engine is not MergeEngine.DEDUPLICATE:
        return f"merge-engine={options.merge_engine} does not undo them"
    if options.ignore_delete:
        return "ignore-delete keeps them"
    if options.sequence_field:
        return "with sequence.field a row that was retracted may win over the current one"
    return None
