"""Rules for `schema_registry` of a source: the formats in Avro need it, and what its client takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from freshet.pipeline.config.model import SourceConfig, revealed
from freshet.pipeline.exceptions import KeyPath, Problem

_URL: Final = "url"
_NUMBERS: Final = (
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec",
)  # fmt: skip
_TEXTS: Final = (
    _URL, "basic.auth.user.info", "proxy",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_BEARER: Final = "bearer.auth."


def wrong_registry(source: SourceConfig, key_path: KeyPath) -> Iterator[Problem]:
    """What is wrong with the registry of a source of records."""
    key_path = (*key_path, "schema_registry")
    if not source.is_avro:
        if source.schema_registry is not None and source.format is not None:
            yield Problem(key_path, f"belongs to debezium-avro and avro, not to {source.format}")
        return
    if source.files is not None:
        yield Problem((*key_path[:-1], "format"), f"{source.format} is read from Kafka alone: files have lines of text")
    if source.schema_registry is None:
        yield Problem(key_path, f"is missing: the schemas of {source.format} are there; write {{url: http://…}}")
        return
    yield from _wrong_options(revealed(source.schema_registry), key_path)


def _wrong_options(options: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    if not options.get(_URL):
        yield Problem(key_path, "url is missing (http://host:port)")
    elif not all(each.strip().startswith(("http://", "https://")) for each in options[_URL].split(",")):
        yield Problem((*key_path, _URL), "is no address of a registry; write http://host:port or https://…")
    for key, text in options.items():
        if key not in (*_TEXTS, *_NUMBERS) and not key.startswith(_BEARER):
            close = difflib.get_close_matches(key, (*_TEXTS, *_NUMBERS), n=1, cutoff=0.6)
            known = f" (did you mean {close[0]!r}?)" if close else ""
            yield Problem((*key_path, key), f"unknown option of the schema registry's client{known}")
        elif key in _NUMBERS and not _is_number(text):
            yield Problem((*key_path, key), f"{text!r} is no number")


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
