"""Which tables can have a log, and of which kind.

What is logged is what the table will hold:

| table | `log.changelog-mode` | logged |
|---|---|---|
| append, with buckets | all | the rows |
| keyed, producer lookup | all | the changes that the compaction of the commit emits; `lookup-wait` must be true |
| keyed, producer lookup | upsert | the same without -U |
| keyed, producer input | all | the rows as they were written |
| keyed, deduplicate without `sequence.field`, any other producer | upsert | the last row of each key |
| other | | refused: when rows are written it is not known what becomes of them |

With `log.consistency=transactional` the changes are read from the table after their commit, so a lookup need not wait,
compactions may run elsewhere, and the producer full-compaction emits all. Readers of such a log need nothing of this
library: `log.format` is json or debezium-json, and these are for such logs alone.

`log.ignore-delete` leaves -U and -D out, and logs +U as +I: what readers of the log see is a stream of inserts, as it
was in Paimon. `log.format=json` has no word for updates, so keyed tables need `upsert` or `log.ignore-delete` with it.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.logs.log_systems import provider_of, refuse_uncommitted_json
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import (
    LogChangelogMode,
    LogConsistency,
    LogSystem,
    LookupCompact,
    MergeEngine,
)
from freshet.storage.options.core import CoreOptions

_NEED_A_LOG: Final = {
    "log.changelog-mode": LogChangelogMode.UPSERT,
    "log.consistency": LogConsistency.EVENTUAL,
}

LOG_FORMATS: Final = ("arrow", "json", "debezium-json")


def check_log_options(schema: TableSchema, options: CoreOptions) -> None:
    """Raises `InvalidRequestError`, naming the option, where these do not go together."""
    if options.log_system is LogSystem.NONE:
        for key, value in _NEED_A_LOG.items():
            if options.given.get(key, "").lower() == value:
                raise InvalidRequestError(f"{key}={value} needs a log; set log.system=kafka", option=key)
        return
    _check_formats(schema, options)
    provider_of(options).check_options(options.given)
    if options.bucket <= 0:
        raise InvalidRequestError(
            f"log.system={options.log_system} needs a fixed number of buckets, and bucket is {options.bucket}"
            f"{'' if 'bucket' in options.given else ' where it is not set'}: the rows of a bucket are in the partition "
            "of its number; set bucket to a number such as 4, which is that of the topic's partitions",
            option="bucket",
        )
    if options.write_only and options.logs_changes:
        raise InvalidRequestError("write-only tables cannot have a log: changes are not known when rows are written")
    if not schema.has_primary_key:
        if options.log_changelog_mode is LogChangelogMode.UPSERT:
            raise InvalidRequestError("log.changelog-mode=upsert needs a primary key", option="log.changelog-mode")
        return
    emits = options.changelog_producer.emits
    if emits.in_compactions and options.publishes_changes:
        return
    if emits.by_lookup:
        _check_lookup(options)
    else:
        _check_without_lookup(options)


def _check_formats(schema: TableSchema, options: CoreOptions) -> None:
    if options.log_format not in LOG_FORMATS:
        raise UnsupportedFeatureError(
            f"log.format={options.log_format} is not supported; it is one of {', '.join(LOG_FORMATS)}",
            option="log.format",
        )
    if options.publishes_changes and options.log_format == "arrow":
        raise InvalidRequestError(
            "log.consistency=transactional is for consumers that know nothing of this library, and they cannot read "
            "log.format=arrow; set log.format=debezium-json or json",
            option="log.format",
        )
    refuse_uncommitted_json(options)
    if options.log_key_format not in (None, "json"):
        raise UnsupportedFeatureError(
            f"log.key.format={options.log_key_format} is not supported; keys are JSON: leave the option out",
            option="log.key.format",
        )
    if options.log_key_format is not None and options.log_format == "arrow":
        raise InvalidRequestError(
            "log.key.format needs log.format=json or debezium-json: a record of log.format=arrow holds many rows and "
            "has no key",
            option="log.key.format",
        )
    if options.log_format == "json" and schema.has_primary_key and options.logs_before_images:
        raise InvalidRequestError(
            "log.format=json does not distinguish updates and deletes from inserts; set log.changelog-mode=upsert, "
            "which writes deletes as records without a value, log.ignore-delete=true, or log.format=debezium-json",
            option="log.format",
        )


def _check_lookup(options: CoreOptions) -> None:
    if not options.commits_empty_level_0 or options.lookup_compact is LookupCompact.GENTLE:
        key = "lookup-wait" if not options.commits_empty_level_0 else "lookup-compact"
        raise InvalidRequestError(
            f"log.system={options.log_system} with changelog-producer=lookup needs lookup-wait=true and "
            "lookup-compact=radical: changes are logged with the commit that made them",
            option=key,
        )


def _check_without_lookup(options: CoreOptions) -> None:
    engine, producer = options.merge_engine, options.changelog_producer
    reason = f"merge-engine={engine}" if engine is not MergeEngine.DEDUPLICATE else "sequence.field"
    if engine is not MergeEngine.DEDUPLICATE or options.sequence_field:
        raise InvalidRequestError(
            f"log.system={options.log_system} with {reason} needs changelog-producer=lookup: what a row becomes in "
            "the table is known only once it was merged with what is stored",
            option="changelog-producer",
        )
    if options.logs_before_images and not producer.emits.with_commit:
        raise InvalidRequestError(
            f"log.changelog-mode=all needs changelog-producer=lookup or input; with {producer} the row before an "
            "update is not known when it is logged. Set one of them, or log.changelog-mode=upsert",
            option="log.changelog-mode",
        )
