"""What every client of librdkafka has here: its settings, how it is made, and what was heard of its connections.

Spark's source takes the options of the Java client (`kafka.security.protocol`, `kafka.sasl.jaas.config`, …). Those that
say how to connect are translated here, as far as librdkafka has a word for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.storage.options import without_secrets

C = TypeVar("C")

PREFIX: Final = "kafka."
"""Options of Spark's source that begin so belong to the client."""

_SAME: Final[tuple[str, ...]] = (
    "bootstrap.servers", "security.protocol", "client.id", "client.dns.lookup", "ssl.cipher.suites",
    "sasl.kerberos.service.name",
)  # fmt: skip
_PEM_FILES: Final[Mapping[str, str]] = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.keystore.location"}
_NOISE: Final = re.compile(r"^\S+/\S+: | \(after .*\)$")
"""What librdkafka puts around the reason: its thread, how long it had tried, how often it said the same."""

_USER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS_VALUE: Final = r"""\b%s\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"""

_OWN: Final = frozenset({"topic"})
"""Options below `kafka.` that are not the client's."""

_JAVA_ONLY: Final = ("sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type")
"""With one of these, options are those of the Java client."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a librdkafka client, or why there are none."""

    values: Mapping[str, str] = field(default_factory=dict)
    untranslated: str | None = None
    """The option of the Java client that librdkafka has no word for; a client without it would be refused."""


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Options of Spark's Kafka source as settings of librdkafka; what does not concern the connection is left out."""
    given = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    values = {key: given[key] for key in _SAME if key in given}
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if given.get("security.protocol", "").upper().startswith("SASL"):
        user, password = (_jaas(given.get("sasl.jaas.config", ""), name) for name in ("username", "password"))
        if mechanism not in _USER_MECHANISMS or user is None or password is None:
            return ClientSettings(untranslated=f"{PREFIX}sasl.mechanism = {mechanism}")
        values |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    for store, setting in _PEM_FILES.items():
        if f"{store}.location" in given:
            if given.get(f"{store}.type", "JKS").upper() != "PEM" or store == "ssl.keystore":
                return ClientSettings(untranslated=f"{PREFIX}{store}.location")
            values[setting] = given[f"{store}.location"]
    if "ssl.endpoint.identification.algorithm" in given:
        values["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"] or "none"
    return ClientSettings(values)


def log_client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka out of the `kafka.*` options of a table: its own names, and those of the Java client that
    say how to connect. Raises `LogConfigError` without brokers, or for what librdkafka has no word for."""
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


def _jaas(config: str, name: str) -> str | None:
    """A value of a JAAS line such as `… PlainLoginModule required username="u" password="p";`."""
    match = re.search(_JAAS_VALUE % name, config)
    if match is None:
        return None
    quoted = match[1] if match[1] is not None else match[2]
    return match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
