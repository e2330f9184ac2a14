"""What keeps a pipeline from running without Spark (`run_on: local`), by the name of the key, and with the remedy.

read: spark  ·  options that only the Java client or Spark's reader of files has  ·  expressions of `select` that only
Spark computes  ·  files and checkpoints at places that only Hadoop's file systems reach
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlparse

from freshet.logstore.kafka.java_options import followed_instead, java_client_option
from freshet.pipeline.config.model import FILE_OPTIONS, PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.postgres_rules import ON_SPARK
from freshet.pipeline.decode.planning import (
    local_failures,
    meaning_settings,
    plain_reference,
    plan_decoding,
    spark_expressions,
)
from freshet.pipeline.exceptions import ConfigurationError, KeyPath, Problem

REMEDY: Final = "or write run_on: spark"
REACHED: Final = frozenset({"", "file", "s3", "s3a", "gs", "az", "abfs", "abfss"})
"""Schemes of places that need no Spark."""
_ENTRY: Final = re.compile(r"(select|expect)\.([^:]+): (.*)", re.DOTALL)


def local_problems(config: PipelineConfig) -> Iterator[Problem]:
    """What Spark alone can do of a file that is to run without it; nothing of a file that runs on Spark."""
    if not config.is_local:
        for index, source in enumerate(config.sources):
            if source.postgres is not None:  # the file may say local, and the call --on spark
                yield Problem(("sources", index, "postgres"), ON_SPARK)
        return
    if (scheme := _scheme(config.checkpoint)) not in REACHED:
        text = f"only Hadoop's file systems reach {scheme}: choose a folder of this machine or s3://, {REMEDY}"
        yield Problem(("checkpoint",), text)
    for index, source in enumerate(config.sources):
        key_path = ("sources", index)
        if source.read == "spark":
            yield Problem((*key_path, "read"), f"Spark does not read where there is none: write auto, {REMEDY}")
        option = java_client_option(revealed(source.kafka or {}))
        if option is not None:
            key = option.partition(" ")[0]
            text = f"{option} is not followed without Spark: {followed_instead(option)}, {REMEDY}"
            yield Problem((*key_path, "kafka", key), text)
        if source.files is not None and (scheme := _scheme(source.files.path)) not in REACHED:
            text = f"only Hadoop's file systems read files at {scheme}: name a local folder or s3://, {REMEDY}"
            yield Problem((*key_path, "files", "path"), text)
        for key in source.files.options if source.files is not None else ():
            if key not in FILE_OPTIONS:
                text = f"without Spark no such option of files is known, only {', '.join(FILE_OPTIONS)}: leave it out"
                yield Problem((*key_path, "files", key), f"{text}, {REMEDY}")
        yield from _expressions(config, source, index, (*key_path, "select"))


def is_computed(source: SourceConfig) -> bool:
    """Whether `select` of a source has more than names."""
    return any(plain_reference(text) is None for text in source.select.values())


def local_remarks(configs: Sequence[PipelineConfig]) -> list[str]:
    """Warnings of expressions that decoders compute and that fail for some values: such records become dead letters."""
    return [
        remark(config, column, failures)
        for config in configs
        for index, source in enumerate(config.sources)
        if source.table is None and is_computed(source)
        for column, failures in local_failures(plan_decoding(config, index)).items()
    ]


def remark(config: PipelineConfig, column: str, failures: Sequence[str]) -> str:
    """The warning of an expression that fails for some values."""
    return (
        f"{config.name}: warning: select.{column}: {' or '.join(failures)} makes a record a dead letter; where NULL is "
        "meant, write try_divide, try_add, try_cast or the like"
    )


def placed_entry(config: PipelineConfig, index: int, text: str) -> Problem:
    """What a text says of the `select` of a source, or of `expect`, at the entry that it names."""
    match = _ENTRY.fullmatch(text)
    keys: KeyPath = ("sources", index, "select")
    if match is not None and match[1] == "expect":
        keys = ("table", "expect")
    found = Problem(keys, text) if match is None else Problem((*keys, match[2]), match[3])
    return config.origin.placed(found)


def _scheme(location: str) -> str:
    return urlparse(location).scheme.lower()


def _expressions(config: PipelineConfig, source: SourceConfig, index: int, key_path: KeyPath) -> Iterator[Problem]:
    """The entries of `select` that only Spark computes, each by its name."""
    if source.table is not None:
        return  # `table_sources` looks at them, with the columns of the table
    computed = spark_expressions(source)
    settings = meaning_settings(revealed(config.spark))
    if not computed:
        try:
            plan = plan_decoding(config, index)
        except ConfigurationError as error:
            yield placed_entry(config, index, str(error))
            return
        columns = [plan.columns[at] for at in plan.expressions]
        computed = {column.field.name: column.expression or "" for column in columns}
    for name, text in computed.items():
        under = f" under the setting {settings[0]}" if settings else ""
        yield Problem(
            (*key_path, name),
            f"only Spark computes {text!r}{under}: fill the column with a field or a simpler expression, {REMEDY}",
        )
