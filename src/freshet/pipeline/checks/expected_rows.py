"""What is wrong with the rules of `expect`, by the name of the rule, before anything runs and without Spark.

Of a file with `sync` the columns of a table are known once the table is there: those of a rule that names its table are
looked at then. At `run_on: spark`, what only Spark computes is left to Spark (`sources.select_check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.expectations import ONLY_SPARK, condition_of
from freshet.pipeline.decode.planning import meaning_settings
from freshet.pipeline.exceptions import ConfigurationError, KeyPath, Problem
from freshet.pipeline.query.driver.table_setup import with_table
from freshet.storage.exceptions import StorageError
from freshet.storage.model.data_type import DataField

_PLACES: Final = ("{", "$")


def expectation_problems(config: PipelineConfig) -> Iterator[Problem]:
    """What is wrong with the rules of a file, of each the first thing."""
    if isinstance(config, SyncPipelineConfig):
        for index, rule in enumerate(config.sync.tables):
            fields = _fields_of(config, rule.to or "") if rule.expect else None
            yield from _wrong(rule.expect, fields, ("sync", "tables", index, "expect"), "use a simpler condition")
        return
    if config.follows_tables or not config.table.expect:
        return
    known = config
    with suppress(StorageError, OSError):  # said elsewhere
        known = with_table(config)
    fields, key_path = known.table.fields, ("table", "expect")
    settings = meaning_settings(revealed(config.spark))
    under = f"under the setting {settings[0]}, " if settings else ""
    remedy = f"{under}use a simpler condition, or write run_on: spark" if config.is_local else None
    found = list(_wrong(config.table.expect, fields, key_path, remedy, is_sparks=bool(settings)))
    yield from found
    for name, expected in config.table.expect.items():
        if not any(problem.key_path[-1] == name for problem in found):
            yield from _unfilled(config, fields, expected, (*key_path, name))


def _wrong(
    rules: Mapping[str, Expectation],
    fields: Sequence[DataField] | None,
    key_path: KeyPath,
    remedy: str | None,
    *,
    is_sparks: bool = False,
) -> Iterator[Problem]:
    """`fields` are the columns of the table, None where they are not known; with a `remedy`, what only Spark computes
    is refused; `is_sparks`: all of them are such."""
    for name, rule in rules.items():
        try:
            condition = condition_of(fields, rule.sql) if fields is not None else None
        except ConfigurationError as error:
            yield Problem((*key_path, name), str(error))
            continue
        if remedy is not None and (is_sparks or (condition is not None and condition.sql is None)):
            yield Problem((*key_path, name), f"{ONLY_SPARK.format(sql=rule.sql)}: {remedy}")


def _unfilled(
    config: PipelineConfig, fields: Sequence[DataField], rule: Expectation, key_path: KeyPath
) -> Iterator[Problem]:
    """A rule of which no source fills all columns judges nothing."""
    read = [fields[index] for index in condition_of(fields, rule.sql).reads or ()]
    names = [each.name for each in read if each.default_value is None]
    if config.sources and not any(all(map(source.fills, names)) for source in config.sources):
        text = f"no source fills {' and '.join(names)}, which {rule.sql!r} reads: it would judge no row"
        yield Problem(key_path, text)


def _fields_of(config: SyncPipelineConfig, target: str) -> Sequence[DataField] | None:
    """The columns of the table that a rule names; None where it names many, or the table is not there."""
    if any(mark in target for mark in _PLACES):
        return None
    try:
        catalog = target_catalog(config)
        return catalog.table(target).schema.fields if catalog.has_table(target) else None
    except (StorageError, OSError):
        return None  # said elsewhere
