"""What the commands ask of schema registries; imports their client and the reader of Avro, as the workers do."""

from __future__ import annotations

from collections.abc import Sequence

import freshet.pipeline.decode.avro.reader  # noqa: F401 - what is not installed here is said before a start
from freshet.logstore.kafka.schema_registry import SchemaRegistry
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.planning import registry_settings
from freshet.pipeline.exceptions import Problem
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import process_environment


def registry_problems(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """Registries that do not answer, or whose settings their client refuses; each is asked once."""
    failures: dict[RegistrySettings, str | None] = {}
    problems = []
    for config in configs:
        for index, source in enumerate(config.sources):
            settings = registry_settings(source)
            if settings is None:
                continue
            if settings not in failures:
                failures[settings] = _failure(settings)
            failure = failures[settings]
            if failure is not None:
                problem = Problem(("sources", index, "schema_registry", "url"), config.without_secrets(failure))
                problems.append(config.origin.placed(problem))
    return problems


def _failure(settings: RegistrySettings) -> str | None:
    try:
        registry = SchemaRegistry(settings.resolved(process_environment()))
    except InvalidRequestError as error:
        return str(error)
    failure = registry.failure()
    if failure is None:
        return None
    return f"no schema registry answers at {registry.url} ({failure}); start it, or check with --offline"
