"""Schema registries as `freshet check` asks them; no broker, no Spark."""

from __future__ import annotations

from importlib import import_module

import pytest

from freshet.pipeline.commands import spark_part as seam
from freshet.pipeline.commands.registries import registry_problems
from freshet.pipeline.exceptions import InvalidRequestError
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.records import pipeline_of


def problems(**settings: str) -> list[str]:
    config = pipeline_of(format="debezium-avro", schema_registry=settings)
    return [str(each) for each in registry_problems([config, config])]


def test_a_registry_that_answers() -> None:
    with SchemaRegistry(user="reader:sesame") as registry:
        assert not problems(url=registry.url, **{"basic.auth.user.info": "reader:sesame"})
        assert registry.asked == ["/subjects"], "once for both pipelines"


def test_a_registry_that_refuses_or_is_away() -> None:
    with SchemaRegistry(user="reader:sesame") as registry:
        wrong, _ = problems(url=registry.url, **{"basic.auth.user.info": "reader:other"})
        assert f"sources.0.schema_registry.url: no schema registry answers at {registry.url}" in wrong
        assert "401" in wrong and "other" not in wrong
    away, _ = problems(url=registry.url)
    assert "no schema registry answers" in away and "--offline" in away


def test_settings_that_the_client_refuses() -> None:
    both = {"basic.auth.user.info": "reader:sesame"}
    (found, _) = problems(url="http://a:b@localhost:1", **both)
    assert "schema_registry: basic.auth.user.info configured" in found and "sesame" not in found


@pytest.mark.parametrize("name", ["polars_avro", "httpx2"])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def missing(module: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(seam, "import_module", missing)
    with pytest.raises(InvalidRequestError, match=f"records in Avro need {name}.*extra 'avro'"):
        seam.spark_part("registries")
    assert import_module("freshet.pipeline.commands.registries")
