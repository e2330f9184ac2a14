"""The clients of object stores: one for each bucket and way to retry, made when it is first needed, not before.

Credentials of S3: keys that are given; `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; a profile of `~/.aws`;
else what the client finds itself and renews: a web identity, a container's, the machine's role.

A forked child of a process that has used a store would wait for threads that it does not have, for ever: it is refused.
Spark's Python daemon forks, so that nothing here runs at import. Source: obstore 0.12.1, tried.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from importlib.util import find_spec
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store, from_url

from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.io.file_io import Created
from freshet.storage.io.s3_options import S3Settings, s3_settings
from freshet.storage.options.secrets import shown_text, without_secrets

ObjectStore: TypeAlias = Any
"""A store of obstore, whose types are known to type checkers only."""

S3_SCHEMES: Final = ("s3", "s3a")

_TIMEOUT: Final = timedelta(seconds=60)
_CONNECT_TIMEOUT: Final = timedelta(seconds=10)
_RETRIES_MAX: Final = 12
_FIRST_RETRIES_MAX: Final = 5
"""Until the store has answered once: a wrong endpoint is reported within seconds."""

_RETRY_TIMEOUT: Final = timedelta(seconds=120)
_BACKOFF: Final = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=8), "base": 2}
_RENEW_S: Final = 1.0
"""Threads that come with the same expired token renew it once."""

Credentials: TypeAlias = Callable[[], dict[str, Any]]

_ASKED_AGAIN_S: Final = 60
"""How long credentials are used before boto3 is asked again; it answers at once while they are good."""

_FILES: Final = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}

_GOOGLE_PREFIXES: Final = ("fs.gs.", "gs.")
_AZURE_PREFIXES: Final = ("fs.azure.", "azure.")

_GOOGLE: Final = {
    "auth.service.account.json.keyfile": "service_account",
    "service.account.json.keyfile": "service_account",
}
_GOOGLE_AUTH: Final = "auth.type"
_GOOGLE_AUTHS: Final = ("SERVICE_ACCOUNT_JSON_KEYFILE", "APPLICATION_DEFAULT", "COMPUTE_ENGINE", "UNAUTHENTICATED")
_GOOGLE_IGNORED: Final = ("project.id", "impl")

_AZURE: Final = {
    "account.name": "account_name",
    "account.key": "account_key",
    "sas.token": "sas_token",
    "sas.fixed.token": "sas_token",
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
}
_AZURE_ENDPOINT: Final = "account.oauth2.client.endpoint"
_AZURE_IGNORED: Final = ("account.auth.type", "account.oauth.provider.type", "impl")
_OF_ACCOUNT: Final = re.compile(r"\.([a-z0-9]{3,24})\.(dfs|blob)\.core\.windows\.net$")
_TENANT: Final = re.compile(r"https://login\.[\w.]+/([^/]+)/")

PROBE_PREFIX: Final = ".freshet-probe-"

_KEPT: Final[set[tuple[str, str]]] = set()
"""Endpoints and buckets that have kept it, as seen by this process."""

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = threading.Lock()


class Retries(Enum):
    """How often the client repeats a request."""

    NONE = "none"
    USUAL = "usual"


class ObjectStores:
    """The clients for one set of options. May be shared by threads."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are those of the store, resolved; they are neither shown nor kept elsewhere."""
        self.options = dict(options)
        self._settings: S3Settings | None = None
        self._clients: dict[tuple[str, Retries, bool], ObjectStore] = {}
        self._answered: set[str] = set()
        self._without_bulk: set[str] = set()
        self._lock = threading.Lock()
        self._profile: Credentials | None = None
        self._finds = False
        self._renewed_s = 0.0

    def open(self, path: str, retries: Retries = Retries.USUAL) -> tuple[ObjectStore, str]:
        """The client of the bucket of a path, and the key."""
        _refuse_forked()
        place = place_of(path)
        key = (place, retries, retries is Retries.NONE or place in self._answered)
        client = self._clients.get(key)
        if client is None:
            with self._lock:
                client = self._clients.get(key) or self._clients.setdefault(key, self._new(place, retries))
        return client, path[len(place) :].strip("/")

    def has_answered(self, path: str) -> None:
        """The endpoint and the credentials are right: from now on requests are repeated for longer."""
        place = place_of(path)
        if place not in self._answered:
            self._answered.add(place)

    def answers(self, path: str) -> bool:
        """Whether some request to this bucket has succeeded."""
        return place_of(path) in self._answered

    def without_bulk_deletes(self, path: str) -> None:
        """From now on deletes key by key."""
        with self._lock:
            self._without_bulk.add(place_of(path))
            self._clients.clear()

    def renew(self, seen_at: float, *, is_expired: bool = True) -> bool:
        """Looks for credentials again after the store has refused those that were used at `seen_at`; False where they
        were given. A refusal without a reason makes a profile be read again, nothing else."""
        with self._lock:
            if self._profile is None and not (is_expired and self._finds):
                return False
            if seen_at > self._renewed_s or time.monotonic() > self._renewed_s + _RENEW_S:
                self._profile = None
                self._clients.clear()
                self._renewed_s = time.monotonic()
            return True

    def endpoint(self, path: str) -> str:
        """What answers for a path; for messages and to know a store again."""
        if urlsplit(path).scheme not in S3_SCHEMES:
            return place_of(path)
        return self._s3().endpoint or _environment_endpoint() or "AWS"

    def delete_marker(self, path: str) -> None:
        """Removes the object whose key is that of the path and a slash, as other clients make for an empty folder."""
        place = place_of(path)
        if urlsplit(place).scheme not in S3_SCHEMES:
            return
        below = self._new(place, Retries.USUAL, below=path[len(place) :].strip("/"))
        below.delete("")

    def _new(self, place: str, retries: Retries, below: str | None = None) -> ObjectStore:
        scheme = urlsplit(place).scheme
        count = _RETRIES_MAX if place in self._answered else _FIRST_RETRIES_MAX
        client: dict[str, Any] = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT, **_authority()}
        config: dict[str, Any] = {}
        given: dict[str, Any] = {}
        if scheme in S3_SCHEMES:
            settings = self._s3()
            config.update(settings.config)
            client.update(settings.client)
            if settings.endpoint is None:  # the client takes the variable, and asks for a second one where it is http:
                client.setdefault("allow_http", (_environment_endpoint() or "").startswith("http:"))
            count = count if settings.retries_max is None else settings.retries_max
            self._set_endpoint(settings, urlsplit(place).netloc, below, config, client)
            if place in self._without_bulk or below is not None:
                config["disable_bulk_delete"] = True
            credentials = self._credentials(settings)
            if credentials is not None:
                given["credential_provider"] = credentials
        elif scheme == "gs":
            config = google_config(self.options)
        else:
            config = azure_config(self.options)
        retry = {"max_retries": count, "backoff": _BACKOFF, "retry_timeout": _RETRY_TIMEOUT}
        if retries is Retries.NONE:
            retry["max_retries"] = 0
        try:
            return open_client(place, config=config, client_options=client, retry_config=retry, **given)
        except (BaseError, ValueError) as error:
            text = str(error).split("\n\nDebug source")[0]
            raise InvalidRequestError(f"{place} cannot be opened: {without_secrets(text, self.options)}") from None

    def _s3(self) -> S3Settings:
        if self._settings is None:
            self._settings = s3_settings(self.options)
        return self._settings

    def _set_endpoint(
        self, settings: S3Settings, bucket: str, below: str | None, config: dict[str, Any], client: dict[str, Any]
    ) -> None:
        endpoint = settings.endpoint
        if endpoint is None and (below is not None or settings.is_virtual_host):
            region = config.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
            endpoint = _environment_endpoint() or f"https://s3.{region or 'us-east-1'}.amazonaws.com"
        if endpoint is None:
            return
        if settings.is_virtual_host:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{bucket}.{host}"
        elif below is not None:
            endpoint = f"{endpoint.rstrip('/')}/{bucket}"
        if below is not None:
            endpoint = f"{endpoint}/{below}"
        config["virtual_hosted_style_request"] = settings.is_virtual_host or below is not None
        config["endpoint"] = config["aws_endpoint_url_s3"] = endpoint

    def _credentials(self, settings: S3Settings) -> Credentials | None:
        """None where the client finds them itself."""
        given = settings.credentials
        if given:
            found = {"token": None, **given, "expires_at": None}
            return lambda: dict(found)
        if settings.config.get("skip_signature") or not (settings.wants_profile or _is_profile_used(os.environ)):
            self._finds = not (settings.config.get("skip_signature") or os.environ.get("AWS_ACCESS_KEY_ID"))
            return None
        if self._profile is None:
            self._profile = _profile_credentials(os.environ)
        return self._profile


