"""Options of Google Cloud Storage and Azure as Paimon and Hadoop spell them, of which the client gets what it knows.

    gs.auth.service.account.json.keyfile                            gs:  also fs.gs.*
    azure.account.key.NAME.dfs.core.windows.net  azure.sas.token    az:, abfs:, abfss:  also fs.azure.*

What is not given comes from the environment (`GOOGLE_*`, `AZURE_*`) and the machine's identity. These stores were never
run here: only the code that they share with S3 was. Source: options of Hadoop's connectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from freshet.storage.exceptions import InvalidRequestError

GOOGLE_PREFIXES: Final = ("fs.gs.", "gs.")
AZURE_PREFIXES: Final = ("fs.azure.", "azure.")

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


def google_config(options: Mapping[str, str]) -> dict[str, Any]:
    """The client's settings of these options; `InvalidRequestError` for one that is not known."""
    config: dict[str, Any] = {}
    for key, text in options.items():
        name = _name(key, GOOGLE_PREFIXES)
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
    """As `google_config`. An option may end with the account's host, as Hadoop has them."""
    config: dict[str, Any] = {}
    for key, text in options.items():
        name = _name(key, AZURE_PREFIXES)
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
