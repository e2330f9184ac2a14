"""What an `Env` is made from, as texts: how a table's files and its catalog are reached, from any process.

    EnvSettings.of({"s3.endpoint": "http://store:9000", "s3.secret-key": "env:LAKE_SECRET"}, scratch_root="/fast")

Keys are Paimon's catalog options (`s3.endpoint`, `metastore`, `uri`, `jdbc.user`, …). The value `env:NAME` stands for
the environment variable NAME of the process that makes the `Env`. A secret travels as such a reference, or not at all:
one that was given as it is serves the process that was given it.

The scratch root travels as it is: a path that was given once is meant for every machine, and is made where it is
missing, as the root of lookup stores is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.secrets import is_secret, shown_option

REFERENCE: Final = "env:"


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
        shown = {key: text if text.startswith(REFERENCE) else shown_option(key, text) for key, text in self.catalog}
        return f"EnvSettings({shown}, scratch_root={self.scratch_root!r})"

    def resolved(self, keys: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
        """The options among these keys, with the values of what they refer to; they are not to be shown or kept."""
        return {key: _value(key, text, environment) for key, text in self.catalog if is_among(key, keys)}

    def check_travels(self) -> None:
        """Raises `InvalidRequestError` for a secret that is written here in full."""
        for key, text in self.catalog:
            if is_secret(key, text) and not text.startswith(REFERENCE):
                raise InvalidRequestError(
                    f"option {key} holds a secret, which is not sent to other processes: put it into an environment "
                    f"variable that every process has, and give {key}={REFERENCE}NAME with the name of that variable",
                    option=key,
                )


def is_among(key: str, keys: Sequence[str]) -> bool:
    """Whether an option is one of those that a store or a catalog takes; `s3.*` are all that begin so."""
    return any(key.startswith(each[:-1]) if each.endswith("*") else key == each for each in keys)


def _value(key: str, text: str, environment: Mapping[str, str]) -> str:
    if not text.startswith(REFERENCE):
        return text
    name = text.removeprefix(REFERENCE)
    if name not in environment:
        raise InvalidRequestError(
            f"option {key} is taken from the environment variable {name}, which this process does not have; set it "
            "here too (Spark: spark.executorEnv.*, or on the machines), or give the option another value",
            option=key,
        )
    return environment[name]