def _environment_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def open_client(place: str, **settings: Any) -> ObjectStore:
    """The client of `scheme://bucket`; tests of stores that are not run here replace it."""
    scheme, _, bucket = place.partition("://")
    return S3Store(bucket, **settings) if scheme in S3_SCHEMES else from_url(place, **settings)


def place_of(path: str) -> str:
    """`scheme://bucket` of a path; raises `InvalidRequestError` where it names none."""
    scheme, _, rest = path.partition("://")
    bucket = rest.partition("/")[0]
    if not bucket:
        raise InvalidRequestError(f"{shown_text(path)} names no bucket; write it as s3://bucket/folder", path=path)
    return f"{scheme}://{bucket}"


def _authority() -> dict[str, Any]:
    """The certificates of AWS_CA_BUNDLE; those of SSL_CERT_FILE the client finds itself."""
    name = os.environ.get("AWS_CA_BUNDLE")
    if not name:
        return {}
    try:
        with open(name, "rb") as file:
            return {"root_certificate": file.read()}
    except OSError as error:
        raise InvalidRequestError(f"AWS_CA_BUNDLE names {name}, which cannot be read: {error}") from error


_used_in: int | None = None
"""The process that has used a store first; its forked children must not."""


def _refuse_forked() -> None:
    global _used_in
    process = os.getpid()
    if _used_in is None:
        _used_in = process
    elif _used_in != process:
        raise InvalidRequestError(
            "an object store cannot be used in a process that was forked from one that has used it: its threads are "
            "missing here; start the process with the method spawn (multiprocessing.set_start_method)"
        )


