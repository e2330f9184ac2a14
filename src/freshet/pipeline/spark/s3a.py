"""How Spark's own files at `s3a://` (checkpoints, files of sources) are reached with the options of the catalog.

Hadoop's S3A is a client of its own beside that of the tables. It gets the same store, for each bucket by itself
(`fs.s3a.bucket.NAME.…`); what the session sets for S3A already, for all buckets or this one, is left as it is.

| option of the catalog (also `s3a.`, `fs.s3a.`) | of S3A |
|---|---|
| `s3.endpoint`, else `AWS_ENDPOINT_URL` | `endpoint`, and `path.style.access` unless that is given |
| `s3.access-key`, `s3.secret-key`, `s3.session-token` | `access.key`, `secret.key`, `session.token` |
| none of these | credentials as AWS has them: environment, profile, web identity, role of the machine |
| `s3.region`, else `AWS_REGION`; else us-east-1 where there is an endpoint | `endpoint.region` |
| any other | the same |

A secret `env:NAME` stays a reference, which Hadoop resolves in each process. One that is written in full is set on the
driver's Hadoop configuration, after the session has started: it is among the settings of no application, and Spark
masks it (`spark.redaction.regex`) where it prints Hadoop's.

Source: Hadoop's S3A documentation; hadoop-aws 3.5.0, tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlparse

from pyspark.sql import SparkSession

SCHEME: Final = "s3a"

_PREFIXES: Final = ("fs.s3a.", "s3a.", "s3.")
_RENAMED: Final = {
    "access-key": "access.key",
    "secret-key": "secret.key",
    "session-token": "session.token",
    "region": "endpoint.region",
    "endpoint-region": "endpoint.region",
    "path-style-access": "path.style.access",
}
_CREDENTIALS: Final = ("access.key", "secret.key", "session.token")
_PROVIDER: Final = "aws.credentials.provider"
_AWS_CHAIN: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_TEMPORARY: Final = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_REFERENCE: Final = "env:"
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


def buckets(locations: Iterable[str]) -> list[str]:
    """The buckets of those locations that S3A reaches."""
    places = (urlparse(location) for location in locations)
    return list(dict.fromkeys(place.netloc for place in places if place.scheme == SCHEME and place.netloc))


def s3a_settings(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of S3A for a bucket, without their prefix."""
    found: dict[str, str] = {}
    for key, text in options.items():
        name = next((key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix)), None)
        if name is not None:
            name = _RENAMED.get(name, name)
            found[name] = f"${{env.{text.removeprefix(_REFERENCE)}}}" if text.startswith(_REFERENCE) else text
    _fill(found, "endpoint", _ENDPOINT_VARIABLES, environment)
    _fill(found, "endpoint.region", _REGION_VARIABLES, environment)
    if "endpoint" in found:
        found.setdefault("path.style.access", "true")
        found.setdefault("endpoint.region", "us-east-1")
    if not any(name in found for name in _CREDENTIALS):
        found.setdefault(_PROVIDER, _AWS_CHAIN)
    elif "session.token" in found:
        found.setdefault(_PROVIDER, _TEMPORARY)
    return found


def use_store(spark: SparkSession, names: Iterable[str], settings: Mapping[str, str]) -> None:
    """Sets what S3A reaches these buckets with, as far as the session does not say it."""
    context: Any = spark.sparkContext
    configuration, given = context._jsc.hadoopConfiguration(), context.getConf()
    for bucket in names:
        for name, text in settings.items():
            key = f"fs.s3a.bucket.{bucket}.{name}"
            if not any(given.contains(f"spark.hadoop.{each}") for each in (key, f"fs.s3a.{name}")):
                configuration.set(key, text)


def _fill(found: dict[str, str], name: str, variables: Iterable[str], environment: Mapping[str, str]) -> None:
    value = next((environment[each] for each in variables if environment.get(each)), None)
    if value is not None:
        found.setdefault(name, value)
