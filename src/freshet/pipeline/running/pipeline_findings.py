"""What is wrong with a pipeline: by its status, its file, and what Kafka still keeps of its topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from freshet._frozen import Frozen
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.toast_columns import toast_columns
from freshet.pipeline.running.pipeline_status import PipelineStatus, pipeline_statuses
from freshet.pipeline.running.run_note import RunState
from freshet.storage.exceptions import NotFoundError, StorageError
from freshet.storage.status.finding import Finding, Rule, Severity, Sign, cannot_be_read, findings_of

if TYPE_CHECKING:
    from freshet.pipeline.checks.topic_reach import LogReach, TopicReach

STUCK_MS: Final = 300_000
"""For so long no batch is done though records wait; one that takes longer says so by its phases."""
_SHOWN_MAX: Final = 3


class Topics(Frozen):
    """What Kafka keeps: of the topics of the sources, and of the log of the table."""

    reaches: Sequence[TopicReach] = ()
    log: LogReach | None = None


class PipelineFacts(Frozen):
    """A pipeline at a moment, as far as rules ask for it."""

    status: PipelineStatus
    topics: Topics
    unseen_columns: tuple[str, ...]
    snapshots_kept_ms: int = 0
    """`snapshot.time-retained`."""


def pipeline_findings(
    configs: Sequence[PipelineConfig], topics_of: Callable[[PipelineConfig, int], Topics]
) -> list[Finding]:
    """Findings of the pipelines and their tables, the worst first; `topics_of` asks Kafka, at a time in milliseconds.
    Raises where no pipeline can be read."""
    found: list[Finding] = []
    for config, status in zip(configs, pipeline_statuses(configs), strict=True):
        found += findings_but_of_tables(config, status, topics_of)
        if status.error is not None:
            continue
        warehouse, catalog = config.table.warehouse, target_catalog(config)
        for table in status.tables:
            try:
                found += catalog.table(table.name).doctor(warehouse=warehouse)
            except NotFoundError:
                continue
            except StorageError as error:
                found.append(cannot_be_read(table.name, error, warehouse))
    return sorted(found, key=attrgetter("severity.rank"))


def findings_but_of_tables(
    config: PipelineConfig,
    status: PipelineStatus,
    topics_of: Callable[[PipelineConfig, int], Topics] = lambda *_: Topics(),
) -> list[Finding]:
    """Findings of the pipeline itself; without `topics_of`, from its files alone."""
    if status.error is not None:
        return [_unreadable(config, status.error)]
    facts = PipelineFacts(
        status,
        topics_of(config, status.observed_ms),
        tuple(toast_columns(config)),
        config.table.written_options.snapshot_time_retained_ms,
    )
    file, warehouse = config.origin.path or "FILE", config.table.warehouse
    words = {"file": file, "warehouse": warehouse, "table": config.table.name, "dead": config.dead_letter_table}
    return list(findings_of(PIPELINE_RULES, facts, config.name, **words))


def _unreadable(config: PipelineConfig, error: str) -> Finding:
    text = "Restore what is damaged, or mend what keeps its checkpoint or its catalog from being read"
    return Finding(
        config.name, "cannot be read", Severity.ERROR, 1, "pipeline of which nothing is known", error, text, None
    )


def _gone(facts: PipelineFacts) -> Sign | int:
    run = facts.status.run
    if facts.status.state is not RunState.GONE or run is None:
        return 0
    return Sign((facts.status.observed_ms - run.time_ms) // 1000, {"host": run.host, "process": run.process_id})


def _failed(facts: PipelineFacts) -> Sign | int:
    run = facts.status.run
    if facts.status.state not in (RunState.FAILED, RunState.RESTARTING) or run is None:
        return 0
    seconds = (facts.status.observed_ms - (run.batch_done_ms or run.started_ms)) // 1000
    since = "its start" if run.batch_done_ms is None else "its last batch"
    return Sign(seconds, {"error": facts.status.last_error or "it did not say why", "since": since})


def _stuck(facts: PipelineFacts) -> Sign | int:
    run, lag = facts.status.run, facts.status.lag_records
    if run is None or not lag or not facts.status.state.is_up:
        return 0
    since_ms = facts.status.observed_ms - (run.batch_done_ms or run.started_ms)
    return Sign(lag, {"minutes": since_ms // 60_000}) if since_ms >= STUCK_MS else 0


def _apart(facts: PipelineFacts) -> Sign | int:
    apart = facts.status.apart
    causes = "; ".join(f"{name}: {cause}" for name, cause in list(apart.items())[:_SHOWN_MAX])
    return Sign(len(apart), {"causes": causes, "first": next(iter(apart))}) if apart else 0


def _dead_letters(facts: PipelineFacts) -> Sign | int:
    dead = facts.status.batches.dead_letters
    causes = "; ".join(f"{count:,} × {cause}" for cause, count in list(dead.items())[:_SHOWN_MAX])
    return Sign(sum(dead.values()), {"causes": causes}) if dead else 0


def _left_out(facts: PipelineFacts) -> Sign | int:
    fields = {} if facts.status.run is None else facts.status.run.unknown_fields
    return Sign(sum(fields.values()), {"fields": ", ".join(fields)}) if fields else 0


def _lost(facts: PipelineFacts) -> Sign | int:
    worst = max(facts.topics.reaches, key=attrgetter("lost_records"), default=None)
    lost = sum(each.lost_records for each in facts.topics.reaches)
    return Sign(lost, {"place": worst.lost_place}) if worst is not None and lost else 0


def _near(facts: PipelineFacts) -> Sign | int:
    worst = max(facts.topics.reaches, key=attrgetter("near_records"), default=None)
    near = sum(each.near_records for each in facts.topics.reaches)
    if worst is None or not near:
        return 0
    return Sign(near, {"place": worst.near_place, "retention": worst.retention})


def _log_short(facts: PipelineFacts) -> Sign | int:
    log, kept_ms = facts.topics.log, facts.snapshots_kept_ms
    if log is None or log.retention_ms >= kept_ms:
        return 0
    return Sign((kept_ms - log.retention_ms) // 1000, {"topic": log.topic, "ms": log.retention_ms})


def _unseen(facts: PipelineFacts) -> Sign | int:
    names = facts.unseen_columns
    return Sign(len(names), {"columns": ", ".join(names)}) if names else 0


PIPELINE_RULES: Final = (
    Rule(
        "offsets lost",
        Severity.ERROR,
        _lost,
        "records that Kafka deleted before they were read",
        "the checkpoint goes on behind the first offset of {place}: retention was faster than the pipeline",
        "Get what was lost from the source, by a new snapshot of its connector; keep records for longer (retention.ms, "
        "retention.bytes); then failOnDataLoss=false goes on at the first offset",
        ("check", "{file}"),
    ),
    Rule(
        "run gone",
        Severity.ERROR,
        _gone,
        "s since its run said anything",
        "process {process} on {host} has ended without a word: it was killed, or is cut off from its checkpoint",
        "See what killed it (memory, the machine), and start it again: it goes on where it stopped",
        ("run", "{file}"),
    ),
    Rule(
        "run failed",
        Severity.ERROR,
        _failed,
        "s since {since}",
        "{error}",
        "Mend the cause, then start it again: it goes on where it stopped",
        ("run", "{file}"),
    ),
    Rule(
        "tables set apart",
        Severity.ERROR,
        _apart,
        "tables whose records are held back",
        "{causes}",
        "Mend the cause, then bring each up to the others",
        ("resume", "{file}", "--table", "{first}"),
    ),
    Rule(
        "run stuck",
        Severity.ERROR,
        _stuck,
        "records that wait",
        "no batch was done for {minutes} minutes, and its process is alive",
        "Look at the log of the run: a transaction that is open, a store or a broker that does not answer",
        ("check", "{file}"),
    ),
    Rule(
        "topic near its retention",
        Severity.WARNING,
        _near,
        "records that wait and will be deleted soon",
        "they are older than half of what {place} keeps ({retention}), or among the last tenth of its bytes",
        "Give the topic more time (retention.ms, retention.bytes) until the pipeline has caught up; see in status "
        "where a batch spends its time",
        ("status", "{file}"),
    ),
    Rule(
        "log kept too short",
        Severity.WARNING,
        _log_short,
        "s that snapshots are kept for longer than their log",
        "topic {topic} has retention.ms={ms}: a reader that begins at an older snapshot finds the log after it gone",
        "Raise retention.ms of the topic, or lower snapshot.time-retained of the table",
    ),
    Rule(
        "bad records",
        Severity.WARNING,
        _dead_letters,
        "dead letters in the last hour",
        "{causes}",
        "Look at them, mend the file or the source, then replay them",
        ("dead-letters", "{warehouse}", "{dead}"),
    ),
    Rule(
        "fields left out",
        Severity.WARNING,
        _left_out,
        "values of fields that the table does not have",
        "records of this run have {fields}: the source has changed, and the pipeline passes them over",
        "Add columns for them (on_unknown_field: add, or ALTER TABLE and the columns of the file), or leave them out "
        "by `select`",
        ("check", "{file}"),
    ),
    Rule(
        "unchanged values come as NULL",
        Severity.NOTE,
        _unseen,
        "columns",
        "of {columns} Debezium writes NULL for a value that a change leaves as it is and PostgreSQL stores out of "
        "line: it overwrites what the table has",
        "ALTER TABLE … REPLICA IDENTITY FULL for the source table; or numbers as texts "
        "(decimal.handling.mode=string), bytes as bytes (binary.handling.mode=bytes)",
    ),
)
"""In the order in which one looks."""
