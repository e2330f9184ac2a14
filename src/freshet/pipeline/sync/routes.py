"""Where the rows of a source table go: the first rule of `sync` that fits its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from freshet._frozen import Frozen
from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.config.sync import MetadataColumn, SyncConfig, SyncPipelineConfig, TableRule, WithoutKey
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage import exceptions as storage
from freshet.storage.catalog import split_branch, split_identifier


class Route(Frozen):
    """The target of a source table, `database.name`, and what its rule and `sync` together say of it."""

    target: str
    rule_index: int
    is_merged: bool
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    without_key: WithoutKey
    computed_columns: Mapping[str, str]
    metadata_columns: Mapping[str, MetadataColumn]
    types: Mapping[str, str]
    """Of columns, in place of those that the records say."""
    expect: Mapping[str, Expectation]


EXCLUDED, NO_RULE = "excluded by a rule", "no rule takes its table"
"""Why a source table goes nowhere."""


def route_of(config: SyncConfig, table: SourceTable) -> Route | str:
    """The route, or why there is none."""
    for index, rule in enumerate(config.tables):
        if rule.exclude is not None and re.fullmatch(rule.exclude, str(table)):
            return EXCLUDED
        match = None if rule.taken is None else re.fullmatch(rule.taken, str(table))
        if match is not None:
            return _route(config, rule, index, table, match)
    return NO_RULE


def refuse_target(config: SyncPipelineConfig, source: SourceTable, route: Route) -> None:
    """Raises `InvalidRequestError` where a rule sends a source table to what is no name, to a table that the pipeline
    writes itself, or to a branch that only the source's name, and not the rule, means."""
    try:
        table, branch = split_branch(route.target)
        split_identifier(table)
    except storage.InvalidRequestError as error:
        raise InvalidRequestError(
            f"rule {route.rule_index} of sync.tables sends {source} to {route.target!r}: {error}. Exclude it, or give "
            "it a rule of its own"
        ) from error
    if branch is not None and split_branch(config.sync.tables[route.rule_index].to or "")[1] is None:
        raise InvalidRequestError(
            f"rule {route.rule_index} of sync.tables sends {source} to {route.target}, which is a branch of {table}: "
            "exclude it, or give it a rule that sends it elsewhere"
        )
    own = {config.ledger_name: "the ledger", config.dead_letter_table: "the table of the dead letters"}
    if route.target in own:
        raise InvalidRequestError(
            f"rule {route.rule_index} of sync.tables sends {source} to {route.target}, which is {own[route.target]} of "
            "this pipeline: exclude it, or give it a rule that sends it elsewhere"
        )


def _route(config: SyncConfig, rule: TableRule, index: int, table: SourceTable, match: re.Match[str]) -> Route:
    return Route(
        target=rule.target(table, match),
        rule_index=index,
        is_merged=rule.merge,
        primary_key=rule.primary_key,
        partition_by=rule.partition_by,
        options={**config.options, **rule.options},
        without_key=rule.without_key or config.without_key,
        computed_columns={**config.computed_columns, **rule.computed_columns},
        metadata_columns={**config.metadata_columns, **rule.metadata_columns},
        types=rule.types,
        expect=rule.expect,
    )
