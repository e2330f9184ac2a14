"""The options of a table about its topic and its clients, as far as they can be checked without asking the brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet.logstore.protocol.control import CONTROL_SUFFIX
from freshet.logstore.protocol.topic_owner import TOPIC_OPTION
from freshet.storage.exceptions import InvalidRequestError

TOPIC_CHARACTERS_MAX: Final = 249 - len(CONTROL_SUFFIX)
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka.acks": ("all", "-1"),
    "kafka.request.required.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
}
"""What a log relies on: the only values that may be given."""

_RUNS_CODE: Final = frozenset({
    "kafka.plugin.library.paths", "kafka.ssl.engine.location", "kafka.ssl.engine.id", "kafka.ssl.providers",
    "kafka.sasl.kerberos.kinit.cmd",
})  # fmt: skip
"""What loads libraries into the process, or is a command."""
_IN_A_COMMAND: Final = "kafka.sasl.kerberos."
_HARMLESS: Final = re.compile(r"[\w.@/:-]*")
"""What may stand in the command by which librdkafka asks for a Kerberos ticket."""


def check_topic_options(given: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError`, naming the option, where there can be no log with these."""
    topic = given.get(TOPIC_OPTION, "").strip()
    if not topic:
        raise InvalidRequestError(f"log.system=kafka needs the option {TOPIC_OPTION}", option=TOPIC_OPTION)
    if not _TOPIC.fullmatch(topic) or len(topic) > TOPIC_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"{TOPIC_OPTION}={topic}: a topic has letters, digits, '.', '_' and '-', {TOPIC_CHARACTERS_MAX} of them at "
            f"most (the control topic adds {CONTROL_SUFFIX})",
            option=TOPIC_OPTION,
        )
    check_runs_no_code(given)
    for key, allowed in _ALLOWED.items():
        value = given.get(key, "").strip().lower()
        if value and value not in allowed:
            raise InvalidRequestError(
                f"{key}={value}: a log that loses what was acknowledged is no log; leave the option out, it is "
                f"{allowed[0]}",
                option=key,
            )


def check_runs_no_code(given: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError` for an option by which a table would run code in each process that opens its log."""
    for key, value in given.items():
        if key in _RUNS_CODE or (key.startswith(_IN_A_COMMAND) and not _HARMLESS.fullmatch(value)):
            raise InvalidRequestError(
                f"{key} is refused: by it a table would run code in every process that opens its log; take it away",
                option=key,
            )
