"""Credentials of a profile in `~/.aws`: its keys, the role that it takes, the program that it names.

boto3 (the extra `s3`) reads it and renews what is about to expire. A program's credentials without an end are got anew
when the store says that they have expired: by a new session (`object_stores`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from freshet._lazy import LazyModule
from freshet.storage.exceptions import InvalidRequestError, RetryableError

if TYPE_CHECKING:
    import boto3.session as _boto3
    import botocore.exceptions as _errors
else:  # an extra, which takes 0.3 s to import
    _boto3 = LazyModule("boto3.session")
    _errors = LazyModule("botocore.exceptions")

Credentials: TypeAlias = Callable[[], dict[str, Any]]

ASKED_AGAIN_S: Final = 60
"""How long credentials are used before boto3 is asked again; it answers at once while they are good."""

_FILES: Final = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}


def is_profile_used(environment: Mapping[str, str]) -> bool:
    """As the clients of AWS: variables with keys come first, then a profile, then what a machine or pod has.

    Without `AWS_PROFILE` the default one is used where there is such a file and boto3."""
    if environment.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_SKIP_SIGNATURE"):
        return False
    if environment.get("AWS_PROFILE"):
        return True
    if find_spec("boto3") is None:
        return False
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):  # the client sends it by https: alone
        return environment.get("AWS_ENDPOINT_URL_STS", "").startswith("http:")
    return any(os.path.isfile(os.path.expanduser(environment.get(name, file))) for name, file in _FILES.items())


def profile_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Those of the profile, read now; None where there is no default one. `InvalidRequestError` for another."""
    name = environment.get("AWS_PROFILE")
    if find_spec("boto3") is None:
        raise InvalidRequestError(
            f"the profile {name or 'default'} of AWS is to be used, and boto3, which reads profiles, is missing: "
            "install freshet-lake[s3], or give s3.access-key and s3.secret-key"
        )
    try:
        found = _boto3.Session().get_credentials()
    except _errors.CredentialRetrievalError as error:  # a program that failed
        raise RetryableError(
            f"the profile {name or 'default'} of AWS gives no credentials: {error}; check ~/.aws/config, or try again"
        ) from error
    except _errors.BotoCoreError as error:
        raise InvalidRequestError(
            f"the profile {name or 'default'} of AWS cannot be used: {error}; check ~/.aws/config"
        ) from error
    if found is None:
        if name:
            raise InvalidRequestError(f"the profile {name} of AWS has no credentials; check ~/.aws/credentials")
        return None

    def credentials() -> dict[str, Any]:
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(seconds=ASKED_AGAIN_S),
        }

    return credentials
