"""Which options are secret, and how they are shown: those of tables, catalogs and sources, of Spark and of clients.

| option | shown |
|---|---|
| its key names a password, a secret, a token, credentials, a JAAS line or a key of that kind | `***` |
| its value has a password in it, as `scheme://user:password@host` or `?password=…` | `***` in its place |
| of a column or an index (`fields.password.stats-mode`), and every other | as it is |

The options of a table are read by all who read it, so a secret is no option: `kafka.sasl.password=env:KAFKA_PASSWORD`
names a variable that each process looks up. Its name begins with `KAFKA_`: a table says which servers are asked, and
must not have them told what else is in the environment of whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet.storage.exceptions import InvalidRequestError

HIDDEN: Final = "***"
_REFERENCE: Final = "env:"
_PREFIX: Final = "KAFKA_"
_STORED: Final = f"{_REFERENCE}{_PREFIX}"

_SECRET_KEY: Final = re.compile(
    r"passw(or)?d|passphrase|secret|jaas|(token|credential)(?!s?[._-](provider|enabled))|user[._-]?info|authorization|signature"
    r"|(access|account|private|api|sas|encryption|shared|ssl)[._-]?key(?!store)|\.key$",
    re.IGNORECASE,
)
_OF_COLUMNS: Final = ("fields.", "file-index.")
_IN_TEXT: Final = re.compile(
    r"(?P<before>//)[^/?#@\s:]*:[^/?#@\s]+(?=@)|(?P<oracle>\bjdbc:oracle:\w+:[^/@\s]+/)[^@\s]+(?=@)"
    r"|(?P<name>(password|passwd|pwd|secret|token|sslkey|signature)=)[^&;\s]+",
    re.IGNORECASE,
)


def is_secret_key(key: str) -> bool:
    """Whether the value of an option of this name is a secret."""
    return _SECRET_KEY.search(key) is not None and not key.startswith(_OF_COLUMNS)


def is_secret(key: str, text: str) -> bool:
    """Whether an option is a secret, or a text with one in it."""
    return is_secret_key(key) or shown_text(text) != text


def check_stored(options: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError` for an option that would be a secret in the schema file of a table."""
    for key, text in options.items():
        if is_secret(key, text) and not text.startswith(_STORED):
            raise InvalidRequestError(
                f"option {key} holds a secret, which all who read the table would see: put it into an environment "
                f"variable whose name begins with {_PREFIX} and give {key}={_STORED}NAME, or "
                "give the option whenever the table is opened",
                option=key,
            )


def resolved_option(key: str, text: str, environment: Mapping[str, str]) -> str:
    """The value of an option of a table, which may be that of a variable."""
    if not text.startswith(_REFERENCE):
        return text
    name = text.removeprefix(_REFERENCE)
    if not text.startswith(_STORED):
        raise InvalidRequestError(
            f"option {key}={text} of a table: variables that a table names begin with {_PREFIX}",
            option=key,
        )
    if name not in environment:
        raise InvalidRequestError(
            f"option {key} is taken from the environment variable {name}, which this process does not have; set it "
            "here too (Spark: spark.executorEnv.*, or on the machines), or give the option another value",
            option=key,
        )
    return environment[name]


def shown_option(key: str, text: str) -> str:
    """The value of an option, secrets hidden; the name of a variable is none."""
    return HIDDEN if is_secret_key(key) and not text.startswith(_STORED) else shown_text(text)


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options, secrets hidden."""
    return {key: shown_option(key, text) for key, text in options.items()}


def shown_text(text: str) -> str:
    """A location, a JDBC URI or a text with one, without the passwords in it."""
    return _IN_TEXT.sub(lambda found: f"{found['before'] or found['oracle'] or found['name']}{HIDDEN}", text)


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """What others wrote about these options, such as an error, secrets hidden."""
    secrets = sorted((text for key, text in options.items() if text and is_secret_key(key)), key=len, reverse=True)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return shown_text(text)
