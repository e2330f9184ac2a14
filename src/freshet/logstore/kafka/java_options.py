"""Options of the Java client, which Spark's Kafka source takes, as settings of librdkafka.

Those that say how to connect (`kafka.security.protocol`, `kafka.sasl.jaas.config`, …) are translated, as far as
librdkafka has a word for them. `ssl.cipher.suites` are Java's names, of which OpenSSL takes only some here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen, field

PREFIX: Final = "kafka."
"""Options of Spark's source that begin so belong to the client."""

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"
"""Values of `isolation.level`, of both clients."""

_SAME: Final[tuple[str, ...]] = (
    "bootstrap.servers", "security.protocol", "client.id", "client.dns.lookup", "sasl.kerberos.service.name",
)  # fmt: skip
_PEM_FILES: Final[Mapping[str, str]] = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.keystore.location"}

_USER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS_VALUE: Final = r"""\b%s\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"""

_TRANSLATED: Final = frozenset({
    *_SAME, "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.endpoint.identification.algorithm", "isolation.level", "group.id",
})  # fmt: skip
_PACE: Final = re.compile(
    r"(fetch|retry|reconnect|metadata|connections|request|default\.api|max\.(poll|partition\.fetch)|socket)\..*"
    r"|(receive|send)\.buffer\.bytes|check\.crcs|client\.rack|(session|heartbeat)\..*"
)
"""Options of the Java client that say how often, how much and how long: another client has its own."""

_PEM: Final = "write kafka.ssl.truststore.location, a file in PEM, and kafka.ssl.truststore.type: PEM"
_USER: Final = f"write {', '.join(_USER_MECHANISMS)} there, and username and password into kafka.sasl.jaas.config"
_INSTEAD: Final[Mapping[str, str]] = {
    "ssl.truststore.location": _PEM,
    "ssl.ca.location": _PEM,
    "sasl.mechanism": _USER,
    "sasl.mechanisms": "write kafka.sasl.mechanism",
    "sasl.username": "write kafka.sasl.jaas.config",
    "sasl.password": "write kafka.sasl.jaas.config",
}
"""What is followed here, for options of the Java client and for librdkafka's own names."""


class ClientSettings(Frozen):
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


def java_client_option(options: Mapping[str, str]) -> str | None:
    """The first option of Spark's Kafka source that only the Java client can follow; None where there is none."""
    untranslated = client_settings(options).untranslated
    if untranslated is not None:
        return untranslated
    given = [key.removeprefix(PREFIX) for key in options if key.startswith(PREFIX)]
    return next((f"{PREFIX}{key}" for key in given if key not in _TRANSLATED and not _PACE.fullmatch(key)), None)


def followed_instead(option: str) -> str:
    """What to do about an option that `java_client_option` has given."""
    return _INSTEAD.get(option.removeprefix(PREFIX).partition(" ")[0], "leave it out")


def _jaas(config: str, name: str) -> str | None:
    """A value of a JAAS line such as `… PlainLoginModule required username="u" password="p";`."""
    match = re.search(_JAAS_VALUE % name, config)
    if match is None:
        return None
    quoted = match[1] if match[1] is not None else match[2]
    return match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
