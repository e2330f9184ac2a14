"""conf/reference.yaml, with conf/reference-table.yaml, -postgres.yaml and -sync.yaml, names every key that the models
know, and says true defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from freshet.pipeline.config.computed_columns import FUNCTIONS
from freshet.pipeline.config.model import (
    TABLE_SOURCE_OPTIONS,
    FilesConfig,
    MaxDeadLetters,
    PipelineConfig,
    PostgresConfig,
    SourceConfig,
    TableConfig,
)
from freshet.pipeline.config.pipeline_file import load_pipeline, warnings
from freshet.pipeline.config.sections import TriggerConfig
from freshet.pipeline.config.sync import MetadataColumn, SyncConfig, SyncPipelineConfig, TableRule, default_ledger

CONF = Path(__file__).parents[3] / "conf"
REFERENCE = CONF / "reference.yaml"
# Keys whose value in the file is an example: they have no default, or one that depends on other keys.
EXAMPLES = {
    "kafka",
    "files",
    "options",
    "select",
    "primary_key",
    "trigger",
    "dead_letters",
    "time_precision_mode",
    "table",
    "expect",
}


@pytest.fixture(scope="module")
def config() -> PipelineConfig:
    return load_pipeline(REFERENCE, {})


@pytest.fixture(scope="module")
def following() -> PipelineConfig:
    return load_pipeline(CONF / "reference-table.yaml", {})


@pytest.fixture(scope="module")
def reading() -> PipelineConfig:
    return load_pipeline(CONF / "reference-postgres.yaml", {})


def test_they_are_valid_and_free_of_warnings(
    config: PipelineConfig, following: PipelineConfig, reading: PipelineConfig
) -> None:
    assert not [text for each in (config, following, reading) for text in warnings(each)]


def test_every_option_of_a_table_is_there(following: PipelineConfig) -> None:
    [source] = following.sources
    assert source.table is not None
    text = (CONF / "reference-table.yaml").read_text()
    assert [option for option in TABLE_SOURCE_OPTIONS if f"{option}:" not in text] == []


@pytest.mark.parametrize(
    "model", [PipelineConfig, SourceConfig, FilesConfig, PostgresConfig, TableConfig, TriggerConfig, MaxDeadLetters]
)
def test_every_key_is_there_with_its_default(
    config: PipelineConfig, following: PipelineConfig, reading: PipelineConfig, model: type[BaseModel]
) -> None:
    said: dict[str, object] = {}
    files = [source.files for source in config.sources if source.files]
    for value in (
        config,
        config.table,
        config.trigger,
        config.max_dead_letters,
        *config.sources,
        *following.sources,
        *(source.postgres for source in reading.sources),
        *files,
    ):
        if isinstance(value, model):
            said = {name: getattr(value, name) for name in value.model_fields_set} | said
    said |= {"postgres": None} if model is SourceConfig else {}
    assert set(said) == set(model.model_fields)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if default is not PydanticUndefined and name not in EXAMPLES and default is not None:
            assert said[name] == default, name


# --- a file with sync -------------------------------------------------------------------------------------------------

SYNC_EXAMPLES = {
    "options",
    "types",
    "computed_columns",
    "metadata_columns",
    "primary_key",
    "partition_by",
    "merge",
    "expect",
}


@pytest.fixture(scope="module")
def syncing() -> SyncPipelineConfig:
    config = load_pipeline(CONF / "reference-sync.yaml", {})
    assert isinstance(config, SyncPipelineConfig)
    return config


def test_a_file_with_sync_is_valid_and_free_of_warnings(syncing: SyncPipelineConfig) -> None:
    assert not list(warnings(syncing))
    assert syncing.dead_letters is not None
    assert syncing.ledger_name == default_ledger(syncing.dead_letters, syncing.name)


@pytest.mark.parametrize("model", [SyncConfig, TableRule])
def test_every_key_of_sync_is_there_with_its_default(syncing: SyncPipelineConfig, model: type[BaseModel]) -> None:
    said: dict[str, object] = {}
    for value in (syncing.sync, *syncing.sync.tables):
        if isinstance(value, model):
            said = {name: getattr(value, name) for name in value.model_fields_set} | said
    assert set(said) == set(model.model_fields)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if default is not PydanticUndefined and name not in SYNC_EXAMPLES and default is not None:
            assert said[name] == default, name


def test_every_function_and_every_kind_of_metadata_is_named(syncing: SyncPipelineConfig) -> None:
    text = (CONF / "reference-sync.yaml").read_text()
    kinds = get_args(MetadataColumn)
    assert kinds and [name for name in (*FUNCTIONS, *kinds) if not re.search(rf"\b{name}\b", text)] == []
