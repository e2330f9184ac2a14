"""What an `Env` is made from, as texts: how a table's files and its catalog are reached, from any process.

    EnvSettings.of({"s3.endpoint": "http://store:9000", "s3.secret-key": "env:LAKE_SECRET"}, scratch_root="/fast")

Keys are Paimon's catalog options (`s3.endpoint`, `metastore`, `uri`, `jdbc.user`, …). Instead of a value there may be a
reference, which the process that makes the `Env` looks up:

| reference | is |
|---|---|
| `env:NAME` | an environment variable |
| `env:NAME#KEY` | the text of KEY in an environment variable that holds a JSON object |
| `catalogs:NAME#KEY` | an option of a catalog that has a name (`catalogs_file`) |

A secret travels as a reference, or not at all: one that was given as it is serves the process that was given it.

The scratch root travels as it is: a path that was given once is meant for every machine, and is made where it is
missing, as the root of lookup stores is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.catalogs_file import CATALOG_PREFIX, read_catalogs
from freshet.storage.options.secrets import is_secret, shown_option
from freshet.storage.options.values import option_text

REFERENCE: Final = "env:"
CATALOG_REFERENCE: Final = "catalogs:"
_MEMBER: Final = "#"


@dataclass(frozen=True, slots=True, repr=False)
class EnvSettings:
    """Catalog options as sorted pairs of texts, and the folder for scratch files; None is the machine's own."""

    catalog: tuple[tuple[str, str], ...] = ()
    scratch_root: str | None = None

    @classmethod
    def of(cls, catalog: Mapping[str, str], scratch_root: str | None = None) -> EnvSettings:
        """The settings with these catalog options."""
        return cls(tuple(sorted(catalog.items())), scratch_root)

    def __repr__(self) -> str:
        return f"EnvSettings({shown_settings(dict(self.catalog))}, scratch_root={self.scratch_root!r})"

    def resolved(self, keys: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
        """The options among these keys, with the values of what they refer to; they are not to be shown or kept."""
        return {key: _value(key, text, environment) for key, text in self.catalog if is_among(key, keys)}

    def check_travels(self) -> None:
        """Raises `InvalidRequestError` for a secret that is written here in full."""
        check_no_secrets(dict(self.catalog))


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError` for an option that other processes cannot be sent."""
    for key, text in options.items():
        if holds_secret(key, text):
            raise InvalidRequestError(f"option {key} {WHY_NOT_SENT.format(key=key)}", option=key)


def holds_secret(key: str, text: str) -> bool:
    """Whether an option has a secret in it that is written in full."""
    return is_secret(key, text) and not is_reference(text)


WHY_NOT_SENT: Final = (
    "holds a secret, which is not sent to other processes: put it into an environment variable that every process has, "
    f"and give {{key}}={REFERENCE}NAME with the name of that variable"
)


def shown_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The options, secrets hidden; a reference to a secret is none."""
    return {key: text if is_reference(text) else shown_option(key, text) for key, text in options.items()}


def is_reference(text: str) -> bool:
    """Whether a value says where each process finds the value."""
    return text.startswith((REFERENCE, CATALOG_REFERENCE))


def is_member_reference(text: str) -> bool:
    """Whether a value is a reference to a part of something, as Freshet alone has them."""
    return is_reference(text) and _MEMBER in text


def variable_reference(variable: str, key: str | None = None) -> str:
    """A reference to a variable, or to a text in the JSON object that it holds."""
    return f"{REFERENCE}{variable}" if key is None else f"{REFERENCE}{variable}{_MEMBER}{key}"


def catalog_reference(name: str, key: str) -> str:
    """A reference to an option of a catalog that has a name."""
    return f"{CATALOG_REFERENCE}{name}{_MEMBER}{key}"


def variable_options(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The options in a variable that holds a JSON object; none where it is not set, or empty. No message shows a
    value."""
    text = environment.get(name, "")
    if not text.strip():
        return {}
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "no JSON"
        raise InvalidRequestError(_not_an_object(name, reason), option=name) from None
    if not isinstance(found, dict):
        raise InvalidRequestError(_not_an_object(name, f"it holds {_shape(found)}"), option=name)
    for key, value in found.items():
        if not isinstance(value, str | int | float):
            raise InvalidRequestError(_not_an_object(name, f"{key} has {_shape(value)} as its value"), option=name)
    return {key: option_text(value) for key, value in found.items()}


def _not_an_object(name: str, reason: str) -> str:
    return (
        f"the environment variable {name} is a JSON object of options and their texts, such as "
        f'{{"s3.endpoint": "https://…"}}; {reason}'
    )


def _shape(value: Any) -> str:
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), "a single value")


def is_among(key: str, keys: Sequence[str]) -> bool:
    """Whether an option is one of those that a store or a catalog takes; `s3.*` are all that begin so."""
    return any(key.startswith(each[:-1]) if each.endswith("*") else key == each for each in keys)


def _value(key: str, text: str, environment: Mapping[str, str]) -> str:
    if text.startswith(CATALOG_REFERENCE):
        name, _, option = text.removeprefix(CATALOG_REFERENCE).partition(_MEMBER)
        catalog = read_catalogs(environment).find(name)
        found = None if catalog is None else catalog.options.get(option)
        wanted = f"the catalog {name} with {option} in it, which this process does not know; give it the file, or its "
        remedy = f"variables {CATALOG_PREFIX}…"
    elif text.startswith(REFERENCE):
        name, _, member = text.removeprefix(REFERENCE).partition(_MEMBER)
        found = variable_options(name, environment).get(member) if member else environment.get(name)
        lacks = f"{name} with {member} in it" if member else name
        wanted = f"the environment variable {lacks}, which this process does not have; set it here too "
        remedy = "(Spark: spark.executorEnv.*, or on the machines), or give the option another value"
    else:
        return text
    if found is None:
        raise InvalidRequestError(f"option {key} is taken from {wanted}{remedy}", option=key)
    return found
