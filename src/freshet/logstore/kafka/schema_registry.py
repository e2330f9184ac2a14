"""A schema registry as readers use it: the writer schema of an id, with the schemas that it refers to.

Records carry the id alone, so no subject and no subject name strategy is needed to read them; subjects are asked only
for references, which name them. Schemas of an id never change, so each is asked for once per process.

A registry that is away, or does not know an id yet, is asked again for `WAIT_S`; then `RetryableError` names the id,
the topic and the registry. One that refuses access is not asked again.

Source: the documented HTTP API of the schema registry (GET /schemas/ids/{id}, /subjects/{subject}/versions/{version}).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.options import without_secrets

WAIT_S: Final = 30.0
"""How long a registry is asked for one schema."""
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)
"""Between two questions; the last one counts for all others."""
_TIMEOUT_S: Final = 10.0
_AVRO: Final = "AVRO"
_OTHERS: Final = (OSError, ValueError)
"""An answer that is no JSON is a `ValueError`."""
_REFUSED: Final = (401, 403)
_NUMBERS: Final = frozenset({
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec",
})  # fmt: skip
_DEFAULTS: Final[Mapping[str, float]] = {"timeout": _TIMEOUT_S, "max.retries": 0}
"""Retries are ours: the client's own do not ask again for an id that is not known."""

T = TypeVar("T")


class _AwayError(Exception):
    """The registry gave no answer."""


class RegisteredSchema(Frozen):
    """A schema; `references` are those that it uses, each after those that it uses itself."""

    text: str
    kind: str
    references: tuple[str, ...] = ()

    @property
    def is_avro(self) -> bool:
        """False for JSON Schema and Protobuf."""
        return self.kind == _AVRO


class SchemaRegistry:
    """The client of one registry. Raises `InvalidRequestError` for settings that it does not take."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are those of confluent-kafka's client; `url` is required."""
        self._settings = dict(settings)
        self.url = without_secrets(settings.get("url", ""), settings)
        try:
            self._client = SchemaRegistryClient(_client_settings(settings))
        except (ValueError, TypeError, OSError) as error:
            raise InvalidRequestError(self._shown(f"schema_registry: {error}"), option="schema_registry") from error

    def schema(self, schema_id: int, topic: str) -> RegisteredSchema:
        """The schema of an id that a record of a topic has; waits for a registry that cannot give it."""
        deadline = time.monotonic() + WAIT_S
        failure: Exception
        for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
            try:
                return self._asked(lambda: self._schema(self._client.get_schema(schema_id)))
            except SchemaRegistryError as error:
                if error.http_status_code in _REFUSED:
                    raise InvalidRequestError(
                        self._shown(f"{self._about(schema_id, topic)} refuses access: {error}"),
                        option="schema_registry",
                    ) from error
                failure = error
            except _AwayError as error:
                failure = error
            if time.monotonic() + pause_s > deadline:
                break
            time.sleep(pause_s)
        reason = f"{self._about(schema_id, topic)} did not give it within {WAIT_S:g} s: {failure}"
        raise RetryableError(self._shown(reason)) from failure

    def failure(self) -> str | None:
        """Why the registry does not answer, asked once; None where it does."""
        try:
            self._asked(self._client.get_subjects)
        except (SchemaRegistryError, _AwayError) as error:
            return self._shown(str(error))
        return None

    @staticmethod
    def _asked(ask: Callable[[], T]) -> T:
        """What the client answers. Errors of its HTTP library have no class that could be named here."""
        try:
            return ask()
        except Exception as error:
            if any(each.__name__ == "TransportError" for each in type(error).__mro__) or isinstance(error, _OTHERS):
                raise _AwayError(str(error) or type(error).__name__) from error
            raise

    def _schema(self, found: Schema) -> RegisteredSchema:
        references: dict[str, None] = {}
        for text in self._references(found, {}):
            references[text] = None
        return RegisteredSchema(found.schema_str or "", found.schema_type or _AVRO, tuple(references))

    def _references(self, schema: Schema, seen: dict[tuple[Any, Any], None]) -> Iterator[str]:
        for each in schema.references or []:
            version = (each.subject, each.version)
            if version in seen:
                continue
            seen[version] = None
            used = self._client.get_version(each.subject or "", each.version or 1).schema
            yield from self._references(used, seen)
            yield used.schema_str or ""

    def _about(self, schema_id: int, topic: str) -> str:
        return f"the schema of id {schema_id}, which records of topic {topic} have: the registry at {self.url}"

    def _shown(self, text: str) -> str:
        return without_secrets(text, self._settings)


def _client_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {key: float(text) if key in _NUMBERS else text for key, text in settings.items()}
    return {**_DEFAULTS, **given}