def _is_profile_used(environment: Mapping[str, str]) -> bool:
    """The order of the clients of AWS: variables with keys come first, then a profile, then what a machine or pod has.

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


def _profile_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Credentials of a profile in `~/.aws`: its keys, the role that it takes, the program that it names; read now, None
    where there is no default one. `InvalidRequestError` for another.

    boto3 (the extra `s3`) reads it and renews what is about to expire. A program's credentials without an end are got
    anew when the store says that they have expired: by a new session.
    """
    name = environment.get("AWS_PROFILE")
    if find_spec("boto3") is None:
        raise InvalidRequestError(
            f"the profile {name or 'default'} of AWS is to be used, and boto3, which reads profiles, is missing: "
            "install freshet-lake[s3], or give s3.access-key and s3.secret-key"
        )
    from botocore import exceptions as _errors

    try:
        from boto3 import session as _boto3

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
            "expires_at": datetime.now(UTC) + timedelta(seconds=_ASKED_AGAIN_S),
        }

    return credentials


def google_config(options: Mapping[str, str]) -> dict[str, Any]:
    """The client's settings of options of Google Cloud Storage (here) and Azure (`azure_config`) as Paimon and Hadoop
    spell them; `InvalidRequestError` for one that is not known.

        gs.auth.service.account.json.keyfile                            gs:  also fs.gs.*
        azure.account.key.NAME.dfs.core.windows.net  azure.sas.token    az:, abfs:, abfss:  also fs.azure.*

    What is not given comes from the environment (`GOOGLE_*`, `AZURE_*`) and the machine's identity. These stores were
    never run here: only the code that they share with S3 was. Source: options of Hadoop's connectors.
    """
    config: dict[str, Any] = {}
    for key, text in options.items():
        name = _name(key, _GOOGLE_PREFIXES)
        if name in _GOOGLE:
            config[_GOOGLE[name]] = text
        elif name == _GOOGLE_AUTH:
            if text not in _GOOGLE_AUTHS:
                raise InvalidRequestError(f"option {key} is {text}; use one of {', '.join(_GOOGLE_AUTHS)}", option=key)
            if text == "UNAUTHENTICATED":
                config["skip_signature"] = True
        elif name not in _GOOGLE_IGNORED:
            raise _not_known(key, "gs.", [*_GOOGLE, _GOOGLE_AUTH])
    return config


def azure_config(options: Mapping[str, str]) -> dict[str, Any]:
    """The client's settings, as `google_config` has them. An option may end with the account's host, as Hadoop has
    them."""
    config: dict[str, Any] = {}
    for key, text in options.items():
        name = _name(key, _AZURE_PREFIXES)
        account = _OF_ACCOUNT.search(name)
        if account is not None:
            name = name[: account.start()]
            config.setdefault("account_name", account[1])
        tenant = _TENANT.match(text) if name == _AZURE_ENDPOINT else None
        if name in _AZURE:
            config[_AZURE[name]] = text
        elif tenant is not None:
            config["tenant_id"] = tenant[1]
        elif name not in _AZURE_IGNORED:
            raise _not_known(key, "azure.", [*_AZURE, _AZURE_ENDPOINT])
    return config


def _name(key: str, prefixes: tuple[str, ...]) -> str:
    return next(key.removeprefix(prefix) for prefix in prefixes if key.startswith(prefix))


def _not_known(key: str, prefix: str, names: list[str]) -> InvalidRequestError:
    known = ", ".join(f"{prefix}{name}" for name in names)
    return InvalidRequestError(f"option {key} is not known; leave it out, or use one of {known}", option=key)


def check_conditional_puts(
    endpoint: str, place: str, probe: str, create: Callable[[str], Created], delete: Callable[[str], object]
) -> None:
    """The check whether a store keeps the condition of a create: asked once by two creates of one key, before the first
    claim.

    A store that lets a key be created twice is refused; three requests for each bucket and process.

    A store that ignores it would let two writers win one snapshot, and lose the rows of one of them.
    """
    if (endpoint, place) in _KEPT:
        return
    with _LOCK:
        if (endpoint, place) in _KEPT:
            return
        first = create(probe)
        second = create(probe) if first is Created.WON else first
        try:
            delete(probe)
        except InvalidRequestError as error:
            _LOG.warning("the object that this store was tried with stays: %s", error)
        if first is not Created.WON or second is Created.UNKNOWN:
            raise RetryableError(
                f"{place} at {endpoint} does not say whether it has created {probe}; check the store, then try again",
                path=probe,
            )
        if second is Created.WON:
            raise InvalidRequestError(
                f"{place} at {endpoint} ignores the condition of a create (If-None-Match: *): {probe} was created "
                "twice, and so two writers could both win one snapshot; use a store or a version of it that keeps the "
                "condition",
                path=probe,
            )
        _KEPT.add((endpoint, place))
