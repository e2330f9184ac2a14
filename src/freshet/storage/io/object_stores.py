"""Clients of object stores, made from catalog options as Paimon and Hadoop spell them.

    s3.endpoint  s3.access-key  s3.secret-key  s3.session-token  s3.region  s3.path.style.access

The prefixes `s3a.` and `fs.s3a.` mean the same, as does a dot for a dash in `access.key`. What is not given comes from
the environment (`AWS_*`), the machine's role, a web identity. Source: Paimon's S3FileIO, which hands options to Hadoop.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import from_url

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.secrets import without_secrets

ObjectStore: TypeAlias = Any
"""Of obstore, whose types are known to type checkers only."""

_PREFIXES: Final = ("fs.s3a.", "s3a.", "s3.")
_KEYS: Final = {
    "endpoint": "endpoint",
    "access-key": "access_key_id",
    "secret-key": "secret_access_key",
    "session-token": "session_token",
    "region": "region",
    "endpoint-region": "region",
}
_PATH_STYLE: Final = "path-style-access"
_RETRIES_MAX: Final = 8
_TIMEOUT: Final = timedelta(seconds=30)


def open_object_store(place: str, options: Mapping[str, str], *, retries: bool) -> ObjectStore:
    """The client of `scheme://bucket`; without retries for a request that must be sent once."""
    is_s3 = urlsplit(place).scheme in ("s3", "s3a")
    config: Any = _s3_config(options) if is_s3 else {}  # a type of obstore for each kind of store
    endpoint = str(config.get("endpoint", ""))
    try:
        return from_url(
            place.replace("s3a://", "s3://", 1),
            config=config,
            client_options={"allow_http": endpoint.startswith("http:"), "timeout": _TIMEOUT},
            retry_config={"max_retries": _RETRIES_MAX if retries else 0},
        )
    except (BaseError, ValueError) as error:
        raise InvalidRequestError(f"{place} cannot be opened: {without_secrets(str(error), options)}") from error


def _s3_config(options: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for key, text in options.items():
        name = next(key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix)).replace(".", "-")
        if name == _PATH_STYLE:
            config["virtual_hosted_style_request"] = text.lower() != "true"
        elif name in _KEYS:
            config[_KEYS[name]] = text
        else:
            raise InvalidRequestError(f"option {key} is not known; leave it out", option=key)
    if "endpoint" in config:
        config.setdefault("region", "us-east-1")
    return config
