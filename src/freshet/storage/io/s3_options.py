"""Options of S3 as Paimon and Hadoop spell them, and the settings of the client that they become.

    s3.endpoint  s3.region  s3.access-key  s3.secret-key  s3.session.token  s3.path.style.access

The prefixes `s3a.` and `fs.s3a.` mean the same, and so do a dot and a dash. What is not given comes from the
environment (`AWS_*`), a profile, a web identity, the machine's role. An option that is not known is refused: one that a
user counts on must not be passed over. Those of Hadoop that only tune its own client are taken and mean nothing.

Source: Paimon's S3FileIO, which hands its options to Hadoop's S3A; names of Hadoop 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from freshet.storage.exceptions import InvalidRequestError

PREFIXES: Final = ("fs.s3a.", "s3a.", "s3.")

_TEXTS: Final = {"endpoint-region": "region", "region": "region"}
_TIMES: Final = {
    "connection-establish-timeout": "connect_timeout",
    "connection-timeout": "read_timeout",
    "connection-request-timeout": "timeout",
    "connection-idle-time": "pool_idle_timeout",
}
_CREDENTIALS: Final = {
    "access-key": "access_key_id",
    "secret-key": "secret_access_key",
    "session-token": "token",
}
_ENCRYPTIONS: Final = {
    "AES256": "AES256",
    "SSE-S3": "AES256",
    "SSE-KMS": "aws:kms",
    "DSSE-KMS": "aws:kms:dsse",
    "SSE-C": "sse-c",
}
_RENAMED: Final = {
    "server-side-encryption-algorithm": "encryption-algorithm",
    "server-side-encryption-key": "encryption-key",
    "retry-limit": "attempts-maximum",
}
_OTHERS: Final = (
    "endpoint",
    "path-style-access",
    "connection-ssl-enabled",
    "connection-maximum",
    "attempts-maximum",
    "aws-credentials-provider",
    "encryption-algorithm",
    "encryption-key",
    "requester-pays-enabled",
    "multiobjectdelete-enable",
    "proxy-host",
    "proxy-port",
    "proxy-username",
    "proxy-password",
    "user-agent-prefix",
)
_OF_HADOOP: Final = re.compile(
    r"impl|buffer-dir|block-size|fast-upload.*|threads-.*|max-total-tasks|readahead-range|multipart-.*|socket-.*"
    r"|committer-.*|change-detection-.*|experimental-.*|input-.*|vectored-.*|list-version|paging-maximum"
    r"|directory-marker-retention|retry-(interval|throttle-.*)|attempts-.*|executor-capacity|security-.*|audit-.*"
)
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_REGION_OF: Final = re.compile(r"\bs3[.-](?:dualstack\.)?([a-z]{2,}(?:-[a-z]+)+-\d)\.amazonaws\.com")

_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_GIVEN_KEYS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_PROFILE: Final = "ProfileCredentialsProvider"
_FOUND: Final = (
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "EnvironmentVariableCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
)
"""All of these are tried where no keys are given."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Settings of the client; `credentials` are those given, none where they have to be found. Not to be shown."""

    config: Mapping[str, Any] = field(repr=False)
    client: Mapping[str, Any] = field(repr=False)
    credentials: Mapping[str, str] = field(repr=False)
    endpoint: str | None = None
    is_virtual_host: bool = False
    retries_max: int | None = None
    wants_profile: bool = False


def s3_settings(options: Mapping[str, str]) -> S3Settings:
    """The settings of these options. Raises `InvalidRequestError` for one that is not known, or has a wrong value."""
    given: dict[str, tuple[str, str]] = {}
    for key, text in options.items():
        name = _name(key)
        if name in given and given[name][1] != text:
            raise InvalidRequestError(f"options {given[name][0]} and {key} mean the same; leave one out", option=key)
        given[name] = (key, text)
    texts = {name: text for name, (_, text) in given.items()}
    config: dict[str, Any] = {target: texts[name] for name, target in _TEXTS.items() if name in texts}
    client: dict[str, Any] = {target: _time(*given[name]) for name, target in _TIMES.items() if name in given}
    credentials = {target: texts[name] for name, target in _CREDENTIALS.items() if name in texts}
    if len({"access_key_id", "secret_access_key"} & {*credentials}) == 1 or [*credentials] == ["token"]:
        raise InvalidRequestError(
            "s3.access-key and s3.secret-key belong together: give both, or none and let them be found"
        )
    wants_profile = _use_providers(given.get("aws-credentials-provider"), config, credentials)
    endpoint = _endpoint(texts, given)
    if endpoint is not None:
        found = _REGION_OF.search(endpoint)
        config.setdefault("region", found[1] if found else "us-east-1")
        client["allow_http"] = endpoint.startswith("http:")
    _add_encryption(given, config)
    _add_client(given, config, client)
    return S3Settings(
        config,
        client,
        credentials,
        endpoint,
        is_virtual_host="path-style-access" in given and not _flag(*given["path-style-access"]),
        retries_max=max(0, _number(*given["attempts-maximum"])) if "attempts-maximum" in given else None,
        wants_profile=wants_profile,
    )


