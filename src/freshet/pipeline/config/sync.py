"""Pipeline files with `sync`: the tables of one source, each written into a table of its own, or several into one.

    SyncPipelineConfig ── what every pipeline file has, and
      └── sync: SyncConfig ── source, tables: TableRule[], schema_evolution, without_key, metadata and computed columns

The first rule that fits the name of a source table decides: `db.schema.table`, `db.table` where the source has no
schemas, the topic for records that name no table.

Such a pipeline commits every batch to one table of its own, its ledger (`sync.ledger`). That is what `table` is here:
what a pipeline asks of its table (owner of the checkpoint, missing batches, an earlier query), it asks of the ledger.

Source: conf/reference-sync.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from freshet.pipeline.config.expectations import Expectations
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.sections import FileModel, OptionTexts, TableName, TableTexts, Texts

WithoutKey = Literal["fail", "append"]
MetadataColumn = Literal["db", "schema", "table", "op", "op_ts", "topic", "partition", "offset"]

LEDGER_COLUMNS: Final = {
    "table_name": "STRING", "batch": "BIGINT", "digest": "STRING", "schema_id": "BIGINT", "created_ms": "BIGINT",
    "state": "STRING", "since_batch": "BIGINT", "since_offsets": "STRING", "cause": "STRING", "sources": "STRING",
}  # fmt: skip
"""One row for each table, and one with an empty name for the pipeline; see `pipeline.sync.ledger`."""
LEDGER_KEY: Final = "table_name"
_LEDGER_OPTIONS: Final = {"bucket": "1", "snapshot.num-retained.max": "100"}

_PLACE: Final = re.compile(r"\{(db|schema|table)\}|\$([0-9]+)")
_NO_PLACE: Final = re.compile(r"\{(?!(?:db|schema|table)\})[^{}]*\}")
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]")
OF_SOURCES: Final = ("sources", "table")
"""Keys of other pipeline files that those with `sync` do not have."""
_UNKNOWN: Final = "unknown"
"""Stands in what is made from keys that are missing, which is said of these keys."""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"wants a regular expression such as shop.public.(.*) ({error.msg})") from error
    return text


def _known_evolution(value: object) -> object:
    if value == "evolve":
        raise ValueError(
            "evolve is gone: columns that are renamed at the source are new columns, and an event says how to join the "
            "two. Columns that were renamed so far keep their names. Write lenient"
        )
    return value


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]

SchemaEvolution = Annotated[Literal["lenient", "freeze", "ignore"], BeforeValidator(_known_evolution)]


class TableRule(FileModel):
    """Which source tables go where; all of the name of a source table must match `from` or `exclude`."""

    exclude: Pattern | None = None
    taken: Pattern | None = Field(default=None, alias="from")
    to: str | None = None
    """`database.name` with `{db}`, `{schema}`, `{table}` and `$1` … for the groups of `from`."""
    merge: StrictBool = False
    """Several source tables may go into one."""
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: TableTexts = Field(default_factory=OptionTexts)
    without_key: WithoutKey | None = None
    types: Texts = Field(default_factory=dict)
    """Of columns, in place of those that the records say."""
    computed_columns: Texts = Field(default_factory=dict)
    metadata_columns: dict[str, MetadataColumn] = Field(default_factory=dict)
    expect: Expectations = Field(default_factory=dict)
    """What is expected of the rows of each table that has the columns."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> TableRule:
        if (self.exclude is None) == (self.taken is None):
            raise ValueError("wants exactly one of exclude and from")
        if self.exclude is not None and len(self.model_fields_set) > 1:
            raise ValueError("an exclude has no other keys")
        if self.taken is not None and self.to is None:
            raise ValueError("wants to: the table that rows go to, such as lake.{table}")
        if self.taken is not None:
            groups = re.compile(self.taken).groups
            wrong = [int(each[2]) for each in _PLACE.finditer(self.to or "") if each[2] and int(each[2]) > groups]
            if wrong:
                raise ValueError(f"to has ${wrong[0]}, and from has {groups} groups")
            if unknown := _NO_PLACE.search(self.to or ""):
                raise ValueError(f"to has {unknown[0]}; known are {{db}}, {{schema}}, {{table}} and $1, $2, …")
        return self

    def target(self, parts: Sequence[str], match: re.Match[str]) -> str:
        """The table that rows of a source table (db, schema, table) go to."""
        named = dict(zip(("db", "schema", "table"), parts, strict=True))
        return _PLACE.sub(lambda place: named[place[1]] if place[1] else match[int(place[2])] or "", self.to or "")


class SyncConfig(FileModel):
    """The source, and what becomes of its tables."""

    source: SourceConfig
    tables: tuple[TableRule, ...] = Field(min_length=1)
    of_schema: Literal["infer"] | None = Field(default=None, alias="schema")
    """`infer`: types are guessed from values where records bring none."""
    schema_evolution: SchemaEvolution = "lenient"
    without_key: WithoutKey = "fail"
    options: TableTexts = Field(default_factory=OptionTexts)
    computed_columns: Texts = Field(default_factory=dict)
    metadata_columns: dict[str, MetadataColumn] = Field(default_factory=dict)
    ledger: TableName | None = None
    """Default: `_freshet_ledger_` and the name of the pipeline, in the database of the dead letters."""


class SyncPipelineConfig(PipelineConfig):
    """A pipeline file with `sync`; its `table` is the ledger, its only source that of `sync`."""

    warehouse: str = Field(min_length=1)
    dead_letters: TableName
    sync: SyncConfig

    @model_validator(mode="before")
    @classmethod
    def _with_ledger(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        sync = value.get("sync")
        source, ledger = (sync.get("source"), sync.get("ledger")) if isinstance(sync, Mapping) else (None, None)
        table = {
            "warehouse": value.get("warehouse") or _UNKNOWN,
            "name": ledger or default_ledger(str(value.get("dead_letters")), str(value.get("name", ""))),
            "columns": LEDGER_COLUMNS,
            "primary_key": [LEDGER_KEY],
            "options": _LEDGER_OPTIONS,
        }
        return {**value, "sources": [] if source is None else [source], "table": table}

    @cached_property
    def ledger_name(self) -> str:
        """The name of the table with the ledger."""
        return self.table.name


def default_ledger(dead_letters: str, pipeline: str) -> str:
    """In the database of the dead letters, named by the pipeline."""
    database, _, _ = dead_letters.rpartition(".")
    return f"{database or _UNKNOWN}._freshet_ledger_{_NO_WORD.sub('_', pipeline)}"
