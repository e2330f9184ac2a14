"""conf/reference.yaml names every key that the models know, and says their defaults truly."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from freshet.pipeline.config.model import (
    FilesConfig,
    MaxDeadLetters,
    PipelineConfig,
    SourceConfig,
    TableConfig,
    TriggerConfig,
)
from freshet.pipeline.config.pipeline_file import load_pipeline, warnings

REFERENCE = Path(__file__).parents[3] / "conf" / "reference.yaml"
# Keys whose value in the file is an example: they have no default, or one that depends on other keys.
EXAMPLES = {"kafka", "files", "options", "select", "primary_key", "trigger", "dead_letters", "time_precision_mode"}


@pytest.fixture(scope="module")
def config() -> PipelineConfig:
    return load_pipeline(REFERENCE, {})


def test_it_is_valid_and_free_of_warnings(config: PipelineConfig) -> None:
    assert not list(warnings(config))


@pytest.mark.parametrize(
    "model", [PipelineConfig, SourceConfig, FilesConfig, TableConfig, TriggerConfig, MaxDeadLetters]
)
def test_every_key_is_there_with_its_default(config: PipelineConfig, model: type[BaseModel]) -> None:
    said: dict[str, object] = {}
    files = [source.files for source in config.sources if source.files]
    for value in (config, config.table, config.trigger, config.max_dead_letters, *config.sources, *files):
        if isinstance(value, model):
            said = {name: getattr(value, name) for name in value.model_fields_set} | said
    assert set(said) == set(model.model_fields)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if default is not PydanticUndefined and name not in EXAMPLES and default is not None:
            assert said[name] == default, name
