"""What every client of librdkafka has here: its settings, how it is made, and what was heard of its connections.

Options of the Java client are translated by `java_options`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka.java_options import PREFIX, ClientSettings, client_settings
from freshet.logstore.protocol.topic import check_runs_no_code
from freshet.storage.options import without_secrets

C = TypeVar("C")

_NOISE: Final = re.compile(r"^\S+/\S+: | \(after .*\)$")
"""What librdkafka puts around the reason: its thread, how long it had tried, how often it said the same."""

_OWN: Final = frozenset({"topic"})
"""Options below `kafka.` that are not the client's."""

_JAVA_ONLY: Final = ("sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type")
"""With one of these, options are those of the Java client."""


def log_client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka out of the `kafka.*` options of a table: its own names, and those of the Java client that
    say how to connect. Raises `LogConfigError` without brokers, or for what librdkafka has no word for,
    `InvalidRequestError` for what would run code."""
    check_runs_no_code(options)
    given = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    is_java = not given.keys().isdisjoint(_JAVA_ONLY)
    translated = client_settings(options) if is_java else ClientSettings()
    if translated.untranslated is not None:
        raise LogConfigError(
            f"{translated.untranslated} is an option of the Java client; the log uses librdkafka: give its own options "
            "(kafka.sasl.username, kafka.sasl.password, kafka.ssl.ca.location, …)",
            option=translated.untranslated.partition(" ")[0],
        )
    settings = {key: value for key, value in given.items() if key not in _OWN and key not in _JAVA_ONLY}
    settings |= translated.values
    if not settings.get("bootstrap.servers"):
        raise LogConfigError(
            "log.system=kafka needs kafka.bootstrap.servers: among the table's options, or given when it is opened",
            option="kafka.bootstrap.servers",
        )
    return settings


def made_client(make: Callable[[dict[str, Any]], C], settings: dict[str, Any]) -> C:
    """A client; the error for an option that librdkafka refuses is raised without its value."""
    try:
        return make(settings)
    except KafkaException as error:
        texts = {key: value for key, value in settings.items() if isinstance(value, str)}
        text = without_secrets(error_text(error), texts)
        raise LogConfigError(f"the kafka.* options of the log are refused: {text}", option="kafka.*") from None


class LastError:
    """What was heard of connections last: it says more than the call that gives up."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._brokers = settings.get("bootstrap.servers", "")
        self._settings = settings
        self.last: KafkaError | None = None

    def keep(self, error: KafkaError) -> None:
        """Called by librdkafka, which tries again by itself; what it gives up on comes with the call."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error

    def heard(self) -> str | None:
        """The reason alone, as librdkafka has it."""
        last = self.last  # other threads may hear of connections meanwhile
        return None if last is None else _NOISE.sub("", last.str())

    def text(self) -> str:
        """The brokers, and what is known of them; without secrets."""
        found = f" (kafka.bootstrap.servers={self._brokers}"
        if reason := self.heard():
            found += f": {reason}"
        return without_secrets(found, self._settings) + ")"

    def unavailable(self, what: str, error: KafkaException) -> LogUnavailableError:
        """The error of a call."""
        return LogUnavailableError(f"{what}: {error_text(error)}{self.text()}")


def error_text(error: KafkaException) -> str:
    """What librdkafka says, without its class."""
    detail = error.args[0] if error.args else error
    return detail.str() if isinstance(detail, KafkaError) else str(detail)