def _name(key: str) -> str:
    name = next(key.removeprefix(prefix) for prefix in PREFIXES if key.startswith(prefix)).replace(".", "-")
    name = _RENAMED.get(name, name)
    if name in {*_TEXTS, *_TIMES, *_CREDENTIALS, *_OTHERS} or _OF_HADOOP.fullmatch(name):
        return name
    if name == "ssl-ca-bundle" or "assumed-role" in name:
        remedy = "set AWS_CA_BUNDLE" if name == "ssl-ca-bundle" else "name the role in a profile and set AWS_PROFILE"
        raise InvalidRequestError(f"option {key} is not supported; {remedy}", option=key)
    known = ", ".join(sorted(f"s3.{name.replace('-', '.')}" for name in {*_TEXTS, *_TIMES, *_CREDENTIALS, *_OTHERS}))
    raise InvalidRequestError(f"option {key} is not known; leave it out, or use one of {known}", option=key)


def _endpoint(texts: Mapping[str, str], given: Mapping[str, tuple[str, str]]) -> str | None:
    """With its scheme; Hadoop allows it without one."""
    endpoint = texts.get("endpoint", "").rstrip("/")
    if not endpoint:
        return None
    if "@" in endpoint:
        raise InvalidRequestError(
            f"option {given['endpoint'][0]}: credentials do not belong into an endpoint, which is shown; give "
            "s3.access-key and s3.secret-key, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            option=given["endpoint"][0],
        )
    if "://" in endpoint:
        return endpoint
    is_tls = "connection-ssl-enabled" not in given or _flag(*given["connection-ssl-enabled"])
    return f"{'https' if is_tls else 'http'}://{endpoint}"


def _use_providers(given: tuple[str, str] | None, config: dict[str, Any], credentials: Mapping[str, str]) -> bool:
    """What Hadoop's names of credential providers mean here; True where a profile has to be read."""
    if given is None:
        return False
    key, text = given
    names = [name.strip().rpartition(".")[2] for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (_ANONYMOUS, _PROFILE, *_GIVEN_KEYS, *_FOUND):
            raise InvalidRequestError(
                f"option {key}: {name} is a class of Java that cannot be run here; leave the option out, and give "
                "keys, AWS_* variables, a profile (which may name a role or a program), or a web identity",
                option=key,
            )
    if names and not credentials and {*names} <= {*_GIVEN_KEYS}:
        raise InvalidRequestError(f"option {key} asks for s3.access-key and s3.secret-key; give them", option=key)
    if _ANONYMOUS in names and not credentials and {*names} <= {_ANONYMOUS, *_GIVEN_KEYS}:
        config["skip_signature"] = True
    return _PROFILE in names and not credentials


def _add_encryption(given: Mapping[str, tuple[str, str]], config: dict[str, Any]) -> None:
    if "encryption-algorithm" not in given:
        if "encryption-key" in given:
            raise InvalidRequestError(
                f"option {given['encryption-key'][0]} needs s3.encryption.algorithm too",
                option=given["encryption-key"][0],
            )
        return
    key, text = given["encryption-algorithm"]
    if text.upper() not in _ENCRYPTIONS:
        raise InvalidRequestError(f"option {key} is {text}; use one of {', '.join(_ENCRYPTIONS)}", option=key)
    config["server_side_encryption"] = _ENCRYPTIONS[text.upper()]
    if "encryption-key" in given:
        is_customer = text.upper() == "SSE-C"
        config["sse_customer_key_base64" if is_customer else "sse_kms_key_id"] = given["encryption-key"][1]


def _add_client(given: Mapping[str, tuple[str, str]], config: dict[str, Any], client: dict[str, Any]) -> None:
    if "requester-pays-enabled" in given:
        config["request_payer"] = _flag(*given["requester-pays-enabled"])
    if "multiobjectdelete-enable" in given:
        config["disable_bulk_delete"] = not _flag(*given["multiobjectdelete-enable"])
    if "connection-maximum" in given:
        client["pool_max_idle_per_host"] = str(_number(*given["connection-maximum"]))
    if "user-agent-prefix" in given:
        client["user_agent"] = given["user-agent-prefix"][1]
    if "proxy-host" in given:
        texts = {name: text for name, (_, text) in given.items() if name.startswith("proxy-")}
        user = quote(texts.get("proxy-username", ""), safe="")
        password = quote(texts.get("proxy-password", ""), safe="")
        before = f"{user}:{password}@" if user else ""
        client["proxy_url"] = f"http://{before}{texts['proxy-host']}:{texts.get('proxy-port', '80')}"


def _time(key: str, text: str) -> timedelta:
    """A number of milliseconds, or with a unit."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidRequestError(f"option {key} is {text}; give milliseconds, or a time as 30s", option=key)
    return timedelta(seconds=int(found[1]) * _SECONDS[(found[2] or "ms").lower()])


def _number(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {key} is {text}; give a whole number", option=key) from error


def _flag(key: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidRequestError(f"option {key} is {text}; give true or false", option=key)
    return text.strip().lower() == "true"
