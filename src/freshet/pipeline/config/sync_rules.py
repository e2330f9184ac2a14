"""Rules between the keys of a file with `sync`, and where its problems stand: its source and its ledger are written
elsewhere than those of other files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from freshet.pipeline.config.computed_columns import ComputedColumn
from freshet.pipeline.config.model import ROW_KIND_OPTION
from freshet.pipeline.config.origin import Origin
from freshet.pipeline.config.rules import contradictions
from freshet.pipeline.config.sync import OF_SOURCES, SyncConfig, SyncPipelineConfig, TableRule
from freshet.pipeline.exceptions import KeyPath, Problem
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options import CoreOptions, check_option_keys

_NOT_HERE: Final = {
    "on_unknown_field": "schema_evolution decides what becomes of new fields",
    "only": "the rules under tables decide which tables are read",
    "select": "columns are the fields of the records; computed_columns and metadata_columns add to them",
    "payload_types": "types come with the records; schema: infer under sync guesses them",
    "files": "sync reads Kafka",
    "table": "sync reads Kafka",
}
_OF_LEDGER: Final = (("warehouse",), ("name",))
"""Keys of the ledger's table that a file says."""
_NAMES: Final = {"payload_types": "schema"}


RENAMED: Final[tuple[tuple[KeyPath, KeyPath], ...]] = (
    (("sources", 0), ("sync", "source")),
    (("table", "warehouse"), ("warehouse",)),
    (("table",), ("sync", "ledger")),
)
"""The keys of the model, and where a file with `sync` has them."""
_ORIGIN: Final = Origin(renamed=RENAMED)


def as_written(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Problems with their keys as the file has them; what the model says twice comes once."""
    seen: set[tuple[KeyPath, str]] = set()
    for problem in problems:
        keys = _ORIGIN.as_written(problem.key_path)
        if (keys, problem.message) not in seen:
            seen.add((keys, problem.message))
            yield replace(problem, key_path=keys)


def misplaced_keys(tree: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys of a file with `sync` that only other files have."""
    for key in OF_SOURCES:
        if key in tree:
            yield Problem((key,), "has no place beside sync: the source and the tables stand in sync")


def sync_contradictions(config: SyncPipelineConfig) -> Iterator[Problem]:
    """Everything in a file with `sync` that cannot be meant so; each key is refused for one reason."""
    own = list(_of_section(config))
    yield from own
    refused = [problem.key_path for problem in own]
    others = (
        each for each in contradictions(config) if each.key_path[:1] != ("table",) or each.key_path[1:2] in _OF_LEDGER
    )
    for problem in as_written(others):
        keys = problem.key_path
        is_source = keys == ("sync", "source")
        if not any(keys[: len(each)] == each or (is_source and each[:2] == keys) for each in refused):
            yield problem


def _of_section(config: SyncPipelineConfig) -> Iterator[Problem]:
    source, key_path = config.sync.source, ("sync", "source")
    if source.kafka is None and source.postgres is None:
        yield Problem((*key_path, "kafka"), "is missing: sync reads the tables of Kafka topics, or of postgres")
    for key, reason in _NOT_HERE.items():
        if key in source.model_fields_set and getattr(source, key) not in (None, {}):
            yield Problem((*key_path, _NAMES.get(key, key)), f"has no place under sync: {reason}")
    if source.on_truncate == "apply":
        for index, rule in enumerate(config.sync.tables):
            if rule.merge:
                yield Problem(
                    (*key_path, "on_truncate"),
                    f"cannot be apply beside merge: true (sync.tables.{index}): the truncate of one shard would take "
                    "away the rows of the others; write fail or skip",
                )
    names = [config.table.name, config.dead_letters]
    for index, rule in enumerate(config.sync.tables):
        at: KeyPath = ("sync", "tables", index)
        if rule.taken is not None and "." not in (rule.to or ""):
            yield Problem((*at, "to"), f"wants database.name, such as lake.{{table}}, not {rule.to!r}")
        if rule.to in names:
            yield Problem((*at, "to"), f"{rule.to} is the table of the ledger or of the dead letters")
    yield from dict.fromkeys(_row_kinds(config))  # what sync says wrong is wrong in many rules
    sections: list[tuple[KeyPath, SyncConfig | TableRule]] = [(("sync",), config.sync)]
    sections += [(("sync", "tables", index), rule) for index, rule in enumerate(config.sync.tables)]
    for index, rule in enumerate(config.sync.tables):
        for name, text in rule.types.items():
            try:
                parse_sql_type(text)
            except InvalidRequestError as error:
                yield Problem(("sync", "tables", index, "types", name), str(error))
    for at, section in sections:
        for name, text in section.computed_columns.items():
            try:
                ComputedColumn.parse(text)
            except (ValueError, InvalidRequestError) as error:
                yield Problem((*at, "computed_columns", name), str(error))
        try:
            check_option_keys(section.options)
            CoreOptions.parse(section.options, has_primary_key=True, strict=False)
        except InvalidRequestError as error:
            option = (error.option,) if error.option is not None and error.option in section.options else ()
            yield Problem((*at, "options", *option), str(error))


def _row_kinds(config: SyncPipelineConfig) -> Iterator[Problem]:
    """Every table of records with a row kind says which field holds it; no other does."""
    sync = config.sync
    if sync.source.format is None:
        return
    if sync.source.format != "row-kind":
        reason = "is for sources of format row-kind; the other formats know the kind of each record themselves"
        if ROW_KIND_OPTION in sync.options:
            yield Problem(("sync", "options", ROW_KIND_OPTION), reason)
        for index, rule in enumerate(sync.tables):
            if ROW_KIND_OPTION in rule.options:
                yield Problem(("sync", "tables", index, "options", ROW_KIND_OPTION), reason)
        return
    for index, rule in enumerate(sync.tables):
        is_own = ROW_KIND_OPTION in rule.options
        at: KeyPath = ("sync", "tables", index, "options") if is_own else ("sync", "options")
        field = {**sync.options, **rule.options}.get(ROW_KIND_OPTION)
        if rule.taken is not None and not field:
            yield Problem(
                ("sync", "tables", index),
                f"format row-kind needs the option {ROW_KIND_OPTION}, here or in options of sync: the field that holds "
                "the kind",
            )
        elif rule.taken is not None and field and not field.replace("_", "a").isalnum():
            yield Problem((*at, ROW_KIND_OPTION), f"the row kind must be a field of letters and digits, not {field!r}")
